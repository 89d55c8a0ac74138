"""From images to a score: what `spadeful generate score` and `spadeful generate features` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from spadeful.adapt.call import device_named
from spadeful.generate.config import Config, read_config
from spadeful.generate.data import Images, read_images
from spadeful.generate.features import Features, train_features
from spadeful.generate.samples import as_bytes
from spadeful.generate.score import Score, reference
from spadeful.generating import drawn, read_generator
from spadeful.progress import waiting


class Scored(NamedTuple):
    """A score, what it is called, and which images it is of."""

    value: float
    name: str
    made: Images
    real: Images

    def __str__(self) -> str:
        return f"{self.name}: {self.value:.4g} ({len(self.made)} samples, {len(self.real)} of {self.real.name})"


def score(
    samples: str | Path,
    images: str | Path | None = None,
    features: str | Path | None = None,
    *,
    data: str | Path | None = None,
    part: str = "train",
    most: int | None = None,
    cache: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    progress: bool = False,
) -> Scored:
    """How far samples are from real images.

    Parameters
    ----------
    samples : folder or file
        The folder of a run, whose generator makes them; or a folder or archive of images.
    images, features : str or path
        The real images, see `read_images`, and the features, see `Features.load`. Those of the run if not given.
    most : int, optional
        How many samples a run makes, as many as its score was taken of if not given; or how many are read, all if
        not given.
    """
    settings = Path(samples, "config.json")
    config = read_config(settings, {}) if settings.is_file() else None
    if config is not None:
        images, features = images or config.data, features or config.score
    if not images or not features:
        raise ValueError("The real images and the features must be named by --data and --features. Got too little.")
    with waiting(f"loading {features}", progress):
        looks = Features.load(features, device_named(device))
    reading: dict[str, Any] = {"workers": workers, "progress": progress}
    real = read_images(images, data, part=part, size=config.image_size if config else None, **reading)
    if config is not None:
        made = sampled(config, Path(samples), most)
    else:
        # Files are looked at in the size of the real images; archives have one.
        size = real.shape[1] if Path(samples).is_dir() else None
        made = read_images(samples, data, size=size, most=most, **reading)
    if made.shape[1:] != real.shape[1:]:
        raise ValueError(
            f"The samples must be as large as the images of {real.name}, {real.shape[1:]}. Got {made.shape[1:]}."
        )
    measure = Score(looks, reference(looks, real, cache, progress))
    return Scored(measure(made.batches(looks.together)), measure.name, made, real)


def sampled(config: Config, folder: Path, count: int | None) -> Images:
    """Images of a run's generator, the same that the run took its score of."""
    parts = drawn(read_generator(folder), count or config.score_images, config.seed)
    return Images(as_bytes(torch.cat(list(parts))), folder.name)


def train(which: str, output: str | Path, **settings: Any) -> str:
    """Train features of images and say how well their classifier does."""
    accuracy = train_features(which, output, **settings)
    return f"{output}: the features of a {which} classifier, right for {accuracy:.2f} % of the test part"
