"""Finished parts of a long run, kept so that an interrupted one goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from spadeful.files import replacing

SETTINGS = "settings.json"


class Checkpoint:
    """A folder of numbered parts, each a dictionary of arrays, that belong to one run with these settings."""

    def __init__(self, folder: str | Path, settings: dict[str, Any]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = json.dumps(settings, indent=1, sort_keys=True)
        path = self.folder / SETTINGS
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(wanted)
            return
        try:
            found = json.loads(path.read_text())
        except ValueError:
            raise ValueError(f"{path} must be whole. It is damaged; remove the folder {self.folder}.") from None
        differing = sorted(key for key in {*found, *settings} if found.get(key) != json.loads(wanted).get(key))
        if differing:
            changes = "; ".join(f"{key} was {found.get(key)!r} and is {settings.get(key)!r}" for key in differing)
            raise ValueError(
                f"The checkpoint {self.folder} must belong to the same run. It differs: {changes}. "
                "Choose another folder, or remove this one."
            )

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:08d}.npz"

    def finished(self) -> set[int]:
        """The numbers of the parts that are there; none is there half."""
        return {int(path.stem.removeprefix("part-")) for path in self.folder.glob("part-*.npz")}

    def load(self, number: int) -> dict[str, NDArray[Any]]:
        path = self._path(number)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (ValueError, EOFError, BadZipFile):
            raise ValueError(f"{path} must be whole. It is damaged; remove it, and it is solved again.") from None

    def save(self, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        with replacing(self._path(number), force=True) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
