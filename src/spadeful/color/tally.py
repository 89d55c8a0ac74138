"""Telling whole numbers apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Marks are quicker than sorting up to so many possible numbers for each that there is; they take 5 bytes a number.
SPARSE, MARKS = 16, 1 << 25


def ranked(keys: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The distinct ones among whole numbers from 0 to below a size, in order, and which of them each is.

    >>> ranked(np.array([7, 2, 7]), 10)
    (array([2, 7]), array([1, 0, 1], dtype=int32))
    """
    if size > min(SPARSE * len(keys), MARKS):
        each, where = np.unique(keys, return_inverse=True)
        return each, where.astype(np.int32)
    seen = np.zeros(size, dtype=np.bool_)
    seen[keys] = True
    each, places = placed(seen)
    return each, places.take(keys)


def placed(seen: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The numbers that are marked, in order, and the place of each among them; of others it is anything."""
    each, places = np.flatnonzero(seen), np.empty(len(seen), dtype=np.int32)
    places[each] = np.arange(len(each), dtype=np.int32)
    return each, places
