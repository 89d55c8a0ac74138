"""Training that adapts: how long and how fast, and phases of one turn each for the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from spadeful.adapt.methods.base import Batch, Method, Step, like_weights, precision_of
from spadeful.adapt.selection import RULES, check_rule
from spadeful.batches import check_count
from spadeful.training import loop, states
from spadeful.training.loop import Learners, Turn
from spadeful.training.record import Record
from spadeful.training.settings import by_name
from spadeful.training.streams import Stream

#: Measures of a network by name, such as the accuracy on the target.
Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass(frozen=True)
class Training:
    """How long and how fast to train.

    The learning rate at iteration t, progress q = t / iterations, is `lr` ("constant"), lr (1 + 10 q)^-0.75
    ("annealed", the paper's for images) or lr (1 + 0.001 t)^-0.75 ("decayed", that of the authors' code, the same at
    the paper's 10,000 iterations). The network's new layers, the classifier if it names none, and a method's own
    modules learn `head_lr` times as fast. `select` is the rule, one of `selection.RULES`, by which the best
    checkpoint is chosen.
    """

    iterations: int
    lr: float = 4e-4
    optimizer: Literal["adam", "sgd"] = "adam"
    schedule: Literal["constant", "annealed", "decayed"] = "constant"
    head_lr: float = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    evaluate_every: int = 50
    seed: int = 0
    select: str = "density"

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("evaluate_every", 1), ("seed", 0)):
            object.__setattr__(self, name, check_count(getattr(self, name), name, least))
        check_rule(self.select)
        if not (0 < self.lr < math.inf and 0 < self.head_lr < math.inf):
            raise ValueError(f"lr and head_lr must be above 0. Got {self.lr!r} and {self.head_lr!r} instead.")
        if self.optimizer not in ("adam", "sgd") or self.schedule not in ("constant", "annealed", "decayed"):
            raise ValueError(
                "optimizer must be 'adam' or 'sgd', schedule 'constant', 'annealed' or 'decayed'. "
                f"Got {self.optimizer!r} and {self.schedule!r} instead."
            )

    def rate(self, iteration: int) -> float:
        """What the learning rates are multiplied by."""
        if self.schedule == "constant":
            return 1.0
        progress = 10 * iteration / self.iterations if self.schedule == "annealed" else 0.001 * iteration
        return float((1 + progress) ** -0.75)

    def build(self, network: nn.Module, own: nn.Module | None) -> Optimizer:
        """The optimiser, its groups: the feature extractor, the new layers, what the method brings."""
        new = getattr(network, "new_layers", None) or [getattr(network, "classifier", nn.Module())]
        head = {parameter for layer in new for parameter in layer.parameters()}
        groups = [
            {"params": [p for p in network.parameters() if p not in head], "lr": self.lr},
            {"params": [p for p in network.parameters() if p in head], "lr": self.lr * self.head_lr},
            {"params": list(own.parameters()) if own else [], "lr": self.lr * self.head_lr},
        ]
        groups = [group | {"first_lr": group["lr"]} for group in groups if group["params"]]
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, weight_decay=self.weight_decay, fused=True)  # one pass over the weights
        return torch.optim.SGD(
            groups, momentum=self.momentum, weight_decay=self.weight_decay, nesterov=self.momentum > 0, fused=True
        )


@dataclass(frozen=True)
class Phase:
    """One method for some iterations, with a fresh optimiser."""

    method: Method
    training: Training


@dataclass(frozen=True)
class Adaptation:
    """A phase as the training loop sees it: one turn an iteration, of the network and a method's own modules."""

    network: nn.Module
    sizes: tuple[int, int]
    method: Method
    training: Training

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def settings(self) -> dict[str, Any]:
        # A method goes by its name, so that a kind of it that only looks on is the same.
        return by_name("training", self.training) | by_name("method", self.method) | {"method": self.name}

    def learners(self) -> Learners:
        own = self.method.modules(*self.sizes)
        if own is not None:
            own.to(precision_of(self.network))
        modules = {"network": self.network} | ({"method": own} if own is not None else {})
        return Learners(modules, {"optimizer": self.training.build(self.network, own)})

    def turns(self, modules: Mapping[str, Any], draw: Callable[[], Any], iteration: int) -> Iterator[Turn]:
        step = Step(iteration, iteration / self.training.iterations, modules.get("method"))

        def suited() -> Batch:
            batch = draw()
            source, target = (like_weights(self.network, x) for x in (batch.source, batch.target))
            return Batch(source, batch.labels, target)

        yield Turn("optimizer", self.method.losses(modules["network"], suited, step))


def train(
    network: nn.Module,
    phases: Sequence[Phase],
    stream: Stream,
    evaluate: Evaluate,
    *,
    sizes: tuple[int, int],
    settings: dict[str, Any] | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Record:
    """Train a network through the phases; returns what was measured on the way.

    `sizes` are the numbers of features and classes, which a method's own modules are made for. With a folder, a
    checkpoint is kept at every evaluation, and the best one as a copy; `resume` goes on from the last one to the
    same weights, bit for bit on a CPU with as many threads. Other settings are refused, but for more iterations of
    the phase that it is in; `settings` are those that phases and stream do not tell, such as what is tested on.
    """
    return loop.train(
        [Adaptation(network, sizes, phase.method, phase.training) for phase in phases],
        stream,
        lambda _: evaluate(network),
        Record([], phases[-1].training.select, RULES),
        room=states.room_for(network),
        settings=settings,
        folder=folder,
        resume=resume,
        fabric=fabric,
        progress=progress,
    )
