"""The command `spadeful plan`: the same as `minibatch`, from files to files, through refusals and interruptions."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp
from spadeful.cli import app

BATCHES = ["--batch-size", "16", "--n-batches", "20"]
PARTIAL = ["--problem", "partial", "--mass", "0.75"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with points in it, in which commands run."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.normal(size=(120, 3)))
    np.save("y.npy", rng.normal(size=(90, 3)) + 1)
    return tmp_path


def plan(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def done(*arguments):
    result = plan(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """The one line with which a command is refused."""
    before = sorted(os.listdir())
    result = plan(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert sorted(os.listdir()) == before
    return result.stderr


def assert_same(path, other):
    """Two files hold the same arrays, bit by bit."""
    with np.load(path) as ours, np.load(other) as theirs:
        assert ours.files == theirs.files
        for name in ours.files:
            assert ours[name].dtype == theirs[name].dtype
            assert ours[name].tobytes() == theirs[name].tobytes(), name


def written_by_python(x, y, *arguments, **options):
    sp.minibatch(x, y, *arguments, **options).save("python.npz", force=True)
    return "python.npz"


def save_as(name, points):
    suffix = name.partition(":")[0].rpartition(".")[2]
    if suffix == "npy":
        np.save(name, points)
    elif suffix == "npz":
        path, _, key = name.partition(":")
        np.savez(path, **({key: points, "other": points[:2]} if key else {"points": points}))
    elif suffix == "csv":
        np.savetxt(name, points, fmt="%.17g", delimiter=";", header="a;b;c", comments="")
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table(dict(zip("abc", points.T, strict=True))), name)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.npz:key", "a.csv", "a.parquet"])
def test_every_format_gives_what_python_gives(folder, name):
    x, y = np.load("x.npy"), np.load("y.npy")
    save_as(name, x)
    done(name, "y.npy", "-o", "plan.npz", *PARTIAL, *BATCHES)
    assert_same("plan.npz", written_by_python(x, y, sp.Partial(0.75), 16, 20))
    assert not {*os.listdir()} - {name.partition(":")[0], "x.npy", "y.npy", "plan.npz", "python.npz"}


@pytest.mark.parametrize(
    ("arguments", "problem", "options"),
    [
        ([], sp.Balanced(), {}),
        (["--reg", "0.5", "--tol", "1e-4", "--max-iter", "500"], sp.Balanced(0.5), {"tol": 1e-4, "max_iter": 500}),
        ([*PARTIAL, "--reg", "0.5"], sp.Partial(0.75, 0.5), {}),
        (["--problem", "unbalanced", "--tau", "1,2", "--divergence", "tv"], sp.Unbalanced((1.0, 2.0), 0, "tv"), {}),
        (
            ["--problem", "unbalanced", "--tau", "1", "--reg", "0.5", "--entropy", "kl"],
            sp.Unbalanced(1.0, 0.5, entropy="kl"),
            {},
        ),
        (["--cost", "cosine", "--pairing", "all"], sp.Balanced(), {"cost": "cosine", "pairing": "all"}),
        (
            ["--pairing", "bomb", "--replace", "--seed", "7"],
            sp.Balanced(),
            {"pairing": "bomb", "replace": True, "seed": 7},
        ),
    ],
)
def test_options_are_those_of_python(folder, arguments, problem, options):
    done("x.npy", "y.npy", "-o", "plan.npz", "--batch-size", "12,9", "--n-batches", "6", *arguments)
    python = written_by_python(np.load("x.npy"), np.load("y.npy"), problem, (12, 9), 6, **options)
    assert_same("plan.npz", python)


def test_labels_balance_the_batches(folder):
    x, y = np.load("x.npy"), np.load("y.npy")
    of_x, of_y = np.arange(120) % 3, np.where(np.arange(90) % 2, "odd", "even")
    np.save("lx.npy", of_x)
    np.savetxt("ly.csv", of_y, fmt="%s", header="class", comments="")
    done("x.npy", "y.npy", "-o", "a.npz", *BATCHES, "--labels", "lx.npy")
    assert_same("a.npz", written_by_python(x, y, sp.Balanced(), 16, 20, labels=of_x))
    done("x.npy", "y.npy", "-o", "b.npz", *BATCHES, "--labels", "lx.npy", "--labels", "ly.csv")
    assert_same("b.npz", written_by_python(x, y, sp.Balanced(), 16, 20, labels=(of_x, of_y)))


def test_processes_do_not_change_the_result(folder):
    done("x.npy", "y.npy", "-o", "a.npz", *BATCHES)
    done("x.npy", "y.npy", "-o", "b.npz", *BATCHES, "--n-jobs", "2")
    assert_same("a.npz", "b.npz")


def test_csv_is_read_as_told(folder):
    x = np.load("x.npy")
    np.savetxt("tabs.csv", x, fmt="%.17g", delimiter="\t", header="0\t1\t2", comments="")
    assert "--header or --no-header" in refused("tabs.csv", "y.npy", "-o", "a.npz", *BATCHES)
    done("tabs.csv", "y.npy", "-o", "a.npz", *BATCHES, "--header", "--delimiter", r"\t")
    assert_same("a.npz", written_by_python(x, np.load("y.npy"), sp.Balanced(), 16, 20))


def test_the_map_leaves_the_unmatched_where_they_are(folder):
    done(
        "x.npy", "y.npy", "-o", "plan.npz", "--map", "new/moved.npy", "--problem", "partial", "--mass", "0.1", *BATCHES
    )
    x, y, moved = np.load("x.npy"), np.load("y.npy"), np.load("new/moved.npy")
    matrix = sp.MiniBatchPlan.load("plan.npz").plan.toarray()
    left = matrix.sum(axis=1) == 0
    assert 0 < left.sum() < len(x)
    np.testing.assert_array_equal(moved[left], x[left])
    np.testing.assert_allclose(moved[~left], (matrix @ y)[~left] / matrix.sum(axis=1)[~left, None])


def test_the_summary_says_what_was_done(folder):
    shown = done("x.npy", "y.npy", "-o", "plan.npz", "--problem", "partial", "--mass", "0.5", "--reg", "1", *BATCHES)
    result = sp.MiniBatchPlan.load("plan.npz")
    rows = dict(line.strip("│ ").split(" │ ") for line in shown.stdout.splitlines() if " │ " in line)
    rows = {name.strip(): text.strip() for name, text in rows.items()}
    assert rows["points"] == "120 and 90"
    assert rows["dimension"] == "3"
    assert rows["problem"] == "Partial(mass=0.5, reg=1.0)"
    assert rows["value"] == f"{result.value:.6g} ± {result.standard_error:.2g}"
    assert rows["objective"] == f"{result.objective:.6g}"
    assert rows["mass"] == "0.5"
    assert rows["matched x"].startswith(f"{(result.row_mass > 0).sum()} of 120")
    assert rows["matched y"].startswith(f"{(result.col_mass > 0).sum()} of 90")
    assert rows["entries"] == f"{result.plan.nnz:,}"
    assert rows["plan"] == "plan.npz"
    assert shown.stderr == ""  # no bar where nobody looks


def test_the_objective_is_shown_only_where_it_differs(folder):
    assert "objective" not in done("x.npy", "y.npy", "-o", "plan.npz", *PARTIAL, *BATCHES).stdout


def test_what_did_not_converge_is_said_in_a_line(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = done("x.npy", "y.npy", "-o", "p.npz", "--reg", "1e-3", "--tol", "1e-9", "--max-iter", "1", *BATCHES)
    assert shown.stderr.startswith("spadeful: 20 of 20 pairs of batches did not reach")
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mass", "0.5"], "--mass is for --problem partial"),
        (["--problem", "partial"], "--problem partial needs --mass"),
        (["--problem", "partial", "--mass", "1.5"], "--mass must be in (0, 1]"),
        (["--problem", "partial", "--mass", "0.5", "--tau", "1"], "--tau is for --problem unbalanced"),
        (["--problem", "unbalanced"], "needs --tau"),
        (["--problem", "unbalanced", "--tau", "-1"], "above 0"),
        (["--problem", "unbalanced", "--tau", "1,2,3"], "two divided by a comma"),
        (["--problem", "unbalanced", "--tau", "much"], "two divided by a comma"),
        (["--problem", "unbalanced", "--tau", "1", "--divergence", "l2"], "must be 'kl' or 'tv'"),
        (["--problem", "unbalanced", "--tau", "1", "--entropy", "kl"], "--entropy is for regularised problems"),
        (["--divergence", "kl"], "--divergence is for --problem unbalanced"),
        (["--problem", "sinkhorn"], "must be balanced, partial or unbalanced"),
        (["--reg", "-1"], "at least 0"),
        (["--tol", "1e-3"], "--tol and --max-iter are for regularised problems"),
        (["--max-iter", "10"], "--tol and --max-iter are for regularised problems"),
        (["--reg", "1", "--tol", "2"], "tol must be"),
        (["--batch-size", "0"], "--batch-size must be"),
        (["--batch-size", "1.5"], "--batch-size must be a number, or two"),
        (
            ["--batch-size", "100"],
            "--batch-size must be at most the number of points of y, 90. Got 100 instead; take smaller batches, or "
            "--replace.",
        ),
        (["--n-batches", "0"], "--n-batches must be"),
        (["--cost", "manhattan"], "--cost must be one of sqeuclidean, euclidean, cosine. Got 'manhattan'"),
        (["--pairing", "some"], "--pairing must be one of paired, all, bomb. Got 'some'"),
        (["--pairing", "all", "--n-batches", "99999"], "take fewer, or --pairing paired."),
        (["--resume", "--force"], "--resume goes on with a run, and --force starts afresh. Pass one of them."),
        (["--seed", "-1"], "--seed must be"),
        (["--n-jobs", "0"], "--n-jobs must be a number of processes"),
        (["--delimiter", "ab"], "--delimiter must be one character"),
        (["--delimiter", ";"], "are for .csv files"),
        (["--no-header"], "are for .csv files"),
        (["--labels", "absent.npy"], "There is no file absent.npy"),
        (["--labels", "x.npy"], "one label a point, 120 of them"),
        (["--labels", "l.npy", "--labels", "l.npy"], "one label a point, 90 of them"),
        (["--labels", "l.npy"] * 3, "at most two files of labels"),
        (["--map", "m.txt"], "m.txt must end in .npy"),
        (["--picture", "p.gif"], "p.gif must end in .png or .pdf or .svg"),
        (["--map", "x.npy", "--force"], "none of them an input"),
        (["--map", "there.npy"], "there.npy exists"),
        (["-o", "plan.npy"], "plan.npy must end in .npz"),
        (["-o", "there.npz"], "there.npz exists. Choose another name, or pass --force to replace it."),
        (["-o", "."], "must end in .npz"),
    ],
)
def test_bad_requests_are_refused_in_a_line(folder, arguments, message):
    np.save("l.npy", np.zeros(120))
    for name in ("there.npz", "there.npy"):
        (folder / name).write_text("earlier")
    assert message in refused("x.npy", "y.npy", "-o", "plan.npz", "--n-batches", "4", "--batch-size", "8", *arguments)
    assert (folder / "there.npz").read_text() == "earlier"


def test_names_of_files_are_said_as_they_are(folder):
    Path("my tau 1.csv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    assert "my tau 1.csv must be a text file in UTF-8" in refused("my tau 1.csv", "y.npy", "-o", "plan.npz")


def test_bad_files_are_refused_in_a_line(folder):
    np.save("flat.npy", np.ones((50, 2)))
    np.save("objects.npy", np.array([[None, 1]], dtype=object))
    (folder / "bad.csv").write_text("a,b,c\n1,2,3\n4,5,six\n")
    output = ["-o", "plan.npz", *BATCHES]
    assert "There is no file absent.npy" in refused("absent.npy", "y.npy", *output)
    assert "Got the ending '.txt'" in refused("x.txt", "y.npy", *output)
    assert "Got 2 and 3 instead" in refused("flat.npy", "y.npy", *output)
    assert "Python objects" in refused("x.npy", "objects.npy", *output)
    assert "Got 'six' in line 3, column 3" in refused("bad.csv", "y.npy", *output)


def test_a_number_that_is_none_is_refused_and_leaves_nothing(folder):
    y = np.load("y.npy")
    y[40] = np.nan
    np.save("y.npy", y)
    assert "y.npy must hold finite numbers" in refused("x.npy", "y.npy", "-o", "plan.npz", *BATCHES)
    assert not (folder / "plan.npz").exists()


def test_a_result_is_replaced_by_force(folder):
    (folder / "plan.npz").write_text("earlier")
    done("x.npy", "y.npy", "-o", "plan.npz", "--force", *BATCHES)
    assert sp.MiniBatchPlan.load("plan.npz").mass == pytest.approx(1)


def test_help_shows_an_example():
    shown = done("--help").stdout
    assert "spadeful plan x.npy y.npy -o plan.npz" in shown


def test_the_picture_shows_something(folder):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    rng = np.random.default_rng(0)
    for dimensions in (1, 5):
        name = f"{dimensions}.npy"
        np.save(name, rng.normal(size=(3000, dimensions)))
        output = ["-o", f"{dimensions}.npz", "--picture", f"{dimensions}.png"]
        shown = done(name, name, *output, *PARTIAL, *BATCHES)
        assert f"{dimensions}.png" in shown.stdout
        pixels = imread(f"{dimensions}.png")[..., :3]
        left, right = np.array_split(pixels, [int(pixels.shape[1] * 0.6)], axis=1)
        assert min((part < 0.9).any(axis=2).mean() for part in (left, right)) > 0.02


def test_the_picture_of_a_plan_that_is_alike_everywhere(folder):
    """One batch, one value, one mass: nothing to spread a scale over."""
    pytest.importorskip("matplotlib")
    np.save("one.npy", np.ones((4, 2)))
    done("one.npy", "one.npy", "-o", "p.npz", "--picture", "p.png", "--batch-size", "4", "--n-batches", "1")
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_the_work(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "spadeful[plot]" in refused("x.npy", "y.npy", "-o", "plan.npz", "--picture", "p.png", *BATCHES)


# Interruptions. Many small batches make many parts.

LONG = ["--batch-size", "6", "--n-batches", "60000", *PARTIAL]


def interrupted(how):
    """Run a command until its first part is there, and stop it."""
    command = [sys.executable, "-m", "spadeful", "plan", "x.npy", "y.npy", "-o", "plan.npz", *LONG]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not os.path.exists("plan.npz.parts/plans/part-00000000.npz"):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(how)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert stdout == ""
    assert not os.path.exists("plan.npz")
    return process.returncode, stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What LONG gives for the points of `folder`."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 3)), rng.normal(size=(90, 3)) + 1
    path = tmp_path_factory.mktemp("whole") / "plan.npz"
    sp.minibatch(x, y, sp.Partial(0.75), 6, 60000).save(path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_an_interrupted_run_goes_on_to_the_same_result(folder, how, uninterrupted):
    code, stderr = interrupted(how)
    if how == signal.SIGINT:
        assert code == 130
        assert stderr == (
            "spadeful: Interrupted. What is finished is kept in plan.npz.parts. "
            "Run the same command with --resume to go on from there.\n"
        )
    parts = {path.name: path.stat().st_mtime_ns for path in (folder / "plan.npz.parts/plans").glob("part-*.npz")}
    again = ["x.npy", "y.npy", "-o", "plan.npz", *LONG]
    assert "Pass --resume to go on from there, or --force" in refused(*again)
    assert "seed was 0 and is 1" in refused(*again, "--resume", "--seed", "1")
    changed = np.load("x.npy")
    changed[-2] += 1
    np.save("z.npy", changed)
    assert "points was" in refused("z.npy", *again[1:], "--resume")
    assert parts == {
        path.name: path.stat().st_mtime_ns for path in (folder / "plan.npz.parts/plans").glob("part-*.npz")
    }
    done(*again, "--resume")
    assert_same("plan.npz", uninterrupted)
    assert sorted(os.listdir()) == ["plan.npz", "x.npy", "y.npy", "z.npy"]


def leave_parts(seed=0):
    """What a run that was stopped at its end leaves."""
    x, y = np.load("x.npy"), np.load("y.npy")
    sp.minibatch(x, y, sp.Balanced(), 16, 20, seed=seed, checkpoint="plan.npz.parts")


def test_resume_takes_what_is_there(folder, monkeypatch):
    leave_parts()
    monkeypatch.setattr("spadeful.engine.run_job", None)  # nothing is left to solve
    Path("map.npy").touch()  # as if it was stopped while it wrote
    done("x.npy", "y.npy", "-o", "plan.npz", "--map", "map.npy", *BATCHES, "--resume")
    assert sorted(os.listdir()) == ["map.npy", "plan.npz", "x.npy", "y.npy"]
    assert np.load("map.npy").shape == np.load("x.npy").shape


def test_resume_refuses_half_a_part(folder):
    leave_parts()
    part = folder / "plan.npz.parts" / "plans" / "part-00000000.npz"
    whole = part.read_bytes()
    for size in (0, 1000):
        part.write_bytes(whole[:size])
        line = refused("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--resume")
        assert f"{part.relative_to(folder)} must be whole" in line
    part.unlink()
    done("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--resume")


def test_resume_refuses_other_classes(folder):
    x, y = np.load("x.npy"), np.load("y.npy")
    np.save("l.npy", np.arange(120) % 2)
    sp.minibatch(x, y, sp.Balanced(), 16, 20, labels=np.arange(120) // 60, checkpoint="plan.npz.parts")
    assert "classes was" in refused("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--labels", "l.npy", "--resume")


def test_resume_finishes_what_was_stopped_while_writing(folder):
    """The plan was written and its parts not yet removed: no one else's result is in the way."""
    leave_parts()
    (folder / "plan.npz").write_text("written, perhaps")
    done("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--resume")
    assert sp.MiniBatchPlan.load("plan.npz").mass == pytest.approx(1)


def test_resume_without_anything_to_resume_begins(folder):
    done("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--resume")
    assert "plan.npz exists" in refused("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--resume")


def test_force_starts_afresh_and_spares_other_files(folder):
    leave_parts(seed=1)
    (folder / "plan.npz.parts" / "notes.txt").write_text("mine")
    done("x.npy", "y.npy", "-o", "plan.npz", *BATCHES, "--force")
    assert json.loads(str(np.load("plan.npz")["settings"]))["seed"] == 0
    assert os.listdir("plan.npz.parts") == ["notes.txt"]


def test_an_interruption_before_the_first_part_leaves_nothing(folder, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("spadeful.engine.run_job", stop)
    result = plan("x.npy", "y.npy", "-o", "plan.npz", *BATCHES)
    assert result.exit_code == 130
    assert result.stderr == "spadeful: Interrupted. Nothing was finished.\n"
    assert sorted(os.listdir()) == ["x.npy", "y.npy"]


def test_labels_may_be_divided_otherwise_than_points(folder):
    Path("labels.csv").write_text("\n".join(["one, of two", "the other"] * 60))
    done("x.npy", "y.npy", "-o", "a.npz", *BATCHES, "--labels", "labels.csv", "--delimiter", ";")
    assert "one label a line" in refused("x.npy", "y.npy", "-o", "b.npz", *BATCHES, "--labels", "labels.csv")
    assert "are for .csv files" in refused("x.npy", "y.npy", "-o", "b.npz", "--labels", "labels.csv", "--header")
