"""Sliced transport: between the projections of points onto random lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, is_torch, like, own_kind, precise, to_numpy
from spadeful.costs import read_both, refuse_points
from spadeful.problems import Balanced, Partial, Sliced
from spadeful.threads import check_threads

#: Projections of points that are held at a time.
AT_A_TIME = 1 << 22
#: Points of one weight that two clouds of different sizes may be split into, to move a part of the mass.
MOST_PARTS = 10_000_000


@dataclass(frozen=True, eq=False)
class SlicedCost:
    """What transport along some directions costs.

    `value` is the mean of `values`, one a direction; `directions` (n_projections, d) are of length 1. `gradients` are
    those of `value` in x and in y, the plans held fixed.
    """

    value: Any
    values: Any
    directions: Any
    gradients: tuple[Any, Any]

    def __repr__(self) -> str:
        value = float(to_numpy(self.value))
        return f"SlicedCost({len(self.values)} directions, value={value:.6g} ± {self.standard_error:.2g})"

    @property
    def standard_error(self) -> float:
        """Of `value` as an estimate of the mean over all directions; infinite where one cannot tell."""
        count = len(self.values)
        return math.inf if count < 2 else float(np.std(to_numpy(self.values), ddof=1)) / math.sqrt(count)


def sliced(
    x: Any,
    y: Any,
    problem: Balanced | Partial,
    n_projections: int = 100,
    *,
    p: Literal[1, 2] = 2,
    seed: int = 0,
    threads: int | None = None,
) -> SlicedCost:
    r"""The sliced cost of transport between two clouds, of all their mass or of a part.

    .. math:: \frac1L \sum_{l=1}^L \mathrm{POT}_s(\theta_l^\top X, \theta_l^\top Y)

    No matrix of costs is made. On a line of N points partial transport takes a time of N log N for p = 1. For p = 2 it
    takes hardly more where both clouds spread alike or lie apart, and of N^2 at worst.

    Parameters
    ----------
    x, y : array (m, d), array (n, d)
        The points, of equal weights 1/m and 1/n. Where m and n differ, and a part of the mass is moved, time grows with
        their least common multiple.
    problem : Balanced or Partial
        What is solved on every line.
    n_projections : int
        L: directions, drawn uniformly.
    p : 1 or 2
        The cost on a line is the distance to this power.
    seed : int
        Decides the directions.
    threads : int, optional
        How many lines to solve at a time; all cores if absent. It does not change the answer.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> found = sp.sliced(x, x + [3, 0, 0], sp.Balanced(), n_projections=1000)
    >>> bool(abs(found.value - 9 / 3) < 4 * found.standard_error)
    True
    """
    asked = Sliced(problem, n_projections, p, seed)
    threads = check_threads(threads)
    from_points, to_points = read_both(x, y)
    towards = directions(asked, from_points.shape[1])
    values, gradients = slice_points(from_points, to_points, asked.mass, asked.p, towards, threads)
    kinds = [own_kind(points, values) for points in (x, y)]
    of_x, of_y = (like(gradient, kind) for gradient, kind in zip(gradients, kinds, strict=True))
    value: Any = float(values.mean())
    if is_torch(x) or is_torch(y):
        value = like(values.mean(), x if is_torch(x) else y)
        for points, gradient in ((x, of_x), (y, of_y)):
            if is_torch(points):  # nothing is added but the gradient
                value = value + (gradient * (points - points.detach())).sum()
    kind = kinds[0] if is_torch(x) else kinds[1]
    return SlicedCost(value, precise(values, kind), precise(towards, kind), (of_x, of_y))


def directions(asked: Sliced, dimension: int, iteration: int = 0) -> Floats:
    """The directions (n_projections, d) of an iteration: the seed and its number decide them."""
    drawn = np.random.default_rng([asked.seed, iteration]).normal(size=(asked.n_projections, dimension))
    unit: Floats = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def slice_points(
    x: NDArray[Any],
    y: NDArray[Any],
    mass: float,
    p: int,
    towards: Floats,
    threads: int,
    names: tuple[str, str] = ("x", "y"),
) -> tuple[Floats, tuple[Floats, Floats]]:
    """The values along some directions, and the gradients of their mean in the points."""
    for points, name in zip((x, y), names, strict=True):
        refuse_points(points, np.arange(len(points)), name)
    if mass < 1 and math.lcm(len(x), len(y)) > MOST_PARTS:
        raise ValueError(
            f"To move a part, the numbers of points must have a least common multiple of at most {MOST_PARTS}. "
            f"Got {len(x)} and {len(y)} instead; draw as many from each side."
        )
    centre = y.mean(axis=0, dtype=np.float64)  # points that are far out would lose digits in a projection
    x, y = (np.asarray(points - centre, dtype=np.float64) for points in (x, y))
    values, of_x, of_y = np.empty(len(towards)), np.zeros_like(x), np.zeros_like(y)
    stride = max(4, AT_A_TIME // (len(x) + len(y)))
    for start in range(0, len(towards), stride):
        some = slice(start, start + stride)
        lines = [np.ascontiguousarray(towards[some] @ points.T) for points in (x, y)]
        answers = _core.lines(lines[0], lines[1], mass, p, threads)
        values[some] = answers.values
        for total, slopes in zip((of_x, of_y), answers.gradients, strict=True):
            total += slopes.T @ towards[some] / len(towards)
    return values, (of_x, of_y)
