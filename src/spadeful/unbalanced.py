"""Exact unbalanced transport: total variation by the mass path, Kullback-Leibler by interior points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from spadeful import _core
from spadeful.arrays import Floats, own_kind, read_cost, read_weights, refuse_bad_entries
from spadeful.entropic import warn_of
from spadeful.exact import Weights
from spadeful.plan import Indices, Plan, Triplets, matrices
from spadeful.problems import Unbalanced
from spadeful.threads import check_threads

#: The certified gap, relative to the objective, that a Kullback-Leibler plan is brought to, and promised.
EXACT, PROMISED = 1e-10, 1e-7
#: How much of plan times slack a Newton step aims to keep, and how many steps there may be.
CENTRING, MAX_STEPS = 0.1, 200
#: The longest step of a potential, in the larger of the taus.
LONGEST = 3.0
#: Objectives below so much of a problem's size count as that much: the digits of a difference end there.
NOUGHT = 1e-7
#: Costs beyond so many taus carry nothing that counts.
FAR = 30.0


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
        answer = one_by_one(values, weights, problem.taus, kl_problem)
    elif low >= abs(problem.taus[0] - problem.taus[1]):
        answer = along_path(values, problem.taus, weights, check_threads(threads))
    else:
        answer = one_by_one(values, weights, problem.taus, by_pools)
    return Plan(own_kind(cost, values), answer)


def filled(weights: Floats | None, size: int) -> Floats:
    return np.full(size, 1 / size) if weights is None else weights


def sums_of(triplets: Triplets, k: int, m: int, n: int) -> tuple[Floats, Floats]:
    """Row and column sums (k, m), (k, n) of sparse plans."""
    problems, rows, columns, masses = triplets
    problems = np.zeros_like(rows) if problems is None else problems
    by_row = np.bincount(problems * m + rows, masses, k * m).reshape(k, m).astype(np.float64)
    return by_row, np.bincount(problems * n + columns, masses, k * n).reshape(k, n).astype(np.float64)


def along_path(cost: NDArray[Any], taus: tuple[float, float], weights: Weights, threads: int) -> UnbalancedAnswer:
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


Taus = tuple[float, float]
Solve = Callable[[Floats, Floats, Floats, Taus], tuple[Indices, Indices, Floats, float, float, Floats, Floats]]


def size_of(cost: NDArray[Any], taus: Taus) -> float:
    """What an objective is of the size of at most: of a unit that is moved, or left and made."""
    return min(float(abs(cost[np.isfinite(cost)]).max(initial=0)), sum(taus)) or sum(taus)


def one_by_one(cost: NDArray[Any], weights: Weights, taus: Taus, solve: Solve) -> UnbalancedAnswer:
    """Each problem of a batch by itself: (rows, columns, masses, extra, bound, f, g)."""
    *_, m, n = cost.shape
    a, b = filled(weights[0], m), filled(weights[1], n)
    batch = cost.reshape(-1, m, n)
    parts = [solve(c.astype(np.float64, copy=False), a, b, taus) for c in batch]
    rows, columns, masses, extra, bound, f, g = zip(*parts, strict=True)
    problems = np.repeat(np.arange(len(parts)), [len(r) for r in rows]) if cost.ndim == 3 else None
    triplets = (problems, np.concatenate(rows), np.concatenate(columns), np.concatenate(masses))
    objectives = np.array([c[i, j] @ p for c, i, j, p in zip(batch, rows, columns, masses, strict=True)]) + extra
    sizes = np.array([size_of(c, taus) for c in batch])
    certified = np.asarray(abs(objectives - bound) <= PROMISED * (abs(objectives) + NOUGHT * sizes))
    if not certified.all():
        warn_of(
            f"The certified gap is above {PROMISED:g} of the objective for {int((~certified).sum())} of {len(batch)} "
            "problems: their penalties tau and costs are of very different sizes. See plan.gap, or set reg > 0.",
            stacklevel=4,
        )
    return UnbalancedAnswer(triplets, np.array(extra), np.array(bound), np.stack(f), np.stack(g), certified)


def by_pools(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float]) -> Any:
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
    plan = coo_array((masses[kept], (rows[kept], columns[kept])), shape=(m, n))
    plan.sum_duplicates()
    rows, columns = (index.astype(np.int64) for index in plan.coords)
    extra = tau_a * abs(plan.sum(axis=1) - a).sum() + tau_b * abs(plan.sum(axis=0) - b).sum()
    price, beta = solved.prices[0], solved.column_prices[0]
    alpha = _core.certify(pools, solved.prices, solved.column_prices)[0]
    bound = 2 * (price - alpha @ np.append(a, 1.0) / 2 - beta @ np.append(b, 1.0) / 2)
    # Potentials are prices relative to the pools.
    f, g = alpha[m] - alpha[:m] + (price - alpha[m] - beta[n]), beta[n] - beta[:n]
    return rows, columns, plan.data, extra, bound, f, g


def exact_kl(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float]) -> tuple[Floats, Floats, Floats]:
    r"""Kullback-Leibler penalties, by a primal-dual interior-point method: a plan and potentials of rows and columns.

    The dual problem maximises :math:`-\tau_a \langle a, e^{-f/\tau_a} - 1\rangle - \tau_b \langle b, e^{-g/\tau_b} - 1
    \rangle` under :math:`f_i + g_j \le C_{ij}`. Its optimum has a plan with marginals :math:`a e^{-f/\tau_a}` and
    :math:`b e^{-g/\tau_b}` that is 0 wherever the slack :math:`C_{ij} - f_i - g_j` is not. Newton steps follow
    plan times slack = :math:`\mu` towards 0; the potentials stay feasible, so that the gap is certified at any time.
    """
    tau_a, tau_b = taus
    cost = np.asarray(cost, dtype=np.float64)
    if cost.min() < -500 * (tau_a + tau_b):
        raise ValueError(
            f"The smallest cost {cost.min()} is too far below -tau = {-max(taus)}: so much mass would come into being "
            "that it cannot be counted. Raise tau, or the cost."
        )
    unit = tau_a + tau_b  # the problem is the same in any unit of cost
    cost, tau_a, tau_b = cost / unit, tau_a / unit, tau_b / unit
    taus, size = (tau_a, tau_b), size_of(cost, (tau_a, tau_b))
    # A single pair would share its cost out in proportion to the taus.
    f = cost.min(axis=1) * (tau_a / (tau_a + tau_b)) - 0.1 * tau_a
    g = (cost - f[:, None]).min(axis=0) - 0.1 * tau_b
    slack = cost - f[:, None] - g
    plan = np.outer(a * np.exp(-f / tau_a), b) * (0.1 * (tau_a + tau_b) / slack)
    for _ in range(MAX_STEPS):
        with np.errstate(over="ignore"):
            dual = kl_dual(a, b, taus, f, g)
        if np.isfinite(dual) and kl_gap(cost, plan, a, b, taus, f, g) <= EXACT * (abs(dual) + 1e3 * NOUGHT * size):
            break
        some = plan > 0
        mu = CENTRING * (plan[some] @ slack[some]) / np.count_nonzero(some)
        weight, change = plan / slack, mu / slack - plan
        rows, columns = plan.sum(axis=1), plan.sum(axis=0)
        # The marginals' equations are linearised as logarithms, in which they are nearly straight. The plan is
        # eliminated, then the rows: what is left is a system for the columns.
        row_weight, column_weight = weight.sum(axis=1) + rows / tau_a, weight.sum(axis=0) + columns / tau_b
        right_rows = rows * (np.log(a / rows) - f / tau_a) - change.sum(axis=1)
        right_columns = columns * (np.log(b / columns) - g / tau_b) - change.sum(axis=0)
        system = np.diag(column_weight * (1 + 1e-14)) - weight.T @ (weight / row_weight[:, None])
        step_g = np.linalg.solve(system, right_columns - weight.T @ (right_rows / row_weight))
        step_f = (right_rows - weight @ step_g) / row_weight
        towards = step_f[:, None] + step_g
        step_plan = change + weight * towards
        # Short of where an entry or a slack would vanish. Slacks are carried along: formed anew they would lose
        # their digits as they become small.
        plan = plan + min(1.0, 0.99 * shortest(plan, step_plan)) * step_plan
        stride = max(abs(step_f).max(), abs(step_g).max()) / max(taus)
        length = min(1.0, 0.99 * shortest(slack, -towards), LONGEST / stride if stride > 0 else 1.0)
        f, g, slack = f + length * step_f, g + length * step_g, slack - length * towards
    return plan, unit * f, unit * g


def shortest(values: Floats, steps: Floats) -> float:
    """How far one can go before a positive value becomes 0."""
    falling = (steps < 0) & (values > 0) & np.isfinite(values)
    return float((values[falling] / -steps[falling]).min(initial=np.inf))


def divergence(x: Floats, y: Floats) -> float:
    """KL(x | y) with its masses, 0 log 0 = 0."""
    some = x > 0
    return float((x[some] * np.log(x[some] / y[some])).sum() - x.sum() + y.sum())


def kl_dual(a: Floats, b: Floats, taus: tuple[float, float], f: Floats, g: Floats) -> float:
    return float(-taus[0] * (a @ np.expm1(-f / taus[0])) - taus[1] * (b @ np.expm1(-g / taus[1])))


def kl_penalties(plan: Floats, a: Floats, b: Floats, taus: tuple[float, float]) -> float:
    return taus[0] * divergence(plan.sum(axis=1), a) + taus[1] * divergence(plan.sum(axis=0), b)


def kl_gap(cost: Floats, plan: Floats, a: Floats, b: Floats, taus: tuple[float, float], f: Floats, g: Floats) -> float:
    value = float((np.where(plan > 0, cost, 0.0) * plan).sum())
    return value + kl_penalties(plan, a, b, taus) - kl_dual(a, b, taus, f, g)


def kl_problem(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float]) -> Any:
    """One problem, for `one_by_one`.

    Where potentials add up to a cost of FAR taus, one of the marginals is below exp(-FAR) of its weight: such pairs
    are left out, and so are rows and columns without weight or with no other pairs.
    """
    near = np.where((cost <= FAR * sum(taus)) & (a > 0)[:, None] & (b > 0), cost, np.inf)
    rows, columns = np.isfinite(near).any(axis=1), np.isfinite(near).any(axis=0)
    whole = np.zeros(cost.shape)
    f, g = np.full(len(a), np.inf), np.full(len(b), np.inf)
    if rows.any() and columns.any():
        inner = near[rows][:, columns]
        whole[np.ix_(rows, columns)], f[rows], g[columns] = exact_kl(inner, a[rows], b[columns], taus)
    # Capped like this, potentials are feasible for the pairs left out as well, and lose next to nothing.
    f, g = np.minimum(f, FAR * taus[0]), np.minimum(g, FAR * taus[1])
    i, j = whole.nonzero()
    return i, j, whole[i, j], kl_penalties(whole, a, b, taus), kl_dual(a, b, taus, f, g), f, g
