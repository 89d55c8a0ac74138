"""Entropic transport: what each problem asks of a sweep, and a plan that is feasible at the end."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, is_torch, own_kind, read_cost, read_weights, refuse_bad_entries, to_numpy
from spadeful.plan import Indices, Plan
from spadeful.problems import Partial, Problem, Unbalanced
from spadeful.sweeps import OVERFLOW, Array, Exponents, Potentials, Side, Steps, iterate
from spadeful.threads import check_threads

#: Regularisations above this share of the costs' spread are solved at once; smaller ones in steps of FACTOR.
EASY, FACTOR = 0.005, 4.0
#: The error that is good enough on the way.
LOOSE = 1e-2
#: The smallest regularisation that is told from none, as a share of the costs' spread.
SMALLEST = 1e-10
#: Below this a sum is nothing.
TINY_SUM = 1e-300
#: The error that is asked for where the last of it cannot be rounded away.
TIGHT = 1e-11


class NotConverged(UserWarning):
    """The marginal error that was asked for has not been reached."""


_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    """Without warnings of this kind, for whoever says it once of many problems. Python's filters are of all threads."""
    before = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(before)


def warn_of(message: str, stacklevel: int) -> None:
    """Say that something has not converged, unless someone else does."""
    if not _QUIET.get():
        warnings.warn(message, NotConverged, stacklevel=stacklevel + 1)


@dataclass(eq=False)
class EntropicAnswer:
    """Dense plans with their potentials' prices; see `plan.Answer`."""

    problem: Problem
    a: Array
    b: Array
    dense: Array
    bound: Array
    prices: Array
    row_prices: Array
    column_prices: Array
    errors: Floats
    sweeps: Indices
    converged: NDArray[np.bool_]
    triplets = None

    @cached_property
    def extra(self) -> Array:
        """Penalties and entropy."""
        with np.errstate(all="ignore"):
            return extra_of(self.problem, self.dense, self.a, self.b)


def on_device(cost: Any) -> bool:
    """Whether a cost stays where it is, or is solved in the processor's memory."""
    return is_torch(cost) and cost.device.type != "cpu"


def on_its_device(cost: Any) -> Any:
    """A cost (m, n) or (k, m, n) in double precision where it is; refused if it is none."""
    if cost.ndim not in (2, 3) or not cost.numel():
        raise ValueError(f"cost must have the shape (m, n) or (k, m, n). Got the shape {tuple(cost.shape)} instead.")
    if cost.is_complex():
        raise TypeError(f"cost must hold real numbers. Got the type {cost.dtype} instead.")
    return cost.detach().double()


def namespace(x: Any) -> Any:
    """numpy or torch, whose functions the loop calls."""
    return sys.modules["torch"] if is_torch(x) else np


def steps_of(problem: Problem, reg: float, log_a: Array, log_b: Array) -> Steps:
    """The steps of a problem at some regularisation."""
    if isinstance(problem, Unbalanced):
        tau_a, tau_b = (tau / reg for tau in problem.taus)
        make = kullback_leibler if problem.divergence == "kl" else total_variation
        return Steps(make(log_a, tau_a), make(log_b, tau_b))
    if isinstance(problem, Partial) and problem.mass < 1:
        return Steps(at_most(log_a), at_most(log_b), mass=problem.mass)
    return Steps(Side(log_a), Side(log_b), loose=True)


def at_most(log_weights: Array) -> Side:
    """The sums are at most the weights."""
    return Side(log_weights, high=0.0)


def kullback_leibler(log_weights: Array, tau: float) -> Side:
    """The sums pay tau times their divergence from the weights; tau in units of the regularisation."""
    return Side(log_weights, share=tau / (tau + 1), tau=tau)


def total_variation(log_weights: Array, tau: float) -> Side:
    """The sums pay tau times their distance from the weights; tau in units of the regularisation."""
    return Side(log_weights, low=-tau, high=tau)


def anneal(
    cost: Array, problem: Problem, log_a: Array, log_b: Array, spread: float, tol: float, max_iter: int, threads: int
) -> tuple[Exponents, Steps, Potentials, Indices, Floats]:
    """Potentials of a batch (k, m, n), a small regularisation approached through larger ones."""
    xp = namespace(cost)
    k, m, n = cost.shape
    of_product = getattr(problem, "entropy", "plain") == "kl"
    exponents = Exponents(xp, cost, max(problem.reg, EASY * spread), log_a, log_b, of_product, threads)
    now = Potentials(xp.zeros_like(cost[:, :, 0]), xp.zeros_like(cost[:, 0, :]), xp.zeros_like(cost[:, 0, 0]))
    if isinstance(problem, Partial) and problem.mass < 1:
        # First no entry above 1, and one that is 1; then the whole to its mass.
        now = replace(now, total=xp.amin(cost.reshape(k, m * n), axis=1) / exponents.reg)
        _, whole = exponents.plan_and_mass(now)
        now = replace(now, total=now.total + math.log(problem.mass) - xp.log(whole))
    sweeps = np.zeros(k, dtype=np.int64)
    while True:
        reg = exponents.reg
        steps = steps_of(problem, reg, log_a, log_b)
        last = reg <= problem.reg
        now, count, errors = iterate(exponents, now, steps, tol if last else LOOSE, max_iter)
        sweeps += count
        if last:
            return exponents, steps, now, sweeps, errors
        smaller = max(problem.reg, reg / FACTOR)
        now, exponents = now * (reg / smaller), replace(exponents, reg=smaller)


def rounded(xp: Any, plan: Array, a: Array, b: Array, mass: float, fill: bool, threads: int) -> Array:
    """The plan made feasible in place: rows at most a, columns at most b, and of that mass if any pair may be filled.

    Rows and columns that are too heavy are scaled down; what is then missing is added as a multiple of the
    product of what rows and columns have left. With s' the mass after scaling, row i gets (s - s') / (1 - s')
    of what it has left, which is at most all of it. For mass 1 this is the rounding of Altschuler et al. (2017).
    """
    if xp is np:
        _core.round_plans(plan, a[0], b[0], mass, fill, threads)
        return plan
    plan *= xp.clip(a / xp.clip(plan.sum(axis=2), TINY_SUM, None), None, 1.0)[:, :, None]
    plan *= xp.clip(b / xp.clip(plan.sum(axis=1), TINY_SUM, None), None, 1.0)[:, None, :]
    plan *= xp.clip(mass / plan.sum(axis=2).sum(axis=1), None, 1.0)[:, None, None]
    if not fill:
        return plan
    rows, columns = xp.clip(a - plan.sum(axis=2), 0.0, None), xp.clip(b - plan.sum(axis=1), 0.0, None)
    missing = xp.clip(mass - plan.sum(axis=2).sum(axis=1)[:, None], 0.0, None)
    left = xp.clip(rows.sum(axis=1)[:, None] * columns.sum(axis=1)[:, None], TINY_SUM, None)
    plan += (rows * (missing / left))[:, :, None] * columns[:, None, :]
    return plan


def penalty(xp: Any, problem: Problem, sums: Array, weights: Array, tau: float) -> Array:
    """What one marginal of an unbalanced plan pays."""
    if isinstance(problem, Unbalanced) and problem.divergence == "tv":
        return tau * abs(sums - weights).sum(axis=1)
    # Close to the weights the terms of the divergence cancel: there its series is exact.
    ratio = sums / xp.where(weights > 0, weights, xp.ones_like(weights))
    x = ratio - 1
    near = weights * x * x * (0.5 - x / 6)
    return tau * xp.where(abs(x) < 1e-4, near, xlogy(xp, sums, ratio) - sums + weights).sum(axis=1)


def xlogy(xp: Any, x: Array, y: Array) -> Array:
    """x log(y), 0 where x is 0."""
    none = x <= 0
    return xp.where(none, xp.zeros_like(x), x * xp.log(xp.where(none, xp.ones_like(y), y)))


def extra_of(problem: Problem, plan: Array, a: Array, b: Array) -> Array:
    """Penalties and entropy (k,)."""
    xp = namespace(plan)
    if getattr(problem, "entropy", "plain") == "kl":
        product = a[:, :, None] * b[:, None, :]
        entropy = (
            (xlogy(xp, plan, plan / xp.where(product > 0, product, xp.ones_like(product))) - plan + product)
            .sum(axis=2)
            .sum(axis=1)
        )
    else:
        entropy = (xlogy(xp, plan, plan) - plan).sum(axis=2).sum(axis=1)
    extra = problem.reg * entropy
    if isinstance(problem, Unbalanced):
        for axis, weights, tau in ((2, a, problem.taus[0]), (1, b, problem.taus[1])):
            extra = extra + penalty(xp, problem, plan.sum(axis=axis), weights, tau)
    return extra


def prices_of(problem: Problem, at: Potentials) -> tuple[Array, Array, Array]:
    """The potentials as prices of mass, rows and columns; see `Plan`."""
    xp = namespace(at.total)
    total, rows, columns = problem.reg * at.total, -problem.reg * at.rows, -problem.reg * at.columns
    if isinstance(problem, Unbalanced) or (isinstance(problem, Partial) and problem.mass < 1):
        return total, rows, columns
    low_rows, low_columns = xp.amin(rows, axis=1), xp.amin(columns, axis=1)
    return -(low_rows + low_columns), rows - low_rows[:, None], columns - low_columns[:, None]


def solve_batch(
    cost: Array,
    problem: Problem,
    a: Array,
    b: Array,
    spread: float,
    tol: float,
    max_iter: int,
    threads: int,
    forbids: bool = False,
) -> EntropicAnswer:
    """One batch (k, m, n) of positive weights a (1, m) and b (1, n)."""
    xp = namespace(cost)
    exact = not isinstance(problem, Unbalanced)
    with np.errstate(all="ignore"):  # infinities are looked for where they matter
        wanted = min(tol, TIGHT) if forbids and exact else tol
        log_a, log_b = xp.log(a), xp.log(b)
        exponents, steps, at, sweeps, errors = anneal(cost, problem, log_a, log_b, spread, wanted, max_iter, threads)
        plan, mass = exponents.plan_and_mass(at)
        errors = np.where(to_numpy(mass) < OVERFLOW, errors, np.inf)
        bound = problem.reg * steps.dual(xp, at, mass)
        if exponents.of_product:
            bound = bound + problem.reg * a.sum() * b.sum()
        if exact:
            wanted_mass = getattr(problem, "mass", 1.0)
            plan = rounded(xp, plan, a, b, wanted_mass, not forbids, threads)
            for i in np.flatnonzero(errors > tol) if forbids else ():
                # Far from converged, and not every pair may be filled: the exact plan is at least feasible.
                x, y = (np.ascontiguousarray(to_numpy(w)[0]) for w in (a, b))
                plan[i] = xp.asarray(_core.solve(to_numpy(cost[i]), wanted_mass, x, y, 1).dense[0])
    return EntropicAnswer(problem, a, b, plan, bound, *prices_of(problem, at), errors, sweeps, errors <= tol)


def joined(answers: list[EntropicAnswer]) -> EntropicAnswer:
    """The answers of parts of a batch as one."""
    first = answers[0]
    parts = {}
    for name in list(EntropicAnswer.__dataclass_fields__)[3:]:
        values = [getattr(answer, name) for answer in answers]
        parts[name] = namespace(values[0]).concatenate(values)
    return EntropicAnswer(first.problem, first.a, first.b, **parts)


def widened(answer: EntropicAnswer, rows: Array, columns: Array) -> EntropicAnswer:
    """An answer for some rows and columns as one for all: the others carry nothing, at the highest price."""
    xp = namespace(answer.dense)

    def spread_out(values: Array, axis: int, where: Array, fill: Any) -> Array:
        shape = list(values.shape)
        shape[axis] = len(where)
        wide = xp.zeros(shape, dtype=values.dtype, device=values.device) + fill
        wide[(slice(None),) * axis + (where,)] = values
        return wide

    answer.dense = spread_out(spread_out(answer.dense, 1, rows, 0.0), 2, columns, 0.0)
    for name, where in (("row_prices", rows), ("column_prices", columns)):
        values = getattr(answer, name)
        highest = xp.amax(values, axis=1)[:, None] if values.shape[1] else 0.0
        setattr(answer, name, spread_out(values, 1, where, highest))
    return answer


def solve_entropic(cost: Any, problem: Problem, a: Any, b: Any, tol: float, max_iter: int, threads: int | None) -> Plan:
    """The plan of a regularised problem, for one cost (m, n) or each of a batch (k, m, n)."""
    shown = cost if is_torch(cost) else own_kind(cost, np.asarray(cost))
    batch: Any = on_its_device(cost) if on_device(cost) else read_cost(cost, (2, 3))
    m, n = batch.shape[-2:]
    weights = read_weights(a, "a", m), read_weights(b, "b", n)
    low, high = float(batch.min()), float(batch.max())
    if not low > -np.inf:
        refuse_bad_entries(to_numpy(batch))
    forbids = not high < np.inf
    if forbids:
        finite = batch[namespace(batch).isfinite(batch)]
        high = float(finite.max()) if len(finite) else low
    spread = high - low if low < np.inf else 0.0
    if not isinstance(problem, Unbalanced) and forbids:
        # Forbidden pairs may leave no room for the mass: the exact solver says so, and for how much.
        room = np.where(np.isinf(to_numpy(batch)), np.inf, 0.0)
        _core.solve(room, getattr(problem, "mass", 1.0), *weights, check_threads(threads))

    a, b = (np.full(size, 1 / size) if w is None else w for w, size in zip(weights, (m, n), strict=True))
    if on_device(cost):
        a, b = (batch.new_tensor(w) for w in (a, b))
    else:
        batch = np.ascontiguousarray(batch, dtype=np.float64)
    batch, a, b = batch.reshape(-1, m, n), a[None], b[None]
    holes = forbids or not bool((a > 0).all() and (b > 0).all())
    if problem.reg < SMALLEST * spread:
        raise ValueError(
            f"reg must be at least {SMALLEST:g} of the costs' spread, {spread:g}. Got {problem.reg:g} instead; "
            "for the exact plan pass reg=0."
        )

    solver = solve_alive if holes else solve_batch
    answer = solver(batch, problem, a, b, spread, tol, max_iter, check_threads(threads))
    if not answer.converged.all():
        if isinstance(problem, Unbalanced) and not np.isfinite(to_numpy(answer.errors)).all():
            raise ValueError(
                f"The smallest cost {low:g} is too far below -tau = {-max(problem.taus):g}: so much mass would come "
                "into being that it cannot be counted. Raise tau, reg or the cost."
            )
        warn_of(
            f"The marginal error {tol:g} was not reached within {max_iter} sweeps for "
            f"{int((~answer.converged).sum())} of {len(batch)} problems; it is {answer.errors.max():.2g}. "
            "Raise max_iter, tol or reg.",
            stacklevel=3,
        )
    return Plan(shown, answer)


def nothing(problem: Problem, cost: Array) -> EntropicAnswer:
    """The answer where no pair is left."""
    zero = cost.sum(axis=2).sum(axis=1)
    rows, columns = cost.sum(axis=2), cost.sum(axis=1)
    converged = np.ones(1, dtype=np.bool_)
    return EntropicAnswer(
        problem, rows, columns, cost, zero, zero, rows, columns, np.zeros(1), np.zeros(1, dtype=np.int64), converged
    )


def solve_alive(
    cost: Array, problem: Problem, a: Array, b: Array, spread: float, tol: float, max_iter: int, threads: int
) -> EntropicAnswer:
    """Rows and columns without weight or without any allowed pair carry nothing: solve for the others."""
    xp = namespace(cost)
    allowed = xp.isfinite(cost)
    forbids = not bool(allowed.all())
    allowed = allowed & (a > 0)[:, :, None] & (b > 0)[:, None, :]
    rows, columns = allowed.any(axis=2), allowed.any(axis=1)
    if bool(rows.all()) and bool(columns.all()):
        return solve_batch(cost, problem, a, b, spread, tol, max_iter, threads, forbids)
    answers = []
    for i in range(len(cost)):
        inner = cost[i][rows[i]][:, columns[i]][None]
        if 0 in inner.shape:
            answer = nothing(problem, inner)
        else:
            answer = solve_batch(
                inner, problem, a[:, rows[i]], b[:, columns[i]], spread, tol, max_iter, threads, forbids
            )
        if isinstance(problem, Unbalanced):
            # Weights that nothing can reach still pay for being missed.
            missed = sum(
                t * w[:, ~kept].sum() for t, w, kept in zip(problem.taus, (a, b), (rows[i], columns[i]), strict=True)
            )
            if problem.entropy == "kl":
                missed = missed + problem.reg * (a.sum() * b.sum() - a[:, rows[i]].sum() * b[:, columns[i]].sum())
            answer.bound = answer.bound + missed
        answer.a, answer.b = a, b
        answers.append(widened(answer, rows[i], columns[i]))
    return joined(answers)
