"""ALDA: a discriminator that learns how wrong pseudo-labels are (Chen et al., AAAI 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, cross_entropy, one_hot

from spadeful.adapt.methods.adversarial import discriminator, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both


def corrected(confusion: Tensor, labels: Tensor) -> Tensor:
    r"""The labels as the confusion vector :math:`\xi` corrects them: the column of its matrix that a label names.

    With label l among K classes that is :math:`\xi_l` in place l and :math:`(1 - \xi_l) / (K - 1)` elsewhere.
    """
    classes = confusion.shape[1]
    trust = confusion.gather(1, labels[:, None])
    named = one_hot(labels, classes).to(confusion)
    return named * trust + (1 - named) * (1 - trust) / max(classes - 1, 1)


def opposite(labels: Tensor, classes: int) -> Tensor:
    """What the discriminator calls the truth in the target: any class but the pseudo-label, each as likely."""
    return (1 - one_hot(labels, classes)) / max(classes - 1, 1)


@dataclass(frozen=True)
class ALDA:
    """Adversarial learning of a loss that corrects pseudo-labels.

    The discriminator gives each point a confusion vector. In the source it corrects predictions towards the labels, in
    the target away from the pseudo-labels; the features work against it. The target's confident points, above
    `threshold`, learn from their corrected pseudo-labels by the unhinged loss 1 - p, whose weight rises from 0 to 1.
    """

    threshold: float = 0.9
    hidden: int = 1024
    name: str = "ALDA"

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be at least 0 and below 1. Got {self.threshold!r} instead.")

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return discriminator(features, classes, self.hidden)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch, strength = draw(), rising(step.progress)
        source, source_logits, target, target_logits = both(network, batch)
        classes = source_logits.shape[1]
        probabilities = target_logits.softmax(dim=1)
        confidence, guesses = probabilities.detach().max(dim=1)
        sure = confidence > self.threshold

        scores = step.own(reverse(torch.cat([source, target]), strength))
        of_source, of_target = scores.sigmoid().split([len(source), len(target)])
        truth = one_hot(batch.labels, classes).to(scores)
        found = corrected(of_source, source_logits.argmax(dim=1))
        errors = [binary_cross_entropy(found, truth, reduction="none").sum(dim=1)]
        loss = cross_entropy(source_logits, batch.labels)
        # Learns the classes too, or its confusion vectors would say nothing; the features do not see this.
        loss = loss + cross_entropy(step.own(source.detach()), batch.labels)
        if bool(sure.any()):
            found = corrected(of_target, guesses)[sure]
            truth = opposite(guesses[sure], classes).to(scores)
            errors.append(binary_cross_entropy(found, truth, reduction="none").sum(dim=1))
            loss = loss + strength * (found.detach() * (1 - probabilities[sure])).sum(dim=1).mean()
        yield loss + torch.cat(errors).mean()
