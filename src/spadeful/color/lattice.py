"""A look-up table, as tools for colour grading use it: a function of colours on a lattice, interpolated in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.color.spaces import BOUNDS, Points, Space

#: Nodes of the lattice along a length of 1.
DENSITY = 40


class Lattice:
    """A function of colours, trilinear between its values at nodes; each of these is found when first needed.

    >>> double = Lattice(lambda points: 2 * points, "rgb")
    >>> double(np.array([[0.1, 0.5, 0.99]], dtype=np.float32)).round(3)
    array([[0.2 , 1.  , 1.98]], dtype=float32)
    """

    def __init__(self, function: Callable[[Points], NDArray[Any]], space: Space):
        low, high = BOUNDS[space]
        self.function, self._low = function, np.array(low, dtype=np.float32)
        self._shape = np.ceil(DENSITY * np.subtract(high, low)).astype(np.int32) + 1
        self._values = np.zeros((self._shape.prod(), 3), dtype=np.float32)
        self._known = np.zeros(len(self._values), dtype=np.bool_)
        r, g, b = np.indices((2, 2, 2), dtype=np.int32).reshape(3, 8)
        self._corners = self._number(r, g, b)  # of a cell, seen from the first

    def __call__(self, points: Points) -> Points:
        """The function (n, 3) at some colours (n, 3) of the space."""
        place = (points - self._low) * np.float32(DENSITY)
        cells = np.clip(place.astype(np.int32), 0, self._shape - 2)
        self._ask(self._number(*cells.T))
        moved: Points = _core.interpolate(self._values.reshape(*self._shape, 3), place)
        return moved

    def _number(self, r: NDArray[np.int32], g: NDArray[np.int32], b: NDArray[np.int32]) -> NDArray[np.int32]:
        """The number of the node in such a place."""
        number: NDArray[np.int32] = (r * self._shape[1] + g) * self._shape[2] + b
        return number

    def _ask(self, first: NDArray[np.int32]) -> None:
        """Make the function known at the corners of some cells."""
        cells, needed = np.zeros((2, len(self._known)), dtype=np.bool_)
        cells[first] = True
        needed[np.flatnonzero(cells)[:, None] + self._corners] = True
        nodes = np.flatnonzero(needed & ~self._known)
        if len(nodes):
            places = np.stack(np.unravel_index(nodes, self._shape), axis=1)
            self._values[nodes] = self.function((places / DENSITY + self._low).astype(np.float32))
            self._known[nodes] = True
