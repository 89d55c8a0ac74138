"""Ground costs: what it costs to move mass from one point to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, open_array, to_floats
from spadeful.batches import Indices

#: A named cost, or a function of two batches (m, d), (n, d) that returns their costs (m, n).
Cost = Literal["sqeuclidean", "euclidean", "cosine"] | Callable[[Any, Any], Any]

NAMES = ("sqeuclidean", "euclidean", "cosine")


def check_cost(cost: object) -> None:
    if not callable(cost) and not (isinstance(cost, str) and cost in NAMES):
        raise ValueError(f"cost must be one of {', '.join(map(repr, NAMES))}, or a function. Got {cost!r} instead.")


def read_points(points: Any, name: str) -> NDArray[Any]:
    """Points (n, d) as an array that is read where it lies: a memory-mapped one is not loaded, nothing is copied."""
    values = open_array(points, name)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers. Got the type {values.dtype} instead.")
    if values.ndim != 2:
        hint = f" For points on a line pass {name}[:, None]." if values.ndim == 1 else ""
        raise ValueError(f"{name} must have the shape (points, dimensions). Got {values.shape} instead.{hint}")
    if not values.size:
        raise ValueError(f"{name} must hold at least one point of one dimension. Got the shape {values.shape} instead.")
    return values


def read_both(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = read_points(x, "x"), read_points(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x and y must have the same number of dimensions. Got {x.shape[1]} and {y.shape[1]} instead.")
    return x, y


def batch_costs(
    x: NDArray[Any],
    y: NDArray[Any],
    rows: Indices,
    cols: Indices,
    cost: Cost,
    threads: int,
    out: Floats | None = None,
) -> Floats:
    """The costs (k, m, n) between the points of k pairs of batches, rows (k, m) of x and cols (k, n) of y.

    They are written to `out` if it is there: memory that was used before is quicker than fresh one.
    """
    if callable(cost):
        return np.stack([function_cost(cost, x[r], y[c]) for r, c in zip(rows, cols, strict=True)])
    costs = np.empty((*rows.shape, cols.shape[1])) if out is None else out
    with measured_pairs(x, y, rows, cols, cost) as pairs:
        pairs.measure(costs, threads)
    return costs


@contextmanager
def measured_pairs(x: NDArray[Any], y: NDArray[Any], rows: Indices, cols: Indices, cost: str) -> Iterator[_core.Pairs]:
    """What measures pairs of batches in the core; a point that it refuses is named."""
    sides = []
    for points, which in ((x, rows), (y, cols)):
        if is_read_in_place(points):
            sides.append((points, which))
        else:  # only the points of these batches are converted
            sides.append((to_floats(points[which.ravel()], "points"), np.arange(which.size).reshape(which.shape)))
    (from_points, from_which), (to_points, to_which) = sides
    try:
        yield _core.Pairs(from_points, to_points, from_which, to_which, cost)
    except _core.BadPair as error:
        bad = int(str(error))
        refuse_points(x, rows[bad], "x")
        refuse_points(y, cols[bad], "y")


def is_read_in_place(points: NDArray[Any]) -> bool:
    """Whether the core reads points where they lie."""
    return points.dtype in (np.float32, np.float64) and points.flags.aligned


def function_cost(cost: Callable[[Any, Any], Any], x: NDArray[Any], y: NDArray[Any]) -> Floats:
    values = to_floats(open_array(cost(x, y), "cost"), "cost").astype(np.float64, copy=False)
    if values.shape != (len(x), len(y)):
        raise ValueError(f"cost must return the shape {(len(x), len(y))}. Got {values.shape} instead.")
    return values


def refuse_points(points: NDArray[Any], which: Indices, name: str) -> None:
    """Refuse the first point that is not finite, or beyond 1e150."""
    good = (abs(points[which].astype(np.float64)) <= 1e150).all(axis=1)
    if not good.all():
        first = which[~good][0]
        raise ValueError(f"{name} must hold finite numbers of at most 1e150. Got {points[first]} at {name}[{first}].")
