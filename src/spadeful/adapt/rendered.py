"""Two domains of digits without a download: rendered from matplotlib's fonts, and scikit-learn's handwritten ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spadeful.adapt.domain import Domain

DIGITS = tuple("0123456789")

#: The fonts in matplotlib that hold digits as they are printed in text.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10"),
)

GLYPH = 96  # the side of a glyph's picture; the digit fills the middle two thirds of its height
BITMAP = 32  # the side of the bitmap that a scan is made of
CELL = 4  # the side of the squares of the bitmap whose black points are counted
CHUNK = 1000  # images that are rendered together


@cache
def glyphs() -> NDArray[np.float32]:
    """The digits of all fonts (font, digit, GLYPH, GLYPH), from 0 to 1, blurred: a level of it is a stroke width."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont
    from scipy.ndimage import gaussian_filter

    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    drawn = np.empty((len(FONTS), len(DIGITS), GLYPH, GLYPH), np.float32)
    for f, name in enumerate(FONTS):
        font = ImageFont.truetype(str(folder / f"{name}.ttf"), GLYPH, layout_engine=ImageFont.Layout.BASIC)
        for d, digit in enumerate(DIGITS):
            left, top, right, bottom = font.getbbox(digit)
            tall = GLYPH * 2 / 3 / (bottom - top)
            size = max(1, round((right - left) * tall)), GLYPH * 2 // 3
            whole = Image.new("L", (round(right - left), round(bottom - top)))
            ImageDraw.Draw(whole).text((-left, -top), digit, fill=255, font=font)
            picture = Image.new("L", (GLYPH, GLYPH))
            picture.paste(whole.resize(size, Image.Resampling.BILINEAR), ((GLYPH - size[0]) // 2, GLYPH // 6))
            drawn[f, d] = gaussian_filter(np.asarray(picture, np.float32) / 255, GLYPH / 64)
    return drawn


def rendered_digits(count: int = 20_000, seed: int = 0, size: int = 28) -> Domain:
    """Printed digits as a scanner sees them: as many of every class, the same for the same seed.

    Font, size, slant, turn, place and stroke width vary, and some points are flipped. A bitmap of 32x32 is reduced to
    8x8 by counting the black points of squares of 4x4, which is how scikit-learn's digits were made.

    >>> domain = rendered_digits(20, seed=0, size=8)
    >>> domain, np.bincount(domain.y)
    (Domain('fonts', 20 of 8x8, labelled), array([2, 2, 2, 2, 2, 2, 2, 2, 2, 2]))
    """
    if count < 1 or size < 1:
        raise ValueError(f"count and size must be at least 1. Got {count} and {size} instead.")
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(count) % len(DIGITS))
    counts = [counted(bitmaps(y[start : start + CHUNK], rng)) for start in range(0, count, CHUNK)]
    return scans(np.concatenate(counts), y, "fonts", size)


def handwritten_digits(size: int = 28) -> Domain:
    """scikit-learn's 1,797 scans of handwritten digits (Alpaydin and Kaynak, 1998).

    >>> handwritten_digits(size=8)
    Domain('handwritten', 1797 of 8x8, labelled)
    """
    from sklearn.datasets import load_digits

    images, y = load_digits(return_X_y=True)
    return scans(images.reshape(-1, BITMAP // CELL, BITMAP // CELL), y, "handwritten", size)


def bitmaps(y: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """One rendering of each digit (n, BITMAP, BITMAP)."""
    n = len(y)

    def between(low: float, high: float) -> NDArray[np.float32]:
        return rng.uniform(low, high, (n, 1, 1)).astype(np.float32)

    font = rng.integers(0, len(FONTS), (n, 1, 1))
    height, width = between(0.8, 1.0), between(0.7, 1.1)
    slant, turn = between(-0.2, 0.2), between(-0.12, 0.12)
    right, down = between(-1.5, 1.5), between(-1.5, 1.5)
    level = between(0.15, 0.45)

    # Where each point of the bitmap lies in the glyph's picture.
    v, u = (np.mgrid[:BITMAP, :BITMAP] - (BITMAP - 1) / 2).astype(np.float32)
    u, v = u - right, v - down
    u, v = u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn)
    u = u + slant * v
    scale = GLYPH * 2 / 3 / BITMAP
    middle = (GLYPH - 1) / 2
    values = sampled(font, y[:, None, None], middle + v * scale / height, middle + u * scale / width)
    return (values > level) ^ (rng.random(values.shape) < 0.02)


def sampled(
    font: NDArray[np.int64], digit: NDArray[np.int64], row: NDArray[np.float32], column: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The glyphs' values between their points, bilinear."""
    row, column = np.clip(row, 0, GLYPH - 1.001), np.clip(column, 0, GLYPH - 1.001)
    top, left = row.astype(np.int64), column.astype(np.int64)
    down, right = (row - top).astype(np.float32), (column - left).astype(np.float32)
    flat = glyphs().ravel()
    at = ((font * len(DIGITS) + digit) * GLYPH + top) * GLYPH + left
    upper = flat[at] * (1 - right) + flat[at + 1] * right
    lower = flat[at + GLYPH] * (1 - right) + flat[at + GLYPH + 1] * right
    between: NDArray[np.float32] = upper * (1 - down) + lower * down
    return between


def counted(points: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many points of each square are black, from 0 to CELL squared."""
    side = BITMAP // CELL
    squares: NDArray[np.int64] = points.reshape(-1, side, CELL, side, CELL).sum((2, 4))
    return squares


def scans(counts: NDArray[np.int64], y: NDArray[np.int64], name: str, size: int) -> Domain:
    """Counts as grey levels, at the size asked for."""
    grey = np.round(counts * (255 / CELL**2)).astype(np.uint8)
    domain = Domain(grey, y, name, DIGITS)
    return domain if size == BITMAP // CELL else domain.resized(size)
