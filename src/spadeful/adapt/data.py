"""The domains that are adapted to each other: digits, features, and the pairs of them by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from spadeful.adapt import formats, images, rendered
from spadeful.adapt.classes import class_numbers, numbered_alike, of_classes
from spadeful.adapt.domain import Domain
from spadeful.adapt.images import Reading
from spadeful.files import reading

__all__ = ["Domain", "Pair", "data_folder", "load_digits", "load_features", "source_and_target"]

#: The files of features that are known by name.
FEATURES = {"pacs": "pacs_resnet50.npz", "office-caltech10": "office_caltech10_resnet50.npz"}

#: The names that `source_and_target` knows.
NAMES = (
    *formats.DIGITS,
    *("fonts", "handwritten"),
    *(f"pacs:{style}" for style in ("art_painting", "cartoon", "photo", "sketch")),
    *(f"office-caltech10:{place}" for place in ("amazon", "caltech10", "dslr", "webcam")),
    *images.NAMES,
)

#: Of the handwritten digits, the part that is adapted to; the rest is for testing.
ADAPTED = 2 / 3

#: Images of a source that it is tested on at most: there may be very many, and each has to be read.
TESTED = 2000

ANOTHER_FOLDER = (
    "Another folder is named by --data (of generate: --data-dir) or the environment variable SPADEFUL_DATA."
)


class Pair(NamedTuple):
    """What adaptation works with: a labelled source, an unlabelled target, and what both are tested on."""

    source: Domain
    target: Domain
    source_test: Domain
    target_test: Domain


class Parts(NamedTuple):
    train: Domain
    test: Domain


def data_folder(given: str | Path | None = None) -> Path:
    """The folder with the data: the one given, or that of the environment variable SPADEFUL_DATA."""
    named = given if given is not None else os.environ.get("SPADEFUL_DATA") or None
    if named is None:
        raise ValueError(
            "The folder with the data is not known. Name it by --data (of generate: --data-dir) or the environment "
            "variable SPADEFUL_DATA."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        where = "--data" if given is not None else "SPADEFUL_DATA"
        raise FileNotFoundError(f"{where} must name the folder with the data. There is no folder {folder}.")
    return folder


def load_digits(name: str, part: Literal["train", "test"], data: str | Path | None = None) -> Domain:
    """A part of MNIST, USPS or SVHN, from whichever of the known files is in the folder.

    Parameters
    ----------
    name : "mnist", "usps" or "svhn"
    part : "train" or "test"
    data : folder, optional
        Where the environment variable SPADEFUL_DATA says, if not given.
    """
    if name not in formats.DIGITS:
        raise ValueError(f"name must be one of {', '.join(formats.DIGITS)}. Got {name!r} instead.")
    return load_part(name, part, formats.DIGITS[name], rendered.DIGITS, data)


def load_part(
    name: str, part: str, known: tuple[formats.Format, ...], classes: tuple[str, ...], data: str | Path | None = None
) -> Domain:
    """A part of a published set in the first of its formats that is in the folder."""
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test'. Got {part!r} instead.")
    folder = data_folder(data)
    for one in known:
        paths = one.find(folder, part)
        if paths:
            x, y = one.read(paths, part)
            with reading(paths[0], f"the {part} part of {name}"):
                return Domain(x, y, name, classes)
    expected = "; or ".join(one.says for one in known)
    raise FileNotFoundError(f"The {part} part of {name} is not in {folder}. Put there {expected}. {ANOTHER_FOLDER}")


def load_features(path: str | Path, domain: str | None = None) -> Domain:
    """Features or images of an archive of NumPy: `x`, and where they are known `y`, `domain` and the names of both.

    Parameters
    ----------
    path : file
        `x` (n, d) numbers or (n, H, W[, C]) bytes; `y` (n,) labels from 0; `domain` (n,) numbers into
        `domain_names`; `class_names`.
    domain : str, optional
        The one of `domain_names` to keep; all points if not given.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}. It must be an .npz archive with x and y.")
    arrays = formats.npz_arrays(path)
    if "x" not in arrays:
        raise ValueError(
            f"{path} must hold x, and y where labels are known. It holds: {', '.join(arrays) or 'nothing'}."
        )
    x, y = arrays["x"], arrays.get("y")
    if x.ndim == 2 and x.dtype.kind in "iub":
        x = x.astype(np.float32)
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ValueError(f"x of {path} must be finite. Got {x[~np.isfinite(x)][0]} among the features.")
    numbered = y is not None and y.size > 0 and y.dtype.kind in "iu"
    classes = arrays.get("class_names", np.arange(int(y.max()) + 1 if numbered else 0))  # type: ignore[union-attr]
    with reading(path, "an archive with x (n, d) and y (n,)"):
        loaded = Domain(x, y, path.stem, tuple(classes.tolist()))
    return loaded if domain is None else one_domain(loaded, arrays, domain, path)


def one_domain(loaded: Domain, arrays: dict[str, Any], domain: str, path: Path) -> Domain:
    if not {"domain", "domain_names"} <= arrays.keys():
        raise ValueError(
            f"{path} must hold domain and domain_names for {domain!r} to be chosen. It holds: {', '.join(arrays)}."
        )
    names = arrays["domain_names"].tolist()
    if domain not in names:
        raise ValueError(f"The domain must be one of {', '.join(names)}, those of {path}. Got {domain!r} instead.")
    chosen = np.flatnonzero(arrays["domain"] == names.index(domain))
    if arrays["domain"].shape != (len(loaded),) or not len(chosen):
        raise ValueError(f"domain of {path} must number the domain of every point. None is of {domain!r}.")
    part = loaded.take(chosen)
    return Domain(part.x, part.y, domain, part.classes)


def source_and_target(
    source: str,
    target: str,
    data: str | Path | None = None,
    target_classes: str = "",
    reading: Reading | None = None,
    progress: bool = False,
    held_out: float = 0.0,
) -> Pair:
    """The domains of a pair, in one shape; the target that is adapted to comes without labels.

    Names are those of `NAMES`, or `file.npz` and `file.npz:domain` for one's own features, or a folder of class
    folders for one's own images, which are read as `reading` says. Digits are 32x32 in colour where SVHN is one of the
    two, 28x28 in grey otherwise, as in the paper. Published digits have test parts of their own; of the handwritten
    ones a third is for testing. Features and images have no parts: all are trained with and tested on, which is the
    custom for them; but a source of many images on some of them only, and one of which a share is `held_out` on that,
    which is then not trained with. `target_classes` makes the target a
    partial one, which has only those of the source's classes; see `class_numbers`.
    """
    digits = (*formats.DIGITS, "fonts", "handwritten")
    size, channels = (32, 3) if "svhn" in (source, target) else (28, 1)
    both = [parts_of(name, data, reading, progress) for name in (source, target)]
    if source in digits and target in digits:
        both = [Parts(*(part.resized(size, channels) for part in parts)) for parts in both]
    (train, source_test), (adapted, target_test) = both
    if train.y is None:
        raise ValueError(f"The source must have labels. {source} has none.")
    if train.shape != adapted.shape:
        raise ValueError(
            f"Source and target must be points of one shape. Got {train.shape} of {source} and {adapted.shape} of "
            f"{target} instead."
        )
    if held_out and source_test is train:
        train, source_test = train.split(1 - held_out)
    adapted, target_test = numbered_alike(adapted, train), numbered_alike(target_test, train)
    if target_classes:
        numbers = class_numbers(target_classes, train.classes)
        adapted, target_test = of_classes(adapted, numbers), of_classes(target_test, numbers)
    if isinstance(source_test, images.ImageFiles) and len(source_test) > TESTED:
        source_test = source_test.take(np.random.default_rng(0).permutation(len(source_test))[:TESTED])
    return Pair(train, adapted.without_labels(), source_test, target_test)


def parts_of(name: str, data: str | Path | None, reading: Reading | None = None, progress: bool = False) -> Parts:
    """The parts of a domain for training and for testing, by its name."""
    if name in formats.DIGITS:
        return Parts(load_digits(name, "train", data), load_digits(name, "test", data))
    if name == "fonts":
        return Parts(rendered.rendered_digits(20_000, seed=0), rendered.rendered_digits(2_000, seed=1))
    if name == "handwritten":
        return Parts(*rendered.handwritten_digits().split(ADAPTED))
    file, _, domain = name.partition(".npz:") if ".npz:" in name else name.partition(":")
    if name.endswith(".npz"):
        whole = load_features(name)
    elif ".npz:" in name:
        whole = load_features(f"{file}.npz", domain)
    elif file in FEATURES and domain:
        path = data_folder(data) / FEATURES[file]
        if not path.is_file():
            raise FileNotFoundError(
                f"The features of {file} are not in {path.parent}. Put there {path.name} (x, y, domain, domain_names, "
                f"class_names). {ANOTHER_FOLDER}"
            )
        whole = load_features(path, domain)
    elif name in images.NAMES:
        folder = images.published_folder(name, data_folder(data))
        whole = images.read_folder(folder, reading, name=name, progress=progress)
    elif Path(name).is_dir():
        whole = images.read_folder(name, reading, progress=progress)
    else:
        raise ValueError(
            f"A domain must be one of {', '.join(NAMES)}, or file.npz:domain, or a folder of class folders with "
            f"images. Got {name!r} instead."
        )
    return Parts(whole, whole)
