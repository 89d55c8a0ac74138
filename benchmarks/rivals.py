"""Every solver under measurement as a small callable: cost and mass in, plan out, on one thread.

A plan is a dense array where the solver makes one, and (rows, columns) or (rows, columns, masses) otherwise.
Ours comes in both forms, so that it is never spared work that its rival does.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import lap
import numpy as np
import ot
from scipy.optimize import linear_sum_assignment

import spadeful as sp
from costs import Cost
from measure import thread_clock

Solver = Callable[[Cost, float], Any]

OURS = "spadeful"
POT_PARTIAL = "POT partial_wasserstein"

#: POT stops silently short of the optimum at its default of 1e5 on the larger problems.
ITERATIONS = 10**7


#: A problem is written down once, and solved for many costs.
problem = cache(sp.Partial)


def ours_dense(cost: Cost, mass: float) -> Any:
    return sp.solve(cost, problem(mass), threads=1).matrix


def ours_sparse(cost: Cost, mass: float) -> Any:
    return sp.solve(cost, problem(mass), threads=1).triplets


def pot_partial(cost: Cost, mass: float) -> Any:
    weights = np.full(len(cost), 1 / len(cost))
    return ot.partial.partial_wasserstein(weights, weights, cost, m=mass, numItermax=ITERATIONS)


def pot_emd(cost: Cost, mass: float) -> Any:
    weights = np.full(len(cost), 1 / len(cost))
    return ot.emd(weights, weights, cost, numItermax=ITERATIONS)


def augmented(assign: Callable[[Cost], Any]) -> Solver:
    """Partial transport from an assignment solver.

    With n - k spare rows and columns that match any real partner for nothing and never each other, a perfect
    matching pairs k real rows. A mass between two whole numbers of pairs is the mean of their matchings.
    """

    def pairs(cost: Cost, k: int) -> tuple[Any, Any]:
        n = len(cost)
        extended = np.zeros((2 * n - k, 2 * n - k))
        extended[:n, :n] = cost
        extended[n:, n:] = np.inf
        rows, columns = assign(extended)
        real = (rows < n) & (columns < n)
        return rows[real], columns[real]

    def solve(cost: Cost, mass: float) -> Any:
        n = len(cost)
        points = round(mass * n, 9)
        whole = math.floor(points)
        parts = [(whole, whole + 1 - points), (whole + 1, points - whole)]
        found = [(*pairs(cost, k), part / n) for k, part in parts if part > 0 and k > 0]
        rows, columns, masses = zip(*found, strict=True)
        each = np.repeat(masses, [len(r) for r in rows])
        return np.concatenate(rows), np.concatenate(columns), each

    return solve


def from_mapping(columns: Any) -> tuple[Any, Any]:
    return np.arange(len(columns)), columns


LAPX: dict[str, Callable[[Cost], Any]] = {
    "lapx lapjv": lambda cost: from_mapping(lap.lapjv(cost, return_cost=False)[0]),
    "lapx lapjvx": lambda cost: lap.lapjvx(cost, return_cost=False),
    "lapx lapjvc": lambda cost: lap.lapjvc(cost, return_cost=False),
    # Its default rounds the costs to float32, and the optimum with them.
    "lapx lapjvs": lambda cost: lap.lapjvs(cost, return_cost=False, prefer_float32=False),
    "lapx lapjvh": lambda cost: lap.lapjvh(cost, return_cost=False),
    "lapx lapjvr": lambda cost: lap.lapjvr(cost, return_cost=False),
}


def full(assign: Callable[[Cost], Any]) -> Solver:
    return lambda cost, mass: assign(cost)


def contestants(mass: float) -> dict[str, Solver]:
    """The solvers of a mass by name, ours first and in the form of the rivals that it has to beat."""
    if mass < 1:
        return {
            OURS: ours_dense,
            POT_PARTIAL: pot_partial,
            "SciPy linear_sum_assignment, augmented": augmented(linear_sum_assignment),
            "lapx lapjvh, augmented": augmented(LAPX["lapx lapjvh"]),
        }
    assignments = {"SciPy linear_sum_assignment": linear_sum_assignment, **LAPX}
    return {OURS: ours_sparse, "POT emd": pot_emd, **{name: full(f) for name, f in assignments.items()}}


def to_dense(answer: Any, m: int) -> Cost:
    if isinstance(answer, np.ndarray):
        return answer
    rows, columns, *masses = answer
    plan = np.zeros((m, m))
    np.add.at(plan, (rows, columns), masses[0] if masses else 1 / m)
    return plan


def differ(x: float, value: float, scale: float = 1.0) -> bool:
    """Whether two values of a problem are not the same; the scale of its costs is for optima of zero."""
    return abs(x - value) > 1e-9 * abs(value) + 1e-14 * scale


def fault(cost: Cost, mass: float, answer: Any, value: float) -> str | None:
    """What is wrong with an answer to a problem whose optimal value is known, if anything is."""
    m = len(cost)
    plan = to_dense(answer, m)
    if not np.isfinite(plan).all() or plan.min() < -1e-12:
        return "a plan with negative or non-finite entries"
    if max(plan.sum(axis=0).max(), plan.sum(axis=1).max()) > (1 + 1e-9) / m:
        return "a plan that moves more than a point holds"
    if abs(plan.sum() - mass) > 1e-9:
        return f"a mass of {plan.sum():.9g}"
    found = float((plan * cost).sum())
    if differ(found, value, cost.max()):
        return f"a value off by {(found - value) / (abs(value) or 1):.1e}"
    return None


def attempt(solver: Solver, cost: Cost, mass: float) -> tuple[Any, str | None]:
    """The answer of a solver, or how it failed: some raise, some only warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return solver(cost, mass), None
        except (Warning, ValueError, RuntimeError, MemoryError) as error:
            message = str(error).strip().splitlines()
            return None, f"{type(error).__name__}: {message[0] if message else 'no message'}"


def examine(solver: Solver, costs: list[Cost], values: list[float], mass: float) -> tuple[float, str | None]:
    """Solve each problem once: how long that took, and what went wrong, if anything did."""
    seconds = 0.0
    for cost, value in zip(costs, values, strict=True):
        start = thread_clock()
        answer, note = attempt(solver, cost, mass)
        seconds += thread_clock() - start
        note = note or fault(cost, mass, answer, value)
        if note:
            return seconds, note
    return seconds, None
