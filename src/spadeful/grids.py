"""Grids of runs: the combinations of settings that a file names, and what runs that differ in their seed come to."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import product
from statistics import mean, pstdev, stdev
from typing import Any

#: At which length runs can be done: seconds, for a processor without a GPU, as in the paper.
LENGTHS = ("quick", "short", "full")


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
    settings = dict(found["settings"])
    for axis, value in chosen.items():
        settings |= {axis: value} if axis in fields else {}
        settings |= found.get(axis, {}).get(value, {}) if isinstance(value, str) else {}
    return settings


def name_of(chosen: dict[str, Any]) -> str:
    """The name of a run: its values, with their settings where they are numbers."""
    return ",".join(str(value) if isinstance(value, str) else f"{axis}={value}" for axis, value in chosen.items())


def without_seed(name: str) -> str:
    return ",".join(part for part in name.split(",") if not part.startswith("seed="))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean, and the standard deviation where there are several values.

    >>> spread([1.0, 2.0, 3.0]), spread([1.0])
    ('2.00 ± 1.00', '1.00')
    """
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def published(value: float | str | list[float]) -> tuple[float, float | None]:
    """The mean and the spread of a figure of the paper: a number, "a mean ± a spread", or a list of runs.

    The paper's spreads are of its runs alone, divided by their number.

    >>> published("58.71 ± 3.21"), published([1.0, 3.0]), published(5)
    ((58.71, 3.21), (2.0, 1.0), (5.0, None))
    """
    if isinstance(value, str):
        middle, _, wide = value.partition("±")
        return float(middle), float(wide)
    return (mean(value), pstdev(value)) if isinstance(value, list) else (float(value), None)
