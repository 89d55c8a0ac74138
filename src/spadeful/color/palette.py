"""Fewer colours, by k-means."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.color.spaces import Points
from spadeful.threads import all_cores

#: Sweeps of k-means, after which a palette hardly changes any more.
SWEEPS = 12


def find_palette(colors: Points, weights: Floats, size: int, seed: int) -> tuple[Points, NDArray[np.int32]]:
    """Fewer colours by k-means, and which of them each becomes.

    A tree finds the nearest of thousands of centres among three channels far quicker than a general k-means does.
    """
    if size >= len(colors):
        return colors, np.arange(len(colors), dtype=np.int32)
    rng = np.random.default_rng(seed)
    centres = colors[rng.choice(len(colors), size, replace=False, p=weights / weights.sum())].astype(np.float64)
    for _ in range(SWEEPS):
        nearest = tree_of(centres).query(colors, workers=all_cores())[1]
        counts = np.bincount(nearest, weights, size)
        used = counts > 0
        sums = [np.bincount(nearest, weights * channel, size) for channel in colors.T]
        centres[used] = np.stack(sums, axis=1)[used] / counts[used, None]
    nearest = tree_of(centres).query(colors, workers=all_cores())[1]
    return centres.astype(np.float32), nearest.astype(np.int32)


def tree_of(points: NDArray[Any]) -> Any:
    """What finds the nearest of some points; imported where it is used, because that takes longer than all else."""
    from scipy.spatial import cKDTree

    return cKDTree(points)
