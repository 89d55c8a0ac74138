"""The only training loop: any network, any method, on any device, from anywhere in a run."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from spadeful.adapt import states
from spadeful.adapt.methods.base import Batch, Method, Step
from spadeful.adapt.selection import check_rule, chosen
from spadeful.adapt.streams import Prefetched, Stream
from spadeful.files import replacing
from spadeful.progress import progress_bar

#: Measures of a network by name, such as the accuracy on the target.
Evaluate = Callable[[nn.Module], dict[str, float]]


class TrainingError(RuntimeError):
    """Training cannot go on; what was saved before stays."""


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
        for name in ("iterations", "evaluate_every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1. Got {value!r} instead.")
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
            return torch.optim.Adam(groups, weight_decay=self.weight_decay)
        return torch.optim.SGD(
            groups, momentum=self.momentum, weight_decay=self.weight_decay, nesterov=self.momentum > 0
        )


@dataclass(frozen=True)
class Phase:
    """One method for some iterations, with a fresh optimiser."""

    method: Method
    training: Training


@dataclass
class Record:
    """What a run has been through: the measures at each evaluation, and which of them it calls the best."""

    rows: list[dict[str, Any]]
    select: str

    def chosen(self, rule: str) -> dict[str, Any]:
        """The best evaluation of the last phase by a rule of `selection.RULES`; empty if it cannot be told."""
        iterations = [row["iteration"] for row in self.rows]
        begins = [at for at in range(1, len(iterations)) if iterations[at] <= iterations[at - 1]]
        return chosen(self.rows[max(begins, default=0) :], rule)

    @property
    def best(self) -> dict[str, Any]:
        return self.chosen(self.select)

    def write(self, folder: Path) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with replacing(folder / "log.csv", force=True) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self.rows)
        with replacing(folder / "log.json", force=True) as temporary:
            temporary.write_text(json.dumps({"best": self.best, "rows": self.rows}, indent=1) + "\n")


@dataclass
class Run:
    """A run in progress: where it is, what it has seen, and where it is kept."""

    fabric: Fabric
    network: nn.Module
    stream: Prefetched
    evaluate: Evaluate
    sizes: tuple[int, int]
    folder: Path | None
    advance: Callable[[int], None]
    record: Record
    drawn: int = 0
    saved: dict[str, Tensor] | None = None  # what a resumed phase begins with

    def draw(self) -> Batch:
        """The next batch, on the device; every process has its own."""
        number = self.drawn * self.fabric.world_size + self.fabric.global_rank
        self.drawn += 1
        return Batch(*(self.fabric.to_device(part) for part in self.stream.batch(number)))

    def go(self, number: int, phase: Phase, first: int) -> None:
        """One phase, from its iteration `first`."""
        method, training = phase.method, phase.training
        if self.saved is None:
            torch.manual_seed(training.seed + number)
        own = method.modules(*self.sizes)
        optimizer = training.build(self.network, own)
        parts = {"network": self.network} | ({"method": own} if own is not None else {})
        if self.saved is not None:
            states.unpack(self.saved, parts, optimizer)
            self.saved = None
        model, optimizer = self.fabric.setup(self.network, optimizer)
        if own is not None:
            own = self.fabric.setup_module(own)
        model.train()
        losses: list[float] = []
        since = time.perf_counter()
        for iteration in range(first, training.iterations):
            for group in optimizer.param_groups:
                group["lr"] = group["first_lr"] * training.rate(iteration)
            optimizer.zero_grad()
            step = Step(iteration, iteration / training.iterations, own)
            losses.append(sum(self.backward(method, model, step)))
            optimizer.step()
            self.advance(1)
            done = iteration + 1
            if done % training.evaluate_every and done != training.iterations:
                continue
            row = {
                "phase": method.name,
                "iteration": done,
                "loss": self.mean(sum(losses) / len(losses)),
                "seconds": (time.perf_counter() - since) / len(losses),
                **self.evaluate(self.network),
            }
            self.record.rows.append(row)
            self.keep(parts, optimizer, {"phase": number, "iteration": done, "batch": self.drawn})
            losses, since = [], time.perf_counter()

    def mean(self, value: float) -> float:
        """Over the processes."""
        if self.fabric.world_size == 1:
            return value
        total: Any = self.fabric.all_reduce(torch.tensor(value, dtype=torch.float64), reduce_op="mean")
        return float(total)

    def backward(self, method: Method, model: Any, step: Step) -> Iterator[float]:
        """Send the losses of an iteration backwards, one at a time."""
        for loss in method.losses(model, self.draw, step):
            if not bool(torch.isfinite(loss)):
                raise TrainingError(
                    f"The loss of {method.name} became {float(loss.detach())} at iteration {step.iteration + 1}, "
                    f"batch {self.drawn}. Lower the learning rate, or look for inputs that are not finite; the last "
                    "checkpoint is kept."
                )
            self.fabric.backward(loss)
            yield float(loss.detach())

    def keep(self, parts: dict[str, nn.Module], optimizer: Any, where: dict[str, Any]) -> None:
        if self.folder is None:
            return
        state = where | {"rows": self.record.rows}
        states.write(self.folder / states.LAST, states.pack(parts, optimizer), state)
        if self.record.best == self.record.rows[-1]:
            states.copy(self.folder / states.LAST, self.folder / states.BEST)
        self.record.write(self.folder)


def train(
    network: nn.Module,
    phases: Sequence[Phase],
    stream: Stream,
    evaluate: Evaluate,
    *,
    sizes: tuple[int, int],
    folder: str | Path | None = None,
    resume: bool = False,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Record:
    """Train through the phases; returns what was measured on the way.

    `sizes` are the numbers of features and classes, which a method's own modules are made for. With a folder, a
    checkpoint is kept at every evaluation, and the best one as a copy; `resume` goes on from the last one to the
    same weights, bit for bit on a CPU with as many threads.
    """
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    total = sum(phase.training.iterations for phase in phases)
    with ExitStack() as stack:
        place = None
        if folder is not None and fabric.is_global_zero:
            weights = sum(p.numel() * p.element_size() for p in network.parameters())
            place = stack.enter_context(closing(states.Folder(folder, room=10 * weights + 1_000_000))).path
        last = Path(folder) / states.LAST if folder is not None else None
        if last is not None and last.exists() and not resume:
            raise FileExistsError(f"{folder} holds a run. Go on with it (resume), or choose another folder.")
        prefetched = stack.enter_context(closing(Prefetched(stream)))
        advance = stack.enter_context(progress_bar("iterations", total, progress and fabric.is_global_zero))
        run = Run(fabric, network, prefetched, evaluate, sizes, place, advance, Record([], phases[-1].training.select))
        number, first = 0, 0
        if last is not None and last.exists():
            run.saved, state = states.read(last)
            run.record.rows, run.drawn = state["rows"], state["batch"]
            number, first = state["phase"], state["iteration"]
            advance(sum(phase.training.iterations for phase in phases[:number]) + first)
        for at in range(number, len(phases)):
            run.go(at, phases[at], first)
            first = 0
    return run.record
