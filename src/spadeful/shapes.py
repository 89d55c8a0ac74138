"""Points of a shape: drawn in code, or from an image taken as a density."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spadeful.arrays import Floats

IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")


def disc(n: int = 1000, seed: int = 0) -> Floats:
    """Points spread evenly over a disc in the left of the unit square."""
    radius, angle = np.random.default_rng(seed).random((2, n))
    radius, angle = 0.17 * np.sqrt(radius), 2 * np.pi * angle
    return np.column_stack([0.22 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)])


def s_shape(n: int = 1000, seed: int = 0) -> Floats:
    """Points spread along an S in the right of the unit square: two bows of three quarters of a circle, as of a brush.

    >>> points = s_shape(100)
    >>> points.shape, bool((points > 0).all() and (points < 1).all())
    ((100, 2), True)
    """
    rng = np.random.default_rng(seed)
    along, across = rng.uniform(-1, 1, n), rng.uniform(-0.03, 0.03, n)
    # Each bow begins in the middle of the letter; the lower one is the upper one, turned by half a circle.
    angle = 1.5 * np.pi * (1 - abs(along))
    turned = np.sign(along)[:, None]
    radius = (0.17 + turned[:, 0] * across)[:, None]
    bow = radius * np.column_stack([np.cos(angle), np.sin(angle)]) + [0, 0.17]
    return np.asarray([0.72, 0.5] + turned * bow, dtype=np.float64)


def image_points(path: str | Path, n: int = 1000, seed: int = 0) -> Floats:
    """Points of the unit square drawn from an image: the darker a pixel, the more of them; transparent ones are white.

    The longer side of the image has the length 1, and the vertical axis points upwards.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as missing:
        raise ImportError("Images need Pillow: pip install 'spadeful[images]'") from missing
    try:
        with Image.open(path) as image:
            drawn = image.convert("RGBA")
    except UnidentifiedImageError:
        raise ValueError(f"{path} must be an image. It cannot be read as one.") from None
    paper = Image.new("RGBA", drawn.size, "white")
    ink = 255.0 - np.asarray(Image.alpha_composite(paper, drawn).convert("L"), dtype=np.float64)
    if not ink.any():
        raise ValueError(f"{path} must not be all white: the darker a pixel, the more points it gets.")
    rng = np.random.default_rng(seed)
    height, width = ink.shape
    row, column = np.divmod(rng.choice(ink.size, n, p=ink.ravel() / ink.sum()), width)
    across, up = rng.random((2, n))
    return np.column_stack([column + across, height - row - up]) / float(max(width, height))
