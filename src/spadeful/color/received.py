"""The loop of Algorithm 4: what the pixels of the source receive, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.aggregate import Part
from spadeful.arrays import Floats
from spadeful.batches import Indices
from spadeful.color.spaces import Points
from spadeful.color.tally import placed, ranked
from spadeful.engine import Engine

#: Entries of plans that are added up in one go.
ENTRIES = 1 << 23


class Received(NamedTuple):
    """The pixels that received mass, how much, and the mean of the colours that came with it."""

    pixels: Indices  # (p,), in order
    masses: Floats  # (p,)
    means: Points  # (p, 3)

    @staticmethod
    def read(parts: list[Part], moved: Moved, y: Points, unit: int) -> Received:
        """From the plans between some batches, all of one mass; y is in so many parts of the space's unit."""
        rows, cols, masses = (np.concatenate(each) for each in list(zip(*parts, strict=True))[4:])
        received, means = weighted_means(moved.places.take(rows), cols, masses, y, len(moved.pixels))
        has = np.flatnonzero(received > 0)
        return Received(moved.pixels.take(has), received.take(has), means.take(has, axis=0) / np.float32(unit))

    def plus(self, other: Received, size: int) -> Received:
        """What a picture with so many pixels received in two runs."""
        pixels, where = ranked(np.concatenate([self.pixels, other.pixels]), size)
        masses, means = np.concatenate([self.masses, other.masses]), np.concatenate([self.means, other.means])
        return Received(pixels, *weighted_means(where, numbered(masses), masses, means, len(pixels)))


class Moved(NamedTuple):
    """The pixels that plans of any mass move, in order, and which of them each pixel of the picture is."""

    pixels: Indices
    places: NDArray[np.int32]

    @staticmethod
    def read(parts: list[Part], size: int) -> Moved:
        """From plans between batches."""
        seen = np.zeros(size, dtype=np.bool_)
        for part in parts:
            seen[part.rows] = True
        return Moved(*placed(seen))


def weighted_means(
    groups: NDArray[np.int32], which: NDArray[np.int32], weights: Floats, colors: Points, size: int
) -> tuple[Floats, Points]:
    """The total weight (size,) of each group, and the mean (size, 3) of those of the colours that are in it."""
    out = np.empty((size, 4))
    _core.weighted_means(groups, which, weights, colors, out)
    return out[:, 3].copy(), out[:, :3].astype(np.float32)


def numbered(items: NDArray[Any]) -> NDArray[np.int32]:
    return np.arange(len(items), dtype=np.int32)


def add_up(engine: Engine, k: int, unit: int) -> Iterator[tuple[Callable[[], Received], dict[str, Any]]]:
    """Solve k pairs of batches; for each mass then what tells what pixels received, and the settings.

    Plans are added up whenever there are as many as fit the memory.
    """
    size, m, each = len(engine.x), engine.batches[0].batch_size, len(engine.each_settings)
    step = max(1, ENTRIES // (m * m if engine.dense else m * each))
    total: list[Received] = []
    waiting: list[Part] = []

    def received(moved: Moved, first: int) -> Received:
        new = Received.read([part.of_mass(first, each) for part in waiting], moved, engine.y, unit)
        return total[first].plus(new, size) if total else new

    for task, part in engine.parts(np.arange(k), np.arange(k), keep_plan=True, fold=step):
        waiting.append(part._replace(masses=part.masses / k))
        if task.stop % step == 0 and task.stop < k:
            moved = Moved.read(waiting, size)
            total = [received(moved, first) for first in range(each)]
            waiting.clear()
    moved = Moved.read(waiting, size)
    for first, settings in enumerate(engine.each_settings):
        yield partial(received, moved, first), settings
