"""PADA: adversarial training in which classes that the target lacks count little (Cao et al., ECCV 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from spadeful.adapt.methods.adversarial import domains, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both
from spadeful.adapt.methods.class_weights import Weighing, check_window


@dataclass(frozen=True)
class PADA:
    r"""DANN with weights :math:`\gamma_{y_i}` on the source's points, in both losses.

    .. math:: \frac1m \sum_i \gamma_{y_i} L_s(y_i, F(G(s_i)))
        + \frac1{2m} \Big(\sum_i \gamma_{y_i} L_d(G(s_i), 1) + \sum_j L_d(G(t_j), 0)\Big)

    :math:`\gamma` is the target's mean prediction, divided by its largest entry; see `Weighing`. Means are over all
    points, as in the publication; the authors' code divides the first by the sum of the weights.
    """

    window: int = 500
    hidden: int = 1024
    name: str = "PADA"

    def __post_init__(self) -> None:
        check_window(self.window)

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return Weighing(features, classes, self.hidden, self.window)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        source, logits, target, target_logits = both(network, batch)
        gamma = step.own.weigh(target_logits, step.iteration)
        weights = (gamma / gamma.max())[batch.labels]
        guesses = step.own(reverse(torch.cat([source, target]), rising(step.progress)))
        errors = binary_cross_entropy_with_logits(guesses, domains(source, target), reduction="none")
        adversarial = (torch.cat([weights, torch.ones_like(target[:, 0])]) * errors).mean()
        yield (weights * cross_entropy(logits, batch.labels, reduction="none")).mean() + adversarial
