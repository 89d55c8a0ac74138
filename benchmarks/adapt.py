"""Measure iterations of deep domain adaptation: prints tables, writes adapt.json.

Digits: all methods, plain cross-entropy on the same two batches, and a DeepJDOT step of skada where it is installed
(`make rivals`) take turns in one training loop of one network. Time on one thread is processor time, so that others on
the machine do not count; on two it is time on the wall. Real data where SPADEFUL_DATA names its folder.
"""

from __future__ import annotations

import ot  # noqa: F401  # isort: skip  (first: skada needs its torch backend, which the next line turns off)
import run  # isort: skip
import copy
import os
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
from measure import answered, apart, thread_clock, tick, wall_clock
from spadeful import loss as loss_module
from spadeful.adapt import SourceOnly, Training, Transport
from spadeful.adapt.data import source_and_target
from spadeful.adapt.methods import Batch, Draw, Step
from spadeful.adapt.networks import usps_network
from spadeful.adapt.streams import DomainStream
from spadeful.adapt.train import Phase, train

PLAIN, SKADA = "cross-entropy", "skada DeepJDOT"
COST = sp.JointCost(0.1, 0.1)
METHODS = [Transport(problem, COST) for problem in (sp.Balanced(), sp.Partial(0.85), sp.Unbalanced(1.0, 0.1))]
PARTS = ("network", "cost", "solver", "transfer")
SHARE, OVER = 0.03, 1.05
has_data = bool(os.environ.get("SPADEFUL_DATA"))
#: skada needs POT's torch backend. Threads that wait for one another sleep: on a busy machine they would keep each
#: other from working. Memory that was freed is kept (by glibc): to get it back from the system takes up to a fifth of
#: an iteration, more or less by chance.
QUIETLY = {
    "POT_BACKEND_DISABLE_PYTORCH": "",
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


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
    """Methods that take turns, an iteration each, and what every part of an iteration took.

    The order is another one in every round: an iteration finds memory as the one before it left it.
    """

    order: list[Any]
    clock: Callable[[], float]
    spent: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    since: float | None = None
    backward: float | None = None
    name: str = "relay"

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return None

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        now = self.clock()
        if self.since is not None:
            self.rows.append({"total": now - self.since, **self.spent})
        self.spent.clear()
        self.since = self.clock()
        for loss in self.order[step.iteration].losses(network, draw, step):
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
    rng = np.random.default_rng(0)
    # One round more, which finds nothing ready; and one iteration more, since the last has no end.
    order = [methods[i] for _ in range(case["rounds"] + 1) for i in rng.permutation(len(methods))]
    relay = Relay([*order, methods[0]], clock)
    relay.watch(network)
    train(network, [Phase(relay, Training(len(order) + 1))], Always(batch), lambda _: {}, sizes=(128, 10))
    measured = list(zip(order, relay.rows, strict=True))[len(methods) :]
    by_name = {method.name: [row for whose, row in measured if whose is method] for method in methods}
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


def measure(quick: bool) -> dict[str, Any]:
    size = {"m": 20, "warm": 2, "rounds": 1} if quick else {"m": 500, "warm": 30, "rounds": 24}
    # skorch is asked for, too: skada has its deep part only with it.
    size |= {"skada": all(map(find_spec, ("skada", "skorch")))}
    results = {
        "real data": has_data,
        "iterations": [apart(__file__, {**size, "threads": threads}, **QUIETLY) for threads in (1, 2)],
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
    return goals


def iterations_table(found: dict[str, Any]) -> Table:
    title = f"An iteration, {found['digits']}, m = {found['m']}, threads: {found['threads']} ({found['clock']} time)"
    shown = Table("method", "ms", *(f"{part}, ms" for part in PARTS), "to cross-entropy", title=title)
    for name, seconds in found["seconds"].items():
        parts = [f"{1000 * found['split'][name][part]:.1f}" if name in found["split"] else "" for part in PARTS]
        ratio = found["to cross-entropy"].get(name)
        shown.add_row(name, f"{1000 * seconds:.0f}", *parts, f"{ratio:.3f}" if ratio else "")
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "adapt.json")
    results = measure(asked.quick)
    console = Console(width=120)
    for found in results["iterations"]:
        console.print(iterations_table(found))
    console.print(tables.goals_table(results))
    more = ["torch", *(name for name in ("skada", "skorch") if find_spec(name))]
    entropic.save({"machine": run.machine(*more), "quick": asked.quick, **results}, asked.target)


if __name__ == "__main__":
    if not answered(iterations):
        main()
