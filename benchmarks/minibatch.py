"""Measure mini-batch transport between large clouds against a loop over POT: prints tables, writes minibatch.json.

Time on one thread is processor time, ours and POT's, so that others on the machine do not count. Cases take turns, and
the quickest run of each counts.
"""

from __future__ import annotations

import entropic  # isort: skip  (first: it sets one thread before NumPy is imported)
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from scipy.spatial.distance import cdist

import cloud
import spadeful as sp
from goals import goal
from measure import exponent
from spadeful.transport import barycentric_map

MASS = 0.75
PROBLEM = sp.Partial(MASS)
GIB = 2**30


def make_clouds(folder: Path, n: int, dimension: int) -> Path:
    """Two Gaussian clouds whose means are 1 apart, as files of float32 written piece by piece."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "xy":
        points = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (n, dimension))
        for start in range(0, n, 100_000):
            part = points[start : start + 100_000]
            part[:] = rng.standard_normal(part.shape, dtype=np.float32)
            part[:, 0] += name == "y"
        points.flush()
    return folder


def make_colours(folder: Path, n: int) -> Path:
    """The pixels of two pictures of ten colours each."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    for name in "xy":
        palette = rng.random((10, 3))
        pixels = palette[rng.integers(10, size=n)] + 0.05 * rng.standard_normal((n, 3))
        np.save(folder / f"{name}.npy", pixels.clip(0, 1))
    return folder


def best(measured: dict[str, Any], clock: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The quickest run for each number of points and of pairs."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for r in measured["runs"]:
        key = r["n"], r["k"]
        if key not in found or r[clock] < found[key][clock]:
            found[key] = r
    return found


def share(r: dict[str, Any]) -> float:
    return r["inside"]["costs and solver"] / r["wall"]


def in_turns(rounds: int, cases: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Some cases, one after the other and all over again: a machine that slows down for a while slows all of them."""
    found: dict[str, dict[str, Any]] = {name: {"runs": [], "rival": None} for name in cases}
    for _ in range(rounds):
        for name, measure_case in cases.items():
            measured = measure_case()
            found[name]["runs"] += measured["runs"]
            rivals = [r for r in (found[name]["rival"], measured["rival"]) if r]
            found[name]["rival"] = min(rivals, key=lambda r: r["cpu"], default=None)
    return found


def measure_large(folder: Path, n: int, m: int, k: int, rival: int, rounds: int) -> dict[str, Any]:
    """The large clouds on one thread, on two, and in two processes."""
    ks = [k // 16, k // 8, k // 4, k // 2, k]
    cases = {
        "one": lambda: cloud.measure(folder, m, ks, repeats=rounds, rival=rival),
        "two": lambda: cloud.measure(folder, m, [k], cores=2, repeats=rounds),
        # The first starts the processes.
        "processes": lambda: cloud.measure(folder, m, [k], cores=2, jobs=2, repeats=rounds + 1),
    }
    one, two, processes = in_turns(rounds, cases).values()
    by_k = best(one, "cpu")
    single, double = by_k[n, k], best(two, "wall")[n, k]
    return {
        "n": n,
        "m": m,
        "k": k,
        "one thread": single,
        "one thread, wall": best(one, "wall")[n, k]["wall"],
        "two threads": double,
        "two processes": best(processes, "wall")[n, k]["wall"],
        "two processes, first run": processes["runs"][0]["wall"],
        "POT a pair": one["rival"],
        "to loop": to_loop(one["rival"], single, double),
        "by k": [{"k": size, "cpu": r["cpu"]} for (_, size), r in by_k.items()],
        "exponent": exponent(ks, [by_k[n, size]["cpu"] for size in ks]),
        "share": {"one thread": share(single), "two threads": share(double)},
        "memory": max(r["peak"] - r["plan"] for r in [*one["runs"], *two["runs"]]),
    }


def measure_colours(folder: Path, n: int, m: int, k: int, rival: int, rounds: int) -> dict[str, Any]:
    cases = {
        "one": lambda: cloud.measure(folder, m, [k], repeats=rounds, rival=rival),
        "two": lambda: cloud.measure(folder, m, [k], cores=2, repeats=rounds),
    }
    one, two = in_turns(rounds, cases).values()
    single, double = best(one, "cpu")[n, k], best(two, "wall")[n, k]
    return {
        "n": n,
        "m": m,
        "k": k,
        "one thread": single,
        "two threads": double,
        "POT a pair": one["rival"],
        "to loop": to_loop(one["rival"], single, double),
    }


def to_loop(pot: dict[str, float], one: dict[str, Any], two: dict[str, Any]) -> dict[str, float]:
    """Times faster than a loop over POT, which has one thread: on one thread too, and as called, on two cores."""
    return {"one thread": pot["cpu"] * one["k"] / one["cpu"], "as called": pot["wall"] * two["k"] / two["wall"]}


def measure_sizes(folder: Path, sizes: list[int], m: int, k: int) -> dict[str, Any]:
    """Time against the number of points."""
    runs = best(cloud.measure(folder, m, [k], sizes=sizes, repeats=3), "cpu")
    return {"m": m, "k": k, "sizes": sizes, "seconds": [runs[n, k]["cpu"] for n in sizes]}


def error_over_k(x: Any, y: Any, m: int, ks: list[int], k_reference: int) -> dict[str, Any]:
    """How far value and plan of k pairs are from those of very many, relative to these."""
    reference = sp.minibatch(x, y, PROBLEM, m, k_reference)
    values, plans = [], []
    for k in ks:
        groups = reference.values[: k_reference // k * k].reshape(-1, k).mean(axis=1)
        values.append(float(np.sqrt(np.mean((groups - reference.value) ** 2)) / reference.value))
        runs = [sp.minibatch(x, y, PROBLEM, m, k, seed=seed).plan for seed in (1, 2, 3)]
        away = [np.linalg.norm((plan - reference.plan).data) for plan in runs]
        plans.append(float(np.mean(away) / np.linalg.norm(reference.plan.data)))
    return {"m": m, "k": ks, "value": values, "plan": plans}


def error_over_m(x: Any, y: Any, ms: list[int], drawn: int) -> list[dict[str, Any]]:
    """How far value and map of mini-batches are from those of the whole problem; `drawn`: points in all batches."""
    exact = sp.solve(cdist(x, y, "sqeuclidean"), PROBLEM)
    moved = barycentric_map(exact.matrix, y, missing=x)
    kept = exact.matrix.sum(axis=1) > 0
    found = []
    for m in ms:
        result = sp.minibatch(x, y, PROBLEM, m, drawn // m)
        away = np.linalg.norm((result.map(y, missing=x) - moved)[kept]) / np.linalg.norm((moved - x)[kept])
        found.append({"m": m, "value": result.value / exact.value - 1, "map": float(away)})
    return found


def measure_errors(quick: bool) -> dict[str, Any]:
    n, k_reference = (200, 512) if quick else (1000, 8192)
    x, y = np.random.default_rng(2).normal(size=(2, n, 2))
    y[:, 0] += 1
    ks = [2**p for p in range(0, 6 if quick else 11, 1 if quick else 2)]
    over_k = [error_over_k(x, y, m, ks, k_reference) for m in ([16, 64] if quick else [16, 64, 256])]
    ms = [8, 32, 128] if quick else [8, 16, 32, 64, 128, 256, 512]
    return {"n": n, "over k": over_k, "over m": error_over_m(x, y, ms, n * (20 if quick else 256))}


def measure(quick: bool) -> dict[str, Any]:
    n, m, k, rival, rounds = (20_000, 64, 256, 4, 1) if quick else (1_000_000, 256, 4000, 40, 3)
    sizes = [n // 100, n // 10, n] if quick else [10_000, 30_000, 100_000, 300_000, 1_000_000]
    pixels = n // 4
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_clouds(Path(temporary) / "clouds", n, 64)
        colours = make_colours(Path(temporary) / "colours", pixels)
        results = {
            "large": measure_large(folder, n, m, k, rival, rounds),
            "colours": measure_colours(colours, pixels, 100, 500 if quick else 10_000, 5 * rival, rounds),
            "sizes": measure_sizes(folder, sizes, m, 64 if quick else 500),
        }
    results["errors"] = measure_errors(quick)
    results["goals"] = judge(results)
    return results


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    large, colours = results["large"], results["colours"]
    shares = large["share"]
    worst = min(shares, key=shares.__getitem__)
    over = large["one thread, wall"] / large["two processes"]
    shape = "m = {m}, k = {k}".format
    return [
        goal("memory beyond inputs and plan at most 1 GiB", 1.0, large["memory"] / GIB, "GiB", False),
        goal("at least 85 % of the time in costs and solver", 0.85, shares[worst], worst),
        goal("64-D: 15 times faster than a loop over POT", 15, large["to loop"]["as called"], shape(**large)),
        goal("3-D: 15 times faster than a loop over POT", 15, colours["to loop"]["as called"], shape(**colours)),
        goal("time grows as k to a power within 0.05 of 1", 0.05, abs(large["exponent"] - 1), "", False),
        goal("two processes 1.8 times faster than one thread", 1.8, over),
    ]


def runs_table(results: dict[str, Any]) -> Table:
    large, colours = results["large"], results["colours"]
    shown = Table("run", "seconds", "ms a pair", title="Mini-batch transport, Partial(0.75)")
    rows = [
        (f"{large['n']:,} points, 64-D: one thread", large["one thread"]["cpu"], large["k"]),
        ("two threads", large["two threads"]["wall"], large["k"]),
        ("two processes", large["two processes"], large["k"]),
        ("POT loop, one thread", large["POT a pair"]["cpu"] * large["k"], large["k"]),
        (f"{colours['n']:,} colours, 3-D: one thread", colours["one thread"]["cpu"], colours["k"]),
        ("two threads", colours["two threads"]["wall"], colours["k"]),
        ("POT loop, one thread", colours["POT a pair"]["cpu"] * colours["k"], colours["k"]),
    ]
    for name, seconds, k in rows:
        shown.add_row(name, f"{seconds:.2f}", f"{1000 * seconds / k:.2f}")
    return shown


if __name__ == "__main__":
    entropic.report(__doc__, "minibatch.json", measure, runs_table)
