"""The only training loop: any networks, any method, on any device, from anywhere in a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from spadeful.checkpoint import check_same_run
from spadeful.progress import progress_bar
from spadeful.training import states
from spadeful.training.record import Record
from spadeful.training.streams import Prefetched, Stream

#: Measures of the networks by name, given how many iterations are done.
Evaluate = Callable[[int], dict[str, float]]


class TrainingError(RuntimeError):
    """Training cannot go on; what was saved before stays."""


class Learners(NamedTuple):
    """Modules and the optimisers of them, both by the names that checkpoints keep them under.

    An optimiser's groups name the learning rate they begin with, `first_lr`.
    """

    modules: dict[str, nn.Module]
    optimizers: dict[str, Optimizer]


class Turn(NamedTuple):
    """Some losses, each sent backwards before the next is asked for, and the optimiser that then takes a step."""

    optimizer: str
    losses: Iterator[Tensor]
    name: str = "loss"  # what the log calls their sum


class Pace(Protocol):
    """How long and how fast to train."""

    @property
    def iterations(self) -> int: ...

    @property
    def evaluate_every(self) -> int: ...

    @property
    def seed(self) -> int: ...

    def rate(self, iteration: int) -> float:
        """What the learning rates are multiplied by."""


class Phase(Protocol):
    """A stretch of training with fresh optimisers."""

    @property
    def name(self) -> str: ...

    @property
    def training(self) -> Pace: ...

    @property
    def settings(self) -> dict[str, Any]:
        """What makes it this phase and no other, as JSON can hold it: see `by_name`."""

    def learners(self) -> Learners: ...

    def turns(self, modules: Mapping[str, Any], draw: Callable[[], Any], iteration: int) -> Iterator[Turn]:
        """An iteration: whose turn it is, one after the other. `draw()` gives the next batch of the stream."""


@dataclass
class Run:
    """A run in progress: where it is, what it has seen, and where it is kept."""

    fabric: Fabric
    stream: Prefetched
    evaluate: Evaluate
    folder: Path | None
    advance: Callable[[int], None]
    record: Record
    settings: dict[str, Any]
    drawn: int = 0
    saved: dict[str, Tensor] | None = None  # what a resumed phase begins with

    def draw(self) -> Any:
        """The next batch, on the device; every process has its own."""
        number = self.drawn * self.fabric.world_size + self.fabric.global_rank
        self.drawn += 1
        batch = self.stream.batch(number)
        return type(batch)(*(self.fabric.to_device(part) for part in batch))

    def go(self, number: int, phase: Phase, first: int) -> None:
        """One phase, from its iteration `first`."""
        training = phase.training
        if self.saved is None:
            torch.manual_seed(training.seed + number)
        learners = phase.learners()
        modules = {name: self.fabric.setup_module(module) for name, module in learners.modules.items()}
        if self.saved is not None:  # what an optimiser remembers goes where the weights are now
            states.unpack(self.saved, *learners)
            self.saved = None
        optimizers: dict[str, Any] = {
            name: self.fabric.setup_optimizers(optimizer) for name, optimizer in learners.optimizers.items()
        }
        for module in modules.values():
            module.train()
        losses: list[dict[str, float]] = []
        since = time.perf_counter()
        for iteration in range(first, training.iterations):
            for optimizer in optimizers.values():
                for group in optimizer.param_groups:
                    group["lr"] = group["first_lr"] * training.rate(iteration)
            found: dict[str, float] = {}
            for turn in phase.turns(modules, self.draw, iteration):
                optimizers[turn.optimizer].zero_grad()
                found[turn.name] = sum(self.backward(phase, turn, iteration))
                optimizers[turn.optimizer].step()
            losses.append(found)
            self.advance(1)
            done = iteration + 1
            if done % training.evaluate_every and done != training.iterations:
                continue
            row = {
                "phase": phase.name,
                "iteration": done,
                **{name: self.mean(sum(each[name] for each in losses) / len(losses)) for name in found},
                "seconds": (time.perf_counter() - since) / len(losses),
                **self.evaluate(done),
            }
            self.record.rows.append(row)
            self.keep(learners, {"phase": number, "iteration": done, "batch": self.drawn})
            losses, since = [], time.perf_counter()

    def mean(self, value: float) -> float:
        """Over the processes."""
        if self.fabric.world_size == 1:
            return value
        total: Any = self.fabric.all_reduce(torch.tensor(value, dtype=torch.float64), reduce_op="mean")
        return float(total)

    def backward(self, phase: Phase, turn: Turn, iteration: int) -> Iterator[float]:
        """Send the losses of a turn backwards, one at a time."""
        for loss in self.found(phase, turn, iteration):
            if not bool(torch.isfinite(loss)):
                raise TrainingError(
                    f"The loss of {phase.name} became {float(loss.detach())} at iteration {iteration + 1}, "
                    f"batch {self.drawn}. Lower the learning rate, or look for inputs that are not finite{self.kept}."
                )
            self.fabric.backward(loss)
            yield float(loss.detach())

    def found(self, phase: Phase, turn: Turn, iteration: int) -> Iterator[Tensor]:
        """The losses of a turn; what cannot be computed is refused with where that was."""
        try:
            yield from turn.losses
        except ValueError as error:
            raise TrainingError(
                f"{phase.name} stopped at iteration {iteration + 1}, batch {self.drawn}: {error} If the loss grew "
                f"before, lower the learning rate{self.kept}."
            ) from error

    @property
    def kept(self) -> str:
        """What an error says of the checkpoints so far, if there are any."""
        return "; the last checkpoint is kept" if self.folder and (self.folder / states.LAST).exists() else ""

    def keep(self, learners: Learners, where: dict[str, Any]) -> None:
        if self.folder is None:
            return
        state = where | {"rows": self.record.rows, "settings": self.settings}
        states.write(self.folder / states.LAST, states.pack(*learners), state)
        self.keep_best(self.folder)

    def keep_best(self, folder: Path) -> None:
        """What follows from the last checkpoint: the best one, if it is that, and the logs."""
        if self.record.best == self.record.rows[-1]:
            states.copy(folder / states.LAST, folder / states.BEST)
        self.record.write(folder)


def settings_of(shared: dict[str, Any], phases: Sequence[Phase]) -> dict[str, Any]:
    """What makes a run this one and no other: what its phases share, and the settings of each."""
    found = dict(shared)
    for number, phase in enumerate(phases, 1):
        found |= {f"{name} of phase {number}": value for name, value in phase.settings.items()}
    return found


def check_state(folder: str | Path, state: dict[str, Any], shared: dict[str, Any], phases: Sequence[Phase]) -> None:
    """That a run may go on from a state: it is the same as far as it has come, and its phase at most made longer.

    What only one of the two tells, as methods of one's own may do, is not compared. A state without settings tells
    which method it is of.
    """
    number, done = state["phase"], state["iteration"]
    if number >= len(phases) or done > phases[number].training.iterations:
        lengths = " and ".join(str(phase.training.iterations) for phase in phases)
        raise ValueError(
            f"The checkpoint in {folder} must belong to the same run. It is at iteration {done} of phase {number + 1}. "
            f"Got phases of {lengths} iterations instead; go on with all that it has, or choose another folder."
        )
    was = state.get("settings", {f"method of phase {number + 1}": state["rows"][-1]["phase"]})
    now = settings_of(shared, phases[: number + 1])
    now.pop(f"training.iterations of phase {number + 1}", None)
    check_same_run(folder, now | was, was | now)


def train(
    phases: Sequence[Phase],
    stream: Stream,
    evaluate: Evaluate,
    record: Record,
    *,
    room: int,
    settings: dict[str, Any] | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Record:
    """Train through the phases; returns the record with what was measured on the way.

    With a folder, a checkpoint is kept at every evaluation, and the best one as a copy, for which there must be so
    many bytes of `room`; `resume` goes on from the last one to the same weights, bit for bit on a CPU with as many
    threads. With other settings it is refused; those of the batches are the stream's `settings`, where it has them,
    and what else makes the run this one is in `settings`.
    """
    if resume and folder is None:
        raise ValueError("resume goes on with the run in a folder. Got no folder; name it, or leave out resume.")
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    total = sum(phase.training.iterations for phase in phases)
    with ExitStack() as stack:
        place = None
        if folder is not None and fabric.is_global_zero:
            place = stack.enter_context(closing(states.Folder(folder, room))).path
        last = Path(folder) / states.LAST if folder is not None else None
        if last is not None and last.exists() and not resume:
            raise FileExistsError(f"{folder} holds a run. Go on with it (resume), or choose another folder.")
        prefetched = stack.enter_context(closing(Prefetched(stream, fabric.world_size)))
        advance = stack.enter_context(progress_bar("iterations", total, progress and fabric.is_global_zero))
        shared = {"select": record.select, **getattr(stream, "settings", {}), **(settings or {})} if last else {}
        run = Run(fabric, prefetched, evaluate, place, advance, record, settings_of(shared, phases))
        number, first = 0, 0
        if last is not None and last.exists():
            run.saved, state = states.read(last)
            check_state(last.parent, state, shared, phases)
            run.record.rows, run.drawn = state["rows"], state["batch"]
            number, first = state["phase"], state["iteration"]
            if place is not None:
                run.keep_best(place)  # the run may have been killed right before
            advance(sum(phase.training.iterations for phase in phases[:number]) + first)
        for at in range(number, len(phases)):
            run.go(at, phases[at], first)
            first = 0
    return run.record
