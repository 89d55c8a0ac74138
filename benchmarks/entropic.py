"""Measure the entropic and unbalanced solvers against POT's: prints a table, writes entropic.json.

Every solver is asked for the marginal error 1e-6; POT's default for partial transport asks for more than it can
reach and so always makes 1000 iterations.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ot
import ot.batch
from rich.console import Console
from rich.table import Table

import run  # first: it sets one thread before NumPy is imported
import spadeful as sp
from costs import draw
from measure import race, wall_clock

TOL = 1e-6
OURS = "spadeful"


def uniform(m: int) -> np.ndarray:
    return np.full(m, 1 / m)


def partial(m: int, share: float) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    cost, a = draw("clouds2", m, 0), uniform(m)
    reg = share * cost.max()
    solve = ot.partial.entropic_partial_wasserstein
    return {
        OURS: lambda: sp.solve(cost, sp.Partial(0.75, reg), tol=TOL).matrix,
        "POT": lambda: solve(a, a, cost, reg, m=0.75),
        "POT, log": lambda: solve(a, a, cost, reg, m=0.75, method="sinkhorn_log", stopThr=TOL),
    }, {"POT": 50, "POT, log": 10}


def balanced(m: int, share: float) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    cost, a = draw("clouds2", m, 0), uniform(m)
    reg = share * cost.max()
    return {
        OURS: lambda: sp.solve(cost, sp.Balanced(reg), tol=TOL).matrix,
        "POT, log": lambda: ot.bregman.sinkhorn_log(a, a, cost, reg, stopThr=TOL, numItermax=100_000),
        "POT": lambda: ot.sinkhorn(a, a, cost, reg, stopThr=TOL, numItermax=100_000),
    }, {"POT, log": 3, "POT": 1}


def unbalanced(m: int, tau: float, reg: float) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    cost, a = 0.1 * draw("clouds2", m, 0), uniform(m)
    solve = ot.unbalanced.sinkhorn_unbalanced
    return {
        OURS: lambda: sp.solve(cost, sp.Unbalanced(tau, reg), tol=TOL).matrix,
        "POT": lambda: solve(a, a, cost, reg, tau, reg_type="entropy", stopThr=TOL, numItermax=100_000),
    }, {"POT": 5}


def batch(count: int, m: int, share: float) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    costs = np.stack([draw("clouds2", m, k) for k in range(count)])
    reg = share * costs.max()
    return {
        OURS: lambda: sp.solve(costs, sp.Balanced(reg), tol=TOL, threads=1).matrix,
        "spadeful, two threads": lambda: sp.solve(costs, sp.Balanced(reg), tol=TOL, threads=2).matrix,
        "POT": lambda: ot.batch.solve_batch(costs, reg=reg, tol=TOL, max_iter=100_000).plan,
    }, {"POT": 3}


def cases(quick: bool) -> dict[str, tuple[dict[str, Callable[[], Any]], dict[str, float]]]:
    sizes = [100] if quick else [100, 256, 500]
    named = {f"partial, m = {m}, reg = {r:g} max": partial(m, r) for m in sizes for r in (0.01, 0.05)}
    named |= {f"balanced, m = {m}, reg = 0.01 max": balanced(m, 0.01) for m in sizes}
    named["unbalanced, m = 65, tau = 0.5, reg = 0.01"] = unbalanced(65, 0.5, 0.01)
    if not quick:
        named["unbalanced, m = 500, tau = 1, reg = 0.1"] = unbalanced(500, 1.0, 0.1)
    named["batch of 64, balanced, m = 100, reg = 0.01 max"] = batch(8 if quick else 64, 100, 0.01)
    return named


def measure(quick: bool) -> list[dict[str, Any]]:
    results = []
    for name, (solvers, wanted) in cases(quick).items():
        times = race(solvers, 0.05 if quick else 0.5, clock=wall_clock)
        ratios = {rival: times[rival] / times[OURS] for rival in wanted}
        if "spadeful, two threads" in times:
            ratios["one thread over two"] = times[OURS] / times["spadeful, two threads"]
            wanted = wanted | {"one thread over two": 1.8}
        results.append({"case": name, "seconds": times, "ratios": ratios, "wanted": wanted})
    return results


def table(results: list[dict[str, Any]]) -> Table:
    shown = Table("case", "spadeful, ms", "times faster than (wanted)", title="Entropic and unbalanced transport")
    for r in results:
        ratios = ", ".join(f"{rival} {x:.1f} ({r['wanted'][rival]:g})" for rival, x in r["ratios"].items())
        shown.add_row(r["case"], f"{1000 * r['seconds'][OURS]:.2f}", ratios)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and short runs")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", metavar="DIR")
    parser.add_argument("--force", action="store_true", help="overwrite results that are there")
    options = parser.parse_args()
    target = options.output / "entropic.json"
    if target.exists() and not options.force:
        parser.error(f"{target} exists; pass --force to overwrite it")
    warnings.simplefilter("ignore")  # POT warns where it does not converge
    results = measure(options.quick)
    Console(width=120).print(table(results))
    options.output.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"machine": run.machine(), "cases": results}, indent=1) + "\n")
    unfinished.replace(target)


if __name__ == "__main__":
    main()
