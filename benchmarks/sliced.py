"""Measure partial transport on the line, and sliced over directions, against POT: prints tables, writes sliced.json.

Time is processor time on one thread. What would take minutes is left out.
"""

from __future__ import annotations

import run  # isort: skip  (first: it sets one thread before NumPy is imported)
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
from rich.console import Console
from rich.table import Table

import entropic
import spadeful as sp
import tables
from goals import goal
from measure import exponent, race
from spadeful import _core

MASS = 0.9
#: The time that a contestant may take, as far as the size before lets one expect.
LONGEST = 20.0
TITLES = {
    "same": "of one distribution",
    "shifted": "shifted by a standard deviation",
    "apart": "all x before all y",
    "modes": "three modes, each shifted",
}


def points(kind: str, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, n))
    if kind == "modes":
        x, y = x + 20 * (np.arange(n) % 3), y + 20 * (np.arange(n) % 3)
    return x, y + {"same": 0, "shifted": 1, "apart": 20, "modes": 1}[kind]


def contestants(x: Any, y: Any, p: int) -> dict[str, Callable[[], Any]]:
    pairs = round(MASS * len(x))
    return {
        "every mass": lambda: _core.line_path(x, y, p)[0].sum() / len(x),
        "POT, every mass": lambda: np.sum(ot.partial.partial_wasserstein_1d(x, y, p=p)[2]) / len(x),
        "one mass": lambda: _core.lines(x[None], y[None], pairs / len(x), p, 1).values[0],
        "all the mass": lambda: _core.lines(x[None], y[None], 1.0, p, 1).values[0],
        "POT, all the mass": lambda: ot.wasserstein_1d(x, y, p=p),
    }


def measure_lines(kind: str, p: int, sizes: list[int], seconds: float) -> dict[str, Any]:
    """Seconds by size, as far as they were measured; every answer is compared with the others."""
    found: dict[str, dict[int, float]] = {}
    for n in sizes:
        runs = contestants(*points(kind, n), p)
        entered = {}
        for name, go in runs.items():
            before = found.setdefault(name, {})
            last = before.get(n // 10)
            if n == sizes[0] or (last is not None and last * (100 if last > 0.05 else 20) < LONGEST):
                entered[name] = go
        values = {}
        first = {}
        for name, go in entered.items():
            start = time.process_time()
            values[name] = go()
            first[name] = time.process_time() - start
        for name, spent in race(entered, seconds, first=first).items():
            found[name][n] = spent
        whole = [value for name, value in values.items() if name != "one mass"]
        np.testing.assert_allclose(whole, whole[0], rtol=1e-9)
    return {
        "points": kind,
        "p": p,
        "seconds": {name: {str(n): spent for n, spent in each.items()} for name, each in found.items()},
        "exponents": {
            name: exponent(list(each)[1:], list(each.values())[1:]) for name, each in found.items() if len(each) > 2
        },
    }


def measure_slices(n: int, n_projections: int, seconds: float) -> dict[str, Any]:
    """All of `sliced`, and POT's sliced distance where it has the same one."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(n, 16)), rng.normal(size=(n, 16)) + 0.5
    towards = sp.sliced(x, y, sp.Balanced(), n_projections).directions
    spent = race(
        {
            "partial": lambda: sp.sliced(x, y, sp.Partial(MASS), n_projections, threads=1),
            "all the mass": lambda: sp.sliced(x, y, sp.Balanced(), n_projections, threads=1),
            "POT, all the mass": lambda: ot.sliced_wasserstein_distance(x, y, projections=towards.T),
        },
        seconds,
    )
    value = sp.sliced(x, y, sp.Balanced(), n_projections).value
    rival = ot.sliced_wasserstein_distance(x, y, projections=towards.T) ** 2
    np.testing.assert_allclose(value, rival, rtol=1e-9)
    return {"n": n, "dimension": 16, "n_projections": n_projections, "seconds": spent}


def measure(quick: bool) -> dict[str, Any]:
    sizes = [100, 1000, 10_000] if quick else [1000, 10_000, 100_000, 1_000_000]
    seconds = 0.02 if quick else 0.2
    results: dict[str, Any] = {
        "mass": MASS,
        "lines": [measure_lines(kind, p, sizes, seconds) for p in (1, 2) for kind in TITLES],
        "slices": measure_slices(*((200, 10) if quick else (10_000, 100)), seconds),
    }
    results["goals"] = judge(results)
    return results


def ratios(case: dict[str, Any], what: str) -> dict[str, float]:
    """How many times faster than POT, by size."""
    ours, theirs = case["seconds"][what], case["seconds"][f"POT, {what}"]
    return {n: theirs[n] / ours[n] for n in theirs if n in ours}


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    def steepest(cases: list[dict[str, Any]], what: str) -> tuple[float, str]:
        return max((case["exponents"][what], TITLES[case["points"]]) for case in cases)

    one = [case for case in results["lines"] if case["p"] == 1]
    two = [case for case in results["lines"] if case["p"] == 2]
    slowest = min((least, n) for case in results["lines"] for n, least in ratios(case, "every mass").items())
    same = [case for case in two if case["points"] == "same"]
    return [
        goal("p = 1: every mass in a time that grows at most as n^1.2", 1.2, *steepest(one, "every mass"), False),
        goal("p = 2, one distribution: as n^1.3", 1.3, *steepest(same, "every mass"), False),
        goal("p = 2: every mass at most as n^2", 2.0, *steepest(two, "every mass"), False),
        goal("every mass faster than POT partial_wasserstein_1d", 1.0, slowest[0], f"n = {slowest[1]}"),
    ]


def lines_table(results: dict[str, Any]) -> Table:
    names = ("every mass", "one mass", "all the mass")
    shown = Table("points", "p", "n", *names, "POT / every mass", "POT / all", title="Seconds on a line")
    for case in results["lines"]:
        path, whole = ratios(case, "every mass"), ratios(case, "all the mass")
        for n in case["seconds"]["all the mass"]:
            spent = [case["seconds"][name].get(n) for name in names]
            cells = ["" if s is None else f"{s:.3g}" for s in spent]
            rival = [f"{ratio[n]:.1f}" if n in ratio else "" for ratio in (path, whole)]
            shown.add_row(TITLES[case["points"]], str(case["p"]), f"{int(n):,}", *cells, *rival)
        powers = [f"n^{case['exponents'][name]:.2f}" if name in case["exponents"] else "" for name in names]
        shown.add_row("", "", "", *powers, "", "", end_section=True)
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "sliced.json")
    results = measure(asked.quick)
    console = Console(width=140)
    console.print(lines_table(results))
    spent = results["slices"]["seconds"]
    console.print(
        "Sliced, {n:,} points in {dimension}-D, {n_projections} directions:".format(**results["slices"]), spent
    )
    console.print(tables.goals_table(results))
    entropic.save({"machine": run.machine(), "quick": asked.quick, **results}, asked.target)


if __name__ == "__main__":
    main()
