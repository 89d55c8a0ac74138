"""The new picture, from what its pixels received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.color.cells import Cells
from spadeful.color.picture import Picture
from spadeful.color.received import Received
from spadeful.color.spaces import Levels, Points, Space, to_levels, to_points
from spadeful.color.transfer import ColorTransfer

#: What becomes of pixels without a match.
Unmatched = Literal["nearest", "keep"]


@dataclass(frozen=True, eq=False)
class Transferred:
    """The new image, the mass that each of its pixels received, and the transfer for further images.

    Pixels that share their mean, because of a palette or of `smooth`, share the mass too: each has that of all.
    """

    image: NDArray[Any]
    masses: Floats  # (h, w)
    transfer: ColorTransfer

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.image.shape))
        return f"Transferred({shape} {self.image.dtype}, unmatched={self.unmatched:.1%})"

    @property
    def unmatched(self) -> float:
        """The share of the visible pixels that received no mass."""
        without = self.masses == 0
        return float((without[self.image[:, :, 3] > 0] if self.image.shape[2] == 4 else without).mean())


@dataclass(frozen=True, eq=False)
class Painter:
    """What is the same for every mass: the source, its colours, and how pixels get theirs."""

    picture: Picture
    cells: Cells
    space: Space
    neighbors: int
    unmatched: Unmatched
    smooth: bool
    alone: bool  # each pixel has a mean of its own; otherwise all of a cell have one

    def paint(self, receive: Callable[[], Received], settings: dict[str, Any]) -> Transferred:
        """The picture of one mass."""
        received = receive()
        masses, colors, moves = self.cells.pool(received)
        has = masses > 0
        if not has.any():
            raise ValueError("The problem must move some mass. It moved none; raise tau, or choose another problem.")
        transfer = ColorTransfer(colors[has], moves[has], masses[has], self.space, self.neighbors, settings)
        paint = self._alone(received, transfer) if self.alone else self._together(masses, moves, transfer)
        return Transferred(self.picture.filled(paint[0]), self.picture.spread(paint[1]), transfer)

    def _alone(self, received: Received, transfer: ColorTransfer) -> tuple[Levels, Floats]:
        """The levels and the mass of every pixel: those that it received, as Algorithm 4 has it."""
        where = self.cells.where
        masses = np.zeros(len(where))
        masses[received.pixels] = received.masses
        without = np.zeros(len(self.cells.levels), dtype=np.bool_)
        without[where.take(np.flatnonzero(masses == 0))] = True  # quicker than by a mask
        levels = self._table(without, transfer).take(where, axis=0)
        levels[received.pixels] = to_levels(received.means, self.space, levels.dtype)
        return levels, masses

    def _together(self, masses: Floats, moves: Points, transfer: ColorTransfer) -> tuple[Levels, Floats]:
        """The same, if all pixels of a cell move alike, or as their neighbours do."""
        labels, where = self.cells.labels, self.cells.where
        matched = (masses > 0)[labels]
        table = self._table(~matched, transfer)
        if self.smooth:
            table[matched] = transfer.move(table[matched])
        else:
            points = to_points(table[matched], self.space) + moves[labels[matched]]
            table[matched] = to_levels(points, self.space, table.dtype)
        return table.take(where, axis=0), masses[labels][where]

    def _table(self, without: NDArray[np.bool_], transfer: ColorTransfer) -> Levels:
        """The distinct colours, those without a match in their new place."""
        table = self.cells.levels.copy()
        if self.unmatched == "nearest":
            alone = np.flatnonzero(without)
            table[alone] = transfer.move(table.take(alone, axis=0))
        return table
