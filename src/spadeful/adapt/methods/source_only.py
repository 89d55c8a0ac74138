"""No adaptation: the classifier of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spadeful.adapt.methods.base import Draw, Step


@dataclass(frozen=True)
class SourceOnly:
    """Cross-entropy on the source; the target is not looked at."""

    name: str = "source-only"

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return None

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        batch = draw()
        _, logits = network(batch.source)
        yield cross_entropy(logits, batch.labels)
