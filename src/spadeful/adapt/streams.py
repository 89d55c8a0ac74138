"""Batches of a source and a target, each known by its number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from spadeful.adapt.domain import Domain
from spadeful.adapt.methods.base import Batch
from spadeful.batches import groups_of, sampled
from spadeful.engine import fingerprint

#: Points, and numbers in all, that a network is tested on at a time.
MOST_POINTS, MOST_NUMBERS = 1000, 8_000_000


class DomainStream:
    """Batches of two domains, drawn from the seed and their number; the source's hold all classes alike.

    A set that is smaller than a batch is drawn from with replacement, and so are all classes of a source that has one
    which is smaller than its share of a batch.
    """

    def __init__(self, source: Domain, target: Domain, batch_size: int, seed: int) -> None:
        if source.y is None:
            raise ValueError(f"The source must have labels. Got none for {source.name!r}.")
        self.source, self.target, self.seed = source, target, seed
        groups = groups_of(source.y, len(source), "labels of the source")
        short = min(len(group) for group in groups) < -(-batch_size // len(groups))
        many = 1 << 62  # batches have numbers, and no end
        self._source = sampled(len(source), batch_size, many, short, seed, 0, source.y, "the source")
        self._target = sampled(len(target), batch_size, many, batch_size > len(target), seed, 1, None, "the target")

    @property
    def settings(self) -> dict[str, Any]:
        """What the batches follow from."""
        points = {"source": fingerprint(self.source.x), "target": fingerprint(self.target.x)}
        labels = fingerprint(self.source.labels(np.arange(len(self.source))).numpy())
        return {"batch_size": self._source.batch_size, "seed": self.seed, **points, "labels": labels}

    def batch(self, number: int) -> Batch:
        which = np.array([number])
        rows, columns = self._source.draw(which)[0], self._target.draw(which)[0]
        # Keys apart from those of the draws, which are 0 and 1.
        looks = [np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(key, number))) for key in (2, 3)]
        seen = self.source.batch(rows, looks[0]), self.target.batch(columns, looks[1])
        return Batch(seen[0], self.source.labels(rows), seen[1])


class LoaderStream:
    """Batches of two loaders of (inputs, labels) and of inputs, begun anew when they end.

    Loaders only go forwards: to go on at some batch, those before it are loaded and thrown away. So a run goes on with
    the same batches only if its loaders give the same ones to whoever begins anew: one that shuffles needs a
    `generator` of its own, with a seed.
    """

    def __init__(self, source: Iterable[Any], target: Iterable[Any], seed: int = 0) -> None:
        if isinstance(source, Iterator) or isinstance(target, Iterator):
            raise TypeError("A loader must be one that can begin anew, such as a DataLoader. Got an iterator instead.")
        self._loaders, self._seed = (source, target), seed
        self._restart()

    def _restart(self) -> None:
        source, target = (alone(loader, 2 * self._seed + side) for side, loader in enumerate(self._loaders))
        self._source, self._target = endless(source), endless(target)
        self._next = 0
        self._last: Batch | None = None  # asked for twice, it is the same: whoever looks at one first changes nothing

    def batch(self, number: int) -> Batch:
        if self._last is not None and number == self._next - 1:
            return self._last
        if number < self._next:
            self._restart()
        while True:
            x, y = next(self._source)[:2]
            given = next(self._target)
            target = given[0] if isinstance(given, (tuple, list)) else given
            self._next += 1
            if self._next > number:
                labels = torch.as_tensor(y)
                self._last = Batch(x, labels if labels.ndim > 1 else labels.long(), target)
                return self._last


def alone(loader: Iterable[Any], seed: int) -> Iterable[Any]:
    """The loader with random numbers of its own, those of its workers too.

    A DataLoader takes one whenever it begins, even if it does not shuffle. Were it taken from those of torch, what
    training draws would depend on when that is.
    """
    if not isinstance(loader, DataLoader) or loader.generator is not None:
        return loader
    found = copy(loader)
    found.generator = torch.Generator().manual_seed(seed)
    return found


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        count = 0
        for batch in loader:
            yield batch
            count += 1
        if not count:
            raise ValueError("A loader must give at least one batch. Got none.")


def in_batches(domain: Domain) -> Iterator[Tensor]:
    """All points of a set, in order, the next of them read while the last are used."""
    size = min(MOST_POINTS, max(1, MOST_NUMBERS // domain.cost))
    parts = np.split(np.arange(len(domain)), range(size, len(domain), size))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(domain.batch, parts[0])
        for part in [*parts[1:], None]:
            batch = waiting.result()
            if part is not None:
                waiting = pool.submit(domain.batch, part)
            yield batch
