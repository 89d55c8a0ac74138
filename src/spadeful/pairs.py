"""Exact transport of pairs of batches: costs are measured and solved one pair at a time, without storing them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats
from spadeful.batches import Indices
from spadeful.costs import Cost, batch_costs, measured_pairs

#: Masses of partial transport that are solved for at once.
Masses = tuple[float, ...]


class PairPlans(NamedTuple):
    """The plans of some masses of each of k pairs, those of a mass after each other."""

    value: Floats
    triplets: tuple[Indices, Indices, Indices, Floats]

    @property
    def objective(self) -> Floats:
        return self.value

    @property
    def converged(self) -> NDArray[np.bool_]:
        return np.ones(len(self.value), dtype=np.bool_)


def solve_pairs(
    x: NDArray[Any], y: NDArray[Any], rows: Indices, cols: Indices, cost: Cost, masses: Masses, threads: int
) -> PairPlans:
    """The optimal plans of some masses between the points of k pairs of batches, rows (k, m) of x and cols (k, n) of y.

    A plan grows from one mass to the next, so that several take little longer than the largest.

    >>> x, y, both = np.array([[0.0], [3.0]]), np.array([[1.0], [7.0]]), np.array([[0, 1]])
    >>> solve_pairs(x, y, both, both, "sqeuclidean", (0.5, 0.75, 1.0), threads=1).value
    array([0.5, 4.5, 8.5])
    """
    if callable(cost):
        solved = _core.solve_masses(batch_costs(x, y, rows, cols, cost, threads), masses, threads)
    else:
        with measured_pairs(x, y, rows, cols, cost) as pairs:
            solved = pairs.solve(masses, threads)
    return PairPlans(solved.values, solved.triplets)
