"""How far generated images are from real ones: the Frechet distance between Gaussians fitted to their features.

In the features of the Inception network it is the FID (Heusel et al., NeurIPS 2017). In those of another network it is
another number, and bears that network's name. Numbers compare only where features, reference and the number of images
are the same: the fewer images, the higher the score.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svdvals
from torch import Tensor

from spadeful.files import opened_npz, reading, replacing
from spadeful.generate.data import Images
from spadeful.generate.features import Features
from spadeful.progress import progress_bar

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Statistics:
    """The Gaussian of some features: mean (d,), covariance (d, d), and how many they were."""

    mean: Floats
    covariance: Floats
    count: int

    def __post_init__(self) -> None:
        width = len(self.mean)
        if self.mean.shape != (width,) or self.covariance.shape != (width, width) or self.count < 2:
            raise ValueError(
                "Statistics must be a mean (d,) and a covariance (d, d) of at least two points. "
                f"Got {self.mean.shape} and {self.covariance.shape} of {self.count} instead."
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise ValueError("Features must be finite. Got some that are not; look at the images they are of.")


def fitted(batches: Iterable[Any]) -> Statistics:
    """The statistics of features that come in batches (b, d), in float64.

    Batches are joined by their means and scatters (Chan et al., 1983), which loses nothing where a mean is large.

    >>> fitted([np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[4.0, 4.0]])]).covariance
    array([[4., 3.], [3., 3.]])
    """
    count, mean, scatter = 0, np.zeros(()), np.zeros(())
    for batch in batches:
        x = np.asarray(batch, dtype=np.float64)
        if x.ndim != 2 or not x.size or mean.shape not in ((), x.shape[1:]):
            raise ValueError(f"Features must come in batches (b, d), d always the same. Got {x.shape} instead.")
        total, its = count + len(x), x.mean(axis=0)
        apart, centred = its - mean, x - its
        scatter = scatter + centred.T @ centred + np.outer(apart, apart) * (count * len(x) / total)
        mean, count = mean + apart * (len(x) / total), total
    if count < 2:
        raise ValueError(f"Statistics need at least two points. Got {count}.")
    return Statistics(mean, scatter / (count - 1), count)


def frechet(a: Statistics, b: Statistics) -> float:
    """The squared Wasserstein distance between two Gaussians, |m_a - m_b|^2 + tr(A + B - 2 (A^1/2 B A^1/2)^1/2).

    With A = L_A L_A^T and B = L_B L_B^T the last trace is the sum of the singular values of L_A^T L_B: no root of a
    rounded zero is taken, so covariances without full rank, of fewer images than features, do no harm.

    >>> one = Statistics(np.zeros(2), np.diag([1.0, 4.0]), 10)
    >>> other = Statistics(np.ones(2), np.diag([4.0, 4.0]), 10)
    >>> round(frechet(one, other), 12), frechet(one, one)
    (3.0, 0.0)
    """
    if a.mean.shape != b.mean.shape:
        raise ValueError(f"Both must be statistics of the same features. Got {len(a.mean)} and {len(b.mean)} of them.")
    means = float(((a.mean - b.mean) ** 2).sum())
    together = svdvals(factor(a.covariance).T @ factor(b.covariance)).sum()
    return max(0.0, means + float(np.trace(a.covariance) + np.trace(b.covariance) - 2 * together))


def factor(covariance: Floats) -> Floats:
    """L with covariance = L L^T."""
    values, vectors = eigh(covariance)
    found: Floats = vectors * np.sqrt(np.maximum(values, 0))
    return found


def reference(
    features: Features, images: Images, cache: str | Path | None = None, progress: bool = False
) -> Statistics:
    """The statistics of a set of real images.

    `cache` is a folder that they are kept in and found again, by the images and by the network. It saves time and
    nothing else: what cannot be read there is computed, what cannot be written is not kept.
    """
    key = hashlib.sha256(f"{images.fingerprint} {features.digest}".encode()).hexdigest()[:32]
    path = Path(cache, f"statistics-{key}.npz") if cache is not None else None
    if path is not None and path.is_file():
        try:
            return read_statistics(path)
        except ValueError as damage:
            warnings.warn(f"{damage} They are computed again.", stacklevel=2)
    with progress_bar(f"features of {images.name}", len(images), progress) as advance:

        def found() -> Iterable[Tensor]:
            for batch in images.batches(features.together):
                yield features(batch)
                advance(len(batch))

        statistics = fitted(found())
    if path is not None:
        try:
            with replacing(path, force=True) as temporary, temporary.open("wb") as file:
                np.savez(file, mean=statistics.mean, covariance=statistics.covariance, count=statistics.count)
        except OSError as error:
            warnings.warn(f"The statistics of {images.name} are not kept. {error}", stacklevel=2)
    return statistics


def read_statistics(path: Path) -> Statistics:
    with reading(path, "statistics of spadeful"), opened_npz(path) as arrays:
        return Statistics(arrays["mean"], arrays["covariance"], int(arrays["count"]))


def cache_folder() -> Path:
    """Where the command line keeps statistics: what is there can be removed at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spadeful"


@dataclass(frozen=True, eq=False)
class Score:
    """The distance of batches of images, (b, C, H, W) from -1 to 1, from what the statistics are of.

    `Score(features, reference(features, images))(batches)`; the lower, the better.
    """

    features: Features
    statistics: Statistics

    @property
    def name(self) -> str:
        return self.features.score_name

    def __call__(self, batches: Iterable[Tensor]) -> float:
        """The score of all the images. Batches that no network can look at together are cut."""
        parts = (part for batch in batches for part in batch.split(self.features.together))  # type: ignore[no-untyped-call]
        return frechet(self.statistics, fitted(map(self.features, parts)))
