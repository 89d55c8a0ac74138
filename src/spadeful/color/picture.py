"""An image as its visible pixels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats, open_array
from spadeful.color.spaces import Levels


class Picture(NamedTuple):
    """The visible pixels of an image, and what is needed to put others in their place."""

    levels: Levels  # (n, 3)
    visible: NDArray[np.bool_] | None  # (h, w); None for all
    whole: NDArray[Any]  # (h, w, 3 or 4), uint8 or uint16
    dtype: np.dtype[Any]

    @staticmethod
    def read(image: Any, name: str, blank: bool = False) -> Picture:
        """An image; one without a visible pixel only if it may be `blank`."""
        values = open_array(image, name)
        dtype = values.dtype
        if values.ndim == 2 or (values.ndim == 3 and values.shape[2] == 1):
            values = np.repeat(values.reshape(*values.shape[:2], 1), 3, axis=2)
        if values.ndim != 3 or values.shape[2] not in (3, 4):
            raise ValueError(f"{name} must have the shape (h, w, 3), (h, w, 4) or (h, w). Got {values.shape} instead.")
        if dtype.kind == "f":
            if not ((values >= 0) & (values <= 1)).all():
                low, high = values.min(), values.max()
                raise ValueError(
                    f"{name} must hold numbers from 0 to 1, or be of the type uint8 or uint16. "
                    f"Got numbers from {low:g} to {high:g} instead."
                )
            values = np.rint(values.astype(np.float64) * 65535).astype(np.uint16)
        elif dtype not in (np.uint8, np.uint16):
            raise TypeError(f"{name} must be of the type uint8 or uint16, or hold floats. Got {dtype} instead.")
        visible = values[:, :, 3] > 0 if values.shape[2] == 4 else None
        if not values.size or not (blank or visible is None or visible.any()):
            raise ValueError(f"{name} must have at least one pixel that can be seen. Got none.")
        levels = values[:, :, :3].reshape(-1, 3) if visible is None else values[visible][:, :3]
        return Picture(levels, visible, values, dtype)

    def filled(self, levels: Levels) -> NDArray[Any]:
        """The image with other levels at its visible pixels."""
        if self.visible is None:
            image = levels.reshape(self.whole.shape)
        else:
            image = self.whole.copy()
            image[self.visible, :3] = levels
        return (image / 65535).astype(self.dtype) if self.dtype.kind == "f" else image

    def spread(self, numbers: Floats) -> Floats:
        """A number for each pixel (h, w), 0 where none can be seen."""
        if self.visible is None:
            return numbers.reshape(self.whole.shape[:2])
        spread = np.zeros(self.visible.shape)
        spread[self.visible] = numbers
        return spread
