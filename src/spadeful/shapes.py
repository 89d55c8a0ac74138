"""Points of a shape: drawn in code, or from an image taken as a density."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats

#: What red, green and blue add to the brightness of a pixel (ITU-R BT.601, as in Pillow).
LUMA = (0.299, 0.587, 0.114)


def disc(n: int = 1000, seed: int = 0) -> Floats:
    """Points spread evenly over a disc in the left of the unit square."""
    radius, angle = np.random.default_rng(seed).random((2, n))
    radius, angle = 0.17 * np.sqrt(radius), 2 * np.pi * angle
    return np.column_stack([0.22 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)])


def s_shape(n: int = 1000, seed: int = 0, stroke: float = 0.06) -> Floats:
    """Points spread along an S in the right of the unit square: two bows of three quarters of a circle, as of a brush.

    The bows have the radius 0.17, in the middle of a stroke of the given width.

    >>> points = s_shape(100)
    >>> points.shape, bool((points > 0).all() and (points < 1).all())
    ((100, 2), True)
    """
    rng = np.random.default_rng(seed)
    along, across = rng.uniform(-1, 1, n), rng.uniform(-stroke / 2, stroke / 2, n)
    # Each bow begins in the middle of the letter; the lower one is the upper one, turned by half a circle.
    angle = 1.5 * np.pi * (1 - abs(along))
    turned = np.sign(along)[:, None]
    radius = (0.17 + turned[:, 0] * across)[:, None]
    bow = radius * np.column_stack([np.cos(angle), np.sin(angle)]) + [0, 0.17]
    return np.asarray([0.72, 0.5] + turned * bow, dtype=np.float64)


def image_points(image: NDArray[Any], n: int = 1000, seed: int = 0, name: str = "image") -> Floats:
    """Points of the unit square drawn from an image: the darker a pixel, the more of them; transparent ones are white.

    The image is an array (h, w, 3), or 4 with alpha, of the type uint8 or uint16. Its longer side has the length 1, and
    the vertical axis points upwards.
    """
    white = np.iinfo(image.dtype).max
    height, width, channels = image.shape
    ink = np.zeros((height, width))
    for channel, share in enumerate(LUMA):
        ink += share * (white - image[:, :, channel])
    if channels == 4:
        ink *= image[:, :, 3]
    if not ink.any():
        raise ValueError(f"{name} must not be all white: the darker a pixel, the more points it gets.")
    rng = np.random.default_rng(seed)
    row, column = np.divmod(rng.choice(ink.size, n, p=ink.ravel() / ink.sum()), width)
    across, up = rng.random((2, n))
    return np.column_stack([column + across, height - row - up]) / float(max(width, height))
