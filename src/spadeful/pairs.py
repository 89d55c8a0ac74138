"""Exact transport of pairs of batches: costs are measured and solved one pair at a time, without storing them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats
from spadeful.batches import Indices
from spadeful.costs import Cost, batch_costs, is_read_in_place, measured_pairs
from spadeful.problems import Problem, Unbalanced

#: Masses of partial transport that are solved for at once.
Masses = tuple[float, ...]


def exact_masses(problem: Problem | Masses) -> Masses | None:
    """Those to solve for, if plans are exact and nothing but their mass is asked of them."""
    if isinstance(problem, tuple):
        return problem
    if isinstance(problem, Unbalanced) or problem.reg > 0:
        return None
    return (getattr(problem, "mass", 1.0),)


class PairPlans(NamedTuple):
    """The plans of some masses of each of k pairs, those of a mass after each other."""

    value: Floats
    sizes: Indices  # entries of each plan
    rows: NDArray[Any]  # of x, of every entry
    cols: NDArray[Any]  # of y
    masses: Floats


def solve_pairs(
    x: NDArray[Any],
    y: NDArray[Any],
    rows: Indices,
    cols: Indices,
    cost: Cost,
    masses: Masses,
    threads: int,
    keep_plan: bool = True,
) -> PairPlans:
    """The optimal plans of some masses between the points of k pairs of batches, rows (k, m) of x and cols (k, n) of y.

    A plan grows from one mass to the next, so that several take little longer than the largest. Without `keep_plan`
    there are the values alone.

    >>> x, y, both = np.array([[0.0], [3.0]]), np.array([[1.0], [7.0]]), np.array([[0, 1]])
    >>> solve_pairs(x, y, both, both, "sqeuclidean", (0.5, 0.75, 1.0), threads=1).value
    array([0.5, 4.5, 8.5])
    """
    if callable(cost):
        solved = _core.solve_masses(batch_costs(x, y, rows, cols, cost, threads), masses, threads)
        if not keep_plan:
            return without_plans(solved.values)
        which, row, col, moved = solved.triplets
        pair = which % len(rows)
        return PairPlans(solved.values, np.bincount(which), rows[pair, row], cols[pair, col], moved)
    with measured_pairs(x, y, rows, cols, cost) as pairs:
        solved = pairs.solve(masses, threads)
        if not keep_plan:
            return without_plans(solved.values)
        sizes, of_x, of_y, moved = pairs.entries(solved)
    # Points that were converted first have numbers of their own.
    of_x, of_y = (
        which if is_read_in_place(points) else batches.ravel().take(which)
        for points, batches, which in ((x, rows, of_x), (y, cols, of_y))
    )
    return PairPlans(solved.values, sizes, of_x, of_y, moved)


def without_plans(values: Floats) -> PairPlans:
    none = np.empty(0, dtype=np.int32)
    return PairPlans(values, np.zeros(len(values), dtype=np.int64), none, none, np.empty(0))
