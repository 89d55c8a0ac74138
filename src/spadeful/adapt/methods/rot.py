"""ROT: the robust Wasserstein distance, whose dual leaves points of the target out (Balaji et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu, softplus
from torch.nn.utils.parametrizations import spectral_norm

from spadeful.adapt.methods.adversarial import entropies, reverse
from spadeful.adapt.methods.base import Draw, Step, both

#: What leaving the ball of weights costs, and the least weight before they are scaled: both as in the authors' code.
PENALTY, LEAST = 100.0, 1e-4


def weights_of(scores: Tensor) -> Tensor:
    """Weights of mean 1, at least nearly 0."""
    positive = relu(scores) + LEAST
    return positive / positive.mean()


def beyond_the_ball(weights: Tensor, rho: float) -> Tensor:
    r"""How far :math:`\frac12 \mathrm{E}(w - 1)^2`, the chi-squared divergence, exceeds :math:`\rho`."""
    return relu(((weights - 1) ** 2).mean() / 2 - rho)


class Critic(nn.Module):
    """A discriminator with bounded slopes, and the weights of the target's points."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        sizes = (features, hidden, hidden, 1)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [spectral_norm(nn.Linear(inputs, outputs)), nn.ReLU()]
        self.discriminator = nn.Sequential(*layers[:-1])
        self.weights = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the discriminator says of both domains, and the weights of the target's points."""
        of_source, of_target = (self.discriminator(reverse(x))[:, 0] for x in (source, target))
        return of_source, of_target, weights_of(self.weights(target.detach())[:, 0])


@dataclass(frozen=True)
class ROT:
    r"""Cross-entropy on the source plus the dual of robust transport, with weights w on the target's points.

    The discriminator D descends :math:`\mathrm{E}\,\ell(-D(s)) + \mathrm{E}\,w\,\ell(D(t))` with
    :math:`\ell = \log(1 + \exp)`, features and weights climb it; the weights stay within the chi-squared ball of radius
    `rho`, and the entropy of the target's predictions, weighted alike, is lowered. All take their steps at once, where
    the authors let them take turns; the weights are a function of the features, theirs of the image.
    """

    rho: float = 0.2
    entropy: float = 0.1
    hidden: int = 256
    name: str = "ROT"

    def __post_init__(self) -> None:
        if not self.rho > 0:
            raise ValueError(f"rho must be above 0. Got {self.rho!r} instead.")

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return Critic(features, self.hidden)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        source, logits, target, target_logits = both(network, batch)
        of_source, of_target, weights = step.own(source, target)
        adversarial = softplus(-of_source).mean() + (reverse(weights) * softplus(of_target)).mean()
        calm = self.entropy * (weights * entropies(target_logits)).mean() + PENALTY * beyond_the_ball(weights, self.rho)
        yield cross_entropy(logits, batch.labels) + adversarial + calm
