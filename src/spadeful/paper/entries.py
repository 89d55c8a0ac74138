"""Entries: what a file of reproduce/ says of the tables and figures that it covers."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spadeful.grids import chosen_grids, published, read_grids
from spadeful.paper.claims import MEASURES, Claim
from spadeful.paper.labels import LABELS, find_label, numbered

#: Means and spreads by the names of runs.
Published = dict[str, tuple[float, float | None]]

PACKAGE = Path(__file__).parents[1]
#: Where entries are: at the root of the repository, or in the package where that was installed.
FOLDERS = (PACKAGE.parents[1] / "reproduce", PACKAGE / "reproduce")

#: The folder that results go to and the report reads, unless another is named.
REPRODUCED = Path("reproduced")

#: How an entry is run.
KINDS = {
    "adapt": "adaptation",
    "simulate": "simulation",
    "flow": "gradient flow",
    "color": "colour transfer",
    "generate": "generative model",
    "drawing": "nothing to run",
}


class Data(NamedTuple):
    """What a set of data is called, and the files of which one shows that it is there."""

    title: str
    files: tuple[str, ...]

    def is_in(self, folder: Path) -> bool:
        return any(True for name in self.files for _ in folder.glob(name))


DATA = {
    "mnist": Data("MNIST", ("mnist.npz", "train-images*", "MNIST/raw/train-images*")),
    "usps": Data("USPS", ("usps.npz", "usps", "usps.bz2", "usps.h5")),
    "svhn": Data("SVHN", ("svhn.npz", "train_32x32.mat")),
    "pacs": Data("features of PACS", ("pacs_resnet50.npz",)),
    "office-caltech10": Data("features of Office-Caltech10", ("office_caltech10_resnet50.npz",)),
    "office-home": Data("Office-Home", ("OfficeHomeDataset_10072016", "OfficeHome*", "office-home", "office_home")),
    "visda": Data("VisDA-2017", ("VisDA-2017", "visda-2017", "visda")),
    "photos": Data("photos", ("photos/s1.png",)),
    "cifar10": Data("CIFAR-10", ("cifar10.npz", "cifar-10-batches-py")),
    "celeba": Data("CelebA", ("img_align_celeba", "celeba", "celeba*.npz")),
}


@dataclass(frozen=True)
class Entry:
    """What a file says of the tables and figures that it covers, or stands in for where data or a GPU are missing.

    Claims may be of the runs of other entries too, those that it stands `beside`. The `note` says what is run, the
    `remark` what came of it that the paper does not lead one to expect, and why. Where there are `measures`, others
    are not told of.
    """

    path: Path
    title: str
    note: str
    remark: str
    kind: str
    labels: tuple[str, ...]
    stands_for: tuple[str, ...]
    beside: tuple[str, ...]
    needs: tuple[str, ...]
    hardware: str
    cpu: bool
    takes: str
    measures: tuple[str, ...]
    claims: tuple[Claim, ...]
    paper: dict[str, Published]
    found: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def tasks(self) -> list[str]:
        return list(self.found.get("task", {}))

    def tells(self, measure: str) -> bool:
        return not self.measures or measure in self.measures

    def count(self, length: str) -> int:
        """How many runs there are."""
        return sum(math.prod(map(len, grid.values())) for grid in chosen_grids(self.found, length)[0])

    def lacking(self, folder: Path | None) -> list[str]:
        """What has to be put into the folder of the data, in words."""
        missing = [DATA[name] for name in self.needs if folder is None or not DATA[name].is_in(folder)]
        return [f"{data.title} ({data.files[0]})" for data in missing]

    def needs_data(self, folder: str | Path | None) -> str:
        """What data are missing and where they are sought, in a sentence; nothing if all are there."""
        named = folder if folder is not None else os.environ.get("SPADEFUL_DATA") or None
        missing = self.lacking(None if named is None else Path(named).expanduser())
        where = f"which {named} does not hold" if named else "and the folder with the data is not known"
        says = f"{self.name} needs {', '.join(missing)}, {where}. Name the folder by --data or the environment "
        return says + "variable SPADEFUL_DATA." if missing else ""

    def check_data(self, folder: str | Path | None) -> None:
        """Refuse to begin without data."""
        if says := self.needs_data(folder):
            raise FileNotFoundError(says)


def read_entry(path: str | Path) -> Entry:
    """What a file says."""
    path = Path(path)
    found = read_grids(path)
    if "title" not in found:
        raise ValueError(f"{path} must hold a title. It holds {', '.join(found) or 'nothing'}.")
    kind = found.get("kind", "adapt")
    for what, given, known in (
        ("kind", [kind], KINDS),
        ("labels", [*found.get("labels", []), *found.get("stands_for", [])], LABELS),
        ("needs", found.get("needs", []), DATA),
        ("measures", found.get("measures", []), MEASURES),
    ):
        strange = [name for name in given if name not in known]
        if strange:
            raise ValueError(f"{what} of {path} must be among {', '.join(known)}. Got {strange[0]!r} instead.")
    return Entry(
        path,
        found["title"],
        found.get("note", ""),
        found.get("remark", ""),
        kind,
        tuple(found.get("labels", [])),
        tuple(found.get("stands_for", [])),
        tuple(found.get("beside", [])),
        tuple(found.get("needs", [])),
        found.get("hardware", ""),
        found.get("cpu", True),
        found.get("takes", ""),
        tuple(found.get("measures", [])),
        tuple(Claim.read(claim, str(path)) for claim in found.get("claims", [])),
        by_measure(found.get("paper", {})),
        found,
    )


def by_measure(paper: dict[str, Any]) -> dict[str, Published]:
    """The paper's figures by measure, then by run: accuracies, and what the tables within hold."""
    tables = {name: value for name, value in paper.items() if isinstance(value, dict)}
    accuracies = {name: value for name, value in paper.items() if name not in tables}
    tables = {"accuracy": accuracies, **tables} if accuracies else tables
    return {measure: {name: published(value) for name, value in table.items()} for measure, table in tables.items()}


def entries_folder() -> Path:
    return next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[-1])


def all_entries(folder: Path | None = None) -> dict[str, Entry]:
    """All entries by name."""
    return {path.stem: read_entry(path) for path in sorted((folder or entries_folder()).glob("*.toml"))}


def find_entries(name: str) -> list[Entry]:
    """The entries that a name means: a file, the name of one, or a table or figure of the paper."""
    if name.endswith(".toml"):
        return [read_entry(name)]
    known = all_entries()
    if name in known:
        return [known[name]]
    label = find_label(name)
    if label is None:
        raise ValueError(
            f"{name!r} is no table, figure or entry. Pass a number such as table-1 or figure-2, a label, a .toml "
            f"file, or one of {', '.join(known)}."
        )
    covering = [entry for entry in known.values() if label in entry.labels]
    if not covering:
        raise ValueError(f"No entry covers {numbered(label)}, {label}.")
    return covering
