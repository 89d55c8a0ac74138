"""From images to a score: what `spadeful generate score` and `spadeful generate features` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from spadeful.adapt.call import device_named
from spadeful.generate.data import Images, read_images
from spadeful.generate.features import Features, train_features
from spadeful.generate.score import Score, reference


class Scored(NamedTuple):
    """A score, what it is called, and how many images it is of."""

    value: float
    name: str
    samples: int
    real: Images

    def __str__(self) -> str:
        return f"{self.name}: {self.value:.4g} ({self.samples} samples, {len(self.real)} of {self.real.name})"


def score(
    samples: str | Path,
    images: str | Path,
    features: str | Path,
    *,
    data: str | Path | None = None,
    part: str = "train",
    most: int | None = None,
    cache: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    progress: bool = False,
) -> Scored:
    """How far samples, a folder or archive of images, are from real images; `most` takes the first of them only."""
    looks = Features.load(features, device_named(device))
    reading: dict[str, Any] = {"workers": workers, "progress": progress}
    real = read_images(images, data, part=part, **reading)
    # Files are looked at in the size of the real images; archives hold that size already.
    size = real.shape[1] if Path(samples).is_dir() else None
    made = read_images(samples, data, size=size, most=most, **reading)
    if made.shape[1:] != real.shape[1:]:
        raise ValueError(
            f"The samples must be as large as the images of {real.name}, {real.shape[1:]}. Got {made.shape[1:]}."
        )
    measure = Score(looks, reference(looks, real, cache, progress))
    return Scored(measure(made.batches(looks.together)), measure.name, len(made), real)


def train(which: str, output: str | Path, **settings: Any) -> str:
    """Train features of images and say how well their classifier does."""
    accuracy = train_features(which, output, **settings)
    return f"{output}: the features of a {which} classifier, right for {accuracy:.2f} % of the test part"
