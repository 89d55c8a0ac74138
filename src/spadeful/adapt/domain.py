"""A domain: one set of images or features held in memory, with its labels where they are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spadeful.batches import Indices, groups_of
from spadeful.shapes import LUMA

if TYPE_CHECKING:
    from torch import Tensor

#: Images that are resized together, so that the floats in between stay small.
CHUNK = 2048


@dataclass(frozen=True, eq=False)
class Domain:
    """Images (n, H, W) or (n, H, W, C) of bytes, or features (n, d) of floats, with labels (n,) or none.

    >>> domain = Domain(np.zeros((3, 8, 8), np.uint8), np.array([0, 1, 1]), "blank", ("zero", "one"))
    >>> domain, domain.shape
    (Domain('blank', 3 of 8x8, labelled), (1, 8, 8))
    >>> domain.without_labels()
    Domain('blank', 3 of 8x8, unlabelled)
    """

    x: NDArray[Any]
    y: Indices | None
    name: str
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        x = np.asarray(self.x).view()
        images = x.dtype == np.uint8 and x.ndim in (3, 4) and (x.ndim == 3 or x.shape[3] in (1, 3))
        if not images and not (x.dtype.kind == "f" and x.ndim == 2):
            raise ValueError(
                f"x of {self.name} must be images (n, H, W) or (n, H, W, 1 or 3) of uint8, or features (n, d) of "
                f"floats. Got {x.dtype} of the shape {x.shape} instead."
            )
        if not x.size:
            raise ValueError(f"x of {self.name} must not be empty. Got the shape {x.shape}.")
        if not images and not np.isfinite(x).all():
            row, column = np.argwhere(~np.isfinite(x))[0]
            raise ValueError(
                f"x of {self.name} must be finite. Got {x[row, column]} in row {row}, column {column} instead; fill in "
                "such features, or leave out their points."
            )
        x.flags.writeable = False
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))
        if len({*self.classes}) < len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"The classes of {self.name} must have names of their own. Got {twice!r} twice.")
        if self.y is not None:
            object.__setattr__(self, "y", checked_labels(self.y, len(x), len(self.classes), self.name))

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.x.shape[1:]))
        return f"Domain({self.name!r}, {len(self)} of {size}, {'un' if self.y is None else ''}labelled)"

    @property
    def is_images(self) -> bool:
        return self.x.ndim > 2

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one point as a network sees it: (C, H, W), or (d,)."""
        if not self.is_images:
            return self.x.shape[1:]
        height, width, *channels = self.x.shape[1:]
        return (*(channels or (1,)), height, width)

    @property
    def cost(self) -> int:
        """The numbers that a point takes in a test."""
        return math.prod(self.shape)

    def batch(self, indices: Indices, rng: np.random.Generator | None = None) -> Tensor:
        """Some points as float32: images (b, C, H, W) from -1 to 1 (mean .5, deviation .5), features as they are.

        `rng`, which training passes, is for domains whose points look different each time.
        """
        import torch

        points = torch.from_numpy(self.x[np.asarray(indices, dtype=np.int64)])
        if not self.is_images:
            return points.float()
        return scaled(points)

    def labels(self, indices: Indices) -> Tensor:
        """The labels of some points, int64."""
        import torch

        return torch.from_numpy(self._known_labels()[np.asarray(indices, dtype=np.int64)])

    def take(self, indices: Indices) -> Domain:
        """The domain of some of the points, in the order given."""
        return replace(self, x=self.x[indices], y=None if self.y is None else self.y[indices])

    def without_labels(self) -> Domain:
        """The same points, for those who are not to see the labels."""
        return replace(self, y=None)

    def split(self, fraction: float, seed: int = 0) -> tuple[Domain, Domain]:
        """Two domains at random, the first with the fraction of the points: of every class, where labels are known.

        >>> y = np.repeat([0, 1], 10)
        >>> first, second = Domain(np.zeros((20, 2)), y, "blank", ("a", "b")).split(0.7)
        >>> np.bincount(first.y), np.bincount(second.y)
        (array([7, 7]), array([3, 3]))
        """
        if not 0 < fraction < 1:
            raise ValueError(f"The 'fraction' of a split must be in (0, 1). Got {fraction} instead.")
        groups = (np.arange(len(self)),) if self.y is None else groups_of(self.y, len(self), f"y of {self.name}")
        rng = np.random.default_rng(seed)
        chosen = np.zeros(len(self), dtype=bool)
        for group in groups:
            chosen[rng.permutation(group)[: round(fraction * len(group))]] = True
        if chosen.all() or not chosen.any():
            raise ValueError(
                f"A split must leave points on both sides. The fraction {fraction} of the {len(self)} points of "
                f"{self.name} leaves none on one; choose it nearer to a half."
            )
        return self.take(np.flatnonzero(chosen)), self.take(np.flatnonzero(~chosen))

    def resized(self, size: int, channels: int = 1) -> Domain:
        """The images at another size, square, in grey (1) or colour (3): bilinear, as Pillow does it."""
        import torch

        if not self.is_images:
            raise TypeError(f"Only images can be resized. {self.name} holds features.")
        if size < 1 or channels not in (1, 3):
            raise ValueError(f"size must be at least 1, channels 1 or 3. Got {size} and {channels} instead.")
        now, height, width = self.shape
        if (height, width) == (size, size) and now == channels:
            return self
        out = np.empty((len(self), size, size, *((channels,) if channels > 1 else ())), np.uint8)
        for start in range(0, len(self), CHUNK):
            part = channels_first(torch.from_numpy(np.array(self.x[start : start + CHUNK]))).float()
            pixels = resized(part, size, channels).byte().numpy()
            out[start : start + CHUNK] = pixels[:, 0] if channels == 1 else np.moveaxis(pixels, 1, 3)
        return replace(self, x=out)

    def _known_labels(self) -> Indices:
        if self.y is None:
            raise ValueError(f"The labels of {self.name} are asked for. It has none.")
        return self.y


def resized(images: Tensor, size: int, channels: int) -> Tensor:
    """Images (n, C, H, W) with values from 0 to 255, square, in grey (1) or colour (3), rounded to whole values."""
    from torch.nn.functional import interpolate

    if images.shape[1] > channels:
        images = (images * images.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    if images.shape[2:] != (size, size):
        images = interpolate(images, (size, size), mode="bilinear", align_corners=False, antialias=True)
    return images.round().clamp(0, 255).expand(-1, channels, -1, -1)


def channels_first(images: Tensor) -> Tensor:
    """(n, H, W) or (n, H, W, C) to (n, C, H, W)."""
    return images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)


def scaled(images: Tensor) -> Tensor:
    """Bytes (n, H, W[, C]) as (n, C, H, W) from -1 to 1."""
    return channels_first(images).float().div_(127.5).sub_(1).contiguous()


def checked_labels(y: NDArray[Any], size: int, classes: int, name: str) -> Indices:
    labels = np.asarray(y)
    if labels.shape != (size,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"y of {name} must hold one whole number a point, {size} of them. "
            f"Got {labels.dtype} of the shape {labels.shape} instead."
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"y of {name} must be from 0 to {classes - 1}, a number for each of the classes. "
            f"Got {labels.min()} to {labels.max()} instead."
        )
    known: Indices = labels.astype(np.int64)
    known.flags.writeable = False
    return known
