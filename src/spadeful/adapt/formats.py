"""The files that sets of images come in: NumPy archives, and the formats in which MNIST, USPS and SVHN were published.

Every reader takes the files of one part and gives images (n, H, W) or (n, H, W, C) of bytes and labels (n,). No file
can have code run: archives with Python objects are refused.
"""

from __future__ import annotations

import bz2
import gzip
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful.files import opened_npz, reading

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, NDArray[Any]]

USPS_SIDE = 16
DECODED_TOGETHER = 500


class Format(NamedTuple):
    """A way in which a set of digits is stored."""

    files: dict[str, tuple[str, ...]]  # of each part: the names that have to be there together
    says: str  # what they are, for messages
    read: Callable[[list[Path], str], Part]

    def find(self, folder: Path, part: str) -> list[Path] | None:
        """The files of a part, packed or not, if all are there."""
        found = [packed_or_not(folder / name) for name in self.files[part]]
        return [path for path in found if path] if all(found) else None


def packed_or_not(path: Path) -> Path | None:
    return next((p for p in (path, path.with_name(f"{path.name}.gz")) if p.is_file()), None)


def npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a NumPy archive."""
    with reading(path, "an archive that numpy.savez wrote"), opened_npz(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def read_npz(paths: list[Path], part: str) -> Part:
    """`x_train, y_train, x_test, y_test`; or, for `x`, JPEG pictures in a row in `blob_*`, cut at `offsets_*`."""
    (path,) = paths
    with reading(path, f"an archive with x_{part} (or blob_{part} and offsets_{part}) and y_{part}"):
        with opened_npz(path) as arrays:
            there = set(arrays.files)
            packed = f"x_{part}" not in there
            wanted = [f"blob_{part}", f"offsets_{part}"] if packed else [f"x_{part}"]
            missing = [name for name in (*wanted, f"y_{part}") if name not in there]
            if missing:
                raise ValueError(f"{', '.join(missing)} missing among {', '.join(sorted(there)) or 'nothing'}")
            *x, y = (arrays[name] for name in (*wanted, f"y_{part}"))
        return (decoded(*x) if packed else x[0]), y


def decoded(blob: Bytes, offsets: NDArray[Any], shaped: Callable[[Any], Any] = lambda image: image) -> Bytes:
    """JPEG pictures, each as `shaped` makes it of Pillow's image, of one size (n, H, W, 3); by several threads."""
    if blob.dtype != np.uint8 or blob.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.ndim != 1:
        raise ValueError("the pictures must be bytes in a row, their offsets whole numbers")
    cuts = offsets.astype(np.int64)
    if len(cuts) < 2 or cuts[0] < 0 or cuts[-1] > len(blob) or (np.diff(cuts) <= 0).any():
        raise ValueError(f"the offsets must rise from 0 to {len(blob)}, the number of bytes")
    from PIL import Image, UnidentifiedImageError

    def picture(i: int) -> Any:
        try:
            image = Image.open(BytesIO(blob[cuts[i] : cuts[i + 1]].tobytes()), formats=["JPEG"])
            if max(image.size) > 1024:
                raise ValueError(f"pictures must be small. Got the size {image.size}")
            return shaped(image.convert("RGB"))
        except (OSError, SyntaxError) as error:
            # Pillow names the buffer by its address.
            why = "none that can be read" if isinstance(error, UnidentifiedImageError) else str(error)
            raise ValueError(f"picture {i} of {len(cuts) - 1} must be a JPEG picture: {why}") from None

    size = picture(0).size
    out = np.empty((len(cuts) - 1, size[1], size[0], 3), np.uint8)

    def decode(start: int) -> None:
        for i in range(start, min(start + DECODED_TOGETHER, len(out))):
            image = picture(i)
            if image.size != size:
                raise ValueError(f"pictures must have one size. Got {size} and {image.size}")
            out[i] = image

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(decode, range(0, len(out), DECODED_TOGETHER)))
    return out


def unpacked(path: Path) -> IO[bytes]:
    """A file opened for reading, unpacked by its ending."""
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix)
    return opened(path, "rb") if opened else path.open("rb")  # type: ignore[operator]


def read_idx(paths: list[Path], part: str) -> Part:
    """MNIST's own format: images in one file, labels in another."""
    x, y = (idx_array(path, ndim) for path, ndim in zip(paths, (3, 1), strict=True))
    return x, y


def idx_array(path: Path, ndim: int) -> Bytes:
    """The one array of an idx file: two zeros, the type (8: bytes), the number of sides, the sides, the elements."""
    with reading(path, f"an idx file of bytes with {ndim} sides"), unpacked(path) as file:
        head = file.read(4)
        if head != bytes([0, 0, 8, ndim]):
            raise ValueError(f"it begins with {head.hex(' ') or 'nothing'}, not with {bytes([0, 0, 8, ndim]).hex(' ')}")
        shape = struct.unpack(f">{ndim}I", file.read(4 * ndim))
        values = np.frombuffer(file.read(), np.uint8)
        if len(values) != np.prod(shape, dtype=object):
            raise ValueError(f"it holds {len(values)} values, not {'x'.join(map(str, shape))}")
        return values.reshape(shape)


def read_libsvm(paths: list[Path], part: str) -> Part:
    """USPS as LIBSVM gives it: lines `label index:value ...`, labels from 1 for the digit 0, values from -1 to 1."""
    (path,) = paths
    with reading(path, "a LIBSVM file of USPS"), unpacked(path) as file:
        lines = [np.array(line.replace(b":", b" ").split(), np.float64) for line in file if line.strip()]
        values = np.zeros((len(lines), USPS_SIDE**2))
        for number, (row, numbers) in enumerate(zip(values, lines, strict=True), 1):
            places = numbers[1::2]
            if len(numbers) != 1 + 2 * len(row) or (places != np.arange(1, len(row) + 1)).any():
                raise ValueError(f"line {number} must be a label and the values of the places 1 to {len(row)}")
            row[:] = numbers[2::2]
        labels = np.array([numbers[0] for numbers in lines])
        return as_bytes((values + 1) / 2), labels.astype(np.int64) - 1


def read_h5(paths: list[Path], part: str) -> Part:
    """USPS as an HDF5 file: `train/data`, `train/target`, `test/data`, `test/target`, values from 0 to 1."""
    (path,) = paths
    try:
        import h5py
    except ImportError as missing:
        raise ImportError(
            f"{path} needs h5py: pip install h5py. Or put usps.bz2 and usps.t.bz2 beside it."
        ) from missing
    with reading(path, "an HDF5 file of USPS with data and target in train and in test"), h5py.File(path, "r") as file:
        values, labels = np.asarray(file[part]["data"]), np.asarray(file[part]["target"])
        return as_bytes(values), labels


def as_bytes(values: NDArray[Any]) -> Bytes:
    """Brightness from 0 to 1 as images of bytes."""
    if values.dtype.kind != "f" or values.size % USPS_SIDE**2 or not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"it must hold images of {USPS_SIDE}x{USPS_SIDE} numbers in the range of its format")
    return np.round(255 * values).astype(np.uint8).reshape(-1, USPS_SIDE, USPS_SIDE)


def read_mat(paths: list[Path], part: str) -> Part:
    """SVHN's own format: a MATLAB file with X (32, 32, 3, n) and y (n, 1), 10 for the digit 0."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    (path,) = paths
    with reading(path, "a MATLAB file with X (32, 32, 3, n) of bytes and y (n, 1)"):
        try:
            arrays = loadmat(path, variable_names=["X", "y"])
        except MatReadError as error:
            raise ValueError(str(error)) from error
        x, y = arrays["X"], arrays["y"].ravel()
        if x.ndim != 4 or x.dtype != np.uint8:
            raise ValueError(f"X is {x.dtype} of the shape {x.shape}")
        return np.ascontiguousarray(np.moveaxis(x, 3, 0)), np.where(y == 10, 0, y)


def archive(name: str) -> Format:
    says = f"{name}.npz (x_train, y_train, x_test, y_test)"
    return Format(dict.fromkeys(("train", "test"), (f"{name}.npz",)), says, read_npz)


def idx(images: str, labels: str, folder: str = "") -> Format:
    files: dict[str, tuple[str, ...]] = {
        part: (f"{folder}{stem}-{images}", f"{folder}{stem}-{labels}") for part, stem in IDX_STEMS.items()
    }
    return Format(files, f"{', '.join(files['train'] + files['test'])} (.gz or not)", read_idx)


IDX_STEMS = {"train": "train", "test": "t10k"}

#: For each set of digits its formats, the first that is found being read.
DIGITS: dict[str, tuple[Format, ...]] = {
    "mnist": (
        archive("mnist"),
        idx("images-idx3-ubyte", "labels-idx1-ubyte"),
        idx("images.idx3-ubyte", "labels.idx1-ubyte"),
        idx("images-idx3-ubyte", "labels-idx1-ubyte", "MNIST/raw/"),
    ),
    "usps": (
        archive("usps"),
        Format({"train": ("usps.bz2",), "test": ("usps.t.bz2",)}, "usps.bz2, usps.t.bz2 (LIBSVM)", read_libsvm),
        Format({"train": ("usps",), "test": ("usps.t",)}, "usps, usps.t (LIBSVM)", read_libsvm),
        Format({"train": ("usps.h5",), "test": ("usps.h5",)}, "usps.h5 (with h5py)", read_h5),
    ),
    "svhn": (
        archive("svhn"),
        Format(
            {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}, "train_32x32.mat, test_32x32.mat", read_mat
        ),
    ),
}
