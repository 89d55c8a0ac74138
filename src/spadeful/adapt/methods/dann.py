"""DANN: features from which a discriminator cannot tell the domains (Ganin et al., JMLR 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from spadeful.adapt.methods.adversarial import discriminator, domains, reverse, rising
from spadeful.adapt.methods.base import Draw, Step, both


@dataclass(frozen=True)
class DANN:
    """Cross-entropy on the source plus that of a discriminator of the domains, whose gradient the features climb.

    The reversed gradient is multiplied by 2 / (1 + exp(-10 q)) - 1 at progress q.
    """

    hidden: int = 1024
    name: str = "DANN"

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return discriminator(features, 1, self.hidden)

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        source, logits, target, _ = both(network, batch)
        guesses = step.own(reverse(torch.cat([source, target]), rising(step.progress)))[:, 0]
        adversarial = binary_cross_entropy_with_logits(guesses, domains(source, target))
        yield cross_entropy(logits, batch.labels) + adversarial
