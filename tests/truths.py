"""What the solvers are held to: a checker, independent solvers, closed forms; and generators of problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import xlogy


def uniform(size):
    return np.full(size, 1 / size)


def check_plan(plan, cost, mass, a=None, b=None, unit=1.0):
    """Feasible, and proved optimal by its own prices: all of it worked out again from the definitions.

    `unit` is the size that costs have: the gap must be below 1e-9 of it and of the value.
    """
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    cost = np.asarray(cost, dtype=np.float64)
    rows, cols, masses = plan.triplets
    matrix = np.zeros(cost.shape)
    np.add.at(matrix, (rows, cols), masses)
    assert plan.matrix.shape == cost.shape
    np.testing.assert_allclose(plan.matrix, matrix, rtol=np.finfo(plan.matrix.dtype).eps, atol=0)
    assert (masses > 0).all()
    assert len(set(zip(rows, cols, strict=True))) == len(rows)

    assert abs(matrix.sum() - mass) <= 1e-12
    assert (matrix.sum(1) <= a + 1e-12).all()
    assert (matrix.sum(0) <= b + 1e-12).all()
    assert np.isfinite(cost[rows, cols]).all()

    value = (cost[rows, cols] * masses).sum()
    tolerance = 1e-9 * (unit + abs(value))
    assert np.isfinite(plan.value)
    assert abs(plan.value - value) <= tolerance
    assert abs(plan.mass - mass) <= 1e-12
    assert plan.converged

    alpha, beta, price = plan.row_prices, plan.col_prices, plan.price
    assert (alpha >= 0).all()
    assert (beta >= 0).all()
    violation = max(0.0, (price - alpha[:, None] - beta - cost).max())
    dual = price * mass - a @ alpha - b @ beta
    assert violation <= tolerance
    assert abs(value - dual) <= tolerance
    assert abs(plan.gap - (value - dual)) <= tolerance


def linear_program(cost, mass, a=None, b=None):
    """The optimal value, by HiGHS; None if the mass cannot be moved."""
    return _highs(cost, a, b, objective=cost, mass=mass)


def largest_mass(cost, a=None, b=None):
    """The largest mass that the allowed pairs can carry, by HiGHS."""
    return -_highs(cost, a, b, objective=-np.ones(cost.shape))


def _highs(cost, a, b, objective, mass=None):
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    m, n = cost.shape
    rows, cols = np.nonzero(np.isfinite(cost))
    a, b = uniform(m) if a is None else a, uniform(n) if b is None else b
    if not len(rows):
        return None if mass else 0.0
    pairs = np.arange(len(rows))
    ones = np.ones(2 * len(rows))
    incidence = coo_array((ones, (np.r_[rows, m + cols], np.r_[pairs, pairs])), shape=(m + n, len(rows)))
    total = {} if mass is None else {"A_eq": np.ones((1, len(rows))), "b_eq": [mass]}
    answer = linprog(
        objective[rows, cols],
        A_ub=incidence.tocsr(),
        b_ub=np.r_[a, b],
        **total,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status in (0, 2), answer.message
    return answer.fun if answer.status == 0 else None


def separate_pairs(gaps, seed=0):
    """Points on a line, each with one partner near and all others far: partial transport has a closed form.

    Returns the cost (distances), and the value of every mass k/n: the k smallest gaps over n.
    """
    rng = np.random.default_rng(seed)
    n = len(gaps)
    x = 100.0 * max(gaps, default=1.0) * rng.permutation(n)
    cost = np.abs(x[:, None] - (x + gaps)[rng.permutation(n)])
    return cost, np.r_[0.0, np.cumsum(np.sort(gaps))] / n


def quantile_distance(x, y, a, b, power):
    """Balanced transport on a line, with cost abs(x - y)**power for power >= 1: quantile goes to quantile."""
    order_x, order_y = np.argsort(x), np.argsort(y)
    up_x, up_y = np.cumsum(a[order_x]), np.cumsum(b[order_y])
    levels = np.sort(np.r_[0.0, up_x[:-1], up_y[:-1], 1.0])
    middle = (levels[1:] + levels[:-1]) / 2
    at_x = x[order_x][np.searchsorted(up_x[:-1], middle)]
    at_y = y[order_y][np.searchsorted(up_y[:-1], middle)]
    return (np.diff(levels) * np.abs(at_x - at_y) ** power).sum()


def clouds(m, n, dimension=2, seed=0):
    """Squared distances between two Gaussian clouds: what users have."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(m, dimension)), rng.normal(size=(n, dimension)) + 0.5
    return ((x[:, None] - y) ** 2).sum(-1)


def objective_of(matrix, cost, problem, a=None, b=None):
    """What a regularised or unbalanced problem minimises, term by term from its definition."""
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    matrix = np.asarray(matrix, dtype=np.float64)
    total = (cost[matrix > 0] * matrix[matrix > 0]).sum()
    if getattr(problem, "entropy", "plain") == "kl":
        total += problem.reg * kl_divergence(matrix, np.outer(a, b))
    else:
        total += problem.reg * (xlogy(matrix, matrix) - matrix).sum()
    if hasattr(problem, "taus"):
        distance = kl_divergence if problem.divergence == "kl" else lambda x, y: np.abs(x - y).sum()
        total += problem.taus[0] * distance(matrix.sum(1), a) + problem.taus[1] * distance(matrix.sum(0), b)
    return total


def kl_divergence(x, y):
    return (xlogy(x, x) - xlogy(x, y) - x + y).sum()


def bound_of(plan, cost, problem, a=None, b=None):
    """The dual objective of a plan's prices: no plan costs less. Points without weight or partner are left out."""
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    rows, cols = np.isfinite(cost).any(1) & (a > 0), np.isfinite(cost).any(0) & (b > 0)
    x, y = a[rows], b[cols]
    alpha, beta = np.asarray(plan.row_prices)[rows], np.asarray(plan.col_prices)[cols]
    logs = (plan.price - alpha[:, None] - beta - cost[rows][:, cols]) / problem.reg
    of_product = getattr(problem, "entropy", "plain") == "kl"
    mass = (np.exp(logs) * (np.outer(x, y) if of_product else 1.0)).sum()
    bound = problem.reg * (of_product - mass)
    if not hasattr(problem, "taus"):
        return bound + plan.price * getattr(problem, "mass", 1.0) - x @ alpha - y @ beta
    for weights, kept, prices, tau in ((a, rows, alpha, problem.taus[0]), (b, cols, beta, problem.taus[1])):
        if problem.divergence == "kl":
            bound -= tau * (weights[kept] @ np.expm1(prices / tau))
        else:
            assert (np.abs(prices) <= tau * (1 + 1e-12)).all()
            bound -= weights[kept] @ prices
        bound += tau * weights[~kept].sum()
    return bound


def check_entropic(plan, cost, problem, a=None, b=None, tol=1e-6):
    """Feasible, and proved optimal up to the tolerance by its own prices: all worked out from the definitions."""
    cost = np.asarray(cost, dtype=np.float64)
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    matrix, half = np.asarray(plan.matrix, dtype=np.float64), float(np.finfo(plan.matrix.dtype).eps)
    assert plan.converged
    assert plan.marginal_error <= tol
    assert (matrix >= 0).all()
    assert (matrix[np.isinf(cost)] == 0).all()
    check_feasible(matrix, problem, a, b, slack=1e-9 + half)
    assert plan.mass == pytest.approx(matrix.sum(), abs=(1e-12 + half) * max(1.0, matrix.sum()))
    terms = np.abs(cost[matrix > 0]) @ matrix[matrix > 0]
    assert plan.value == pytest.approx((cost[matrix > 0] * matrix[matrix > 0]).sum(), abs=(1e-12 + half) * terms)
    unit = terms + problem.reg * (1 + np.log(matrix.size)) * max(1.0, matrix.sum()) + sum(getattr(problem, "taus", ()))
    assert plan.objective == pytest.approx(objective_of(matrix, cost, problem, a, b), abs=(1e-11 + 9 * half) * unit)
    gap = plan.objective - bound_of(plan, cost, problem, a, b)
    unit += np.abs(cost[np.isfinite(cost)]).max()
    assert -1e-12 * unit <= gap <= 10 * tol * unit
    assert plan.gap == pytest.approx(gap, abs=1e-11 * unit)


def check_feasible(matrix, problem, a, b, slack=1e-9):
    """Rows and columns within their weights, and the mass that was asked for."""
    if hasattr(problem, "taus"):
        return
    assert (matrix.sum(1) <= a + slack).all()
    assert (matrix.sum(0) <= b + slack).all()
    assert abs(matrix.sum() - getattr(problem, "mass", 1.0)) <= slack


def long_sweeps(cost, problem, a=None, b=None, sweeps=3000):
    """The plan by plain alternating steps in the log domain, in long double precision."""
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    log_a, log_b = np.log(a.astype(np.longdouble)), np.log(b.astype(np.longdouble))
    logs = -cost.astype(np.longdouble) / problem.reg
    if getattr(problem, "entropy", "plain") == "kl":
        logs = logs + log_a[:, None] + log_b
    mass = getattr(problem, "mass", None)

    def step(x, side):
        if mass is not None:
            return np.minimum(x, 0)
        if not hasattr(problem, "taus"):
            return x
        tau = problem.taus[side]
        return x * tau / (tau + problem.reg) if problem.divergence == "kl" else np.clip(x, -tau / reg, tau / reg)

    reg, total, columns = np.longdouble(problem.reg), np.longdouble(0), np.zeros_like(log_b)
    for _ in range(sweeps):
        rows = step(log_a - total - np.logaddexp.reduce(logs + columns, axis=1), 0)
        columns = step(log_b - total - np.logaddexp.reduce(logs + rows[:, None], axis=0), 1)
        if mass is not None:
            total = np.log(mass) - np.logaddexp.reduce(logs + rows[:, None] + columns, axis=None)
    return np.exp(logs + rows[:, None] + columns + total).astype(np.float64)


def variation_program(cost, taus, a=None, b=None):
    """The optimal objective of total variation penalties, by HiGHS; None if there is none."""
    from scipy.optimize import linprog

    m, n = cost.shape
    a, b = (uniform(k) if w is None else w for w, k in zip((a, b), cost.shape, strict=True))
    pairs = np.argwhere(np.isfinite(cost))
    incidence = np.zeros((m + n, len(pairs)))
    incidence[pairs[:, 0], np.arange(len(pairs))] = incidence[m + pairs[:, 1], np.arange(len(pairs))] = 1
    each = np.repeat(taus, (m, n))
    answer = linprog(
        np.r_[cost[tuple(pairs.T)], each, each],
        A_eq=np.c_[incidence, np.eye(m + n), -np.eye(m + n)],
        b_eq=np.r_[a, b],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status in (0, 3), answer.message
    return answer.fun if answer.status == 0 else None


# Hypothesis: small problems with many ties, signs and forbidden pairs.

finite_costs = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-100, 100, allow_subnormal=False).map(lambda c: round(c, 6)),
)


@st.composite
def costs(draw, forbidden=False, square=False, most=6):
    m = draw(st.integers(1, most))
    n = m if square else draw(st.integers(1, most))
    elements = st.one_of(st.just(np.inf), finite_costs) if forbidden else finite_costs
    return draw(arrays(np.float64, (m, n), elements=elements))


@st.composite
def weights(draw, size):
    """None for uniform ones, or weights with zeros, equal ones and small ones."""
    if draw(st.booleans()):
        return None
    parts = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 5, 1e-3]), min_size=size, max_size=size))
    parts = np.array(parts, dtype=np.float64)
    parts[draw(st.integers(0, size - 1))] += 1
    return parts / parts.sum()


#: Fractions, round ones and extreme ones.
masses = st.one_of(
    st.floats(1e-6, 1.0).map(lambda s: round(s, 6)),
    st.sampled_from([1e-12, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1 - 1e-12, 1.0]),
)


@st.composite
def problems(draw, forbidden=False):
    """A cost, a mass, and weights."""
    cost = draw(costs(forbidden=forbidden))
    return cost, draw(masses), draw(weights(cost.shape[0])), draw(weights(cost.shape[1]))
