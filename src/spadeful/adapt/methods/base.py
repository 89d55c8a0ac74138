"""What the training loop and a method know of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Batch(NamedTuple):
    """A mini-batch of the source with its labels, and one of the target."""

    source: Tensor
    labels: Tensor
    target: Tensor


Draw = Callable[[], Batch]


class Step(NamedTuple):
    """Where training is: the iteration from 0, the share of the phase that is done, and the method's own modules."""

    iteration: int = 0
    progress: float = 0.0
    own: Any = None


class Method(Protocol):
    """A way to adapt; see the package's text."""

    @property
    def name(self) -> str: ...

    @property
    def batches_per_iteration(self) -> int: ...

    def modules(self, features: int, classes: int) -> nn.Module | None:
        """Modules of its own, trained along with the network."""

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        """The losses of an iteration, one at a time."""
