"""Measure iterations of deep generative models: prints a table, writes generate.json.

Networks are the paper's, images and noise random: what an iteration takes does not depend on them. Time is that of the
processor on one thread, so that others on the machine do not count. The cost and the solver are those of both turns,
with the way back to the features.
"""

from __future__ import annotations

import entropic  # isort: skip  (first: it sets one thread before NumPy is imported)
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

import cloud
import spadeful as sp
from goals import goal
from measure import thread_clock
from spadeful import loss as loss_module
from spadeful.adapt.networks import network_for
from spadeful.generate.data import Images
from spadeful.generate.features import Features
from spadeful.generate.method import Adversarial
from spadeful.generate.networks import FeatureNetwork, Generator
from spadeful.generate.samples import generated, noise
from spadeful.generate.score import Score, reference
from spadeful.generate.train import Training, train
from spadeful.training.loop import Turn

SHAPES = {"28x28, grey": (1, 28, 28), "32x32, CIFAR-10": (3, 32, 32), "64x64, CelebA": (3, 64, 64)}
PROBLEMS = {"m-OT": sp.Balanced(), "m-POT": sp.Partial(0.98)}
SIZE, N_BATCHES = 200, 2
PARTS = ("networks", "cost", "solver")
#: Of the cost and the solver together in an iteration.
SHARE = 0.15
#: Images of 28x28 that are generated and scored, in so many seconds.
SCORED, MINUTE = 11_000, 60.0

spent: dict[str, float] = {}
plain_forward = loss_module.MiniBatchLoss.forward


def whole_loss(self: Any, x: Tensor, y: Tensor) -> Tensor:
    """The loss with its way back to the features done at once; the networks have theirs later."""
    start = thread_clock()
    inputs = [points.detach().requires_grad_(points.requires_grad) for points in (x, y)]
    value = plain_forward(self, *inputs)
    wanted = [(points, leaf) for points, leaf in zip((x, y), inputs, strict=True) if leaf.requires_grad]
    slopes = torch.autograd.grad(value, [leaf for _, leaf in wanted])
    spent["loss"] = spent.get("loss", 0.0) + thread_clock() - start
    return sum((points * slope).sum() for (points, _), slope in zip(wanted, slopes, strict=True)) + 0 * value.detach()


@dataclass(frozen=True)
class Watched(Adversarial):
    """The method, and what each of its iterations took."""

    rows: list[dict[str, float]] = field(default_factory=list)
    since: list[float] = field(default_factory=list)

    def turns(self, modules: Any, draw: Any, iteration: int = 0) -> Iterator[Turn]:
        now = thread_clock()
        if self.since:
            self.rows.append({"total": now - self.since[-1], **spent})
        spent.clear()
        self.since.append(thread_clock())
        yield from super().turns(modules, draw, iteration)


def case(name: str, method: str, m: int, rounds: int) -> dict[str, Any]:
    shape = SHAPES[name]
    rng = np.random.default_rng(0)
    images = Images(rng.integers(0, 256, (4 * m, *shape[1:], shape[0]), dtype=np.uint8), name)
    torch.manual_seed(0)
    watched = Watched(PROBLEMS[method], N_BATCHES)
    # The first iteration finds nothing ready, the last has no end.
    train(Generator(shape), FeatureNetwork(shape), images, watched, Training(rounds + 2), batch_size=m)
    fastest = min(watched.rows[1:], key=lambda row: row["total"])
    parts = {
        "networks": fastest["total"] - fastest["loss"],
        "cost": fastest["loss"] - fastest["solver"],
        "solver": fastest["solver"],
    }
    sizes = {"images": name, "method": method, "m": m, "k": N_BATCHES}
    return {**sizes, "seconds": fastest["total"], **parts, "share": fastest["loss"] / fastest["total"]}


def measure_score(count: int) -> dict[str, Any]:
    """Images of 28x28 are generated, and looked at by the paper's classifier of digits."""
    shape = SHAPES["28x28, grey"]
    features = Features(network_for(shape, 10).features.eval(), shape, "a classifier", "")
    real = Images(np.random.default_rng(0).integers(0, 256, (500, *shape[1:], 1), dtype=np.uint8), "random")
    score, generator = Score(features, reference(features, real)), Generator(shape)
    start = thread_clock()
    score(generated(generator, noise(count, generator.latent, 0)))
    return {"images": count, "seconds": thread_clock() - start}


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    loss_module.solve = cloud.timed(loss_module.solve, spent, "solver", thread_clock)
    loss_module.MiniBatchLoss.forward = whole_loss
    names = list(SHAPES)[:1] if quick else list(SHAPES)
    m, rounds = (10, 1) if quick else (SIZE, 3)
    cases = [case(name, method, m, rounds) for name in names for method in PROBLEMS]
    worst = max(cases, key=lambda found: found["share"])
    where = f"{worst['images']}, {worst['method']}"
    title = f"cost and solver below {SHARE:.0%} of an iteration of a generator, m = {m}"
    scored = measure_score(100 if quick else SCORED)
    goals = [
        goal(title, SHARE, worst["share"], where, False),
        goal(
            f"{scored['images']:,} images of 28x28 scored within a minute", MINUTE, scored["seconds"], "seconds", False
        ),
    ]
    return {"cases": cases, "score": scored, "goals": goals}


def table(results: dict[str, Any]) -> Table:
    shown = Table("images", "method", "m", "k", "iteration, ms", *(f"{part}, ms" for part in PARTS), "transport, %")
    for found in results["cases"]:
        times = [f"{1000 * found[part]:.1f}" for part in ("seconds", *PARTS)]
        row = [found["images"], found["method"], str(found["m"]), str(found["k"]), *times]
        shown.add_row(*row, f"{100 * found['share']:.1f}")
    return shown


if __name__ == "__main__":
    entropic.report(__doc__, "generate.json", measure, table, "torch")
