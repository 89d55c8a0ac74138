"""Sets of images that a generator learns from: MNIST, CIFAR-10, CelebA, or anyone's folder or archive of images."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spadeful.adapt.data import ANOTHER_FOLDER, data_folder, load_digits, load_features, load_part
from spadeful.adapt.domain import Domain, scaled
from spadeful.adapt.formats import Bytes, Format, Part, archive, decoded, unpacked
from spadeful.adapt.images import whole_ones
from spadeful.batches import Indices
from spadeful.crops import centre, centre_or_fault, in_processes
from spadeful.files import opened_npz, reading
from spadeful.images import ENDINGS
from spadeful.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("mnist", "cifar10", "celeba")

#: The side of images that come in sizes of their own, unless another is asked for.
SIDE = 64
#: Images are held in memory, all of them, in at most so many bytes; all of CelebA takes 2.5e9.
MOST_BYTES = 8_000_000_000
#: Images that go through a network together.
TOGETHER = 500

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_SHAPE = (3, 32, 32)

#: The folders that CelebA may be in, and the list that says which images are for training (0) and for testing (2).
CELEBA_FOLDERS = ("img_align_celeba", "celeba/img_align_celeba", "CelebA/Img/img_align_celeba")
CELEBA_LIST = "list_eval_partition.txt"
CELEBA_LISTS = (CELEBA_LIST, f"Eval/{CELEBA_LIST}", f"../Eval/{CELEBA_LIST}")
CELEBA_PARTS = {"train": "0", "test": "2"}


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, H, W, C) of bytes in memory, which a network sees as (b, C, H, W) from -1 to 1.

    >>> images = Images(np.zeros((3, 8, 8, 1), np.uint8), "blank")
    >>> images, images.shape, images.take([0, 2]).shape
    (Images('blank', 3 of 1x8x8), (1, 8, 8), torch.Size([2, 1, 8, 8]))
    """

    x: Bytes
    name: str

    def __post_init__(self) -> None:
        x = np.asarray(self.x)
        if x.ndim == 3:
            x = x[..., None]
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3) or not x[:1].size:
            raise ValueError(
                f"{self.name} must be images (n, H, W) or (n, H, W, 1 or 3) of uint8. "
                f"Got {x.dtype} of the shape {x.shape} instead."
            )
        if len(x) < 2:
            raise ValueError(f"{self.name} must hold at least two images. Got {len(x)}.")
        object.__setattr__(self, "x", x)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Images({self.name!r}, {len(self)} of {'x'.join(map(str, self.shape))})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """That of one image as a network sees it: (C, H, W)."""
        height, width, channels = self.x.shape[1:]
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same images in the same order, whatever they were read from."""
        found = hashlib.sha256(repr(self.x.shape).encode())
        found.update(np.ascontiguousarray(self.x).data)
        return found.hexdigest()

    def take(self, indices: Indices | list[int]) -> Tensor:
        """Some images as float32 (b, C, H, W) from -1 to 1."""
        import torch

        return scaled(torch.from_numpy(self.x[np.asarray(indices, dtype=np.int64)]))

    def batches(self, size: int = TOGETHER) -> Iterator[Tensor]:
        """All images, in order."""
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))))


def read_images(
    which: str | Path,
    data: str | Path | None = None,
    *,
    part: str = "train",
    size: int | None = None,
    most: int | None = None,
    corrupt: str = "refuse",
    workers: int = 1,
    progress: bool = False,
) -> Images:
    """Images by name, or from a file or folder of one's own.

    Parameters
    ----------
    which : "mnist", "cifar10", "celeba", folder or file
        A folder holds image files, itself or in folders below; a file is an archive of NumPy with `x`
        (n, H, W) or (n, H, W, 1 or 3) of bytes.
    data : folder, optional
        Where the named sets are. Where the environment variable SPADEFUL_DATA says, if not given.
    part : "train" or "test"
        Only MNIST, CIFAR-10 and CelebA with its list of parts have one for testing.
    size : int, optional
        Pixels a side. MNIST, CIFAR-10 and archives keep their own if it is not given. Of CelebA and of files the
        largest square in the middle is taken and resized, to 64 pixels if it is not given, as is usual for CelebA.
    most : int, optional
        Only the first so many images.
    corrupt : "refuse" or "skip"
        What to do about files in a folder that are no images.
    workers : int
        Processes that read image files.
    progress : bool
        Whether to show how many files have been read.
    """
    for name, number in (("size", size), ("most", most), ("workers", workers)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ValueError(f"{name} must be a whole number of at least 1. Got {number!r} instead.")
    if part not in CELEBA_PARTS:
        raise ValueError(f"part must be 'train' or 'test'. Got {part!r} instead.")
    if corrupt not in ("refuse", "skip"):
        raise ValueError(f"corrupt must be 'refuse' or 'skip'. Got {corrupt!r} instead.")
    read = partial(read_files, size=size or SIDE, corrupt=corrupt, workers=workers, progress=progress)
    if which in ("mnist", "cifar10"):
        return sized(labelled(str(which), part, data), size, most)
    if which == "celeba":
        return read_celeba(data_folder(data), part, size or SIDE, most, read)
    path = Path(which)
    if not path.exists():
        raise FileNotFoundError(
            f"Images must be {', '.join(NAMES)}, a folder of images or an archive .npz with x. There is no {path}."
        )
    if part == "test":
        raise ValueError(f"Only {', '.join(NAMES)} have a part for testing. Name that of {path} by a path of its own.")
    if path.is_dir():
        return read(path, image_files(path)[:most], path.resolve().name)
    whole = load_features(path)
    if not whole.is_images:
        raise ValueError(f"x of {path} must be images (n, H, W) or (n, H, W, 1 or 3) of uint8. Got features instead.")
    return sized(whole, size, most)


def check_batch_size(batch_size: int, images: Images | Domain) -> None:
    if batch_size > len(images):
        raise ValueError(
            f"batch_size must be at most the number of images of {images.name}, {len(images)}. "
            f"Got {batch_size} instead."
        )


def labelled(which: str, part: str, data: str | Path | None = None) -> Domain:
    """A part of MNIST or CIFAR-10 with its labels."""
    if which == "mnist":
        domain = load_digits("mnist", part, data)  # type: ignore[arg-type]
        shape: tuple[int, ...] = (1, 28, 28)
    elif which == "cifar10":
        domain, shape = load_part("cifar10", part, CIFAR, CIFAR_CLASSES, data), CIFAR_SHAPE
    else:
        raise ValueError(f"Only mnist and cifar10 have classes here. Got {which!r} instead.")
    if domain.shape != shape:
        raise ValueError(f"The images of {which} must be {shape}. Got {domain.shape} in {data_folder(data)} instead.")
    return domain


def sized(domain: Domain, size: int | None, most: int | None) -> Images:
    if most is not None:
        domain = domain.take(np.arange(min(most, len(domain))))
    return Images((domain if size is None else domain.resized(size, domain.shape[0])).x, domain.name)


def read_cifar(paths: list[Path], part: str) -> Part:
    """The binary version of CIFAR-10: of each image its label, then its red, green and blue, a byte a number."""
    parts: list[NDArray[np.uint8]] = []
    length = 1 + int(np.prod(CIFAR_SHAPE))
    for path in paths:
        with reading(path, f"a file of CIFAR-10's binary version, {length} bytes an image"), unpacked(path) as file:
            values = np.frombuffer(file.read(), np.uint8)
            if not len(values) or len(values) % length:
                raise ValueError(f"it holds {len(values)} bytes")
            parts.append(values.reshape(-1, length))
    rows = np.concatenate(parts)
    return np.ascontiguousarray(np.moveaxis(rows[:, 1:].reshape(-1, *CIFAR_SHAPE), 1, 3)), rows[:, 0]


CIFAR = (
    archive("cifar10"),
    Format(
        {
            "train": tuple(f"{CIFAR_FOLDER}/data_batch_{number}.bin" for number in range(1, 6)),
            "test": (f"{CIFAR_FOLDER}/test_batch.bin",),
        },
        f"the folder {CIFAR_FOLDER} of cifar-10-binary.tar.gz (the Python version holds pickles, which could run code)",
        read_cifar,
    ),
)


def read_celeba(data: Path, part: str, size: int, most: int | None, read: partial[Images]) -> Images:
    """CelebA, aligned and cropped: `celeba10k.npz` with the first 10,000 images, or the folder of all."""
    packed = data / "celeba10k.npz"
    folder = next((data / name for name in CELEBA_FOLDERS if (data / name).is_dir()), None)
    if folder is not None:
        files, lists = image_files(folder), [folder.parent / name for name in CELEBA_LISTS]
        listed = next((path for path in lists if path.is_file()), None)
        if listed is not None:
            wanted = listed_files(listed, CELEBA_PARTS[part])
            files = [file for file in files if file in wanted]
        elif part == "test":
            raise FileNotFoundError(f"The test part of celeba needs {CELEBA_LIST} beside {folder}, as published.")
        return read(folder, files[:most], "celeba")
    if not packed.is_file():
        raise FileNotFoundError(
            f"celeba is not in {data}. Put there {packed.name} (blob, offsets); or the folder {CELEBA_FOLDERS[0]} of "
            f"{CELEBA_FOLDERS[0]}.zip. {ANOTHER_FOLDER}"
        )
    if part == "test":
        raise ValueError(f"{packed} has no part for testing, all its images are for training. Pass part='train'.")
    with reading(packed, "an archive with blob and offsets, JPEG pictures in a row"):
        with opened_npz(packed) as arrays:
            blob, offsets = arrays["blob"], arrays["offsets"]
        return Images(decoded(blob, offsets[: most and most + 1], partial(centre, size=size)), "celeba")


def listed_files(path: Path, number: str) -> set[str]:
    """The files of one part of CelebA, from lines such as `000001.jpg 0`."""
    lines = path.read_text().splitlines()
    if not all(re.fullmatch(r"\S+ +[012] *", line) for line in lines if line):
        raise ValueError(f"{path} must hold in each line the name of a file and 0, 1 or 2, the number of its part.")
    return {name for name, its in (line.split() for line in lines if line) if its == number}


def image_files(folder: Path) -> list[str]:
    """The image files in a folder and in those below, in the order of their names."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))


def read_files(
    folder: Path, files: list[str], name: str, *, size: int, corrupt: str, workers: int, progress: bool
) -> Images:
    """The centres of image files, all in memory."""
    if len(files) < 2:
        raise ValueError(
            f"{folder} must hold at least two images ({', '.join(ENDINGS)}), itself or in folders below. "
            f"Got {len(files)}."
        )
    if len(files) * size**2 * 3 > MOST_BYTES:
        raise ValueError(
            f"The images must fit in {MOST_BYTES / 1e9:.0f} GB of memory. {len(files)} of {size}x{size} do not; pass "
            "a smaller size, or fewer by most."
        )
    x, faults = np.zeros((len(files), size, size, 3), np.uint8), [""] * len(files)
    with progress_bar(f"reading {name}", len(files), progress) as advance:
        calls = ((folder / file, size) for file in files)
        for number, found in enumerate(in_processes(centre_or_fault, calls, workers)):
            if isinstance(found, str):
                faults[number] = found
            else:
                x[number] = found
            advance(1)
    kept = whole_ones(folder, faults, corrupt)
    return Images(x if len(kept) == len(x) else x[kept], name)
