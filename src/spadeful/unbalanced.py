"""Exact unbalanced transport: total variation by the mass path, Kullback-Leibler by its support."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from spadeful import _core
from spadeful.arrays import Floats, read_cost, read_weights, refuse_bad_entries
from spadeful.entropic import anneal
from spadeful.exact import Weights, check_threads
from spadeful.plan import Indices, Plan, Triplets, matrices
from spadeful.problems import Unbalanced

#: The certified gap, relative to the objective, at which a Kullback-Leibler plan counts as exact.
EXACT = 1e-9
#: The first regularisation that its support is looked for at, relative to the scale of the problem.
FIRST = 1e-4


@dataclass(eq=False)
class UnbalancedAnswer:
    """Sparse plans with potentials f and g of rows and columns; see `plan.Answer`."""

    triplets: Triplets
    extra: Floats
    bound: Floats
    row_potentials: Floats
    column_potentials: Floats

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
        return np.ones(len(self.bound), dtype=np.bool_)


def solve_unbalanced(cost: Any, problem: Unbalanced, a: Any = None, b: Any = None, threads: int | None = None) -> Plan:
    """The optimal plan without regularisation, for one cost (m, n) or each of a batch (k, m, n)."""
    values = read_cost(cost, (2, 3))
    refuse_bad_entries(values)
    weights = read_weights(a, "a", values.shape[-2]), read_weights(b, "b", values.shape[-1])
    low = values.min()
    if problem.divergence == "kl":
        answer = one_by_one(values, weights, lambda c, x, y: exact_kl(c, x, y, problem.taus))
    elif low >= abs(problem.taus[0] - problem.taus[1]):
        answer = along_path(values, problem.taus, weights, check_threads(threads))
    else:
        answer = one_by_one(values, weights, lambda c, x, y: by_pools(c, x, y, problem.taus))
    return Plan(cost if hasattr(cost, "ndim") else values, answer)


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
    return UnbalancedAnswer(solved.triplets, extra, f @ a + g @ b, f, g)


Solve = Callable[[Floats, Floats, Floats], tuple[Indices, Indices, Floats, float, float, Floats, Floats]]


def one_by_one(cost: NDArray[Any], weights: Weights, solve: Solve) -> UnbalancedAnswer:
    """Each problem of a batch by itself: (rows, columns, masses, extra, bound, f, g)."""
    *_, m, n = cost.shape
    a, b = filled(weights[0], m), filled(weights[1], n)
    parts = [solve(c.astype(np.float64, copy=False), a, b) for c in cost.reshape(-1, m, n)]
    rows, columns, masses, extra, bound, f, g = zip(*parts, strict=True)
    problems = np.repeat(np.arange(len(parts)), [len(r) for r in rows]) if cost.ndim == 3 else None
    triplets = (problems, np.concatenate(rows), np.concatenate(columns), np.concatenate(masses))
    return UnbalancedAnswer(triplets, np.array(extra), np.array(bound), np.stack(f), np.stack(g))


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


def exact_kl(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float]) -> Any:
    r"""Kullback-Leibler penalties, to a certified gap.

    At the optimum the marginals are :math:`R = a\,e^{-f/\tau_a}` and :math:`S = b\,e^{-g/\tau_b}`, and the plan is
    an exact transport between them. Potentials of a slightly regularised problem give marginals close enough to
    find its support. On each connected part of that, transport fixes the potentials up to one constant, which
    the balance of the part's mass gives in closed form. The gap is measured, and the regularisation lowered until
    it is small.
    """
    allowed_rows, allowed_columns = (
        np.isfinite(cost).any(axis=1) & (a > 0),
        np.isfinite(cost).any(axis=0) & (b > 0),
    )
    inner = cost[allowed_rows][:, allowed_columns]
    missed = taus[0] * a[~allowed_rows].sum() + taus[1] * b[~allowed_columns].sum()
    m, n = cost.shape
    f, g = np.full(m, np.inf), np.full(n, np.inf)
    if inner.size == 0:
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0), missed, missed, f, g
    best = None
    x, y = a[allowed_rows], b[allowed_columns]
    for attempt in range(6):
        guess = regularised(inner, x, y, taus, FIRST * 0.1**attempt)
        for _ in range(4):
            found = settle(inner, x, y, taus, *guess)
            if best is None or found.gap < best.gap:
                best = found
            if best.gap <= EXACT * (abs(best.bound) + 1e-300):
                break
            guess = found.f, found.g
        else:
            continue
        break
    assert best is not None
    f[allowed_rows], g[allowed_columns] = best.f, best.g
    rows, columns = np.flatnonzero(allowed_rows)[best.rows], np.flatnonzero(allowed_columns)[best.columns]
    return rows, columns, best.masses, best.extra + missed, best.bound + missed, f, g


@dataclass
class Settled:
    rows: Indices
    columns: Indices
    masses: Floats
    extra: float
    bound: float
    gap: float
    f: Floats
    g: Floats


def regularised(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float], share: float) -> tuple[Floats, Floats]:
    """Potentials at a regularisation of this share of the problem's scale."""
    finite = cost[np.isfinite(cost)]
    spread = float(finite.max() - finite.min())
    reg = share * max(min(spread, *taus), 1e-3 * max(spread, *taus))
    with np.errstate(all="ignore"):
        *_, at, _, _ = anneal(cost[None], Unbalanced(taus, reg), np.log(a)[None], np.log(b)[None], spread, 1e-9, 1000)
    return reg * at.rows[0], reg * at.columns[0]


def settle(cost: Floats, a: Floats, b: Floats, taus: tuple[float, float], f: Floats, g: Floats) -> Settled:
    """The plan and the potentials that go with the support of the exact transport between guessed marginals."""
    tau_a, tau_b = taus
    r, s = a * np.exp(-f / tau_a), b * np.exp(-g / tau_b)
    mass = np.sqrt(r.sum() * s.sum())
    solved = _core.solve(cost, 1.0, r / r.sum(), s / s.sum(), 1)
    _, rows, columns, masses = solved.triplets
    masses = mass * masses
    f = solved.prices[0] - _core.certify(cost, solved.prices, solved.column_prices)[0]
    g = -solved.column_prices[0]

    m, n = cost.shape
    solid = masses > 1e-9 * mass
    graph = coo_array((masses[solid], (rows[solid], m + columns[solid])), shape=(m + n, m + n))
    _, part = connected_components(graph, directed=False)
    count = part.max() + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        supply = np.log(np.bincount(part[:m], a * np.exp(-f / tau_a), count))
        demand = np.log(np.bincount(part[m:], b * np.exp(-g / tau_b), count))
        shift = np.nan_to_num((supply - demand) * (tau_a * tau_b / (tau_a + tau_b)), posinf=0.0, neginf=0.0)
    g = g - shift[part[m:]]
    # Feasible for every pair, and no worse anywhere: each row takes what the columns leave it, and back.
    f = (cost - g).min(axis=1)
    g = (cost - f[:, None]).min(axis=0)

    by_row, by_column = (sums[0] for sums in sums_of((None, rows, columns, masses), 1, m, n))
    extra = tau_a * divergence(by_row, a) + tau_b * divergence(by_column, b)
    value = (cost[rows, columns] * masses).sum()
    bound = -tau_a * (a @ np.expm1(-f / tau_a)) - tau_b * (b @ np.expm1(-g / tau_b))
    return Settled(rows, columns, masses, extra, float(bound), float(value + extra - bound), f, g)


def divergence(x: Floats, y: Floats) -> float:
    """KL(x | y) with its masses, 0 log 0 = 0."""
    some = x > 0
    return float((x[some] * np.log(x[some] / y[some])).sum() - x.sum() + y.sum())
