"""Exact unbalanced transport: total variation by the mass path, Kullback-Leibler by interior points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, own_kind, read_cost, read_weights, refuse_bad_entries
from spadeful.entropic import warn_of
from spadeful.exact import Weights
from spadeful.plan import Indices, Plan, Triplets, matrices
from spadeful.problems import Unbalanced
from spadeful.threads import check_threads

Taus = tuple[float, float]

#: The certified gap that is promised, relative to the objective. Objectives below so much of a problem's size count as
#: that much: the digits of a difference end there.
PROMISED, NOUGHT = 1e-7, 1e-6
#: Costs so many taus below 0 would bring more mass into being than numbers can count.
LOWEST = -500.0


@dataclass(eq=False)
class UnbalancedAnswer:
    """Sparse plans with potentials f and g of rows and columns; see `plan.Answer`."""

    triplets: Triplets
    extra: Floats
    bound: Floats
    row_potentials: Floats
    column_potentials: Floats
    certified: NDArray[np.bool_]

    @property
    def dense(self) -> Floats:
        return matrices(self.triplets, (*self.row_potentials.shape, self.column_potentials.shape[1]))

    @property
    def prices(self) -> Floats:
        return np.zeros(len(self.bound))

    @property
    def row_prices(self) -> Floats:
        return -self.row_potentials

    @property
    def column_prices(self) -> Floats:
        return -self.column_potentials

    @property
    def errors(self) -> Floats:
        return np.zeros(len(self.bound))

    @property
    def sweeps(self) -> Indices:
        return np.zeros(len(self.bound), dtype=np.int64)

    @property
    def converged(self) -> NDArray[np.bool_]:
        return self.certified


def solve_unbalanced(cost: Any, problem: Unbalanced, a: Any = None, b: Any = None, threads: int | None = None) -> Plan:
    """The optimal plan without regularisation, for one cost (m, n) or each of a batch (k, m, n)."""
    values = read_cost(cost, (2, 3))
    refuse_bad_entries(values)
    weights = read_weights(a, "a", values.shape[-2]), read_weights(b, "b", values.shape[-1])
    low = values.min()
    if problem.divergence == "kl":
        answer = by_interior_points(values, problem.taus, weights, check_threads(threads))
    elif low >= abs(problem.taus[0] - problem.taus[1]):
        answer = along_path(values, problem.taus, weights, check_threads(threads))
    else:
        answer = one_by_one(values, problem.taus, weights)
    return Plan(own_kind(cost, values), answer)


def filled(weights: Floats | None, size: int) -> Floats:
    return np.full(size, 1 / size) if weights is None else weights


def sums_of(triplets: Triplets, k: int, m: int, n: int) -> tuple[Floats, Floats]:
    """Row and column sums (k, m), (k, n) of sparse plans."""
    problems, rows, columns, masses = triplets
    problems = np.zeros_like(rows) if problems is None else problems
    by_row = np.bincount(problems * m + rows, masses, k * m).reshape(k, m).astype(np.float64)
    return by_row, np.bincount(problems * n + columns, masses, k * n).reshape(k, n).astype(np.float64)


def along_path(cost: NDArray[Any], taus: Taus, weights: Weights, threads: int) -> UnbalancedAnswer:
    """Total variation where no weight is worth exceeding: the mass path, up to the price of leaving a pair."""
    *_, m, n = cost.shape
    batch = cost.reshape(-1, m, n)
    a, b = filled(weights[0], m), filled(weights[1], n)
    solved = _core.solve(cost, 1.0, *weights, threads, ceiling=sum(taus))
    by_row, by_column = sums_of(solved.triplets, len(batch), m, n)
    extra = taus[0] * (a - by_row).sum(axis=1) + taus[1] * (b - by_column).sum(axis=1)
    f = taus[0] - _core.certify(batch, solved.prices, solved.column_prices)
    g = (solved.prices - taus[0])[:, None] - solved.column_prices
    return UnbalancedAnswer(solved.triplets, extra, f @ a + g @ b, f, g, np.ones(len(batch), dtype=np.bool_))


def one_by_one(cost: NDArray[Any], taus: Taus, weights: Weights) -> UnbalancedAnswer:
    """Total variation in general, each problem of a batch by itself."""
    *_, m, n = cost.shape
    a, b = filled(weights[0], m), filled(weights[1], n)
    parts = [by_pools(c.astype(np.float64, copy=False), a, b, taus) for c in cost.reshape(-1, m, n)]
    rows, columns, masses, extra, bound, f, g = zip(*parts, strict=True)
    problems = np.repeat(np.arange(len(parts)), [len(r) for r in rows]) if cost.ndim == 3 else None
    triplets = (problems, np.concatenate(rows), np.concatenate(columns), np.concatenate(masses))
    certified = np.ones(len(parts), dtype=np.bool_)
    return UnbalancedAnswer(triplets, np.array(extra), np.array(bound), np.stack(f), np.stack(g), certified)


def by_pools(cost: Floats, a: Floats, b: Floats, taus: Taus) -> Any:
    """Total variation in general, as a balanced problem with a pool on each side.

    Mass left at row i goes to the pool of columns, for tau_a, or by way of the column that it may overfill for
    tau_b, whichever is cheaper; the pool of rows likewise serves columns. From pool to pool is free.
    """
    tau_a, tau_b = taus
    if cost.min() < -(tau_a + tau_b):
        raise ValueError(
            f"The smallest cost {cost.min()} pays more than moving mass into being costs, {tau_a + tau_b} a unit: "
            "the problem has no optimum. Raise tau, or the cost."
        )
    m, n = cost.shape
    over_columns, over_rows = cost.min(axis=1) + tau_b, cost.min(axis=0) + tau_a
    pools = np.zeros((m + 1, n + 1))
    pools[:m, :n] = cost
    pools[:m, n], pools[m, :n] = np.minimum(tau_a, over_columns), np.minimum(tau_b, over_rows)
    solved = _core.solve(pools, 1.0, np.append(a, 1.0) / 2, np.append(b, 1.0) / 2, 1)
    _, rows, columns, masses = solved.triplets
    masses = 2 * masses
    # What went through a pool by overfilling is mass of the plan; what was left there is not.
    overfull = (columns == n) & (rows < m) & (over_columns[np.minimum(rows, m - 1)] < tau_a)
    overdrawn = (rows == m) & (columns < n) & (over_rows[np.minimum(columns, n - 1)] < tau_b)
    columns = np.where(overfull, cost.argmin(axis=1)[np.minimum(rows, m - 1)], columns)
    rows = np.where(overdrawn, cost.argmin(axis=0)[np.minimum(columns, n - 1)], rows)
    kept = (rows < m) & (columns < n)
    plan = scipy.sparse.coo_array((masses[kept], (rows[kept], columns[kept])), shape=(m, n))
    plan.sum_duplicates()
    rows, columns = (index.astype(np.int64) for index in plan.coords)
    extra = tau_a * abs(plan.sum(axis=1) - a).sum() + tau_b * abs(plan.sum(axis=0) - b).sum()
    price, beta = solved.prices[0], solved.column_prices[0]
    alpha = _core.certify(pools, solved.prices, solved.column_prices)[0]
    bound = 2 * (price - alpha @ np.append(a, 1.0) / 2 - beta @ np.append(b, 1.0) / 2)
    # Potentials are prices relative to the pools.
    f, g = alpha[m] - alpha[:m] + (price - alpha[m] - beta[n]), beta[n] - beta[:n]
    return rows, columns, plan.data, extra, bound, f, g


def by_interior_points(cost: NDArray[Any], taus: Taus, weights: Weights, threads: int) -> UnbalancedAnswer:
    """Kullback-Leibler penalties; see `core/interior.hpp`."""
    *_, m, n = cost.shape
    a, b = filled(weights[0], m), filled(weights[1], n)
    counts = np.isfinite(cost) & (a > 0)[:, None] & (b > 0)
    low = float(cost.min(initial=np.inf, where=counts))
    beyond = (
        f"The smallest cost {low} is too far below -tau = {-max(taus)}: so much mass would come into being "
        "that it cannot be counted. Raise tau, or the cost."
    )
    if low < LOWEST * sum(taus):
        raise ValueError(beyond)
    triplets, f, g = _core.solve_unbalanced(cost, a, b, *taus, threads)
    by_row, by_column = sums_of(triplets, len(f), m, n)
    with np.errstate(all="ignore"):
        extra = taus[0] * divergence(by_row, a) + taus[1] * divergence(by_column, b)
        bound = kl_dual(f, a, taus[0]) + kl_dual(g, b, taus[1])
        answer = UnbalancedAnswer(triplets, extra, bound, f, g, np.ones(len(f), dtype=np.bool_))
        values = Plan(cost, answer).value + extra
    if not (np.isfinite(values) & np.isfinite(bound)).all():
        raise ValueError(beyond)
    largest = abs(cost).max(axis=(-2, -1), initial=0, where=counts)
    sizes = np.where(
        largest > 0, np.minimum(largest, sum(taus)), sum(taus)
    )  # of a unit that is moved, or left and made
    answer.certified = abs(values - bound) <= PROMISED * (abs(values) + NOUGHT * sizes)
    if failed := np.count_nonzero(~answer.certified):
        warn_of(
            f"The certified gap is above {PROMISED:g} of the objective for {failed} of {len(f)} "
            "problems: their penalties tau and costs are of very different sizes. See plan.gap, or set reg > 0.",
            stacklevel=3,
        )
    return answer


def divergence(x: Floats, y: Floats) -> Floats:
    """KL(x | y) with its masses, in the last axis, over all with a y."""
    x, y = x[..., y > 0], y[y > 0]
    times, beyond = x / y, (x - y) / y
    logs = np.where(abs(beyond) < 0.5, np.log1p(np.maximum(beyond, -0.5)), np.log(np.where(times > 0, times, 1.0)))
    return np.asarray((times * logs - beyond) @ y)  # keeps its digits where x is nearly y


def kl_dual(potentials: Floats, weights: Floats, tau: float) -> Floats:
    """What one side adds to the dual objective."""
    some = weights > 0
    return np.asarray(-tau * (np.expm1(-potentials[:, some] / tau) @ weights[some]))
