"""The loop of Algorithm 4: what the pixels of the source receive, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from spadeful.aggregate import Part
from spadeful.arrays import Floats
from spadeful.batches import Indices
from spadeful.color.spaces import Points
from spadeful.color.tally import ranked
from spadeful.engine import Engine

#: Entries of plans that are added up in one go.
ENTRIES = 1 << 23


class Received(NamedTuple):
    """The pixels that received mass, how much, and the colours that came with it in sum."""

    pixels: Indices  # (p,), in order
    masses: Floats  # (p,)
    sums: Points  # (3, p)

    @staticmethod
    def read(parts: list[Part], size: int, y: Points) -> Received:
        """From the plans between some batches, of a picture with so many pixels."""
        part = Part(*map(np.concatenate, zip(*parts, strict=True)))
        pixels, where = ranked(part.rows, size)
        masses = np.bincount(where, part.masses).astype(np.float64, copy=False)
        sums = np.empty((3, len(pixels)), dtype=np.float32)
        for channel in range(3):
            came = np.ascontiguousarray(y[:, channel]).take(part.cols)
            sums[channel] = np.bincount(where, part.masses * came)
        return Received(pixels, masses, sums)

    def plus(self, other: Received, size: int) -> Received:
        pixels, where = ranked(np.concatenate([self.pixels, other.pixels]), size)
        masses = np.bincount(where, np.concatenate([self.masses, other.masses])).astype(np.float64, copy=False)
        sums = [np.bincount(where, each) for each in np.concatenate([self.sums, other.sums], axis=1)]
        return Received(pixels, masses, np.stack(sums).astype(np.float32))


def add_up(engine: Engine, k: int) -> Iterator[tuple[Callable[[], Received], dict[str, Any]]]:
    """Solve k pairs of batches; for each mass then what tells what pixels received, and the settings.

    Plans are added up whenever there are as many as fit the memory.
    """
    size, m, each = len(engine.x), engine.batches[0].batch_size, len(engine.each_settings)
    step = max(1, ENTRIES // (m * m if engine.dense else m * each))
    total: list[Received] = []
    waiting: list[Part] = []

    def received(first: int) -> Received:
        new = Received.read([part.every(each, first) for part in waiting], size, engine.y)
        return total[first].plus(new, size) if total else new

    for task, part in engine.parts(np.arange(k), np.arange(k), keep_plan=True, fold=step):
        waiting.append(part._replace(masses=part.masses / k))
        if task.stop % step == 0 and task.stop < k:
            total = [received(first) for first in range(each)]
            waiting.clear()
    for first, settings in enumerate(engine.each_settings):
        yield partial(received, first), settings
