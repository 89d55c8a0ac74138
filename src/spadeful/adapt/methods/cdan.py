"""CDAN-E: a discriminator that sees features and predictions together (Long et al., NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from spadeful.adapt.methods.adversarial import discriminator, domains, entropies, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both

#: Products of features and predictions up to which all are taken; beyond, so many random ones.
MOST, RANDOM = 4096, 1024


class Conditional(nn.Module):
    """A discriminator of the products of features f and predictions g, f_i g_j, or of random ones of them."""

    of_features: Tensor
    of_classes: Tensor

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.random = features * classes > MOST
        if self.random:
            self.register_buffer("of_features", torch.randn(features, RANDOM))
            self.register_buffer("of_classes", torch.randn(classes, RANDOM))
        self.discriminator = discriminator(RANDOM if self.random else features * classes, 1, hidden)

    def products(self, features: Tensor, probabilities: Tensor) -> Tensor:
        if self.random:
            scale: float = RANDOM**-0.5
            return scale * (features @ self.of_features) * (probabilities @ self.of_classes)
        return (probabilities[:, :, None] * features[:, None, :]).flatten(1)

    def forward(self, features: Tensor, probabilities: Tensor, strength: float) -> Tensor:
        guesses: Tensor = self.discriminator(reverse(self.products(features, probabilities), strength))
        return guesses[:, 0]


def certainty(logits: Tensor, strength: float) -> Tensor:
    """The weights 1 + exp(-H) of points by the entropy H of their predictions, of sum 1."""
    weights = 1 + torch.exp(-reverse(entropies(logits), strength))
    return weights / weights.sum().detach()


@dataclass(frozen=True)
class CDAN:
    """DANN, with a discriminator conditioned on the predictions, and points weighted by how certain those are."""

    hidden: int = 1024
    entropy: bool = True

    @property
    def name(self) -> str:
        return "CDAN-E" if self.entropy else "CDAN"

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return Conditional(features, classes, self.hidden)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch, strength = draw(), rising(step.progress)
        source, source_logits, target, target_logits = both(network, batch)
        probabilities = torch.cat([source_logits, target_logits]).softmax(dim=1).detach()
        guesses = step.own(torch.cat([source, target]), probabilities, strength)
        errors = binary_cross_entropy_with_logits(guesses, domains(source, target), reduction="none")
        if self.entropy:
            weights = torch.cat([certainty(source_logits, strength), certainty(target_logits, strength)])
            adversarial = (weights * errors).sum() / weights.sum().detach()
        else:
            adversarial = errors.mean()
        yield cross_entropy(source_logits, batch.labels) + adversarial
