"""Domains of image files, read batch by batch: anyone's folders of class folders, Office-Home and VisDA-2017."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spadeful.adapt.domain import Domain, checked_labels, scaled
from spadeful.batches import Indices
from spadeful.crops import fault, in_processes, random_crops, square
from spadeful.images import ENDINGS
from spadeful.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor

#: In the layout of VisDA-2017, a line a file: its path, and the number of its class where it is known.
LIST = "image_list.txt"
#: Files that an error names at most.
NAMED = 10


class Reading(NamedTuple):
    """How image files are read."""

    size: int = 224  # of the squares that the network sees
    crops: int = 1  # of an image in a test: 1, the centre, or 10
    corrupt: str = "refuse"  # what to do about files that are no images: "refuse" or "skip"
    workers: int = 1  # processes

    def check(self) -> Reading:
        if self.crops not in (1, 10):
            raise ValueError(f"crops must be 1, the centre of an image, or 10. Got {self.crops!r} instead.")
        if self.corrupt not in ("refuse", "skip"):
            raise ValueError(f"corrupt must be 'refuse' or 'skip'. Got {self.corrupt!r} instead.")
        if self.size < 1 or self.workers < 1:
            raise ValueError(
                f"image_size and workers must be at least 1. Got {self.size!r} and {self.workers!r} instead."
            )
        return self


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles(Domain):
    """Images of which x (n,) names the files below a folder; the network sees squares of one size.

    An image is squeezed to a square of 8/7 that size (256 for 224). In training, a random crop of it is seen, mirrored
    or not; in a test its centre, or (`crops=10`) corners and centre, each mirrored and not.
    """

    folder: Path = Path()
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        if self.y is not None:
            object.__setattr__(self, "y", checked_labels(self.y, len(self.x), len(self.classes), self.name))

    def __repr__(self) -> str:
        return f"ImageFiles({self.name!r}, {len(self)} of {len(self.classes) or 'unknown'} classes)"

    @property
    def is_images(self) -> bool:
        return True

    @property
    def side(self) -> int:
        """Of the square that crops are taken of."""
        return round(self.reading.size * 8 / 7)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.reading.size, self.reading.size)

    @property
    def cost(self) -> int:
        return super().cost * self.reading.crops

    def resized(self, size: int, channels: int = 1) -> Domain:
        raise TypeError(f"Image files are resized as they are read. The size of {self.name} is set by image_size.")

    def batch(self, indices: Indices, rng: np.random.Generator | None = None) -> Tensor:
        """Some images, from -1 to 1: (b, 3, H, W); in a test with ten crops (b, 10, 3, H, W)."""
        import torch

        paths = [self.folder / name for name in self.x[np.asarray(indices, dtype=np.int64)]]
        crops = [None] * len(paths) if rng is None else random_crops(rng, len(paths), self.side)
        calls = ((path, self.side, self.reading.size, crop) for path, crop in zip(paths, crops, strict=True))
        images = scaled(torch.from_numpy(np.stack(list(in_processes(square, calls, self.reading.workers)))))
        return images if rng is not None else self.tested(images)

    def tested(self, images: Tensor) -> Tensor:
        import torch

        size, rest = self.reading.size, self.side - self.reading.size
        places = [(rest // 2, rest // 2), (0, 0), (0, rest), (rest, 0), (rest, rest)]
        parts = [images[:, :, top : top + size, left : left + size] for top, left in places]
        return parts[0] if self.reading.crops == 1 else torch.stack([*parts, *(part.flip(3) for part in parts)], dim=1)


def read_folder(
    folder: str | Path, reading: Reading | None = None, *, name: str | None = None, progress: bool = False
) -> ImageFiles:
    """A domain of the images in a folder, each of which is tried first.

    Parameters
    ----------
    folder : folder
        With a folder of images for each class; or with a list `image_list.txt` as VisDA-2017 has it; or with images
        and nothing else, whose classes are then unknown.
    reading : Reading, optional
    name : str, optional
        That of the folder, if not given.
    progress : bool
        Whether to show how many images have been tried.
    """
    folder, reading = Path(folder), (reading or Reading()).check()
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}. A domain of images is a folder of class folders.")
    files, y, classes = listed(folder) if (folder / LIST).is_file() else in_class_folders(folder)
    faults = []
    with progress_bar(f"reading {folder.name}", len(files), progress) as advance:
        for found in in_processes(fault, ((folder / file,) for file in files), reading.workers):
            faults.append(found)
            advance(1)
    kept = whole_ones(folder, faults, reading.corrupt, ", or pass --corrupt skip")
    name = name or folder.resolve().name
    return ImageFiles(np.array(files)[kept], None if y is None else y[kept], name, classes, folder, reading)


def whole_ones(folder: Path, faults: Sequence[str], corrupt: str, advice: str = "") -> Indices:
    """Which files of a folder have no fault; those that have one are refused, or skipped with a warning.

    `advice` is what else a command can do about them.
    """
    whole = np.array([not found for found in faults])
    if not whole.all():
        named = [found for found in faults if found]
        said = " ".join(named[:NAMED]) + (f" And {len(named) - NAMED} more." if len(named) > NAMED else "")
        if corrupt == "refuse":
            raise ValueError(f"{said} Remove what is no image{advice}.")
        if not whole.any():
            raise ValueError(f"{folder} must hold images. Got none that can be read. {said}")
        warnings.warn(f"{len(named)} of {len(faults)} images in {folder} are skipped. {said}", stacklevel=3)
    return np.flatnonzero(whole)


Found = tuple[list[str], Indices | None, tuple[str, ...]]


def in_class_folders(folder: Path) -> Found:
    """The images of a folder, class by class in the order of the names; without classes if there are no folders."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    images = {name: images_of(folder / name) for name in classes or ["."]}
    empty = [name for name, files in images.items() if not files]
    if empty:
        which = f" Got none in {', '.join(empty[:NAMED])}." if classes else ""
        raise ValueError(
            f"{folder} must hold a folder of images for each class ({', '.join(sorted(ENDINGS))}).{which} Name the "
            "folder one above those that hold the images."
        )
    files = [str(Path(name, file)) for name, found in images.items() for file in found]
    y = np.repeat(np.arange(len(images)), [len(found) for found in images.values()])
    return files, y if classes else None, tuple(classes)


def images_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.name[0] != ".")


def listed(folder: Path) -> Found:
    """The images that a list names, each with the number of its class; classes are named as their folders."""
    lines = [line.split() for line in (folder / LIST).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines or {len(line) for line in lines} not in ({1}, {2}):
        raise ValueError(f"{folder / LIST} must hold in each line a path, and the number of a class or nothing else.")
    files = [line[0] for line in lines]
    outside = [file for file in files if Path(file).is_absolute() or ".." in Path(file).parts]
    if outside:
        raise ValueError(f"{folder / LIST} must name files in {folder}. Got {outside[0]!r} instead.")
    if len(lines[0]) == 1:
        return files, None, ()
    named: dict[str, set[str]] = {}
    for file, number in lines:
        named.setdefault(number, set()).add(Path(file).parent.name)
    wanted = [str(number) for number in range(len(named))]
    if named.keys() != {*wanted} or any(len(names) > 1 for names in named.values()):
        raise ValueError(f"{folder / LIST} must number the classes from 0, each with a folder of its own.")
    classes = tuple(next(iter(named[number])) for number in wanted)
    return files, np.array([int(number) for _, number in lines]), classes


#: Domains of published sets by name: the folders that a set may be in, and those of each domain.
PUBLISHED: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "office-home": (
        ("OfficeHomeDataset_10072016", "OfficeHome", "office-home"),
        {
            "art": ("Art",),
            "clipart": ("Clipart",),
            "product": ("Product",),
            "real": ("Real World", "RealWorld", "Real_World"),
        },
    ),
    "visda": (
        ("VisDA-2017", "visda-2017", "visda"),
        {"train": ("train",), "validation": ("validation",), "test": ("test",)},
    ),
}
NAMES = tuple(f"{name}:{domain}" for name, (_, domains) in PUBLISHED.items() for domain in domains)


def published_folder(name: str, data: Path) -> Path:
    """The folder of one of `NAMES` below that of the data."""
    dataset, _, domain = name.partition(":")
    outer, domains = PUBLISHED[dataset]
    found = [data / first / then for first in outer for then in domains[domain] if (data / first / then).is_dir()]
    if not found:
        raise FileNotFoundError(f"{name} is not in {data}. Put there {outer[0]}/{domains[domain][0]}, as published.")
    return found[0]
