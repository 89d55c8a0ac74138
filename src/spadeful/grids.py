"""Grids of runs: the combinations of settings that a file names, and what runs that differ in their seed come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import mean, pstdev, stdev
from typing import Any, NamedTuple

from spadeful.files import read_settings

#: At which length runs can be done: seconds, for a processor without a GPU, as in the paper.
LENGTHS = ("quick", "short", "full")


class Form(NamedTuple):
    """What a part of a file has to be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def check(self, value: Any, where: str) -> None:
        if not self.fits(value):
            raise ValueError(f"{where} must be {self.words}. Got {value!r} instead.")


def are_all(values: Any, kind: type) -> bool:
    return all(isinstance(each, kind) for each in values)


TEXT = Form("a text", lambda value: isinstance(value, str))
TEXTS = Form("a list of texts", lambda value: isinstance(value, list) and are_all(value, str))
TABLE = Form("a table", lambda value: isinstance(value, dict))
TABLES = Form("a list of tables", lambda value: isinstance(value, list) and are_all(value, dict))
VALUES = Form("a table of tables", lambda value: isinstance(value, dict) and are_all(value.values(), dict))

#: What a file may hold beside tables of values; see `spadeful.paper.entries` for what is not of runs.
PARTS = {
    **dict.fromkeys(("title", "note", "remark", "kind", "hardware", "takes"), TEXT),
    **dict.fromkeys(("labels", "stands_for", "beside", "needs", "measures", "embedding", "shown"), TEXTS),
    **dict.fromkeys(("settings", "short", "quick", "paper"), TABLE),
    **dict.fromkeys(("runs", "claims"), TABLES),
    "cpu": Form("true or false", lambda value: isinstance(value, bool)),
}


def read_grids(path: str | Path) -> dict[str, Any]:
    """What a file holds, if it has the form of one. Which settings runs can have is for those to say that do them."""
    found = read_settings(path)
    for name, form in PARTS.items():
        if name in found:
            form.check(found[name], f"{name} of {path}")
    axes = set()
    for where, part in (("runs", found), *((f"{name}.runs", found.get(name, {})) for name in ("short", "quick"))):
        grids = part.get("runs", [])
        TABLES.check(grids, f"{where} of {path}")
        for grid in grids:
            check_grid(grid, f"[[{where}]] of {path}")
            axes |= grid.keys()
    if strange := sorted(found.keys() - PARTS.keys() - axes):
        raise ValueError(
            f"{path} must hold {', '.join(sorted(PARTS))} and tables of values. Got {', '.join(strange)} too."
        )
    for axis in sorted(axes & found.keys()):
        VALUES.check(found[axis], f"{axis} of {path}")
    for name, value in found.get("paper", {}).items():
        for key, figure in value.items() if isinstance(value, dict) else [(name, value)]:
            published(figure, f"{key!r} in [paper] of {path}")
    return found


def check_grid(grid: dict[str, Any], where: str) -> None:
    if not grid:
        raise ValueError(f"{where} must hold lists of values. Got none.")
    for axis, values in grid.items():
        if not isinstance(values, list) or not values or any(isinstance(each, (list, dict)) for each in values):
            raise ValueError(f"{axis} in {where} must be a list of at least one value. Got {values!r} instead.")


def chosen_grids(found: dict[str, Any], length: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The grids of a file for a length, and the settings that win over all others."""
    if length not in LENGTHS:
        raise ValueError(f"length must be one of {', '.join(LENGTHS)}. Got {length!r} instead.")
    changes = dict(found.get(length, {}))
    if length == "quick":
        changes = {**found.get("short", {}), **changes}
    grids = changes.pop("runs", found.get("runs", []))
    return grids, changes


def combinations(grid: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of a grid's values.

    >>> [name_of(each) for each in combinations({"mass": [0.5, 1.0], "method": ["m-pot"]})]
    ['mass=0.5,m-pot', 'mass=1.0,m-pot']
    """
    for point in product(*grid.values()):
        yield dict(zip(grid, point, strict=True))


def settings_of(found: dict[str, Any], chosen: dict[str, Any], fields: Container[str]) -> dict[str, Any]:
    """The settings of a run: those of all, its own, and those that a value stands for by a table of its own."""
    settings = dict(found.get("settings", {}))
    for axis, value in chosen.items():
        stands_for = found.get(axis, {}).get(value)
        if axis not in fields and stands_for is None:
            raise ValueError(f"{axis} = {value!r} must be a setting, or stand for some. There is no [{axis}.{value}].")
        settings |= ({axis: value} if axis in fields else {}) | (stands_for or {})
    return settings


def configs_of(
    found: dict[str, Any], path: str | Path, length: str, fields: Container[str], make: Callable[..., Any]
) -> dict[str, Any]:
    """The configs of the runs of a file by their names, each made of its settings."""
    grids, changes = chosen_grids(found, length)
    configs = {}
    for chosen in (each for grid in grids for each in combinations(grid)):
        with naming(path, chosen):
            configs[name_of(chosen)] = make(settings_of(found, chosen, fields) | changes, "The settings")
    return configs


@contextmanager
def naming(path: str | Path, chosen: dict[str, Any]) -> Iterator[None]:
    """Say of a run that cannot be done which it is, and where it is named."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must name runs that can be done. {name_of(chosen)} cannot: {error}") from None


def name_of(chosen: dict[str, Any]) -> str:
    """The name of a run: its values, with their settings where they are numbers."""
    return ",".join(str(value) if isinstance(value, str) else f"{axis}={value}" for axis, value in chosen.items())


def without_seed(name: str) -> str:
    return ",".join(part for part in name.split(",") if not part.startswith("seed="))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean, and the standard deviation where there are several values; a dash where one is not known.

    >>> spread([1.0, 2.0, 3.0]), spread([1.0])
    ('2.00 ± 1.00', '1.00')
    """
    if any(map(math.isnan, values)):
        return "-"
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def published(value: Any, name: str = "A figure of the paper") -> tuple[float, float | None]:
    """The mean and the spread of a figure of the paper: a number, "a mean ± a spread", or a list of runs.

    The paper's spreads are of its runs alone, divided by their number.

    >>> published("58.71 ± 3.21"), published([1.0, 3.0]), published(5)
    ((58.71, 3.21), (2.0, 1.0), (5.0, None))
    """
    try:
        if isinstance(value, str):
            middle, _, wide = value.partition("±")
            return float(middle), float(wide)
        return (mean(value), pstdev(value)) if isinstance(value, list) else (float(value), None)
    except (ValueError, TypeError):
        raise ValueError(
            f'{name} must be a number, "a mean ± a spread" or a list of numbers. Got {value!r} instead.'
        ) from None
