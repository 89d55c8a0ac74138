"""Algorithm 3 of the paper: a feature network that parts real from generated batches, a generator that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from spadeful.adapt.methods.transport import letter
from spadeful.loss import MiniBatchLoss
from spadeful.problems import Problem, Sliced
from spadeful.training.loop import Turn

GENERATOR, FEATURES = "generator", "features"


class Batch(NamedTuple):
    """Real images, and the noise that as many are generated from."""

    images: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Adversarial:
    r"""Transport between k real and k generated mini-batches, seen through a feature network F.

    .. math:: \min_G \max_F \frac1k \sum_{i=1}^k L(F(X_i), F(Y_i)), \qquad Y_i = G(Z_i)

    with L the cost of transport of the `problem`. In every iteration F takes a step up, then G one down, on the same
    batches. Without a feature network, points are compared as they are.

    Parameters
    ----------
    problem : Balanced, Partial, Unbalanced or Sliced
        m-OT, m-POT or m-UOT; or transport between projections onto lines, which are new ones in every loss.
    n_batches : int
        k; 2 in the paper.
    pairing : "paired" or "all"
        The i-th real with the i-th generated batch (the paper's definition), or all k*k pairs (the authors' programs).
    debiased : bool
        Follow the mini-batch energy of Salimans et al. (2018): half the transport between different real batches and
        half that between different generated ones is taken off. With two batches and all pairs it is a fourth of
        theirs.
    """

    problem: Problem | Sliced
    n_batches: int = 2
    pairing: Literal["paired", "all"] = "paired"
    debiased: bool = False

    def __post_init__(self) -> None:
        if self.pairing not in ("paired", "all"):
            raise ValueError(f"pairing must be 'paired' or 'all'. Got {self.pairing!r} instead.")
        if self.n_batches < 1 + self.debiased:
            raise ValueError(
                f"n_batches must be at least {1 + self.debiased}{', to be debiased' if self.debiased else ''}. "
                f"Got {self.n_batches} instead."
            )
        _ = self.loss  # checks the problem

    @property
    def name(self) -> str:
        sliced = isinstance(self.problem, Sliced)
        kind = letter(self.problem.problem if isinstance(self.problem, Sliced) else self.problem)
        return f"{'s' if sliced else 'm'}-{kind}{' debiased' if self.debiased else ''}"

    @cached_property
    def loss(self) -> MiniBatchLoss:
        return MiniBatchLoss(self.problem)

    def turns(self, modules: Mapping[str, Any], draw: Callable[[], Batch], iteration: int = 0) -> Iterator[Turn]:
        """An iteration: the turn of the feature network, if there is one, and that of the generator."""
        self.loss.at(iteration * 4 * self.n_batches**2)  # there are fewer losses in one: a resumed run takes its lines
        batches = [draw() for _ in range(self.n_batches)]
        real = [batch.images for batch in batches]
        made = [modules[GENERATOR](batch.noise) for batch in batches]
        if FEATURES not in modules:
            yield Turn(GENERATOR, self.losses(lambda x: x, real, made))
            return
        features = modules[FEATURES]
        apart = [images.detach() for images in made]
        yield Turn(FEATURES, (-loss for loss in self.losses(features, real, apart)), "features_loss")
        with frozen(features):
            yield Turn(GENERATOR, self.losses(features, real, made))

    def losses(self, features: Callable[[Tensor], Tensor], real: list[Tensor], made: list[Tensor]) -> Iterator[Tensor]:
        """The parts of the loss; paired batches one at a time, so that k of them need the memory of one."""
        if self.pairing == "paired" and not self.debiased:
            for x, y in zip(real, made, strict=True):
                yield self.loss(features(x), features(y)) / self.n_batches
            return
        xs, ys = [features(x) for x in real], [features(y) for y in made]
        value = self.mean(zip(xs, ys, strict=True) if self.pairing == "paired" else product(xs, ys))
        if self.debiased:
            others = pairwise if self.pairing == "paired" else lambda batches: combinations(batches, 2)
            value = value - (self.mean(others(xs)) + self.mean(others(ys))) / 2
        yield value

    def mean(self, pairs: Any) -> Tensor:
        return torch.stack([self.loss(x, y) for x, y in pairs]).mean()


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """No gradients of the weights: only of what goes through."""
    learning = [weight for weight in module.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)
