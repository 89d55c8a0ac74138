"""Measure iterations of deep domain adaptation: prints tables, writes adapt.json.

Digits: all methods, plain cross-entropy on the same two batches, and a DeepJDOT step of skada where it is installed
(`make rivals`) take turns in one training loop of one network. Time on one thread is processor time, so that others on
the machine do not count; on two it is time on the wall. Real data where SPADEFUL_DATA names its folder.
"""

from __future__ import annotations

import ot  # noqa: F401  # isort: skip  (first: skada needs its torch backend, which the next line turns off)
import run  # isort: skip
import copy
import json
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cloud
import entropic
import spadeful as sp
import tables
from goals import goal
from measure import thread_clock, tick, wall_clock
from spadeful import loss as loss_module
from spadeful.adapt import Domain, SourceOnly, Training, Transport, TwoStage, feature_network
from spadeful.adapt.data import source_and_target
from spadeful.adapt.methods import Batch, Draw, Step, two_stage
from spadeful.adapt.networks import usps_network
from spadeful.adapt.streams import DomainStream
from spadeful.adapt.train import Phase, train

PLAIN, SKADA = "cross-entropy", "skada DeepJDOT"
COST = sp.JointCost(0.1, 0.1)
METHODS = [Transport(problem, COST) for problem in (sp.Balanced(), sp.Partial(0.85), sp.Unbalanced(1.0, 0.1))]
PARTS = ("network", "cost", "solver", "transfer")
SHARE, OVER = 0.03, 1.05
#: Two stages: the problem and its cost, the bounds of seconds and of megabytes, and pairs in which each style is once.
ALIGNED = TwoStage(sp.Partial(0.65), sp.JointCost(0.01, 0.5))
SECONDS, MEGABYTES = 2.0, 300.0
STYLES = ("photo", "sketch", "art_painting", "cartoon")
PACS = [(f"pacs:{source}", f"pacs:{target}") for source, target in zip(STYLES, STYLES[1:] + STYLES[:1], strict=True)]
RANDOM = "random"

has_data = bool(os.environ.get("SPADEFUL_DATA"))


@dataclass(frozen=True)
class Always:
    """A stream of one batch."""

    only: Batch

    def batch(self, number: int) -> Batch:
        return self.only


@dataclass(frozen=True)
class CrossEntropy:
    """What the network alone takes: both batches there and back, the target with some labels."""

    name: str = PLAIN
    batches_per_iteration: int = 1

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        _, source = network(batch.source)
        _, target = network(batch.target)
        yield cross_entropy(source, batch.labels) + cross_entropy(target, batch.labels)


def skada_module(network: nn.Module) -> nn.Module:
    """A network as skada wants it: one module, whose layer it is told by name."""
    return nn.Sequential(OrderedDict(features=network.features, classifier=network.classifier))


def skada_batch(batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """A batch as skada wants it: both domains in one, the labels of the target masked."""
    sides = torch.ones(len(batch.source), dtype=torch.int64), -torch.ones(len(batch.target), dtype=torch.int64)
    x = {"X": torch.cat([batch.source, batch.target]), "sample_domain": torch.cat(sides)}
    return x, torch.cat([batch.labels, torch.full_like(batch.labels, -1)])


class Skada:
    """A DeepJDOT step of skada on a copy of the network, with its own optimiser: nothing is left for our loop."""

    name = SKADA

    def __init__(self, network: nn.Module, batch: Batch) -> None:
        from skada.deep import DeepJDOT

        kinds = {"reg_dist": COST.alpha, "reg_cl": COST.lam, "optimizer": torch.optim.Adam, "lr": 4e-4}
        module = skada_module(copy.deepcopy(network))
        self.net = DeepJDOT(module, "features", train_split=None, **kinds).initialize()
        self.batch = skada_batch(batch)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        self.net.train_step(self.batch)
        return iter(())


def check_same_loss(network: nn.Module, batch: Batch) -> None:
    """skada's loss of some features is ours."""
    from skada.deep.losses import deepjdot_loss

    with torch.no_grad():
        (source, _), (target, logits) = network(batch.source), network(batch.target)
        theirs = deepjdot_loss(batch.labels, logits, source, target, COST.alpha, COST.lam)
        ours = sp.MiniBatchLoss(sp.Balanced(), COST)(source, target, batch.labels, logits)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, err_msg="skada and spadeful disagree")


@dataclass
class Relay:
    """Methods that take turns, an iteration each, and what every part of an iteration took."""

    methods: list[Any]
    clock: Callable[[], float]
    spent: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    since: float | None = None
    backward: float | None = None
    name: str = "relay"
    batches_per_iteration: int = 1

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return None

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        now = self.clock()
        if self.since is not None:
            self.rows.append({"total": now - self.since, **self.spent})
        self.spent.clear()
        self.since = self.clock()
        for loss in self.methods[step.iteration % len(self.methods)].losses(network, draw, step):
            self.backward = self.clock()
            yield loss

    def reached_network(self, gradient: Tensor) -> None:
        """The backward pass has left the cost: whatever was made after the network goes before it."""
        if self.backward is not None:
            self.spent["backward"] = self.clock() - self.backward
            self.backward = None

    def watch(self, network: nn.Module) -> None:
        """Take the time of the loss, of the operator in it and of the solver in that."""
        timed = cloud.timed
        loss_module.solve = timed(loss_module.solve, self.spent, "solver", self.clock)
        loss_module.transport_plan = timed(loss_module.transport_plan, self.spent, "plan", self.clock)
        loss_module.MiniBatchLoss.forward = timed(loss_module.MiniBatchLoss.forward, self.spent, "loss", self.clock)

        def look(module: nn.Module, given: Any, found: tuple[Tensor, Tensor]) -> None:
            if found[1].requires_grad:
                found[1].register_hook(self.reached_network)

        network.register_forward_hook(look)


def parts_of(row: dict[str, float]) -> dict[str, float]:
    """An iteration's seconds: the network with its optimiser and cross-entropy, and what transport adds to it."""
    loss, plan, solver = (row.get(name, 0.0) for name in ("loss", "plan", "solver"))
    cost = loss - plan + row["backward"] if loss else 0.0
    return {"network": row["total"] - cost - plan, "cost": cost, "solver": solver, "transfer": plan - solver}


def quartiles(values: Any) -> list[float]:
    return [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]


def iterations(case: dict[str, Any]) -> dict[str, Any]:
    """The methods in turn, on so many threads of torch."""
    torch.set_num_threads(case["threads"])
    fine = tick(thread_clock) < 1e-4  # some systems count the processor's time in steps of milliseconds
    clock = thread_clock if case["threads"] == 1 and fine else wall_clock
    pair = source_and_target(*(("usps", "mnist") if has_data else ("fonts", "handwritten")))
    stream = DomainStream(pair.source, pair.target, case["m"], 0)
    torch.manual_seed(0)
    network, batch = usps_network(), stream.batch(0)
    train(network, [Phase(SourceOnly(), Training(case["warm"]))], stream, lambda _: {}, sizes=(128, 10))
    methods: list[Any] = [CrossEntropy(), *METHODS]
    if case["skada"]:
        check_same_loss(network, batch)
        methods.append(Skada(network, batch))
    relay = Relay(methods, clock)
    relay.watch(network)
    count = len(methods) * (case["rounds"] + 1)
    # The last iteration has no end: one more is begun.
    train(network, [Phase(relay, Training(count + 1))], Always(batch), lambda _: {}, sizes=(128, 10))
    rows = relay.rows[len(methods) : count]  # without the first of each, which finds nothing ready
    by_name = {method.name: rows[i :: len(methods)] for i, method in enumerate(methods)}
    times = {name: np.array([row["total"] for row in found]) for name, found in by_name.items()}
    best = {name: float(each.min()) for name, each in times.items()}
    split = {}
    for method in METHODS:
        parts = [parts_of(row) for row in by_name[method.name]]
        split[method.name] = {part: float(np.min([each[part] for each in parts])) for part in PARTS}
    return {
        "threads": case["threads"],
        "clock": "processor" if clock is thread_clock else "wall",
        "digits": f"{pair.source.name} to {pair.target.name}",
        "m": case["m"],
        "rounds": case["rounds"],
        "seconds": best,
        "spread": {name: quartiles(each) for name, each in times.items()},
        "to cross-entropy": {name: best[name] / best[PLAIN] for name in best if name != PLAIN},
        "to cross-entropy, round by round": {
            name: quartiles(times[name] / times[PLAIN]) for name in best if name != PLAIN
        },
        "split": split,
        "share": {name: parts["solver"] / sum(parts.values()) for name, parts in split.items()},
        "skada to m-OT": best[SKADA] / best["m-OT"] if SKADA in best else None,
        "skada to m-OT, round by round": quartiles(times[SKADA] / times["m-OT"]) if SKADA in best else None,
    }


def random_domains(size: int) -> tuple[Domain, Domain]:
    """Seven classes in 2048 dimensions, and the same moved, with noise on every point."""
    rng = np.random.default_rng(0)
    y = np.arange(size) % 7
    centres = rng.normal(size=(7, 2048))
    x, moved = (centres[y] + rng.normal(size=(size, 2048)) + shift for shift in (0.0, 0.2))
    names = tuple("abcdefg")
    return Domain(x.astype(np.float32), y, RANDOM, names), Domain(moved.astype(np.float32), None, RANDOM, names)


def two_stages(case: dict[str, Any]) -> dict[str, Any]:
    """Problems between k*m points of a network for features: how long, how much memory, and where the time goes."""
    torch.set_num_threads(1)
    m, k = case["m"], case["k"]
    if case["source"] == RANDOM:
        source, target = random_domains(m * k)
    else:
        source, target = source_and_target(case["source"], case["target"])[:2]
    stream = DomainStream(source, target, m, 0)
    torch.manual_seed(0)
    network = feature_network(2048, 7, bottleneck=256)
    training = Training(100, lr=1e-3, optimizer="sgd")
    train(network, [Phase(SourceOnly(), training)], stream, lambda _: {}, sizes=(256, 7))
    batches = [stream.batch(i) for i in range(k)]
    ALIGNED.align(network, batches[:2], ALIGNED.problem)  # loading code takes time and memory too, but once
    spent: dict[str, float] = {}
    network.forward = cloud.timed(network.forward, spent, "network", thread_clock)
    two_stage.solve = cloud.timed(two_stage.solve, spent, "solver", thread_clock)
    sp.JointCost.whole = cloud.timed(sp.JointCost.whole, spent, "cost", thread_clock)
    runs = []
    for _ in range(case["repeats"]):
        spent.clear()
        before = cloud.anonymous()
        watch = cloud.Stopwatch()
        with cloud.peak_memory() as most:
            ALIGNED.align(network, batches, ALIGNED.problem)
        passed = watch.read()
        runs.append({**passed, "problem": passed["cpu"] - spent["network"], **spent, "bytes": most[0] - before})
    fastest = min(runs, key=lambda r: r["problem"])
    return {**case, **fastest, "bytes": max(r["bytes"] for r in runs)}


def apart(case: dict[str, Any], **environment: str) -> dict[str, Any]:
    """A case in a process of its own."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    environment = {**os.environ, "POT_BACKEND_DISABLE_PYTORCH": "", **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_aligned(source: str, target: str, quick: bool) -> dict[str, Any]:
    case = {"kind": "two stages", "source": source, "target": target, "repeats": 1 if quick else 2}
    case |= {"m": 16, "k": 4} if quick else {"m": 64, "k": 64}
    return apart(case)


def measure(quick: bool) -> dict[str, Any]:
    size = {"m": 20, "warm": 2, "rounds": 1} if quick else {"m": 500, "warm": 30, "rounds": 6}
    # skorch is asked for, too: skada has its deep part only with it.
    size |= {"kind": "iterations", "skada": all(map(find_spec, ("skada", "skorch")))}
    pairs = [(RANDOM, RANDOM), *(PACS if has_data and not quick else [])]
    results = {
        "real data": has_data,
        # Threads that wait for one another sleep: on a busy machine they would keep each other from working.
        "iterations": [apart({**size, "threads": threads}, OMP_WAIT_POLICY="PASSIVE") for threads in (1, 2)],
        "two stages": [measure_aligned(*pair, quick) for pair in pairs],
    }
    return results | {"goals": judge(results)}


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    goals = []
    for found in results["iterations"]:
        on = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
        share, over = found["share"], {m.name: found["to cross-entropy"][m.name] for m in METHODS}
        most, slowest = max(share, key=share.__getitem__), max(over, key=over.__getitem__)
        goals += [
            goal(f"solver below 3 % of an iteration, {on}", SHARE, share[most], most, False),
            goal(f"iteration within 5 % of cross-entropy, {on}", OVER, over[slowest], slowest, False),
            goal(f"at least as fast as DeepJDOT of skada, {on}", 1.0, found["skada to m-OT"], "m-OT"),
        ]
    aligned = results["two stages"]
    longest, largest = (max(aligned, key=lambda r, what=what: r[what]) for what in ("problem", "bytes"))
    points = longest["m"] * longest["k"]
    return [
        *goals,
        goal(
            f"two stages, {points} points: below 2 s a problem", SECONDS, longest["problem"], pair_name(longest), False
        ),
        goal(
            f"two stages, {points} points: below 300 MB", MEGABYTES, largest["bytes"] / 1e6, pair_name(largest), False
        ),
    ]


def pair_name(aligned: dict[str, Any]) -> str:
    source, target = (aligned[side].removeprefix("pacs:").replace("_", " ") for side in ("source", "target"))
    return RANDOM if source == RANDOM else f"{source} to {target}"


def iterations_table(found: dict[str, Any]) -> Table:
    title = f"An iteration, {found['digits']}, m = {found['m']}, threads: {found['threads']} ({found['clock']} time)"
    shown = Table("method", "ms", *(f"{part}, ms" for part in PARTS), "to cross-entropy", title=title)
    for name, seconds in found["seconds"].items():
        parts = [f"{1000 * found['split'][name][part]:.1f}" if name in found["split"] else "" for part in PARTS]
        ratio = found["to cross-entropy"].get(name)
        shown.add_row(name, f"{1000 * seconds:.0f}", *parts, f"{ratio:.3f}" if ratio else "")
    return shown


def aligned_table(results: dict[str, Any]) -> Table:
    shown = Table("two stages", "problem, s", "cost, s", "solver, s", "network, s", "MB")
    for r in results["two stages"]:
        times = [f"{r[part]:.2f}" for part in ("problem", "cost", "solver", "network")]
        shown.add_row(pair_name(r), *times, f"{r['bytes'] / 1e6:.0f}")
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "adapt.json")
    results = measure(asked.quick)
    console = Console(width=120)
    for found in results["iterations"]:
        console.print(iterations_table(found))
    console.print(aligned_table(results))
    console.print(tables.goals_table(results))
    more = ["torch", *(name for name in ("skada", "skorch") if find_spec(name))]
    entropic.save({"machine": run.machine(*more), "quick": asked.quick, **results}, asked.target)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        asked_case = json.loads(sys.argv[2])
        kinds = {"iterations": iterations, "two stages": two_stages}
        print(json.dumps(kinds[asked_case["kind"]](asked_case)))
    else:
        main()
