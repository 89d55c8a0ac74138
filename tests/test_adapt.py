"""Deep domain adaptation: the methods' formulas, one loop for all, and runs that survive what happens to them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import spadeful as sp

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")

from sklearn.exceptions import NotFittedError  # noqa: E402

from spadeful import adapt as ad  # noqa: E402
from spadeful.adapt.config import make_config, read_config  # noqa: E402
from spadeful.adapt.methods import Step, two_stage  # noqa: E402
from spadeful.adapt.methods.base import quiet_batch_norm  # noqa: E402
from spadeful.adapt.selection import RULES, soft_neighbourhood_density  # noqa: E402
from spadeful.adapt.streams import DomainStream, LoaderStream  # noqa: E402
from spadeful.training import states  # noqa: E402
from spadeful.training.record import Record  # noqa: E402
from spadeful.training.streams import Prefetched  # noqa: E402

NAMES = ("a", "b", "c")


def domains(size=120, shift=2.0, seed=0):
    """Three Gaussian classes in the plane, and the same moved."""
    rng = np.random.default_rng(seed)
    y = np.arange(size) % 3
    centres = np.array([[0, 0], [6, 0], [0, 6]])
    x = (centres[y] + rng.normal(size=(size, 2))).astype(np.float32)
    moved = (centres[y] + rng.normal(size=(size, 2)) + shift).astype(np.float32)
    return ad.Domain(x, y, "source", NAMES), ad.Domain(moved, y, "target", NAMES)


def small(seed=0, norm=True):
    torch.manual_seed(seed)
    hidden = [
        torch.nn.Linear(2, 8),
        *([torch.nn.BatchNorm1d(8)] if norm else []),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
    ]
    return ad.Network(torch.nn.Sequential(*hidden, torch.nn.Linear(8, 4)), torch.nn.Linear(4, 3))


METHODS = [
    ad.SourceOnly(),
    ad.Transport(sp.Balanced()),
    ad.Transport(sp.Partial(0.8), n_batches=2),
    ad.Transport(sp.Unbalanced(1.0, 0.1)),
    ad.TwoStage(sp.Partial(0.7), n_batches=2),
    ad.TwoStage(sp.Balanced(), n_batches=2, n_problems=2),
    ad.TwoStage(sp.Unbalanced(1.0, 0.1), n_batches=2),
]


def batch_of(source, target, size, number=0):
    return DomainStream(source, target, size, seed=0).batch(number)


def test_names_are_the_paper_s():
    assert [m.name for m in METHODS] == ["source-only", "m-OT", "m-POT", "m-UOT", "TS-POT", "TS-OT", "TS-UOT"]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_method_trains_in_the_same_loop(method):
    source, target = domains()
    network = small()
    record = ad.adapt(network, source, target, method, ad.Training(30, lr=0.02, evaluate_every=10), batch_size=24)
    assert [row["iteration"] for row in record.rows] == [10, 20, 30]
    assert record.rows[-1]["loss"] < record.rows[0]["loss"]
    assert record.rows[-1]["source_accuracy"] > 80
    assert record.chosen("oracle")["target_accuracy"] == max(row["target_accuracy"] for row in record.rows)
    assert record.best["target_density"] == max(row["target_density"] for row in record.rows)
    assert record.chosen("entropy")["target_entropy"] == min(row["target_entropy"] for row in record.rows)


def test_partial_transport_adapts_what_the_source_alone_does_not():
    source, target = domains(300, shift=3.0)
    found = {}
    for method in (ad.SourceOnly(), ad.Transport(sp.Partial(0.8), sp.JointCost(0.1, 0.5))):
        record = ad.adapt(small(), source, target, method, ad.Training(200, lr=0.02, evaluate_every=200), batch_size=60)
        found[method.name] = record.rows[-1]["target_accuracy"]
    assert found["m-POT"] > 90
    assert found["m-POT"] > found["source-only"] + 5


def test_transport_is_cross_entropy_plus_the_mini_batch_loss():
    source, target = domains()
    network = small().eval()
    batches = [batch_of(source, target, 12, i) for i in range(2)]
    waiting = iter(batches)
    method = ad.Transport(sp.Partial(0.5), sp.JointCost(0.3, 0.7), n_batches=2, eta=1.5)
    total = sum(float(loss.detach()) for loss in method.losses(network, lambda: next(waiting), ad.methods.Step()))
    expected = 0.0
    for batch in batches:
        (gs, fs), (gt, ft) = network(batch.source), network(batch.target)
        cost = torch.cdist(gs, gt).square() * 0.3 - 0.7 * ft.log_softmax(1)[:, batch.labels].T
        value = sp.solve(cost.detach().double().numpy(), sp.Partial(0.5)).value
        expected += (float(torch.nn.functional.cross_entropy(fs, batch.labels).detach()) + 1.5 * value) / 2
    assert total == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", [ad.Transport(sp.Partial(0.5)), ad.DANN(8)])
def test_rows_that_never_meet_go_through_the_network_together(method):
    """The loss and its gradient are those of the domains apart, from one pass instead of two."""
    source, target = domains()
    batch = DomainStream(source, target, 30, 0).batch(0)
    found = []
    for rowwise in (False, True):
        torch.manual_seed(0)
        network, own, passes = ad.feature_network(2, 3, bottleneck=5), method.modules(5, 3), []
        assert network.rowwise
        network.rowwise = rowwise
        network.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        if own is not None:
            own.eval()
        (loss,) = method.losses(network, lambda: batch, Step(own=own))
        loss.backward()
        assert len(passes) == 2 - rowwise
        found.append([loss, *(parameter.grad for parameter in network.parameters())])
    for apart, together in zip(*found, strict=True):
        torch.testing.assert_close(together, apart)


def test_two_stages_pair_each_row_with_its_largest_entry_and_leave_the_others_out():
    """Eight points of which six are matched: two rows have no partner, and no target point stands in for one."""
    source, target = domains()
    network = small(norm=False).eval()
    batches = [batch_of(source, target, 4, i) for i in range(2)]
    method = ad.TwoStage(sp.Partial(0.75), sp.JointCost(0.3, 0.7), n_batches=2)
    for columns, masses in (blocks := method.align(network, batches, method.problem)):
        assert masses.shape == (4, len(columns))
        np.testing.assert_allclose(masses.sum(dim=0), 1.0)
    assert sum(len(columns) for columns, _ in blocks) == 6
    waiting = iter(batches)
    total = sum(float(loss.detach()) for loss in method.losses(network, lambda: next(waiting), ad.methods.Step()))
    xs, ys, xt = (torch.cat([getattr(b, part) for b in batches]) for part in ("source", "labels", "target"))
    (gs, fs), (gt, ft) = network(xs), network(xt)
    cost = torch.cdist(gs, gt).square() * 0.3 - 0.7 * ft.log_softmax(1)[:, ys].T
    plan = sp.solve(cost.detach().double(), sp.Partial(0.75))
    expected = float(torch.nn.functional.cross_entropy(fs, ys).detach()) + float(plan.value)
    assert total == pytest.approx(expected, rel=1e-5)


def test_a_row_that_carries_part_of_its_mass_keeps_its_part():
    source, target = domains()
    network = small(norm=False).eval()
    batches = [batch_of(source, target, 5, i) for i in range(2)]
    method = ad.TwoStage(sp.Partial(0.72), n_batches=2)
    weights = torch.cat([masses.sum(dim=1) for _, masses in method.align(network, batches, method.problem)])
    assert float(weights.sum()) <= 7.2 + 1e-6
    assert ((weights > 1e-9) & (weights < 1 - 1e-9)).any()


@pytest.mark.parametrize(
    "problem",
    [sp.Balanced(), sp.Partial(0.4), sp.Partial(0.4003), sp.Unbalanced(1.0, 0.1), sp.Unbalanced(1.0, divergence="tv")],
    ids=str,
)
def test_alignment_in_little_memory_is_that_of_the_whole_matrix(problem):
    source, target = domains(size=60_000)  # too many for a point to be drawn twice
    network = small(norm=False).eval()
    batches = [batch_of(source, target, 60, i) for i in range(10)]
    method = ad.TwoStage(problem, sp.JointCost(0.03, 0.7), n_batches=10)
    blocks = method.align(network, batches, problem)
    xs, ys, xt = (torch.cat([getattr(b, part) for b in batches]) for part in ("source", "labels", "target"))
    with torch.no_grad():
        (gs, _), (gt, ft) = network(xs), network(xt)
        plan = 600 * sp.solve(method.cost.whole(gs, gt, ys, ft), problem).matrix
    for rows, (columns, masses) in zip(plan.split(60), blocks, strict=True):
        asked = rows.argmax(dim=1)[rows.sum(dim=1) > 0]
        assert len(asked) > 0
        assert columns.tolist() == sorted(set(asked.tolist()))
        np.testing.assert_allclose(masses, rows[:, columns], rtol=0, atol=1e-12 if problem.reg == 0 else 1e-6)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.4), sp.Partial(0.4003)], ids=str)
def test_points_that_were_drawn_several_times_are_solved_for_as_one(problem, monkeypatch):
    """The plan is one of the optimal ones between all points, found from a matrix of the distinct ones."""
    source, target = domains(size=90)
    network = small(norm=False).eval()
    batches = [batch_of(source, target, 60, i) for i in range(4)]
    method = ad.TwoStage(problem, sp.JointCost(0.03, 0.7), n_batches=4)
    with torch.no_grad():
        seen = method.see(network, batches)
        row, column, mass = method.plan(seen, problem)
    costs = method.cost.whole(*seen)
    assert float((costs[row, column] * mass).sum()) == pytest.approx(float(sp.solve(costs, problem).value), rel=1e-12)
    plan = torch.zeros(240, 240, dtype=torch.float64).index_put_((row, column), mass, accumulate=True)
    assert float(plan.sum()) == pytest.approx(getattr(problem, "mass", 1.0), rel=1e-12)
    assert float(torch.cat([plan.sum(0), plan.sum(1)]).max()) <= (1 + 1e-9) / 240
    assert len(row) <= 240 + 4
    solved = []
    monkeypatch.setattr(two_stage, "solve", lambda cost, *rest, **more: solved.append(cost.shape) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        method.plan(seen, problem)
    assert max(solved[0]) <= 90


def test_two_stages_of_a_dense_plan_pay_for_whole_blocks():
    """Algorithm 2 with UOT: a batch's loss is its block of the plan against the costs, not its largest entries."""
    source, target = domains()
    network = small(norm=False).eval()
    batches = [batch_of(source, target, 6, i) for i in range(2)]
    problem, cost = sp.Unbalanced(1.0, 0.1), sp.JointCost(0.3, 0.7)
    waiting = iter(batches)
    losses = ad.TwoStage(problem, cost, n_batches=2).losses(network, lambda: next(waiting), ad.methods.Step())
    total = sum(float(loss.detach()) for loss in losses)
    xs, ys, xt = (torch.cat([getattr(b, part) for b in batches]) for part in ("source", "labels", "target"))
    (gs, fs), (gt, ft) = network(xs), network(xt)
    costs = (torch.cdist(gs, gt).square() * 0.3 - 0.7 * ft.log_softmax(1)[:, ys].T).detach().double()
    plan = sp.solve(costs, problem).matrix
    expected = float(torch.nn.functional.cross_entropy(fs, ys).detach())
    for rows in (slice(0, 6), slice(6, 12)):
        columns = plan[rows].argmax(dim=1).unique()
        expected += float((plan[rows][:, columns] * costs[rows][:, columns]).sum())
    assert total == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("how", "changes"), [("train", True), ("frozen", False), ("eval", False)])
def test_the_pass_without_gradients_does_to_batch_norm_what_is_said(how, changes):
    network = small()
    norm = network.features[1]
    before = norm.running_mean.clone()
    with torch.no_grad(), quiet_batch_norm(network, how):
        network(torch.randn(20, 2) + 5)
    assert bool((norm.running_mean != before).any()) == changes
    assert network.training
    assert norm.track_running_stats


@pytest.mark.parametrize("method", [ad.Transport(sp.Partial(0.5)), ad.TwoStage(sp.Partial(0.5)), ad.DANN(8)])
def test_batch_norm_may_be_tested_by_the_statistics_of_the_target_alone(method):
    """Training is the same; the running averages are of what the network sees of the target, not of the source."""
    source, target = domains(shift=50.0)
    batch = DomainStream(source, target, 30, 0).batch(0)
    found = {}
    for statistics in ("both", "target"):
        network, own = small(), method.modules(4, 3)
        network.statistics = statistics
        found[statistics] = [float(loss.detach()) for loss in method.losses(network, lambda: batch, Step(own=own))]
        norm = network.features[1]
        if statistics == "target":
            assert int(norm.num_batches_tracked) == len(found["target"])
            if isinstance(method, ad.Transport):
                mean = network.features[0](batch.target).mean(0)
                torch.testing.assert_close(norm.running_mean, norm.momentum * mean)
        else:
            assert int(norm.num_batches_tracked) == 2 * len(found["both"])
    assert found["both"] == found["target"]
    with pytest.raises(ValueError, match="statistics must be 'both' or 'target'"):
        ad.Network(torch.nn.Identity(), torch.nn.Identity(), statistics="source")


def run(folder, iterations, resume=False, every=4, method=None):
    source, target = domains()
    network = small()
    record = ad.adapt(
        network,
        source,
        target,
        method or ad.Transport(sp.Partial(0.8)),
        ad.Training(iterations, lr=0.02, evaluate_every=every),
        warmup=ad.Training(6, lr=0.02, evaluate_every=every),
        batch_size=24,
        folder=folder,
        resume=resume,
    )
    return network, record


class StopError(Exception):
    pass


class Interrupted(ad.Transport):
    """m-POT that stops at an iteration, once."""

    def losses(self, network, draw, step):
        if step.iteration == 7:
            raise StopError
        yield from super().losses(network, draw, step)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    whole, record = run(tmp_path / "whole", 12)
    with pytest.raises(StopError):
        run(tmp_path / "broken", 12, method=Interrupted(sp.Partial(0.8)))
    again, resumed = run(tmp_path / "broken", 12, resume=True)
    for (name, a), b in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    measures = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.rows] for r in (record, resumed)]
    assert measures[0] == measures[1]
    finished, _ = run(tmp_path / "whole", 12, resume=True)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), finished.state_dict().values(), strict=True)
    )


def test_memory_is_put_back_in_the_layout_of_the_weights():
    """An optimiser that walks through both in one pass must find the numbers of a weight where the weight is."""
    network = torch.nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    network(torch.ones(1, 2, 4, 4)).sum().backward()
    optimizer.step()
    saved = states.pack({"network": network}, {"optimizer": optimizer})
    states.unpack(saved, {"network": network}, {"optimizer": optimizer})
    kept = optimizer.state[network.weight]["exp_avg"]
    assert kept.stride() == network.weight.stride()
    torch.testing.assert_close(kept, 0.1 * network.weight.grad)


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(tmp_path):
    script = (
        "import sys, torch, test_adapt; from pathlib import Path\n"
        "torch.set_num_threads(1)\n"
        "test_adapt.run(Path(sys.argv[1]), 40, resume=True, every=2)\n"
    )
    here = os.path.dirname(__file__)
    environment = os.environ | {"PYTHONPATH": here}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "killed")], env=environment
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "log.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed, _ = run(tmp_path / "killed", 40, resume=True, every=2)
    whole, _ = run(tmp_path / "whole", 40, every=2)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), killed.state_dict().values(), strict=True)
    )


def test_the_best_checkpoint_is_a_copy_of_its_own(tmp_path):
    run(tmp_path, 12)
    tensors, state = states.read(tmp_path / states.BEST)
    rows = json.loads((tmp_path / "log.json").read_text())["rows"]
    best = state["rows"][-1]  # the last that it knew of
    assert best == Record(rows, "density", RULES).best
    assert not (tmp_path / states.BEST).samefile(tmp_path / states.LAST)
    network = small()
    states.unpack(tensors, {"network": network})
    _, target = domains()
    assert ad.measure(network, {"target": target})["target_accuracy"] == best["target_accuracy"]


def test_a_folder_holds_one_run_at_a_time(tmp_path):
    run(tmp_path, 4)
    with pytest.raises(FileExistsError, match="holds a run"):
        run(tmp_path, 4)
    place = states.Folder(tmp_path, room=0)
    with pytest.raises(OSError, match="in use by another run"):
        run(tmp_path, 8, resume=True)
    place.close()
    run(tmp_path, 8, resume=True)


BEGUN = {
    "method": ad.Transport(sp.Partial(0.8)),
    "training": ad.Training(8, lr=0.02, evaluate_every=4),
    "warmup": ad.Training(4, lr=0.02, evaluate_every=4),
    "batch_size": 24,
}


def going_on(folder, resume=True, shift=2.0, labels=slice(None), **changes):
    source, target = domains(shift=shift)
    source = ad.Domain(source.x, source.y[labels], "source", NAMES)
    network = changes.pop("network", None) or small()
    record = ad.adapt(network, source, target, **{**BEGUN, **changes}, folder=folder, resume=resume)
    return network, record


def longer(**changes):
    return ad.Training(**{"iterations": 12, "lr": 0.02, "evaluate_every": 4, **changes})


OF_OTHERS = [
    ({"method": ad.Transport(sp.Partial(0.2))}, r"method\.problem\.mass of phase 2 was 0\.8 and is 0\.2\. Go on with"),
    ({"method": ad.Transport(sp.Partial(0.8), eta=2.0)}, r"method\.eta of phase 2 was 1\.0 and is 2\.0\."),
    (
        {"method": ad.Transport(sp.Partial(0.8), schedule=sp.Ramp(1.0, 0.8, 9))},
        r"method\.schedule of phase 2 was None and is 'Ramp'\.",
    ),
    ({"method": ad.Transport(sp.Balanced())}, "method of phase 2 was 'm-POT' and is 'm-OT'"),
    ({"method": ad.SourceOnly()}, "method of phase 2 was 'm-POT' and is 'source-only'"),
    ({"method": ad.DANN(8)}, "method of phase 2 was 'm-POT' and is 'DANN'"),
    ({"training": longer(optimizer="sgd")}, "optimizer of phase 2 was 'adam' and is 'sgd'"),
    ({"training": longer(lr=0.01)}, r"lr of phase 2 was 0\.02 and is 0\.01"),
    ({"training": longer(seed=3)}, "seed was 0 and is 3; training.seed of phase 2 was 0 and is 3"),
    ({"training": longer(select="entropy")}, "select was 'density' and is 'entropy'"),
    ({"training": longer(iterations=4)}, "at iteration 8 of phase 2. Got phases of 4 and 4 iterations"),
    ({"warmup": longer()}, r"training\.iterations of phase 1 was 4 and is 12"),
    ({"warmup": None}, "at iteration 8 of phase 2. Got phases of 8 iterations"),
    ({"warmup": None, "training": longer()}, "at iteration 8 of phase 2. Got phases of 12 iterations"),
    ({"shift": 3.0}, r"target was \[.*\] and is \["),
    ({"labels": slice(None, None, -1)}, r"labels was \[.*\] and is \["),
    ({"batch_size": 30}, "batch_size was 24 and is 30"),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    going_on(folder, resume=False)
    return folder


@pytest.mark.parametrize(("change", "message"), OF_OTHERS, ids=lambda part: str(part)[:60])
def test_a_run_does_not_go_on_as_another(begun, change, message):
    before = {path: path.read_bytes() for path in begun.iterdir()}
    network = small()
    with pytest.raises(ValueError, match=f"must belong to the same run.*{message}"):
        going_on(begun, network=network, **change)
    assert {path: path.read_bytes() for path in begun.iterdir()} == before
    assert same_weights(network, small())


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_network_of_another_shape_is_refused_untouched(begun):
    def other():
        torch.manual_seed(0)
        return ad.Network(torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Linear(5, 4)), torch.nn.Linear(4, 3))

    network = other()
    with pytest.raises(ValueError, match=r"must be of this network and method. It holds another.* was .* and is"):
        going_on(begun, network=network)
    assert same_weights(network, other())


def test_a_warm_up_does_not_go_on_from_adaptation_nor_with_other_batches(tmp_path):
    going_on(tmp_path / "none", resume=False, warmup=None)
    with pytest.raises(ValueError, match="method of phase 1 was 'm-POT' and is 'source-only'"):
        going_on(tmp_path / "none", training=longer(), warmup=longer())
    stopped = {"training": longer(), "warmup": BEGUN["warmup"]}
    with pytest.raises(StopError):
        going_on(tmp_path / "warm", resume=False, method=Unable(sp.Partial(0.8)), **stopped)
    for change in ({"seed": 1}, {"select": "entropy"}):  # of the phase to come, and of the whole run
        ((name, value),) = change.items()
        with pytest.raises(ValueError, match=f"It differs: {name} was .* and is {value!r}"):
            going_on(tmp_path / "warm", training=longer(**change))
    _, record = going_on(tmp_path / "warm", method=ad.Transport(sp.Partial(0.5)))  # it has not begun
    assert [row["phase"] for row in record.rows] == ["source-only", "m-POT", "m-POT"]


class Unable(ad.Transport):
    def losses(self, network, draw, step):
        raise StopError


def test_functions_and_numbers_of_numpy_are_told_by_what_stays(tmp_path):
    def schedule():
        return lambda iteration: 0.8

    changes = {"method": ad.Transport(sp.Partial(0.8), schedule=schedule(), eta=np.float32(1))}
    going_on(tmp_path, resume=False, **changes)
    changes = {"method": ad.Transport(sp.Partial(0.8), schedule=schedule(), eta=1.0)}
    _, record = going_on(tmp_path, **changes, training=longer())
    assert record.rows[-1]["iteration"] == 12


def test_a_checkpoint_without_settings_goes_on_but_as_its_own_method(begun, tmp_path):
    tensors, state = states.read(begun / states.LAST)
    del state["settings"]
    states.write(tmp_path / states.LAST, tensors, state)
    with pytest.raises(ValueError, match="method of phase 2 was 'm-POT' and is 'm-OT'"):
        going_on(tmp_path, method=ad.Transport(sp.Balanced()))
    with pytest.raises(ValueError, match=r"at iteration 8 of phase 2\. Got phases of 8 iterations"):
        going_on(tmp_path, warmup=None)
    network, _ = going_on(tmp_path, training=longer())
    assert not same_weights(network, small())


def test_room_is_asked_for_before_training(tmp_path):
    with pytest.raises(OSError, match="must have room"):
        states.Folder(tmp_path / "full", room=1 << 62)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(tmp_path):
    class Broken(ad.SourceOnly):
        def losses(self, network, draw, step):
            for loss in super().losses(network, draw, step):
                yield loss * (float("nan") if step.iteration == 5 else 1.0)

    says = r"became nan at iteration 6, batch \d+\. Lower the learning rate.*; the last checkpoint is kept\.$"
    with pytest.raises(ad.TrainingError, match=says):
        run(tmp_path, 12, method=Broken())
    assert states.read(tmp_path / states.LAST)[1]["iteration"] == 4


def test_no_checkpoint_is_promised_where_there_is_none():
    source, target = domains()
    with pytest.raises(ad.TrainingError, match=r"became inf .* not finite\.$"):
        ad.adapt(small(), source, target, Diverging(), ad.Training(4), batch_size=24)


class Diverging(ad.SourceOnly):
    def losses(self, network, draw, step):
        for loss in super().losses(network, draw, step):
            yield loss * float("inf")


@pytest.mark.parametrize(
    "method",
    [ad.Transport(sp.Partial(0.8)), ad.Transport(sp.Unbalanced(1.0, 0.1)), ad.TwoStage(sp.Partial(0.8))],
    ids=lambda m: m.name,
)
def test_points_that_are_not_finite_stop_a_run_with_where_they_are(method, tmp_path):
    source, target = domains()
    target.x.flags.writeable = True
    target.x[:] = np.nan
    training = ad.Training(4, evaluate_every=2)
    says = rf"{method.name} stopped at iteration 1, batch \d: .*lower the learning rate"
    with pytest.raises(ad.TrainingError, match=says):
        ad.adapt(small(norm=False), source, target, method, training, batch_size=24, folder=tmp_path)


def test_a_run_killed_before_the_best_was_copied_has_the_right_best(tmp_path, monkeypatch):
    def killed(*_):
        raise StopError

    run(tmp_path / "whole", 12)
    monkeypatch.setattr(states, "copy", killed)
    with pytest.raises(StopError):
        run(tmp_path / "killed", 12)
    monkeypatch.undo()
    _, record = run(tmp_path / "killed", 12, resume=True)
    assert states.read(tmp_path / "killed" / states.BEST)[1]["iteration"] == record.best["iteration"]
    assert json.loads((tmp_path / "killed" / "log.json").read_text())["best"] == record.best


def test_seeded_loaders_go_on_to_the_same_bits(tmp_path):
    source, target = (torch.utils.data.TensorDataset(torch.tensor(d.x), torch.tensor(d.y)) for d in domains())

    def train(folder, method, resume=False):
        loaders = [
            torch.utils.data.DataLoader(d, batch_size=24, shuffle=True, generator=torch.Generator().manual_seed(seed))
            for seed, d in enumerate((source, target))
        ]
        network, training = small(), ad.Training(12, lr=0.01, evaluate_every=4)
        ad.adapt(network, *loaders, method, training, test={}, folder=folder, resume=resume)
        return network.state_dict()

    whole = train(tmp_path / "whole", ad.Transport(sp.Partial(0.8)))
    with pytest.raises(StopError):
        train(tmp_path / "parts", Interrupted(sp.Partial(0.8)))
    again = train(tmp_path / "parts", ad.Transport(sp.Partial(0.8)), resume=True)
    assert all(torch.equal(a, again[name]) for name, a in whole.items())


def test_arrays_are_predicted_as_sets_are():
    source, _ = domains()
    network = small()
    expected = ad.predict(network, source)
    for given in (source.x, torch.tensor(source.x)):
        assert all(torch.equal(a, b) for a, b in zip(expected, ad.predict(network, given), strict=True))


def test_a_point_that_is_alone_has_no_density():
    assert soft_neighbourhood_density(torch.tensor([[0.5, 0.5]])) == 0.0


def test_a_method_may_bring_modules_of_its_own():
    class WithHead(ad.SourceOnly):
        def modules(self, features, classes):
            seen.append((features, classes))
            object.__setattr__(self, "head", torch.nn.Linear(features, 1))
            return self.head

        def losses(self, network, draw, step):
            batch = draw()
            features, _ = network(batch.source)
            yield self.head(features).square().mean()

    seen = []
    source, target = domains()
    method = WithHead()
    record = ad.adapt(small(), source, target, method, ad.Training(10, lr=0.05, evaluate_every=5), batch_size=24)
    assert seen == [(4, 3)]
    assert record.rows[-1]["loss"] < record.rows[0]["loss"]


def test_loaders_and_whole_models_can_be_passed():
    source, target = domains()
    data = torch.utils.data.TensorDataset(torch.tensor(np.array(source.x)), torch.tensor(np.array(source.y)))
    generator = torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, generator=generator)
    others = torch.utils.data.DataLoader(torch.tensor(np.array(target.x)), batch_size=32)
    model = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    network = ad.Tapped(model, "2")
    x = torch.randn(5, 2)
    features, logits = network(x)
    assert torch.equal(features, model[1](model[0](x)))
    assert torch.equal(logits, model(x))
    record = ad.adapt(
        network,
        loader,
        others,
        ad.Transport(sp.Partial(0.8)),
        ad.Training(12, evaluate_every=6),
        test={"target": target},
    )
    assert len(record.rows) == 2
    with pytest.raises(ValueError, match="With loaders a network must be passed"):
        ad.adapt(None, loader, others, ad.SourceOnly(), ad.Training(2))
    with pytest.raises(TypeError, match="can begin anew"):
        ad.adapt(network, iter(loader), others, ad.SourceOnly(), ad.Training(2))
    with pytest.raises(ValueError, match=r"must name a layer of the model\. Got 'fc'; it has 0, 1, 2"):
        ad.Tapped(model, "fc")
    with pytest.raises(TypeError, match="features and logits"):
        ad.adapt(model, source, target, ad.SourceOnly(), ad.Training(1))
    with pytest.raises(TypeError, match="both be arrays, or both be loaders"):
        ad.adapt(network, source, others, ad.SourceOnly(), ad.Training(1))


def unread(*_):
    raise AssertionError("a batch was drawn")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"test": {"target": "here"}}, TypeError, r"a Domain or arrays \(x, y\) by name\. Got str for 'target'"),
        ({"test": {"foo": domains()[1]}}, ValueError, r"test must hold 'target', by which select='density' chooses"),
        (
            {"test": {"target": np.zeros((5, 3))}},
            ValueError,
            r"of the source's shape, \(2,\)\. Got \(3,\) for 'target'",
        ),
        ({"target": domains()[1].without_labels(), "select": "oracle"}, ValueError, "needs labels of the target"),
        ({"test": {}, "select": "source"}, ValueError, "needs labels of the source"),
        (
            {"target": np.array([[0, 1], [np.nan, 2]])},
            ValueError,
            r"x of target must be finite\. Got nan in row 1, col",
        ),
        ({"source": (np.array([[np.inf, 1]]), [0])}, ValueError, r"x of source must be finite\. Got inf in row 0, col"),
        ({"batch_size": 10**9}, ValueError, r"at most 500: source and target have 120 and 120 points"),
        ({"warmup": 5}, TypeError, r"warmup must be a Training, or None\. Got 5 instead"),
    ],
)
def test_what_cannot_be_measured_or_trained_on_is_refused_before_a_batch_is_drawn(monkeypatch, changes, error, says):
    monkeypatch.setattr(DomainStream, "batch", unread)
    given = dict(zip(("source", "target"), domains(), strict=True)) | {"batch_size": 24} | changes
    training = ad.Training(2, select=given.pop("select", "density"))
    with pytest.raises(error, match=says):
        ad.adapt(small(), method=ad.SourceOnly(), training=training, **given)


def test_sets_to_test_may_be_arrays_and_have_any_name_beside():
    source, target = domains()
    test = {"target": (target.x, target.y), "first": (target.x[:30], target.y[:30])}
    record = ad.adapt(small(), source, target, ad.SourceOnly(), ad.Training(2), batch_size=24, test=test)
    assert {"target_accuracy", "first_accuracy"} <= record.rows[-1].keys()


def test_a_batch_may_be_as_large_as_the_larger_set():
    sets = domains(30)[0], domains(600)[1]
    ad.adapt(small(), *sets, ad.SourceOnly(), ad.Training(1), batch_size=600)
    with pytest.raises(ValueError, match="at most 600: source and target have 30 and 600 points"):
        ad.adapt(small(), *sets, ad.SourceOnly(), ad.Training(1), batch_size=601)


def test_seeds_and_flags_are_what_they_seem():
    with pytest.raises(ValueError, match=r"seed must be a whole number of at least 0\. Got -1 instead"):
        ad.Training(2, seed=-1)
    with pytest.raises(TypeError, match=r"standardize must be True or False\. Got 'yes' instead"):
        ad.DeepAdapter(standardize="yes").fit(np.zeros((4, 2)), [0, 1, 0, 1])


def test_there_is_nothing_to_resume_without_a_folder():
    with pytest.raises(ValueError, match=r"resume goes on with the run in a folder\. Got no folder"):
        ad.adapt(small(), *domains(), ad.SourceOnly(), ad.Training(2), batch_size=24, resume=True)


def test_batches_and_shapes_that_do_not_fit_are_refused():
    source, target = domains()
    wide = ad.Domain(np.zeros((9, 3), np.float32), None, "wide", NAMES)
    for to, size, message in ((target, 0, "batch_size must be"), (wide, 24, "must be points of one shape")):
        with pytest.raises(ValueError, match=message):
            ad.adapt(small(), source, to, ad.SourceOnly(), ad.Training(1), batch_size=size)


def test_what_is_no_method_or_no_training_is_refused():
    source, target = domains()
    for method, training, message in (("m-pot", ad.Training(1), "method must be"), (ad.SourceOnly(), 9, "a Training")):
        with pytest.raises(TypeError, match=message):
            ad.adapt(small(), source, target, method, training, batch_size=24)
    with pytest.raises(ValueError, match="one whole number a point"):
        ad.adapt(small(), (source.x, np.array(["a"] * 120)), target, ad.SourceOnly(), ad.Training(1), batch_size=24)


def test_arrays_lists_and_tensors_are_the_same_set():
    source, target = domains()
    given = [source.x, source.x.tolist(), torch.tensor(source.x, requires_grad=True)]
    rows = [
        ad.adapt(small(), (x, source.y), target.x, ad.SourceOnly(), ad.Training(2), batch_size=24).rows for x in given
    ]
    assert len({row[-1]["loss"] for row in rows}) == 1


def test_a_stream_of_loaders_goes_on_where_it_is_asked():
    batches = [(torch.full((2, 1), float(i)), torch.tensor([i, i])) for i in range(3)]
    stream = LoaderStream(batches, [b[0] for b in batches])
    firsts = [float(stream.batch(i).source[0, 0]) for i in (0, 1, 4, 2)]
    assert firsts == [0.0, 1.0, 1.0, 2.0]


def test_the_next_batch_of_this_process_is_made_ahead():
    made = []

    class Numbers:
        def batch(self, number):
            made.append(number)
            return number

    ahead = Prefetched(Numbers(), stride=2)
    assert [ahead.batch(number) for number in (1, 3, 5)] == [1, 3, 5]
    ahead.close()
    assert made in ([1, 3, 5], [1, 3, 5, 7])  # the last may be given up


def test_source_batches_hold_all_classes_alike_and_depend_on_their_number_only():
    source, target = domains()
    stream = DomainStream(source, target, 30, seed=3)
    for number in (0, 7, 100):
        assert np.bincount(stream.batch(number).labels).tolist() == [10, 10, 10]
    assert torch.equal(stream.batch(7).source, DomainStream(source, target, 30, seed=3).batch(7).source)
    tiny = ad.Domain(source.x[:5], source.y[:5], "tiny", NAMES)
    assert len(DomainStream(tiny, tiny, 30, seed=0).batch(0).target) == 30


def test_the_rate_follows_the_paper():
    training = ad.Training(100, schedule="annealed", lr=0.01, head_lr=10.0)
    assert training.rate(0) == 1
    assert training.rate(100) == pytest.approx(11**-0.75)
    groups = training.build(small(), None).param_groups
    assert [group["lr"] for group in groups] == [0.01, 0.1]
    assert len(groups[1]["params"]) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "iterations must be"),
        ({"iterations": 5, "lr": 0.0}, "lr and head_lr must be above 0"),
        ({"iterations": 5, "optimizer": "lbfgs"}, "optimizer must be"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ad.Training(**settings)


def test_a_config_makes_the_method_it_names(tmp_path):
    base = {"source": "usps", "target": "mnist"}
    config = make_config(base | {"method": "m-pot", "mass": 0.8, "mass_from": 0.1, "mass_iterations": 10})
    method = config.build_method()
    assert method.name == "m-POT"
    assert method.schedule(5) == pytest.approx(0.45)
    assert make_config(base | {"method": "m-uot"}).build_method().problem == sp.Unbalanced(1.0, 0.1)
    assert make_config(base | {"method": "ts-ot"}).build_method().name == "TS-OT"
    path = tmp_path / "run.json"
    path.write_text(config.to_json())
    assert read_config(path, {}) == config
    assert read_config(path, {"seed": 3}).seed == 3
    for wrong, message in [
        ({"method": "m-xot"}, "method must be one of"),
        ({"mass": 2.0}, "mass"),
        ({"speed": 1}, "Got speed too"),
        ({"iterations": 2.5}, "iterations must be of the type int"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make_config(base | wrong)
    with pytest.raises(ValueError, match="must say target"):
        make_config({"source": "usps"})


def test_the_estimator_adapts_features():
    source, target = domains(240, shift=3.0)
    model = ad.DeepAdapter(iterations=150, batch_size=48, bottleneck=16, standardize=False, lr=0.02)
    labels = np.array(["x", "y", "z"])[source.y]
    accuracy = (model.fit(source.x, labels, target.x).predict(target.x) == labels).mean()
    alone = ad.DeepAdapter(ad.SourceOnly(), iterations=150, batch_size=48, bottleneck=16, standardize=False, lr=0.02)
    assert accuracy > 0.9
    assert accuracy > (alone.fit(source.x, labels, target.x).predict(target.x) == labels).mean()
    np.testing.assert_allclose(model.predict_proba(target.x).sum(axis=1), 1.0)
    assert model.transform(target.x).shape == (240, 16)
    with pytest.raises(NotFittedError):
        ad.DeepAdapter().predict(target.x)
    with pytest.raises(ValueError, match="continuous"):
        model.fit(source.x, np.linspace(0, 1, 240))


@pytest.mark.parametrize("method", ["m-ot", "m-uot", "m-pot", "ts-pot", "dann", "cdan-e", "alda", "rot", "ba3us"])
def test_batches_of_loaders_are_taken_as_they_are(method):
    source, target = domains()
    data = torch.utils.data.TensorDataset(torch.tensor(np.array(source.x)), torch.tensor(np.array(source.y)))
    loaders = torch.utils.data.DataLoader(data, 10), torch.utils.data.DataLoader(torch.tensor(np.array(target.x)), 25)
    batch = LoaderStream(*loaders).batch(0)
    assert (len(batch.source), len(batch.labels), len(batch.target)) == (10, 10, 25)
    chosen = make_config({"source": "usps", "target": "mnist", "method": method, "hidden": 8}).build_method()
    record = ad.adapt(ad.feature_network(2, 3, 4), *loaders, chosen, ad.Training(3), test={"target": target})
    assert np.isfinite(record.rows[-1]["loss"])
