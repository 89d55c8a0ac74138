"""Measure the entropic solvers against GeomLoss and OTT-JAX: prints a table, writes others.json.

All answer the same problems with a dense plan, in float64, on one thread of one process. Whoever takes a tolerance
is asked for the marginal error 1e-6; GeomLoss takes none, but a schedule of falling regularisations. So each time
stands beside the errors of the plan it was spent on. `make rivals` sets up what is needed, and runs it.
"""

from __future__ import annotations

import os

# Before NumPy, torch and JAX are imported: one thread each. NPROC is what XLA sizes its pool by; its flags do not.
os.environ |= dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"], "1")
# The other benchmarks need POT, which would load both to ask them about every array.
os.environ |= dict.fromkeys(["POT_BACKEND_DISABLE_PYTORCH", "POT_BACKEND_DISABLE_JAX"], "1")

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from geomloss import SamplesLoss
from ott.geometry.geometry import Geometry
from ott.problems.linear.linear_problem import LinearProblem
from ott.solvers.linear.sinkhorn import Sinkhorn
from rich.console import Console
from rich.table import Table

import entropic
import run
import spadeful as sp
from costs import Cost
from entropic import OURS, TOL, Problem
from measure import race, thread_clock

#: The optimal plan is one whose marginals are right to this.
OPTIMAL = 1e-12
#: Who was asked for TOL and returns a plan farther than this from the optimal one solves another problem.
SAME = 1e-4
#: The same for the finer schedule of GeomLoss: the plans of the two entropies are farther apart.
SAME_ANNEALED = 0.05

NO_MASS = "no transport of a prescribed mass"
PLAIN_ONLY = "plain entropy only: the case above"
PRODUCT_ONLY = "entropy to a b^T only: the case below"


class Contestant(NamedTuple):
    """A solver of one problem: what to call for its plan, and how far from the optimal plan that may be."""

    solve: Callable[[], Any]
    within: float = SAME


def ours(cost: Cost, problem: Problem) -> dict[str, Contestant]:
    return {OURS: Contestant(lambda: sp.solve(cost, problem, tol=TOL, threads=1).matrix)}


def sinkhorn(cost: Cost, problem: Problem, tol: float, **options: Any) -> Callable[[], Any]:
    """The plan and whether it converged, by OTT-JAX's Sinkhorn iterations; their entropy is plain."""
    tau = problem.tau / (problem.tau + problem.reg) if isinstance(problem, sp.Unbalanced) else 1.0
    solver = Sinkhorn(threshold=tol, max_iterations=100_000, **options)

    def solve(c: Any) -> Any:
        out = solver(LinearProblem(Geometry(c, epsilon=problem.reg), tau_a=tau, tau_b=tau))
        return out.matrix, out.converged

    compiled, array = jax.jit(jax.vmap(solve) if cost.ndim == 3 else solve), jnp.asarray(cost)
    return lambda: jax.block_until_ready(compiled(array))


def ott_jax(cost: Cost, problem: Problem) -> dict[str, Contestant]:
    named = {"OTT-JAX": {}}
    if isinstance(problem, sp.Unbalanced):
        named["OTT-JAX, recentred"] = {"recenter_potentials": True}
    runs = {name: sinkhorn(cost, problem, TOL, **options) for name, options in named.items()}
    return {name: Contestant(lambda f=f: f()[0]) for name, f in runs.items()}


def geomloss(cost: Cost, problem: Problem) -> dict[str, Contestant]:
    """Symmetric Sinkhorn iterations, one at each regularisation of a schedule that ends at the one asked for.

    Lengths are the square roots of costs here: blur of the regularisation, reach of tau, diameter of the largest
    cost. The points are only names, for the costs are known.
    """
    reg = problem.reg
    costs = torch.from_numpy(cost.reshape(-1, *cost.shape[-2:]))
    count, m, n = costs.shape
    turned = costs.transpose(1, 2).contiguous()
    x, y = torch.zeros(count, m, 1, dtype=costs.dtype), torch.zeros(count, n, 1, dtype=costs.dtype)
    a, b = torch.full((count, m), 1 / m, dtype=costs.dtype), torch.full((count, n), 1 / n, dtype=costs.dtype)

    def contestant(scaling: float, within: float) -> Contestant:
        loss = SamplesLoss(
            "sinkhorn",
            p=2,
            blur=math.sqrt(reg),
            reach=math.sqrt(problem.tau) if isinstance(problem, sp.Unbalanced) else None,
            diameter=math.sqrt(cost.max()),
            scaling=scaling,
            cost=lambda rows, columns: costs if rows is x else turned,
            debias=False,
            potentials=True,
            backend="tensorized",
        )

        @torch.no_grad()
        def plan() -> Any:
            f, g = loss(a, x, b, y)
            density = torch.exp((f[:, :, None] + g[:, None, :] - costs) / reg)
            return (a[:, :, None] * b[:, None, :] * density).reshape(cost.shape)

        return Contestant(plan, within)

    return {
        "GeomLoss": contestant(0.5, math.inf),
        "GeomLoss, scaling 0.99": contestant(0.99, SAME_ANNEALED),
    }


def contest(cost: Cost, problem: Problem) -> tuple[dict[str, Contestant], dict[str, str]]:
    """The solvers of a problem, and why a library is not among them."""
    if isinstance(problem, sp.Partial):
        return ours(cost, problem), {"OTT-JAX": NO_MASS, "GeomLoss": NO_MASS}
    if isinstance(problem, sp.Unbalanced) and problem.entropy == "plain":
        return ours(cost, problem) | ott_jax(cost, problem), {"GeomLoss": PRODUCT_ONLY}
    if isinstance(problem, sp.Unbalanced):
        return ours(cost, problem) | geomloss(cost, problem), {"OTT-JAX": PLAIN_ONLY}
    return ours(cost, problem) | ott_jax(cost, problem) | geomloss(cost, problem), {}


def cases(quick: bool) -> dict[str, tuple[Cost, Problem]]:
    """Those measured against POT; unbalanced ones with each of the two entropies."""
    named: dict[str, tuple[Cost, Problem]] = {}
    for name, (cost, problem) in entropic.cases(quick).items():
        named[name] = cost, problem
        if isinstance(problem, sp.Unbalanced):
            named[f"{name}, entropy to a b^T"] = cost, replace(problem, entropy="kl")
    return named


def optimum(cost: Cost, problem: Problem) -> Cost:
    """The plan to compare with: not by our solver, but where only ours can tell."""
    if isinstance(problem, sp.Partial):
        return sp.solve(cost, problem, tol=OPTIMAL, max_iter=100_000, threads=1).matrix
    if getattr(problem, "entropy", "plain") == "kl":
        # For equal weights 1/m, an entropy relative to their product is a plain one at costs that are higher.
        cost = cost + 2 * problem.reg * math.log(cost.shape[-1])
    plan, converged = sinkhorn(cost, problem, OPTIMAL)()
    if not np.all(converged):
        raise RuntimeError(f"OTT-JAX did not reach a marginal error of {OPTIMAL:g} for {problem}.")
    return np.asarray(plan)


def errors(plan: Any, optimal: Cost) -> dict[str, float]:
    """How far marginals and plan are from the optimal ones, as shares of the mass; of a batch the worst."""
    off, mass = np.asarray(plan) - optimal, optimal.sum(axis=(-2, -1))
    sides = [np.abs(off.sum(axis=axis)).sum(axis=-1) for axis in (-1, -2)]
    return {
        "marginal": float(np.max(np.maximum(*sides) / mass)),
        "plan": float(np.max(np.abs(off).sum(axis=(-2, -1)) / mass)),
    }


def measure_case(name: str, cost: Cost, problem: Problem, seconds: float) -> dict[str, Any]:
    contestants, notes = contest(cost, problem)
    optimal = optimum(cost, problem)
    reached, first = {}, {}
    for who, contestant in contestants.items():
        start = time.perf_counter()
        plan = contestant.solve()
        first[who] = time.perf_counter() - start
        reached[who] = errors(plan, optimal)
        if not reached[who]["plan"] <= contestant.within:
            notes[who] = f"a plan that is off by {reached[who]['plan']:.1e}"
    times = race({who: c.solve for who, c in contestants.items() if who not in notes}, seconds, clock=thread_clock)
    ratios = {who: spent / times[OURS] for who, spent in times.items() if who != OURS and OURS in times}
    return {"case": name, "seconds": times, "ratios": ratios, "errors": reached, "first_call": first, "notes": notes}


def table(results: list[dict[str, Any]]) -> Table:
    shown = Table("case", "solver", title="Entropic transport: spadeful, OTT-JAX and GeomLoss")
    for heading in ("ms", "over ours", "marginals off", "plan off"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for r in results:
        shown.add_section()
        rows = [
            (
                who,
                f"{1000 * spent:.2f}",
                f"{r['ratios'][who]:.2f}" if who in r["ratios"] else "",
                *(f"{r['errors'][who][kind]:.0e}" for kind in ("marginal", "plan")),
            )
            for who, spent in r["seconds"].items()
        ]
        rows += [(f"{who}: {note}",) for who, note in r["notes"].items()]
        for i, row in enumerate(rows):
            shown.add_row("" if i else r["case"], *row)
    shown.caption = (
        f"Asked for a marginal error of {TOL:g}, but for GeomLoss, which cannot be asked (scaling 0.5 is its default). "
        "Off: the distance from the optimal marginals and plan, as a share of the mass; balanced plans of spadeful "
        "are rounded to their marginals. Processor time, one thread, without compilation."
    )
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "others.json")
    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    warnings.simplefilter("error", sp.NotConverged)
    seconds = 0.05 if asked.quick else 0.5
    results = [measure_case(name, *case, seconds) for name, case in cases(asked.quick).items()]
    Console(width=140).print(table(results))
    versions = run.machine("geomloss", "jax", "ott-jax", "torch")
    entropic.save({"machine": versions, "cases": results}, asked.target)


if __name__ == "__main__":
    main()
