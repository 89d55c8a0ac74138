"""Measure the exact solvers against their rivals: speed, scaling and memory.

Prints a table and the goals, and writes exact.json and exact.png into the output folder.
"""

from __future__ import annotations

import os

# Before NumPy is imported: every solver has one thread.
os.environ |= dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
# POT loads torch where it is installed, and asks it about every array.
os.environ["POT_BACKEND_DISABLE_PYTORCH"] = "1"

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import goals
import memory
import picture
import spadeful as sp
import tables
from costs import FAMILIES, draw
from measure import race, wall_clock
from rivals import OURS, POT_PARTIAL, contestants, differ, examine, pot_partial
from spadeful import _core

SIZES = [64, 100, 256, 500, 1000, 2000]
QUICK_SIZES = [64, 100, 256]
MASSES = [0.5, 0.75, 0.9, 1.0]
PARTS = ["grid", "path", "batch", "memory"]
#: A rival that takes longer than this at one size is not asked at the larger ones.
PATIENCE = 8.0

console = Console(width=None if sys.stdout.isatty() else 110)


def progress(steps: Iterable[Any], text: str) -> Iterator[Any]:
    """A bar on a terminal; elsewhere one line."""
    steps = list(steps)
    if not console.is_terminal:
        console.print(f"{text} ({len(steps)} steps)")
    return iter(track(steps, text, console=console, transient=True, disable=not console.is_terminal))


def grid_cell(family: str, m: int, mass: float, seconds: float, slow: dict[str, str]) -> dict[str, Any]:
    """Time the solvers whose answers to some problems are right. `slow`: who is not asked, and why."""
    costs = [draw(family, m, k) for k in range(max(1, 1000 // m))]
    plans = [sp.solve(cost, sp.Partial(mass)) for cost in costs]
    values = [plan.value for plan in plans]
    gap = max(plan.gap / (1 + abs(plan.value)) for plan in plans)
    solvers = {name: f for name, f in contestants(mass).items() if name not in slow}
    notes, first = dict(slow), {}
    for name, solver in solvers.items():
        first[name], note = examine(solver, costs, values, mass)
        if note:
            notes[name] = note
    runs = {name: lambda f=f: [f(c, mass) for c in costs] for name, f in solvers.items() if name not in notes}
    times = {name: spent / len(costs) for name, spent in race(runs, seconds, first=first).items()}
    rival = fastest_rival(times, mass)
    return {
        "family": family,
        "m": m,
        "mass": mass,
        "problems": len(costs),
        "seconds": times,
        "notes": notes,
        "relative_gap": gap,
        "rival": rival,
        "ratio": times[rival] / times[OURS] if rival in times and OURS in times else None,
    }


def fastest_rival(times: dict[str, float], mass: float) -> str | None:
    """Whom the goals speak of: POT below mass 1, and at mass 1 whoever is fastest."""
    if mass < 1:
        return POT_PARTIAL
    return min((name for name in times if name != OURS), key=times.__getitem__, default=None)


def measure_grid(families: list[str], sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    cells = []
    for family, mass in progress([(f, s) for f in families for s in MASSES], "Solving for one mass"):
        slow: dict[str, str] = {}
        for m in sizes:
            cell = grid_cell(family, m, mass, seconds, slow)
            cells.append(cell)
            slow |= {
                name: f"not asked: took {spent:.0f} s at m = {m}"
                for name, spent in cell["seconds"].items()
                if spent > PATIENCE and name not in (OURS, cell["rival"])
            }
    return cells


def measure_path(families: list[str], sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    """The whole path, the solve to mass 1 that follows it, and the solve that need not."""
    cells = []
    for family, m in progress([(f, m) for f in families for m in sizes], "Following the path"):
        cost = draw(family, m)
        runs: dict[str, Callable[[], Any]] = {
            "path": lambda c=cost: sp.mass_path(c),
            "follow": lambda c=cost: _core.solve(c, 1.0, None, None, 1, along_path=True),
            "solve": lambda c=cost: sp.solve(c, sp.Balanced()),
        }
        value = runs["solve"]().value
        others = {"path": runs["path"]().values[-1], "follow": runs["follow"]().values[0]}
        times = race(runs, seconds)
        cells.append(
            {
                "family": family,
                "m": m,
                "mass": 1.0,
                "seconds": times,
                "notes": {name: f"a value of {v}, not {value}" for name, v in others.items() if differ(v, value)},
                "to_follow": times["path"] / times["follow"],
                "to_solve": times["path"] / times["solve"],
            }
        )
    return cells


def measure_batch(families: list[str], count: int, m: int, mass: float, seconds: float) -> list[dict[str, Any]]:
    cells = []
    for family in progress(families, "Solving a batch"):
        costs = np.stack([draw(family, m, k) for k in range(count)])
        problem = sp.Partial(mass)
        runs: dict[str, Callable[[], Any]] = {
            "one thread": lambda c=costs, p=problem: sp.solve(c, p, threads=1),
            "two threads": lambda c=costs, p=problem: sp.solve(c, p, threads=2),
            "two threads, dense": lambda c=costs, p=problem: sp.solve(c, p, threads=2).matrix,
        }
        _, note = examine(pot_partial, list(costs), runs["two threads"]().value, mass)
        if note is None:
            runs["POT loop"] = lambda c=costs: [pot_partial(cost, mass) for cost in c]
        times = race(runs, seconds, wall_clock)
        cells.append(
            {
                "family": family,
                "count": count,
                "m": m,
                "mass": mass,
                "seconds": times,
                "note": note,
                "to_loop": times["POT loop"] / times["two threads, dense"] if note is None else None,
                "to_thread": times["one thread"] / times["two threads"],
            }
        )
    return cells


def measure_memory(families: list[str], m: int, count: int) -> list[dict[str, Any]]:
    singles = [{"family": f, "m": m, "mass": s} for f in families for s in [*MASSES, None]]
    batches = [
        {"family": f, "m": m // 2, "mass": 0.75, "batch": count, "threads": 2, "form": form}
        for f in families
        for form in ("float64", "float32", "strided")
    ]
    return [memory.measure(**case) for case in progress(singles + batches, "Measuring memory")]


def machine(*more: str) -> dict[str, Any]:
    """What the figures depend on, and nothing that would tell whose machine it is; `more`: further packages."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), None)
    packages = ["spadeful", "numpy", "scipy", "POT", "lapx", *more]
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "instructions": _core.simd_level(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def measure_parts(parts: list[str], earlier: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The parts asked for, measured; the others as they were measured earlier."""
    families, sizes, quick = options.families, options.sizes, options.quick
    seconds = 0.05 if quick else 0.5
    # A batch keeps both cores busy, so it waits the longest for a quiet moment.
    batch = (
        {"count": 16, "m": min(100, max(sizes)), "seconds": 0.2} if quick else {"count": 256, "m": 100, "seconds": 5}
    )
    measure: dict[str, Callable[[], Any]] = {
        "grid": lambda: measure_grid(families, sizes, seconds),
        "path": lambda: measure_path(families, sizes, seconds),
        "batch": lambda: measure_batch(families, mass=0.75, **batch),
        "memory": lambda: measure_memory(families[:1], 1000, 8) if quick else measure_memory(families, 2000, 32),
    }
    results: dict[str, Any] = {"machine": machine(), "families": families, "sizes": sizes, "masses": MASSES}
    results |= {part: measure[part]() if part in parts else earlier[part] for part in PARTS}
    results["exponents"] = goals.exponents(results)
    results["goals"] = goals.judge(results)
    return results


def save(results: dict[str, Any], folder: Path) -> None:
    """Write everything under other names first, so that an interruption leaves no half file."""
    folder.mkdir(parents=True, exist_ok=True)
    data, image = folder / "unfinished.json", folder / "unfinished.png"
    data.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    picture.draw(results, image)
    image.replace(folder / "exact.png")
    data.replace(folder / "exact.json")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and short runs: a minute")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", type=int, help="points a side")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="others stay as measured earlier")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", metavar="DIR")
    parser.add_argument("--force", action="store_true", help="overwrite results that are there")
    options = parser.parse_args()
    options.sizes = sorted(options.sizes or (QUICK_SIZES if options.quick else SIZES))
    if options.sizes[0] < 2:
        parser.error("--sizes must be at least 2")
    if (options.output / "exact.json").exists() and not options.force:
        parser.error("the output folder already holds exact.json; pass --force to overwrite it")
    return options


def main() -> None:
    options = parse()
    earlier = json.loads((options.output / "exact.json").read_text()) if set(options.parts) < set(PARTS) else {}
    results = measure_parts(options.parts, earlier, options)
    save(results, options.output)
    for table in tables.of(results):
        console.print(table)
    console.print(f"Written: {options.output / 'exact.json'} and exact.png", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
