"""Adapting as a call: anyone's network and data, one method, one record of how it went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softmax

from spadeful.adapt.classes import numbered_alike
from spadeful.adapt.domain import Domain
from spadeful.adapt.methods.base import Method, like_weights
from spadeful.adapt.methods.source_only import SourceOnly
from spadeful.adapt.networks import network_for
from spadeful.adapt.selection import RULES, soft_neighbourhood_density
from spadeful.adapt.streams import DomainStream, LoaderStream, in_batches
from spadeful.adapt.train import Phase, Training, train
from spadeful.arrays import to_numpy
from spadeful.batches import check_count
from spadeful.engine import fingerprint
from spadeful.training.record import Record
from spadeful.training.streams import Stream

Data = Domain | tuple[Any, Any] | Iterable[Any]

#: The size of a batch unless said: that of the paper for digits.
BATCH_SIZE = 500


def device_named(name: str) -> torch.device:
    """The device of a name such as cpu, cuda, mps or auto."""
    try:
        return Fabric(accelerator=name, devices=1).device
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"device must be one that there is. Got {name!r} instead: {error}") from None


def as_domain(data: Any, name: str, classes: tuple[str, ...] = ()) -> Domain | None:
    """Arrays or tensors as a set in memory; None for a loader."""
    if isinstance(data, Domain):
        return data
    given = (np.ndarray, Tensor, list) if isinstance(data, tuple) else (np.ndarray, Tensor)  # a list may be a loader
    parts = data if isinstance(data, tuple) else (data, None)
    if len(parts) != 2 or not isinstance(parts[0], given):
        return None
    x, y = to_numpy(parts[0]), None if parts[1] is None else to_numpy(parts[1])
    if y is not None and not classes and y.size and y.dtype.kind in "iu":
        classes = tuple(map(str, range(int(np.max(y)) + 1)))
    return Domain(x, y, name, classes)


@torch.no_grad()
def predict(network: nn.Module, data: Domain | Iterable[Any], device: Any = "cpu") -> tuple[Tensor, Tensor]:
    """Features and logits of a whole set, an array or the batches of a loader, in evaluation mode.

    Of several crops of an image (b, crops, C, H, W) they are the mean features, and the logarithm of the mean softmax.
    """
    training, domain = network.training, as_domain(data, "data")
    network.eval()
    try:
        inputs: Iterable[Any] = data if domain is None else in_batches(domain)  # type: ignore[assignment]
        points = ((x[0] if isinstance(x, (tuple, list)) else x).to(device) for x in inputs)
        found = [over_crops(network, like_weights(network, x)) for x in points]
    finally:
        network.train(training)
    features, logits = (torch.cat([part[i].float().cpu() for part in found]) for i in (0, 1))
    return features, logits


def over_crops(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    if x.ndim != 5:
        found: tuple[Tensor, Tensor] = network(x)
        return found
    features, logits = (part.float().unflatten(0, x.shape[:2]) for part in network(x.flatten(0, 1)))
    return features.mean(1), log_softmax(logits, dim=2).logsumexp(1) - math.log(x.shape[1])


def measure(network: nn.Module, sets: dict[str, Domain], device: Any = "cpu") -> dict[str, float]:
    """The accuracy on each set in per cent, where it has labels; the mean entropy and density of the predictions."""
    found = {}
    for name, domain in sets.items():
        _, logits = predict(network, domain, device)
        if domain.y is not None:
            right = (logits.argmax(1).numpy() == domain.y).mean()
            found[f"{name}_accuracy"] = 100 * float(right)
        probabilities = softmax(logits.double(), dim=1)
        found[f"{name}_entropy"] = float(torch.special.entr(probabilities).sum(1).mean())
        found[f"{name}_density"] = soft_neighbourhood_density(probabilities.float())
    return found


def class_scores(predicted: NDArray[Any], y: NDArray[Any], classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The accuracy on each class and the precision of each in per cent: of its points, of those taken for it.

    A class without points has no accuracy, NaN; one that is never predicted has the precision 0.

    >>> class_scores(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    (array([100.,  50.]), array([ 50., 100.]))
    """
    right = 100.0 * np.bincount(y[predicted == y], minlength=classes)
    points, taken = (np.bincount(labels, minlength=classes) for labels in (y, predicted))
    return np.where(points > 0, right / np.maximum(points, 1), np.nan), right / np.maximum(taken, 1)


def adapt(
    network: nn.Module | None,
    source: Data,
    target: Data,
    method: Method,
    training: Training,
    *,
    warmup: Training | None = None,
    batch_size: int = BATCH_SIZE,
    test: dict[str, Any] | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    fabric: Fabric | None = None,
    progress: bool = False,
) -> Record:
    """Train a network on a labelled source for an unlabelled target (algorithms 1 and 2 of the paper).

    Parameters
    ----------
    network : nn.Module, optional
        Its forward gives features and logits: `Network(G, F)`, `Tapped(model, "fc")` for a whole model, or a module
        of your own. The paper's network for the shape of the inputs if None. It is trained in place.
    source, target : Domain, arrays or loader
        `(x, y)` and `x` (or `(x, None)`); or loaders that give `(x, y)` and `x`, whose batches are taken as they are.
        Labels of the target are never trained on.
    method : Method
        `Transport(Partial(0.9))`, `TwoStage(...)`, `SourceOnly()`, or any object that yields losses.
    training, warmup : Training
        How long and how fast; `warmup` trains on the source alone first, with an optimiser of its own.
    batch_size : int
        Points of a batch, of each side. It may be larger than a class or the smaller of the two sets, of which it then
        holds points more than once; not larger than both, but for sets of less than the default.
    test : dict of Domain or arrays, optional
        Sets to measure at every evaluation, by name: the "source", the "target" and any other. The source and target
        themselves by default, where they are in memory.
    folder, resume, fabric, progress
        See `train`.
    """
    if not hasattr(method, "losses"):
        raise TypeError(f"method must be one such as Transport(Partial(0.9)). Got {method!r} instead.")
    if not isinstance(training, Training):
        raise TypeError(f"training must be a Training. Got {training!r} instead.")
    if not isinstance(warmup, (Training, type(None))):
        raise TypeError(f"warmup must be a Training, or None. Got {warmup!r} instead.")
    from_source = as_domain(source, "source")
    to_target = as_domain(target, "target", from_source.classes if from_source else ())
    stream: Stream
    batch_size = check_count(batch_size, "batch_size", 2)
    if from_source is not None and to_target is not None:
        to_target = numbered_alike(to_target, from_source)
        if from_source.shape != to_target.shape:
            raise ValueError(
                f"Source and target must be points of one shape. Got {from_source.shape} and {to_target.shape} instead."
            )
        check_batch_size(batch_size, from_source, to_target)
        stream = DomainStream(from_source, to_target, batch_size, training.seed)
    elif from_source is None and to_target is None:
        stream = LoaderStream(source, target, training.seed)  # type: ignore[arg-type]
    else:
        raise TypeError("source and target must both be arrays, or both be loaders.")
    if test is None:
        sets = {name: d for name, d in (("source", from_source), ("target", to_target)) if d is not None}
    else:
        sets = tested(test, from_source)
    check_selectable(training.select, sets)
    first = stream.batch(0)
    if network is None:
        if from_source is None:
            raise ValueError("With loaders a network must be passed: they do not say how many classes there are.")
        torch.manual_seed(training.seed)
        network = network_for(tuple(first.source.shape[1:]), len(from_source.classes))
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    phases: Sequence[Phase] = [Phase(method, training)]
    if warmup is not None:
        phases = [Phase(SourceOnly(), warmup), *phases]
    place, sizes = fabric.device, sizes_of(network, first.source[:2])
    labels = first.labels if from_source is None or from_source.y is None else from_source.y
    largest = int(labels.max()) if labels.ndim == 1 else 0  # else they are shares of the classes
    if largest >= sizes[1]:
        raise ValueError(
            f"The network must have a logit for each class, numbered from 0: at least {largest + 1}. Got {sizes[1]}."
        )
    return train(
        network,
        phases,
        stream,
        lambda trained: measure(trained, sets, place),
        sizes=sizes,
        settings=settings_of(sets) if folder is not None else {},
        folder=folder,
        resume=resume,
        fabric=fabric,
        progress=progress,
    )


def tested(test: dict[str, Any], source: Domain | None) -> dict[str, Domain]:
    """The sets to measure, each in memory."""
    sets = {}
    for name, data in test.items():
        domain = as_domain(data, name, source.classes if source else ())
        if domain is None:
            raise TypeError(
                f"test must hold a Domain or arrays (x, y) by name. Got {type(data).__name__} for {name!r} instead."
            )
        if source is not None and domain.shape != source.shape:
            raise ValueError(
                f"Sets to test must be points of the source's shape, {source.shape}. Got {domain.shape} for {name!r}."
            )
        sets[name] = domain if source is None else numbered_alike(domain, source)
    return sets


def check_selectable(select: str, test: dict[str, Domain]) -> None:
    """That the best checkpoint can be told by a rule; where nothing is measured, there need not be one."""
    which, _, what = RULES[select].measure.partition("_")
    if what == "accuracy" and (which not in test or test[which].y is None):
        free = [name for name, rule in RULES.items() if not rule.measure.endswith("accuracy")]
        raise ValueError(
            f"select={select!r} needs labels of the {which} to test on. Got none; choose a rule that needs none: "
            f"{' or '.join(free)}."
        )
    if test and which not in test:
        raise ValueError(
            f"test must hold {which!r}, by which select={select!r} chooses. Got {', '.join(map(repr, test))} instead."
        )


def check_batch_size(batch_size: int, source: Domain, target: Domain) -> None:
    """A mini-batch is of at most all points (definition 1). Those of a small class or set are drawn more than once."""
    most = max(len(source), len(target), BATCH_SIZE)
    if batch_size > most:
        raise ValueError(
            f"batch_size must be at most {most}: source and target have {len(source)} and {len(target)} points, which "
            f"a larger batch would only repeat. Got {batch_size} instead."
        )


def settings_of(sets: dict[str, Domain]) -> dict[str, Any]:
    """What the measures of a run follow from."""
    found: dict[str, Any] = {}
    for name, domain in sets.items():
        found[f"{name} tested"] = fingerprint(domain.x)
        found[f"labels of {name} tested"] = None if domain.y is None else fingerprint(domain.y)
    return found


def sizes_of(network: nn.Module, x: Tensor) -> tuple[int, int]:
    """The numbers of features and classes; refused if the network gives something else."""
    training, where = network.training, next(network.parameters(), x).device
    network.eval()
    try:
        with torch.no_grad():
            found = network(like_weights(network, x.to(where)))
    finally:
        network.train(training)
    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, Tensor) for part in found)):
        raise TypeError(
            "The network's forward must give features and logits. Wrap a feature extractor and a classifier in "
            f"Network(G, F), or a whole model in Tapped(model, layer). Got {type(found).__name__} instead."
        )
    features, logits = found
    return int(features.flatten(1).shape[1]), int(logits.shape[1])
