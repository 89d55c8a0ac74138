"""The distinct colours of an image, and which of them are put together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.color.palette import find_palette
from spadeful.color.received import Received, numbered, weighted_means
from spadeful.color.spaces import Levels, Points, Space, to_points
from spadeful.color.tally import ranked

#: Matched colours whose channels agree in so many bits are put together: the mean of many is without grain.
CELL_BITS = 5


class Cells(NamedTuple):
    """The distinct colours of an image, which of them each pixel has, and which are put together."""

    levels: Levels  # (u, 3)
    where: NDArray[np.int32]  # (n,)
    colors: Points  # (u, 3): as they are compared, reduced to a palette if there is one
    labels: NDArray[np.int32]  # (u,)

    @staticmethod
    def read(levels: Levels, space: Space, palette: int | None, seed: int) -> Cells:
        each, where = distinct(levels)
        colors = to_points(each, space)
        if palette is None:
            return Cells(each, where, colors, cell_numbers(each))
        centres, labels = find_palette(colors, np.bincount(where).astype(np.float64), palette, seed)
        return Cells(each, where, centres[labels], labels)

    @property
    def points(self) -> Points:
        """The colour of each pixel, as it is compared."""
        return self.colors.take(self.where, axis=0)

    def pool(self, received: Received) -> tuple[Floats, Points, Points]:
        """Of each cell the mass (c,), and the colour (c, 3) and the move (c, 3) of its pixels in the mean."""
        own = self.where[received.pixels]
        cells, count = self.labels[own], int(self.labels.max()) + 1
        masses, colors = weighted_means(cells, own, received.masses, self.colors, count)
        _, means = weighted_means(cells, numbered(own), received.masses, received.means, count)
        return masses, colors, means - colors


def distinct(levels: Levels) -> tuple[Levels, NDArray[np.int32]]:
    """The distinct colours among some, in order, and which of them each is."""
    bits = 8 * levels.dtype.itemsize
    wide: Any = np.int32 if bits == 8 else np.int64
    # First the pairs of two channels, of which there are few, then those with the third: fewer marks are needed.
    pairs, where = ranked(levels[:, 0].astype(wide) << bits | levels[:, 1], 1 << 2 * bits)
    each, where = ranked(where.astype(wide) << bits | levels[:, 2], len(pairs) << bits)
    first = pairs[each >> bits]
    return np.stack([first >> bits, first, each], axis=1).astype(levels.dtype), where  # the lower bits of each


def cell_numbers(levels: Levels) -> NDArray[np.int32]:
    """Which cell each colour is in, in the colours' order."""
    r, g, b = (levels >> (8 * levels.itemsize - CELL_BITS)).astype(np.int32).T
    numbers: NDArray[np.int32] = (r << CELL_BITS | g) << CELL_BITS | b
    return numbers
