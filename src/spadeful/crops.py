"""Images as networks see them: squares of one size, cropped. Without torch, for worker processes to start quickly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from spadeful.images import read_rgb

if TYPE_CHECKING:
    from PIL import Image

#: A random crop takes this share of the area, and its sides are in this ratio.
AREAS, RATIOS = (0.08, 1.0), (3 / 4, 4 / 3)
#: A crop that would not fit is drawn again, so many times; then the whole image is taken.
TRIES = 10


class Crop(NamedTuple):
    left: int
    upper: int
    right: int
    lower: int
    mirrored: bool


def random_crops(rng: np.random.Generator, count: int, side: int) -> list[Crop]:
    """Parts of a square of so many pixels a side, as many of them mirrored as not (Szegedy et al., CVPR 2015).

    >>> random_crops(np.random.default_rng(0), 1, 256)
    [Crop(left=11, upper=1, right=240, lower=192, mirrored=True)]
    """
    area = side**2 * rng.uniform(*AREAS, (count, TRIES))
    ratio = np.exp(rng.uniform(np.log(RATIOS[0]), np.log(RATIOS[1]), (count, TRIES)))
    sizes = np.rint([np.sqrt(area * ratio), np.sqrt(area / ratio)]).astype(int)  # (2, count, TRIES)
    fits = np.all((sizes >= 1) & (sizes <= side), axis=0)
    first = np.take_along_axis(sizes, fits.argmax(axis=1)[None, :, None], axis=2)[:, :, 0]
    width, height = np.where(np.any(fits, axis=1), first, side)
    left, upper = rng.integers(0, side - width + 1), rng.integers(0, side - height + 1)
    mirrored = rng.random(count) < 0.5
    parts = (part.tolist() for part in (left, upper, left + width, upper + height, mirrored))
    return [Crop(*crop) for crop in zip(*parts, strict=True)]


def square(path: Path, side: int, size: int, crop: Crop | None) -> NDArray[np.uint8]:
    """An image as a square (side, side, 3); or of that a crop, as a square (size, size, 3)."""
    from PIL import Image

    image = read_rgb(path).resize((side, side), Image.Resampling.BILINEAR)
    if crop is not None:
        image = image.crop(crop[:4]).resize((size, size), Image.Resampling.BILINEAR)
        if crop.mirrored:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def centre(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle of an image, at so many pixels a side."""
    from PIL import Image

    side = min(image.size)
    left, upper = ((length - side) // 2 for length in image.size)
    return image.crop((left, upper, left + side, upper + side)).resize((size, size), Image.Resampling.BILINEAR)


def centre_or_fault(path: Path, size: int) -> NDArray[np.uint8] | str:
    """The centre of an image file (size, size, 3); or why it cannot be read."""
    try:
        return np.array(centre(read_rgb(path), size))
    except (ValueError, OSError) as error:
        return str(error)


def fault(path: Path) -> str:
    """Why an image cannot be read; nothing if it can."""
    try:
        read_rgb(path)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def in_processes(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterable[Any]:
    """The results of some calls, in order, from worker processes if there is to be more than one."""
    parallel = Parallel(n_jobs=workers, batch_size=8, return_as="generator")
    results: Iterable[Any] = parallel(delayed(function)(*call) for call in calls)
    return results
