"""The families of cost matrices that the solvers are measured on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Cost = NDArray[np.float64]


def clouds(m: int, dimension: int, rng: np.random.Generator) -> Cost:
    """Squared Euclidean costs between two Gaussian clouds whose means are 1 apart."""
    x, y = rng.normal(size=(2, m, dimension))
    y[:, 0] += 1
    return cdist(x, y, "sqeuclidean")


def clustered(m: int, rng: np.random.Generator) -> Cost:
    """Squared Euclidean costs between points in 10 clusters; a cluster moves, and its sizes differ."""
    centres = 5 * rng.normal(size=(10, 2))
    moved = centres + rng.normal(size=(10, 2))
    x, y = (c[rng.integers(10, size=m)] + 0.5 * rng.normal(size=(m, 2)) for c in (centres, moved))
    return cdist(x, y, "sqeuclidean")


def uniform(m: int, rng: np.random.Generator) -> Cost:
    return rng.random((m, m))


def integer(m: int, rng: np.random.Generator) -> Cost:
    """Whole numbers below 100, as floats: many ties."""
    return rng.integers(100, size=(m, m)).astype(np.float64)


FAMILIES: dict[str, Callable[[int, np.random.Generator], Cost]] = {
    "clouds2": lambda m, rng: clouds(m, 2, rng),
    "clouds128": lambda m, rng: clouds(m, 128, rng),
    "uniform": uniform,
    "clustered": clustered,
    "integer": integer,
}

TITLES = {
    "clouds2": "clouds, 2-D",
    "clouds128": "clouds, 128-D",
    "uniform": "uniform",
    "clustered": "10 clusters",
    "integer": "integer",
}


def draw(family: str, m: int, number: int = 0) -> Cost:
    """A cost (m, m) of a family, for each number the same every time."""
    return FAMILIES[family](m, np.random.default_rng([m, number]))
