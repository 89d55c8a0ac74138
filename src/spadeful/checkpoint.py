"""Finished parts of a long run, kept so that an interrupted one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful.files import DAMAGE, opened_npz, replacing

SETTINGS = "settings.json"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed between two dictionaries, each in words.

    >>> differences({"seed": 0, "mass": 0.9, "reg": 0.0}, {"seed": 1, "mass": 0.9})
    ['reg was 0.0 and is None', 'seed was 0 and is 1']
    """
    changed = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
    return [f"{key} was {was.get(key)!r} and is {now.get(key)!r}" for key in changed]


def check_same_run(folder: str | Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder with other settings than its own."""
    changes = differences(was, now)
    if changes:
        raise ValueError(
            f"The checkpoint in {folder} must belong to the same run. It differs: {'; '.join(changes)}. "
            "Go on with its settings, choose another folder, or remove this one."
        )


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
            found = dict(json.loads(path.read_text()))
        except (ValueError, TypeError):
            raise ValueError(f"{path} must be whole. It is damaged; remove the folder {self.folder}.") from None
        check_same_run(self.folder, found, json.loads(wanted))

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:08d}.npz"

    def finished(self) -> set[int]:
        """The numbers of the parts that are there; none is there half. Files that others have put there are none."""
        names = self.folder.glob(f"part-{'[0-9]' * 8}.npz")
        return {int(path.stem.removeprefix("part-")) for path in names}

    def load(self, number: int) -> dict[str, NDArray[Any]]:
        path = self._path(number)
        try:
            with opened_npz(path) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except DAMAGE:
            raise ValueError(f"{path} must be whole. It is damaged; remove it, and it is solved again.") from None

    def save(self, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        with replacing(self._path(number), force=True) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
