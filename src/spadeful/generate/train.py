"""Training a generator: any networks, any set of points, through the one training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from spadeful.batches import Indices, check_count, sampled
from spadeful.engine import fingerprint
from spadeful.generate.method import FEATURES, GENERATOR, Adversarial, Batch
from spadeful.training import loop, states
from spadeful.training.loop import Evaluate, Learners, Turn
from spadeful.training.record import Record, Rule
from spadeful.training.settings import by_name

#: The rule by which the best checkpoint is kept, where a score is taken.
RULES = {"score": Rule("score", -1, "the score")}


class Points(Protocol):
    """A set that generators learn from, such as `Images`."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def take(self, indices: Indices) -> Tensor: ...


class NoiseStream:
    """Batches of real points, each point at most once, and of Gaussian noise; drawn from the seed and their number."""

    def __init__(self, points: Points, batch_size: int, latent: int, seed: int) -> None:
        self.points, self.latent, self.seed = points, latent, seed
        self._drawn = sampled(len(points), batch_size, 1 << 62, False, seed, 0, None, points.name)

    @property
    def settings(self) -> dict[str, Any]:
        """What the batches follow from."""
        x = getattr(self.points, "x", None)
        known = {"points": fingerprint(x)} if isinstance(x, np.ndarray) else {}
        return {"batch_size": self._drawn.batch_size, "latent": self.latent, "seed": self.seed, **known}

    def batch(self, number: int) -> Batch:
        rows = self._drawn.draw(np.array([number]))[0]
        # A key apart from that of the draws, which is 0.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(1, number)))
        noise = rng.standard_normal((len(rows), self.latent), dtype=np.float32)
        return Batch(self.points.take(rows), torch.from_numpy(noise))


@dataclass(frozen=True)
class Training:
    """How long and how fast: Adam, as in the paper."""

    iterations: int
    lr: float = 5e-4
    betas: tuple[float, float] = (0.5, 0.999)
    evaluate_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("evaluate_every", 1), ("seed", 0)):
            object.__setattr__(self, name, check_count(getattr(self, name), name, least))

    def rate(self, iteration: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Generation:
    """A run as the training loop sees it: the feature network, then the generator."""

    generator: nn.Module
    features: nn.Module | None
    method: Adversarial
    training: Training

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def settings(self) -> dict[str, Any]:
        return by_name("training", self.training) | by_name("method", self.method) | {"method": self.name}

    def learners(self) -> Learners:
        modules = {GENERATOR: self.generator} | ({} if self.features is None else {FEATURES: self.features})
        settings = {"lr": self.training.lr, "first_lr": self.training.lr, "betas": self.training.betas}
        optimizers: dict[str, torch.optim.Optimizer] = {
            f"{name} optimizer": torch.optim.Adam([{"params": module.parameters(), **settings}], fused=True)
            for name, module in modules.items()
        }
        return Learners(modules, optimizers)

    def turns(self, modules: Mapping[str, Any], draw: Callable[[], Batch], iteration: int) -> Iterator[Turn]:
        for turn in self.method.turns(modules, draw, iteration):
            yield turn._replace(optimizer=f"{turn.optimizer} optimizer")


def train(
    generator: nn.Module,
    features: nn.Module | None,
    points: Points,
    method: Adversarial,
    training: Training,
    *,
    batch_size: int = 100,
    latent: int = 32,
    evaluate: Evaluate | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Record:
    """Train a generator, and the feature network that it is seen through, in place (algorithm 3 of the paper).

    Parameters
    ----------
    generator, features : nn.Module
        From noise (b, latent) to points, and from points to features (b, d); points are compared as they are if
        `features` is None.
    points : Images, or any set with `take`
    evaluate : function of the iteration, optional
        What to measure; the checkpoint with the least "score" is kept as the best.
    folder, resume, fabric, progress
        See `spadeful.training.loop.train`.
    """
    both = [module for module in (generator, features) if module is not None]
    return loop.train(
        [Generation(generator, features, method, training)],
        NoiseStream(points, batch_size, latent, training.seed),
        evaluate or (lambda _: {}),
        Record([], "score", RULES),
        room=states.room_for(*both),
        folder=folder,
        resume=resume,
        fabric=fabric,
        progress=progress,
    )
