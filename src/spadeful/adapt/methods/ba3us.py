"""BA3US: a target made up with source points, and wrong classes kept alike (Liang et al., ECCV 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from spadeful.adapt.methods.adversarial import entropies, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both, of_source
from spadeful.adapt.methods.class_weights import Weighing, check_window


def complement_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """The entropy of each prediction among the wrong classes alone, as a share of the largest there can be."""
    points, classes = logits.shape
    wrong = logits[one_hot(labels, classes) == 0].view(points, classes - 1)
    return entropies(wrong) / math.log(max(classes - 1, 2))


def complement_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Minus the mean complement entropy; points weigh as given, times the probability of being wrong."""
    mistaken = 1 - logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]
    return -weighted_mean(complement_entropies(logits, labels), (weights * mistaken).detach())


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    return (weights * values).sum() / weights.sum().clamp_min(1e-8)


def shares(of_source: Tensor, of_target: Tensor, of_added: Tensor) -> Tensor:
    """The weights of all points, of sum 1: as much for the target as for so many points of the source and the added."""
    size, added = len(of_source), len(of_added)
    lent = of_source.detach().sum() + of_added.detach().sum()
    scales = (1 + added / size) / lent.clamp_min(1e-8), 1 / of_target.detach().sum()
    parts = [of_source * scales[0], of_target * scales[1], of_added * scales[0]]
    return torch.cat(parts) / (2 + added / size)


@dataclass(frozen=True)
class BA3US:
    r"""Balanced adversarial alignment and adaptive uncertainty suppression.

    The discriminator has to tell the source from the target *and* a few source points added to it, a share of
    :math:`(1 - q) / \mu` of a batch at progress q, which falls whenever a window ends. Its errors weigh as much as the
    predictions are certain, 1 + exp(-H), and on source points times the weight of their class: the target's mean
    prediction; see `Weighing`. The class weights are also on the cross-entropy of the source and, times the
    probability of being wrong, on the complement entropy of its wrong classes, which is raised. The entropy of the
    target's predictions is lowered.
    """

    window: int = 500
    mu: int = 4
    entropy: float = 0.1
    complement: float = 1.0
    hidden: int = 1024
    name: str = "BA3US"

    def __post_init__(self) -> None:
        check_window(self.window)
        if self.mu < 1:
            raise ValueError(f"mu must be at least 1. Got {self.mu!r} instead.")

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return Weighing(features, classes, self.hidden, self.window)

    def added(self, size: int, step: Step) -> int:
        """How many source points a target batch gets."""
        since = step.iteration % self.window / max(step.iteration, 1)  # the window that has not ended does not count
        count = int(size // self.mu * (1 - step.progress * (1 - since)))
        return count if count > 1 else 0  # batch norm needs two points to have a spread

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch, strength = draw(), rising(step.progress)
        count = self.added(len(batch.source), step)
        other = draw() if count else batch
        some = torch.randperm(len(other.source))[:count].to(other.labels.device)
        source, source_logits, target, target_logits = both(network, batch)
        added, added_logits = source[:0], source_logits[:0]
        if len(some):
            added, added_logits = of_source(network, other.source[some])
            added = added.flatten(1)
        classes = step.own.weigh(target_logits, step.iteration)
        weights = classes[batch.labels]

        guesses = step.own(reverse(torch.cat([source, target, added]), strength))
        truth = torch.zeros_like(guesses)
        truth[: len(source)] = 1
        errors = binary_cross_entropy_with_logits(guesses, truth, reduction="none")
        certainty = 1 + torch.exp(
            -reverse(entropies(torch.cat([source_logits, target_logits, added_logits])), strength)
        )
        parts = torch.split(certainty, [len(source), len(target), len(added)])
        shared = shares(weights * parts[0], parts[1], classes[other.labels[some]] * parts[2])
        adversarial = (shared * errors).sum()

        loss = weighted_mean(cross_entropy(source_logits, batch.labels, reduction="none"), weights)
        loss = loss + self.complement * complement_loss(source_logits, batch.labels, weights)
        yield loss + adversarial + self.entropy * entropies(target_logits).mean()
