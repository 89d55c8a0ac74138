"""ETN: points of the source weighted by how transferable each one is (Cao et al., CVPR 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot, pad

from spadeful.adapt.methods.adversarial import discriminator, entropies, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both


def leaky(scores: Tensor) -> Tensor:
    r"""The logarithms of the leaky softmax :math:`e^{z_c} / (C + \sum_k e^{z_k})` of scores (n, C)."""
    return pad(scores, (0, 1), value=math.log(scores.shape[1])).log_softmax(dim=1)[:, :-1]


def source_logits(scores: Tensor) -> Tensor:
    """The logits of being of the source: its probability is the sum of the leaky softmax."""
    return scores.logsumexp(dim=1) - math.log(scores.shape[1])


def transferability(scores: Tensor) -> Tensor:
    """Weights of source points, of mean 1: the less the auxiliary classifier takes a point for the source, the more."""
    weights = (-source_logits(scores.detach())).sigmoid()
    return weights / weights.mean().clamp_min(1e-10)


class Auxiliary(nn.Module):
    """A discriminator of the domains, and the auxiliary classifier, from which the features learn nothing."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.discriminator = discriminator(features, 1, hidden)
        self.classifier = discriminator(features, classes, hidden)

    def forward(self, features: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        """What the discriminator says of each point, and the scores of the auxiliary classifier."""
        return self.discriminator(reverse(features, strength))[:, 0], self.classifier(features.detach())


@dataclass(frozen=True)
class ETN:
    """DANN with a weight on every source point, in both losses, and certain predictions on the target.

    An auxiliary classifier of the source's classes has a leaky softmax, whose sum is the probability of the source: it
    learns the classes (one against all others) and, times `auxiliary`, the domains. A source point that looks to it
    like one of the target weighs more. `entropy` is the weight of the entropy of the target's predictions.
    The weights of the terms are those of the authors' code for Office-Home.
    """

    entropy: float = 0.2
    auxiliary: float = 10.0
    hidden: int = 1024
    name: str = "ETN"

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return Auxiliary(features, classes, self.hidden)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        source, logits, target, target_logits = both(network, batch)
        sizes = [len(source), len(target)]
        guesses, scores = step.own(torch.cat([source, target]), rising(step.progress))
        weights = transferability(scores[: len(source)])

        loss = (weights * cross_entropy(logits, batch.labels, reduction="none")).mean()
        loss = loss + apart(guesses, sizes, weights) + self.entropy * entropies(target_logits).mean()
        loss = loss + one_against_all(scores[: len(source)], batch.labels)
        yield loss + self.auxiliary * apart(source_logits(scores), sizes)


def apart(guesses: Tensor, sizes: list[int], weights: Tensor | float = 1.0) -> Tensor:
    """The cross-entropy of the domains, one mean for each; the source's points may have weights."""
    source, target = torch.split(guesses, sizes)
    of_source = binary_cross_entropy_with_logits(source, torch.ones_like(source), reduction="none")
    return (weights * of_source).mean() + binary_cross_entropy_with_logits(target, torch.zeros_like(target))


def one_against_all(scores: Tensor, labels: Tensor) -> Tensor:
    """The binary cross-entropies of the leaky softmax, added up over the classes."""
    logs = leaky(scores)
    named = one_hot(labels, scores.shape[1]).to(scores)
    others = torch.log1p(-logs.exp().clamp_max(1 - 1e-6))  # where a probability rounds to 1, no infinite gradient
    return -(named * logs + (1 - named) * others).sum(dim=1).mean()
