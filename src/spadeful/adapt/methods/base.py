"""What the training loop and a method know of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Batch(NamedTuple):
    """A mini-batch of the source with its labels, and one of the target."""

    source: Tensor
    labels: Tensor
    target: Tensor


Draw = Callable[[], Batch]


def both(network: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The features (b, d) and logits of the source, and those of the target.

    They go through the network apart, so that batch norm takes each domain's own statistics. Where the network says
    that no row sees another (`rowwise`) they go together: one product of many rows is faster than two.
    """
    if not getattr(network, "rowwise", False):
        source, target = of_source(network, batch.source), network(batch.target)
        return source[0].flatten(1), source[1], target[0].flatten(1), target[1]
    size = len(batch.source)
    features, logits = network(torch.cat([batch.source, batch.target]))
    features = features.flatten(1)
    return features[:size], logits[:size], features[size:], logits[size:]


def of_source(network: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The features and logits of source points, which a network with the statistics of its target does not keep."""
    if getattr(network, "statistics", "both") == "both":
        features, logits = network(x)
        return features, logits
    with quiet_batch_norm(network, "frozen"):
        features, logits = network(x)
    return features, logits


def precision_of(network: nn.Module) -> torch.dtype:
    """That of its weights."""
    kinds = (each.dtype for each in network.parameters() if each.is_floating_point())
    return next(kinds, torch.get_default_dtype())


def like_weights(network: nn.Module, x: Tensor) -> Tensor:
    """Points in the precision of the network's weights."""
    return x.to(precision_of(network)) if x.is_floating_point() else x


def batch_norms(network: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def needs_two_points(network: nn.Module) -> bool:
    """Whether one point alone has no spread for batch norm to take."""
    return any(layer.training for layer in batch_norms(network))


@contextmanager
def quiet_batch_norm(network: nn.Module, how: str) -> Iterator[None]:
    """What a pass does to batch norm: "train", as ever; "frozen", running averages stay; "eval", they are used."""
    layers = batch_norms(network)
    before = [(layer, layer.training, layer.track_running_stats) for layer in layers]
    for layer in layers:
        layer.training = layer.training and how != "eval"
        layer.track_running_stats = layer.track_running_stats and not (layer.training and how == "frozen")
    try:
        yield
    finally:
        for layer, training, tracked in before:
            layer.training, layer.track_running_stats = training, tracked


class Step(NamedTuple):
    """Where training is: the iteration from 0, the share of the phase that is done, and the method's own modules."""

    iteration: int = 0
    progress: float = 0.0
    own: Any = None


class Method(Protocol):
    """A way to adapt; see the package's text."""

    @property
    def name(self) -> str: ...

    def modules(self, features: int, classes: int) -> nn.Module | None:
        """Modules of its own, trained along with the network."""

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        """The losses of an iteration, one at a time."""
