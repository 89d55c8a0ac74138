"""Measure the entropic and unbalanced solvers against POT's: prints a table, writes entropic.json.

Every solver is asked for the marginal error 1e-6; POT's default for partial transport asks for more than it can
reach and so always makes 1000 iterations.
"""

from __future__ import annotations

import run  # isort: skip  (first: it sets one thread before NumPy is imported)
import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ot
import ot.batch
from rich.console import Console
from rich.table import Table

import spadeful as sp
import tables
from costs import Cost, draw
from measure import race, wall_clock

TOL = 1e-6
OURS = "spadeful"

Problem = sp.Balanced | sp.Partial | sp.Unbalanced
Contest = tuple[dict[str, Callable[[], Any]], dict[str, float]]


def uniform(m: int) -> np.ndarray:
    return np.full(m, 1 / m)


def partial(cost: Cost, problem: sp.Partial) -> Contest:
    a, reg, mass = uniform(len(cost)), problem.reg, problem.mass
    solve = ot.partial.entropic_partial_wasserstein
    return {
        OURS: lambda: sp.solve(cost, problem, tol=TOL).matrix,
        "POT": lambda: solve(a, a, cost, reg, m=mass),
        "POT, log": lambda: solve(a, a, cost, reg, m=mass, method="sinkhorn_log", stopThr=TOL),
    }, {"POT": 50, "POT, log": 10}


def balanced(cost: Cost, problem: sp.Balanced) -> Contest:
    a, reg = uniform(len(cost)), problem.reg
    return {
        OURS: lambda: sp.solve(cost, problem, tol=TOL).matrix,
        "POT, log": lambda: ot.bregman.sinkhorn_log(a, a, cost, reg, stopThr=TOL, numItermax=100_000),
        "POT": lambda: ot.sinkhorn(a, a, cost, reg, stopThr=TOL, numItermax=100_000),
    }, {"POT, log": 3, "POT": 1}


def unbalanced(cost: Cost, problem: sp.Unbalanced) -> Contest:
    a, reg, tau = uniform(len(cost)), problem.reg, problem.tau
    solve = ot.unbalanced.sinkhorn_unbalanced
    return {
        OURS: lambda: sp.solve(cost, problem, tol=TOL).matrix,
        "POT": lambda: solve(a, a, cost, reg, tau, reg_type="entropy", stopThr=TOL, numItermax=100_000),
    }, {"POT": 5}


def exact_unbalanced(cost: Cost, problem: sp.Unbalanced) -> Contest:
    """Without an entropy. L-BFGS-B comes to our objective; majorisation-minimisation, as it is by default, does not."""
    a, tau = uniform(len(cost)), problem.tau
    quasi_newton, majorise = ot.unbalanced.lbfgsb_unbalanced, ot.unbalanced.mm_unbalanced
    return {
        OURS: lambda: sp.solve(cost, problem).matrix,
        "POT, L-BFGS-B": lambda: quasi_newton(a, a, cost, 1e-12, tau, numItermax=20_000, stopThr=1e-15),
        "POT, MM": lambda: majorise(a, a, cost, tau),
    }, {"POT, L-BFGS-B": 100, "POT, MM": 5}


def batch(costs: Cost, problem: sp.Balanced) -> Contest:
    return {
        OURS: lambda: sp.solve(costs, problem, tol=TOL, threads=1).matrix,
        "spadeful, two threads": lambda: sp.solve(costs, problem, tol=TOL, threads=2).matrix,
        "POT": lambda: ot.batch.solve_batch(costs, reg=problem.reg, tol=TOL, max_iter=100_000).plan,
    }, {"POT": 3}


def cases(quick: bool) -> dict[str, tuple[Cost, Problem]]:
    """Costs (m, m), or a batch of them, and what is asked."""
    costs = {m: draw("clouds2", m) for m in ([100] if quick else [100, 256, 500])}
    named: dict[str, tuple[Cost, Problem]] = {
        f"partial, m = {m}, reg = {share:g} max": (cost, sp.Partial(0.75, share * cost.max()))
        for m, cost in costs.items()
        for share in (0.01, 0.05)
    }
    for m, cost in costs.items():
        named[f"balanced, m = {m}, reg = 0.01 max"] = cost, sp.Balanced(0.01 * cost.max())
    for m, tau, reg in [(65, 0.5, 0.01)] if quick else [(65, 0.5, 0.01), (500, 1.0, 0.1)]:
        name = f"unbalanced, m = {m}, tau = {tau:g}, reg = {reg:g}"
        named[name] = 0.1 * draw("clouds2", m), sp.Unbalanced(tau, reg)
    named["unbalanced, m = 65, tau = 0.5, exact"] = 0.1 * draw("clouds2", 65), sp.Unbalanced(0.5)
    many = np.stack([draw("clouds2", 100, k) for k in range(8 if quick else 64)])
    named["batch of 64, balanced, m = 100, reg = 0.01 max"] = many, sp.Balanced(0.01 * many.max())
    return named


def contest(cost: Cost, problem: Problem) -> Contest:
    """The solvers of a problem, and how many times faster than each rival we want to be."""
    if cost.ndim == 3:
        return batch(cost, problem)
    if isinstance(problem, sp.Unbalanced) and problem.reg == 0:
        return exact_unbalanced(cost, problem)
    return {sp.Partial: partial, sp.Balanced: balanced, sp.Unbalanced: unbalanced}[type(problem)](cost, problem)


def measure(quick: bool) -> list[dict[str, Any]]:
    results = []
    for name, (cost, problem) in cases(quick).items():
        solvers, wanted = contest(cost, problem)
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


def options(description: str | None, file: str, *folders: str) -> argparse.Namespace:
    """What the command line asks; `target` is the file to write, `folders` are options for more of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes and short runs")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", metavar="DIR")
    parser.add_argument("--force", action="store_true", help="overwrite results that are there")
    for folder in folders:
        known = os.environ.get("SPADEFUL_DATA") if folder == "--data" else None
        parser.add_argument(folder, type=Path, metavar="DIR", default=known)
    asked = parser.parse_args()
    asked.target = asked.output / file
    if asked.target.exists() and not asked.force:
        parser.error(f"{asked.target} exists; pass --force to overwrite it")
    return asked


def save(results: dict[str, Any], target: Path) -> None:
    """Write under another name first, so that an interruption leaves no half file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    unfinished.replace(target)


def report(
    description: str | None,
    file: str,
    measure: Callable[[bool], dict[str, Any]],
    table: Callable[[dict[str, Any]], Table],
    *packages: str,
) -> None:
    """A whole script: measure what the command line asks, print a table and the goals, keep the results."""
    asked = options(description, file)
    results = measure(asked.quick)
    console = Console(width=120)
    console.print(table(results))
    console.print(tables.goals_table(results))
    save({"machine": run.machine(*packages), "quick": asked.quick, **results}, asked.target)


def main() -> None:
    asked = options(__doc__, "entropic.json")
    warnings.simplefilter("ignore")  # POT warns where it does not converge
    results = measure(asked.quick)
    Console(width=120).print(table(results))
    save({"machine": run.machine(), "cases": results}, asked.target)


if __name__ == "__main__":
    main()
