"""Many processes and machines: the same result as one process, whoever dies on the way."""

import logging
import os
import pickle
import signal
import tempfile
from contextlib import contextmanager
from functools import partial

import joblib
import numpy as np
import pytest

import spadeful as sp
from spadeful import engine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs the signals of POSIX"),
]

PROBLEM, BATCH, BATCHES = sp.Partial(mass=0.5), 200, 2500
calls = 0


@pytest.fixture(autouse=True)
def limit():
    """No test hangs, whatever it waits for."""

    def give_up(*_):
        raise TimeoutError("the test has waited for too long")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def deadly_cost(x, y, folder=None, deaths=0, at=50):
    """Squared distances on a line. Of the workers that count up to `at`, the first `deaths` are killed."""
    global calls
    calls += 1
    if calls % at == 0:
        for death in range(deaths):
            try:
                (folder / str(death)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
    return (x[:, :1] - y[:, 0].astype(np.float64)) ** 2


def run(clouds, cost=deadly_cost, **settings):
    return sp.minibatch(*clouds, PROBLEM, BATCH, BATCHES, cost=cost, **settings)


def assert_same(result, wanted):
    """Bitwise."""
    np.testing.assert_array_equal(result.values, wanted.values)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(result.plan, part), getattr(wanted.plan, part))


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    return tuple(rng.normal(shift, size=(20_000, 4)).astype(np.float32) for shift in (0, 1))


@pytest.fixture(scope="module")
def mapped(clouds, tmp_path_factory):
    files = [tmp_path_factory.mktemp("clouds") / f"{name}.npy" for name in "xy"]
    for file, points in zip(files, clouds, strict=True):
        np.save(file, points)
    return tuple(np.load(file, mmap_mode="r") for file in files)


@pytest.fixture(scope="module")
def wanted(clouds):
    return run(clouds)


@contextmanager
def cluster():
    """Two workers, each a process with one thread."""
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'spadeful[scale]'")
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}  # any free port
    with (
        distributed.LocalCluster(**settings, silence_logs=logging.CRITICAL) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def lasting_cluster():
    with cluster() as client:
        yield client


@pytest.fixture
def dask(lasting_cluster):
    with joblib.parallel_config(backend="dask", client=lasting_cluster):
        yield


@pytest.mark.parametrize("points", ["clouds", "mapped"])
def test_dask_gives_what_one_process_gives(points, wanted, dask, request):
    assert_same(run(request.getfixturevalue(points)), wanted)


@pytest.mark.parametrize(("points", "deaths"), [("mapped", 1), ("clouds", 1), ("clouds", 2)])
def test_dask_workers_that_are_killed_lose_nothing(points, deaths, wanted, tmp_path, request):
    """With both workers dies whatever the cluster was sent."""
    cost = partial(deadly_cost, folder=tmp_path, deaths=deaths)
    with cluster() as client, joblib.parallel_config(backend="dask", client=client):
        assert_same(run(request.getfixturevalue(points), cost), wanted)
    assert len(list(tmp_path.iterdir())) == deaths


def test_dask_draws_from_classes(clouds, dask):
    labels = (clouds[0][:, 1] > 0, clouds[1][:, 1] > 1)
    settings = {"problem": PROBLEM, "batch_size": 20, "n_batches": 20_000, "labels": labels}
    result = sp.minibatch(*clouds, **settings)
    with joblib.parallel_config(backend="loky", n_jobs=1):
        assert_same(result, sp.minibatch(*clouds, **settings))


def test_processes_that_are_killed_lose_nothing(clouds, wanted, tmp_path):
    assert_same(run(clouds, partial(deadly_cost, folder=tmp_path, deaths=1), n_jobs=2), wanted)
    assert len(list(tmp_path.iterdir())) == 1


def test_workers_that_always_die_end_the_run(clouds, tmp_path):
    with pytest.raises(engine.BrokenProcessPool):
        run(clouds, partial(deadly_cost, folder=tmp_path, deaths=1000, at=1), n_jobs=2)
    assert len(list(tmp_path.iterdir())) > engine.ATTEMPTS


def process_cost(x, y, folder):
    (folder / str(os.getpid())).touch()
    return deadly_cost(x, y)


def test_the_users_configuration_is_honoured(clouds, wanted, tmp_path):
    with joblib.parallel_config(n_jobs=2):
        assert_same(run(clouds, partial(process_cost, folder=tmp_path)), wanted)
    assert {file.name for file in tmp_path.iterdir()}.isdisjoint({str(os.getpid())})


@pytest.fixture
def ray(monkeypatch):
    library = pytest.importorskip("ray", reason="needs Ray: pip install ray")
    from ray.util.joblib import register_ray

    register_ray()
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))  # where its workers find the costs of this file
    library.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with joblib.parallel_config(backend="ray", n_jobs=2):
        yield
    library.shutdown()


def test_ray_gives_what_one_process_gives(mapped, wanted, ray):
    assert_same(run(mapped), wanted)


def test_ray_workers_that_are_killed_lose_nothing(mapped, wanted, tmp_path, ray):
    assert_same(run(mapped, partial(deadly_cost, folder=tmp_path, deaths=1)), wanted)
    assert len(list(tmp_path.iterdir())) == 1


def sent(clouds, monkeypatch):
    """The tasks as workers would get them."""
    tasks = []

    def in_order(calls, jobs, n_jobs):
        tasks.extend(pickle.dumps(call) for call in calls)
        return (engine.run_job(*call) for call in calls)

    monkeypatch.setattr(engine, "in_order", in_order)
    run(clouds, n_jobs=2)
    return tasks


def views(points, file):
    """Memory-mapped arrays in several layouts, each with the same points."""
    wide = np.zeros((2 * len(points), points.shape[1] + 1), points.dtype)
    wide[::2, 1:] = points
    layouts = {"plain": points, "columns": np.asfortranarray(points), "part": wide, "reversed": points[::-1]}
    for name, values in layouts.items():
        np.save(file.with_name(name), values)
    opened = {name: np.load(file.with_name(f"{name}.npy"), mmap_mode="r") for name in layouts}
    opened["part"] = opened["part"][::2, 1:]
    opened["reversed"] = opened["reversed"][::-1]
    with file.open("wb") as raw:
        raw.write(b"a header" + points.tobytes())
    opened["raw"] = np.memmap(file, points.dtype, "r+", offset=8, shape=points.shape)
    return opened


def test_memory_mapped_points_are_not_sent(mapped, wanted, monkeypatch):
    tasks = sent(mapped, monkeypatch)
    pairs = 2 * 8 * BATCHES / len(tasks)
    assert max(map(len, tasks)) < pairs + 4000
    assert len(pickle.dumps(pickle.loads(tasks[0])[0])) < 2000
    parts = [engine.run_job(*pickle.loads(task)) for task in tasks[:1]]
    np.testing.assert_array_equal(parts[0].values, wanted.values[: len(parts[0].values)])


def test_any_layout_of_a_file_is_opened_again(clouds, tmp_path):
    for name, points in views(clouds[0], tmp_path / "points.raw").items():
        for array in (points, np.asarray(points)):
            reference = engine.to_send(array)
            assert isinstance(reference, engine.Mapped), name
            again = pickle.loads(pickle.dumps(reference)).open()
            np.testing.assert_array_equal(again, clouds[0], err_msg=name)
            assert again.strides == points.strides


def test_what_only_memory_holds_is_sent(clouds, tmp_path):
    """Points in memory, changes that no file knows, and files that are gone."""
    assert engine.to_send(clouds[0]) is clouds[0]
    np.save(tmp_path / "points.npy", clouds[0])
    changed = np.load(tmp_path / "points.npy", mmap_mode="c")
    changed[0] = 7
    copy = engine.to_send(changed)
    assert isinstance(copy, np.ndarray)
    assert not isinstance(copy, np.memmap)
    assert (copy[0] == 7).all()
    gone = np.load(tmp_path / "points.npy", mmap_mode="r")
    (tmp_path / "points.npy").unlink()
    with tempfile.TemporaryFile() as file:
        nameless = np.memmap(file, gone.dtype, shape=gone.shape)
    nameless[:] = gone
    for points in (gone, nameless):  # which other processes could not open
        sent = engine.to_send(points)
        assert type(sent) is np.ndarray
        np.testing.assert_array_equal(sent, clouds[0])


def test_a_file_that_was_written_anew_is_mapped_anew(tmp_path):
    """Workers keep the map of a file from task to task, but not that of another file of the same name."""
    path = tmp_path / "x.npy"
    for value in (1.0, 2.0):
        np.save(tmp_path / "new.npy", np.full((3, 2), value))
        (tmp_path / "new.npy").replace(path)
        sent = engine.to_send(np.load(path, mmap_mode="r"))
        assert np.array_equal(sent.open(), np.full((3, 2), value))
        assert sent.open().base is sent.open().base
