"""Transport on lines: against the exact solver for every mass; sliced over directions, against closed forms."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import spadeful as sp
from spadeful import _core
from truths import masses

POWERS = pytest.mark.parametrize("p", [1, 2])

#: Ties, duplicates, clusters at two scales, and anything else.
places = st.one_of(
    st.integers(0, 4).map(float),
    st.floats(-100, 100, allow_subnormal=False).map(lambda z: round(z, 6)),
    st.tuples(st.sampled_from([0.0, 1.0, 1e3]), st.integers(0, 9)).map(lambda pair: pair[0] + 1e-3 * pair[1]),
)


def on_line(least=1, most=12):
    return st.lists(places, min_size=least, max_size=most).map(np.array)


def costs_of(x, y, p):
    return abs(x[:, None] - y) ** p


def every_count(x, y, p):
    """The optimal costs of 1, 2, ... pairs by the exact solver, the smaller side filled up with what fits nobody."""
    size = max(len(x), len(y))
    cost = np.full((size, size), np.inf)
    cost[: len(x), : len(y)] = costs_of(x, y, p)
    path = sp.mass_path(cost)
    return np.interp(np.arange(1, min(len(x), len(y)) + 1) / size, path.masses, path.values) * size


@POWERS
@example(np.arange(6.0), 6 + np.arange(6.0))  # apart: one run that grows
@example(np.r_[0:4.0, 100:104], np.r_[4:8.0, 104:108])  # two runs that take turns
@example(np.zeros(5), np.zeros(7))
@example(np.array([0.0, 3, 3, 3, 9]), np.array([1.0, 2, 4, 5, 6, 7]))
@given(on_line(), on_line())
def test_every_number_of_pairs_on_a_line_is_optimal(p, x, y):
    prices, rows, cols = _core.line_path(x, y, p)
    scale = 1 + costs_of(x, y, p).max()
    assert len(prices) == len(set(rows)) == len(set(cols)) == min(len(x), len(y))
    assert (np.diff(prices) >= -1e-13 * scale).all()
    np.testing.assert_allclose(np.cumsum(prices), every_count(x, y, p), rtol=1e-12, atol=1e-13 * scale)
    for k in range(1, len(prices) + 1):
        matched = abs(np.sort(x[rows[:k]]) - np.sort(y[cols[:k]])) ** p
        assert matched.sum() == pytest.approx(prices[:k].sum(), rel=1e-12, abs=1e-12 * scale)


@POWERS
@given(on_line(), on_line(), masses)
def test_a_plan_on_a_line_is_feasible_and_optimal(p, x, y, mass):
    cost = costs_of(x, y, p)
    answers = _core.lines(x[None], y[None], mass, p, 1)
    which, rows, cols, moved = answers.triplets
    plan = np.zeros(cost.shape)
    np.add.at(plan, (rows, cols), moved)
    assert (which == 0).all()
    assert (moved > 0).all()
    assert plan.sum() == pytest.approx(mass, abs=1e-12)
    assert (plan.sum(1) <= 1 / len(x) + 1e-12).all()
    assert (plan.sum(0) <= 1 / len(y) + 1e-12).all()
    value = (plan * cost).sum()
    assert answers.values[0] == pytest.approx(value, rel=1e-12, abs=1e-300)
    assert value == pytest.approx(sp.solve(cost, sp.Partial(mass)).value, rel=1e-9, abs=1e-13 * (1 + cost.max()))


@POWERS
def test_larger_lines_of_several_kinds_agree_with_the_exact_solver(p):
    rng = np.random.default_rng(0)
    n = 150
    kinds = {
        "same": (rng.normal(size=n), rng.normal(size=n)),
        "shifted": (rng.normal(size=n), rng.normal(size=n) + 1),
        "apart": (rng.random(n), 2 + rng.random(n)),
        "modes": (rng.normal(size=n) + 9 * rng.integers(0, 3, n), rng.normal(size=n) + 9 * rng.integers(0, 3, n) + 3),
        "heavy": (rng.standard_cauchy(n), rng.standard_cauchy(n)),
        "far": (1e9 + rng.random(n), 1e9 + rng.random(n)),
        "ties": (rng.integers(0, 20, n) / 1.0, rng.integers(5, 25, n) / 1.0),
    }
    for name, (x, y) in kinds.items():
        path = sp.mass_path(costs_of(x, y, p))
        prices, *_ = _core.line_path(x, y, p)
        np.testing.assert_allclose(np.cumsum(prices) / n, np.interp(np.arange(1, n + 1) / n, path.masses, path.values),
                                   rtol=1e-11, err_msg=name)  # fmt: skip
        for mass in (0.3, 0.871, 1.0):
            value = _core.lines(x[None], y[None], mass, p, 1).values[0]
            assert value == pytest.approx(np.interp(mass, path.masses, path.values), rel=1e-11), name


@POWERS
def test_values_on_lines_have_their_gradients_with_the_plan_fixed(p):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(3, 7)), rng.normal(size=(3, 5))
    answers = _core.lines(x, y, 0.63, p, 2)
    for points, gradient, sign in ((x, answers.gradients[0], 1), (y, answers.gradients[1], -1)):
        for at in np.ndindex(points.shape):
            step = np.zeros_like(points)
            step[at] = 1e-6
            more, less = (
                _core.lines(*((x + d, y) if sign > 0 else (x, y + d)), 0.63, p, 1).values.sum() for d in (step, -step)
            )
            assert gradient[at] == pytest.approx((more - less) / 2e-6, abs=1e-7)
