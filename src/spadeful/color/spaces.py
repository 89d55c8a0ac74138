"""Colours as images hold them, and as they are compared: RGB from 0 to 1, or CIELAB."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats

Space = Literal["rgb", "lab"]
Levels = NDArray[Any]  # colours as images hold them (n, 3), uint8 or uint16
Points = NDArray[np.float32]  # colours as they are compared (n, 3)

#: From linear sRGB to XYZ (IEC 61966-2-1), each relative to the white that the three channels add up to.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
XYZ /= XYZ.sum(axis=1, keepdims=True)
#: Boxes that hold all colours of a space.
BOUNDS = {"rgb": ((0, 0, 0), (1, 1, 1)), "lab": ((0, -0.87, -1.08), (1, 0.99, 0.95))}


def to_points(levels: Levels, space: Space) -> Points:
    """Colours as they are compared, from those that images hold."""
    most = np.iinfo(levels.dtype).max
    return to_lab(levels / most).astype(np.float32) if space == "lab" else np.divide(levels, most, dtype=np.float32)


def to_levels(points: NDArray[Any], space: Space, dtype: np.dtype[Any]) -> Levels:
    """Colours as images of a type hold them; those that none can show are cut to what it can."""
    rgb = np.clip(from_lab(points) if space == "lab" else points, 0, 1)
    rgb *= np.iinfo(dtype).max
    return np.rint(rgb, out=rgb).astype(dtype)


def to_lab(rgb: Floats) -> Floats:
    """CIELAB over 100 of sRGB, relative to its white."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    t = linear @ XYZ.T
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.stack([1.16 * f[:, 1] - 0.16, 5 * (f[:, 0] - f[:, 1]), 2 * (f[:, 1] - f[:, 2])], axis=1)


def from_lab(lab: NDArray[Any]) -> Floats:
    """What `to_lab` came from."""
    y = (lab[:, 0] + 0.16) / 1.16
    f = np.stack([y + lab[:, 1] / 5, y, y - lab[:, 2] / 2], axis=1)
    t = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    linear = np.clip(t @ np.linalg.inv(XYZ).T, 0, 1)
    rgb: Floats = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return rgb
