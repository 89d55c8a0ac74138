"""Adapt beside skada: the same features, network, batches and optimiser. Prints a table, writes beside.json.

Each library trains a copy of one network, whose bottleneck and classifier have learnt on the source, on the same
batches: DeepJDOT, which is our m-OT, and DANN. skada's own domain classifier ends in a softmax over a single output,
which is always 1 and teaches nothing; it is measured as it comes, and with our discriminator in its place. Time is that
of the processor on one thread. Features are those of Office-Caltech10 where SPADEFUL_DATA names their folder.
"""

from __future__ import annotations

import adapt  # isort: skip  (first: it prepares the backends of POT)
import copy
import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor, nn

import entropic
import spadeful as sp
import two_stages
from goals import goal
from measure import thread_clock
from spadeful.adapt import DANN, Domain, SourceOnly, Training, Transport, feature_network
from spadeful.adapt.call import predict
from spadeful.adapt.data import source_and_target
from spadeful.adapt.methods import Batch
from spadeful.adapt.methods.adversarial import discriminator, reverse
from spadeful.adapt.streams import DomainStream
from spadeful.adapt.train import Phase, train

STYLES = ("amazon", "caltech10", "dslr", "webcam")
BOTTLENECK, HIDDEN = 256, 256
COST = sp.JointCost(0.01, 0.5)
LR, DECAY = 2e-3, 5e-4
OURS = {"m-OT": Transport(sp.Balanced(), COST), "DANN": DANN(HIDDEN)}
#: What is compared with what: theirs, and ours.
PAIRS = {"skada DeepJDOT": "m-OT", "skada DANN": "DANN", "skada DANN, our discriminator": "DANN"}


class Discriminator(nn.Module):
    """Ours, as skada wants it: it reverses gradients itself and gives probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = discriminator(BOTTLENECK, 1, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(reverse(x))[:, 0].sigmoid()


def training(iterations: int) -> Training:
    return Training(iterations, LR, "sgd", weight_decay=DECAY, evaluate_every=iterations)


def skada_net(name: str, network: nn.Module) -> Any:
    from skada import deep

    module = adapt.skada_module(network)
    descent = {"momentum": 0.9, "nesterov": True, "weight_decay": DECAY}
    options = {"optimizer": torch.optim.SGD, "lr": LR, "train_split": None}
    options |= {f"optimizer__{name}": value for name, value in descent.items()}
    if name == "skada DeepJDOT":
        return deep.DeepJDOT(module, "features", reg_dist=COST.alpha, reg_cl=COST.lam, **options)
    own = {"num_features": BOTTLENECK} if name == "skada DANN" else {"domain_classifier": Discriminator()}
    return deep.DANN(module, "features", **own, **options)


class Fixed:
    """A stream of batches that are there already."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def batch(self, number: int) -> Batch:
        return self.batches[number % len(self.batches)]


def our_training(name: str, network: nn.Module, batches: list[Batch], classes: int) -> Callable[[], Any]:
    phase = Phase(OURS[name], training(len(batches)))
    return lambda: train(network, [phase], Fixed(batches), lambda _: {}, sizes=(BOTTLENECK, classes))


def their_training(name: str, network: nn.Module, batches: list[Batch], classes: int) -> Callable[[], Any]:
    net = skada_net(name, network).initialize()
    given = [adapt.skada_batch(batch) for batch in batches]

    def steps() -> None:
        for batch in given:
            net.train_step(batch)

    return steps


def accuracy(network: nn.Module, test: Domain) -> float:
    return 100 * float((predict(network, test)[1].argmax(1).numpy() == test.y).mean())


def measure_task(source: Domain, target: Domain, size: dict[str, int], seed: int, names: list[str]) -> dict[str, Any]:
    """Accuracy on the target and seconds an iteration, of every library and method."""
    classes = len(source.classes)
    torch.manual_seed(seed)
    network = feature_network(source.shape[0], classes, BOTTLENECK)
    stream = DomainStream(source, target.without_labels(), size["m"], seed)
    train(
        network, [Phase(SourceOnly(), Training(size["warm"], lr=LR))], stream, lambda _: {}, sizes=(BOTTLENECK, classes)
    )
    batches = [stream.batch(size["warm"] + i) for i in range(size["iterations"])]
    found: dict[str, Any] = {"source-only": {"accuracy": accuracy(network, target)}}
    for name in names:
        own = copy.deepcopy(network)
        torch.manual_seed(seed)
        steps = (our_training if name in OURS else their_training)(name, own, batches, classes)
        start = thread_clock()
        steps()
        seconds = (thread_clock() - start) / len(batches)
        found[name] = {"accuracy": accuracy(own, target), "seconds": seconds}
    return {"source": source.name, "target": target.name, "seed": seed, "found": found}


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    there = all(map(find_spec, ("skada", "skorch")))
    names = [*OURS, *(PAIRS if there else [])]
    size = {"m": 20, "warm": 2, "iterations": 2} if quick else {"m": 60, "warm": 100, "iterations": 200}
    domains: list[tuple[Domain, Domain]]
    if adapt.has_data and not quick:
        named = [(f"office-caltech10:{a}", f"office-caltech10:{b}") for a, b in itertools.permutations(STYLES, 2)]
        pairs = [source_and_target(*each) for each in named]
        domains = [(pair.source, pair.target_test) for pair in pairs]
    else:
        source, target = two_stages.random_domains(140)
        domains = [(source, Domain(target.x, source.y, target.name, source.classes))]
    seeds = (0,) if quick else (0, 1)
    tasks = [measure_task(*pair, size, seed, names) for pair in domains for seed in seeds]
    means = {
        name: {
            what: float(np.mean([task["found"][name][what] for task in tasks]))
            for what in ("accuracy", "seconds")
            if what in tasks[0]["found"][name]
        }
        for name in ("source-only", *names)
    }
    results = {"real data": adapt.has_data, "size": size, "seeds": seeds, "tasks": tasks, "means": means}
    return results | {"goals": judge(means)}


def judge(means: dict[str, Any]) -> list[dict[str, Any]]:
    goals = []
    for theirs, ours in PAIRS.items():
        both = means.get(theirs), means[ours]
        faster = both[0]["seconds"] / both[1]["seconds"] if both[0] else None
        better = both[1]["accuracy"] - both[0]["accuracy"] if both[0] else None
        goals += [
            goal(f"{ours} at least as fast as {theirs}", 1.0, faster, ours),
            goal(f"{ours} at least as accurate as {theirs}, points more", 0.0, better, ours),
        ]
    return goals


def table(results: dict[str, Any]) -> Table:
    size = results["size"]
    title = f"{len(results['tasks'])} runs of {size['iterations']} iterations, m = {size['m']}"
    shown = Table("method", "accuracy, %", "ms an iteration", title=title)
    for name, mean in results["means"].items():
        shown.add_row(name, f"{mean['accuracy']:.2f}", f"{1000 * mean['seconds']:.1f}" if "seconds" in mean else "")
    return shown


if __name__ == "__main__":
    rivals = [name for name in ("skada", "skorch") if find_spec(name)]
    entropic.report(__doc__, "beside.json", measure, table, "torch", *rivals)
