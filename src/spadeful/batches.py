"""Drawing mini-batches: which points they hold, from the seed and the batch's number alone."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

#: Batches that are drawn together, from one generator: few enough that no one draws many in vain.
BLOCK = 128


class Batches(Protocol):
    """The mini-batches of one side."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def batch_size(self) -> int: ...

    def draw(self, which: Indices) -> Indices:
        """The points of some batches (k, m), given their numbers (k,)."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Batches drawn at random, with or without putting points back.

    A batch depends on the seed, the side and its own number: it is the same however many are drawn, by whom.

    >>> batches = Sampled(size=5, batch_size=3, count=2, replace=False, seed=0, side=0)
    >>> batches.draw(np.array([0, 1])).shape
    (2, 3)
    """

    size: int
    batch_size: int
    count: int
    replace: bool
    seed: int
    side: int
    groups: tuple[Indices, ...] = ()  # the points of each class, where batches are to hold as many of each

    def draw(self, which: Indices) -> Indices:
        drawn = np.empty((len(which), self.batch_size), dtype=np.int64)
        blocks = which // BLOCK
        for block in np.unique(blocks):
            wanted = blocks == block
            drawn[wanted] = draw_block(self, int(block))[which[wanted] % BLOCK]
        return drawn


@lru_cache(maxsize=8)  # batches are mostly asked for in order
def draw_block(batches: Sampled, block: int) -> Indices:
    """A block of batches (BLOCK, m)."""
    rng = np.random.default_rng(np.random.SeedSequence(batches.seed, spawn_key=(batches.side, block)))
    groups = batches.groups
    if not groups:
        return choose(rng, batches.size, batches.batch_size, batches.replace)
    each, left = divmod(batches.batch_size, len(groups))
    # The places that cannot be shared equally go to other classes in each batch.
    extra = choose(rng, len(groups), left, replace=False)
    most = each + (left > 0)
    parts = [group[choose(rng, len(group), most, batches.replace)] for group in groups]
    kept = np.zeros((BLOCK, len(groups), most), dtype=bool)
    kept[:, :, :each] = True
    np.put_along_axis(kept[:, :, -1], extra, True, axis=1)
    return np.stack(parts, axis=1)[kept].reshape(BLOCK, batches.batch_size)


def choose(rng: np.random.Generator, size: int, count: int, replace: bool) -> Indices:
    """A block of batches of so many of the first whole numbers."""
    if replace:
        return rng.integers(0, size, (BLOCK, count))
    if 2 * count > size:
        return rng.permuted(np.tile(np.arange(size), (BLOCK, 1)), axis=1)[:, :count]
    drawn = rng.integers(0, size, (BLOCK, count))
    rows = np.arange(BLOCK)
    while True:
        ordered = np.sort(drawn[rows], axis=1)
        rows = rows[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        if not len(rows):
            return drawn
        # What was drawn before is drawn anew. Nothing tells one point from another, so all sets are as likely.
        order = np.argsort(drawn[rows], axis=1, kind="stable")
        ordered = np.take_along_axis(drawn[rows], order, axis=1)
        twice, at = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
        drawn[rows[twice], order[twice, at + 1]] = rng.integers(0, size, len(twice))


@dataclass(frozen=True, eq=False)
class Subsets:
    """Every batch that there is: all subsets of a size, in lexicographic order."""

    size: int
    batch_size: int

    @property
    def count(self) -> int:
        return math.comb(self.size, self.batch_size)

    @cached_property
    def _all(self) -> Indices:
        return np.array(list(combinations(range(self.size), self.batch_size)), dtype=np.int64)

    def draw(self, which: Indices) -> Indices:
        return self._all[which]


def groups_of(labels: Any, size: int, name: str) -> tuple[Indices, ...]:
    """The points of each class."""
    if isinstance(labels, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be masked. Pass a plain array.")
    values = np.asarray(labels)
    if values.shape != (size,):
        raise ValueError(f"{name} must hold one label a point, {size} of them. Got the shape {values.shape} instead.")
    floats = values
    if values.dtype.kind == "O":
        floats = np.array([label for label in values if isinstance(label, float)], dtype=np.float64)
    if floats.dtype.kind == "f" and not np.isfinite(floats).all():
        raise ValueError(f"{name} must hold finite labels. Got {floats[~np.isfinite(floats)][0]} instead.")
    try:
        _, inverse = np.unique(values, return_inverse=True)
    except TypeError:
        raise TypeError(f"{name} must all be numbers or all be words. Got a mixture instead.") from None
    order = np.argsort(inverse, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(inverse))[:-1]))


def check_count(value: Any, name: str, least: int = 1) -> int:
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = -1
    if count < least:
        raise ValueError(f"{name} must be a whole number of at least {least}. Got {value!r} instead.")
    return count


def check_seed(seed: Any) -> int:
    """A seed that torch takes too."""
    if check_count(seed, "seed", least=0) >= 2**63:
        raise ValueError(f"seed must be below 2**63. Got {seed!r} instead.")
    return int(seed)


def check_flag(value: Any, name: str) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False. Got {value!r} instead.")


def sampled(
    size: int, batch_size: int, count: int, replace: bool, seed: int, side: int, labels: Any, name: str
) -> Sampled:
    """Batches of one side, if they can be drawn."""
    groups = () if labels is None else groups_of(labels, size, f"labels of {name}")
    if not replace:
        if batch_size > size:
            raise ValueError(
                f"batch_size must be at most the number of points of {name}, {size}. Got {batch_size} instead; "
                "take smaller batches, or replace=True."
            )
        if groups:
            most = -(-batch_size // len(groups))
            smallest = min(len(group) for group in groups)
            if most > smallest:
                raise ValueError(
                    f"Every class of {name} must have at least {most} points for batches of {batch_size} with as many "
                    f"of each of the {len(groups)} classes. Got one with {smallest} instead; take smaller batches, "
                    "or replace=True."
                )
    return Sampled(size, batch_size, count, replace, seed, side, groups)
