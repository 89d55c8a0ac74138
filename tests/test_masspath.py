"""Every mass at once: against single solves and closed forms; convex, and with prices that are its slopes."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import spadeful as sp
from truths import check_plan, clouds, largest_mass, problems, separate_pairs, uniform

# A row with weight enough for several columns, behind two of them at once.
TWO_TREES = np.array([[2, 0, 0, 3, 4], [3, 0, 0, 4, 5], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 2, 1.0]])

# Three sixths fill one half: what rounding leaves over is no breakpoint of its own.
CRUMBS = np.full((6, 6), np.inf)
CRUMBS[-1, 2:] = 0


@given(problems(forbidden=True))
def test_the_path_agrees_with_single_solves_at_every_mass(problem):
    cost, mass, a, b = problem
    path = sp.mass_path(cost, a, b)
    largest = path.masses[-1]
    assert largest == pytest.approx(largest_mass(cost, a, b), abs=1e-9)
    between = (path.masses[1:] + path.masses[:-1]) / 2
    for s in [*path.masses[1:], *between, mass]:
        if s > largest:
            with pytest.raises(ValueError, match=r"cannot be transported.*leave room for at most"):
                path.at(largest + 1e-9)
            continue
        plan = path.at(s)
        check_plan(plan, cost, s, a, b)
        single = sp.solve(cost, sp.Partial(s), a, b)
        assert plan.value == pytest.approx(single.value, rel=1e-9, abs=1e-9)
        assert np.interp(s, path.masses, path.values) == pytest.approx(plan.value, rel=1e-9, abs=1e-9)


@example((CRUMBS, 1.0, np.array([1, 0, 0, 0, 0, 1]) / 2, None))
@given(problems(forbidden=True))
def test_the_path_is_convex_with_prices_as_slopes(problem):
    cost, _, a, b = problem
    path = sp.mass_path(cost, a, b)
    assert path.masses[0] == path.values[0] == 0
    assert (np.diff(path.masses) > 0).all()
    assert (np.diff(path.prices) >= 0).all()
    assert len(path.prices) == len(path.masses) - 1
    np.testing.assert_allclose(np.diff(path.values), path.prices * np.diff(path.masses), atol=1e-12)


@given(problems(), st.floats(0.01, 0.99))
def test_the_price_of_a_plan_is_the_slope_at_its_mass(problem, part):
    """Between breakpoints, where there is only one: on the path and by itself."""
    cost, _, a, b = problem
    path = sp.mass_path(cost, a, b)
    k = int(part * len(path.prices))
    low, high = path.masses[k : k + 2]
    mass = low + part * (high - low)
    if high - low < 1e-9:  # too narrow for a double to lie well inside
        return
    for plan in (path.at(mass), sp.solve(cost, sp.Partial(mass), a, b)):
        assert plan.price == pytest.approx(path.prices[k], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("m", "n"), [(120, 120), (120, 70), (70, 120)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["cloud", "integer", "negative"])
def test_larger_paths(m, n, weighted, kind):
    rng = np.random.default_rng(m + n)
    cost = {
        "cloud": clouds(m, n),
        "integer": rng.integers(0, 9, (m, n)),
        "negative": rng.normal(size=(m, n)),
    }[kind]
    a, b = (rng.dirichlet(np.ones(k)) if weighted else None for k in (m, n))
    path = sp.mass_path(cost, a, b)
    assert path.masses[-1] == 1
    assert (np.diff(path.prices) >= 0).all()
    np.testing.assert_allclose(np.diff(path.values), path.prices * np.diff(path.masses), atol=1e-12)
    for s in (1e-12, 0.2, 0.5, 0.75, 0.98, 1 - 1e-12, 1.0):
        plan = path.at(s)
        check_plan(plan, cost, s, a, b)
        assert plan.value == pytest.approx(sp.solve(cost, sp.Partial(s), a, b).value, rel=1e-12, abs=1e-12)


def test_rows_that_feed_columns_of_two_trees():
    """With weights a row may feed several columns: when one tree of the search falls, the row still belongs
    behind its column in another. Values by hand, from a linear program."""
    inf = np.inf
    cost = np.array([[0, inf, inf, 1, 3], [1, 0, 1, 3, inf], [inf, inf, inf, 2, 3]])
    a, b = np.array([1, 3, 1]) / 5, np.array([1, 1, 1, 1, 2]) / 6
    path = sp.mass_path(cost, a, b)
    for s, value in ((0.9, 1.2), (14 / 15, 41 / 30), (1.0, 1.7)):
        check_plan(path.at(s), cost, s, a, b)
        assert np.interp(s, path.masses, path.values) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("forbidden", [0.0, 0.4, 0.8])
def test_many_paths_with_ties(forbidden):
    """Small whole costs and weights, where every step of the search is a tie."""
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        m, n = rng.integers(1, 12, 2)
        cost = np.where(rng.random((m, n)) < forbidden, np.inf, rng.integers(0, 4, (m, n)))
        a, b = (w / w.sum() for w in (rng.integers(1, 4, m), rng.integers(1, 4, n)))
        path = sp.mass_path(cost, a, b)
        slopes = path.prices * np.diff(path.masses)
        np.testing.assert_allclose(np.diff(path.values), slopes, atol=1e-12, err_msg=f"seed {seed}")


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_separate_pairs_give_the_path_in_closed_form(gaps):
    cost, values = separate_pairs(np.array(gaps, dtype=float))
    path = sp.mass_path(cost)
    np.testing.assert_allclose(path.masses, np.arange(len(gaps) + 1) / len(gaps), rtol=1e-15)
    np.testing.assert_allclose(path.values, values, rtol=1e-12)
    np.testing.assert_allclose(path.prices, np.sort(gaps), rtol=1e-12)


def test_uniform_points_are_moved_one_at_a_time():
    """With equal weights on a square every breakpoint is whole points, and the plan there a matching."""
    n = 37
    path = sp.mass_path(clouds(n, n))
    assert np.array_equal(path.masses, np.arange(n + 1) / n)
    for k in range(1, n + 1):
        assert np.array_equal(np.unique(path.at(k / n).matrix), [0, 1 / n])
        assert len(path.at(k / n).triplets[0]) == k


@pytest.mark.parametrize("seed", range(10))
def test_the_path_ends_at_a_mass_that_can_be_had(seed):
    """Its last breakpoint, taken as a mass, has a plan and a certificate."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(2, 7, 2)
    cost = np.where(rng.random((m, n)) < 0.5, np.inf, rng.random((m, n)))
    cost[0, 0], cost[-1, :] = 0.0, np.inf
    a, b = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n))
    path = sp.mass_path(cost, a, b)
    assert path.masses[-1] < 1
    check_plan(path.at(path.masses[-1]), cost, path.masses[-1], a, b)


def test_a_cost_that_forbids_everything_has_an_empty_path():
    path = sp.mass_path(np.full((2, 3), np.inf))
    assert path.masses.tolist() == path.values.tolist() == [0]
    assert path.prices.tolist() == []
    with pytest.raises(ValueError, match="leave room for at most 0"):
        path.at(0.1)


@pytest.mark.parametrize("mass", [0, -1, 1.1, np.nan])
def test_masses_out_of_range_are_refused(mass):
    with pytest.raises(ValueError, match=r"'mass' parameter of at must be in \(0, 1\]"):
        sp.mass_path(np.eye(2)).at(mass)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1e300])
@pytest.mark.parametrize("n", [4, 80])
def test_tiny_and_huge_costs(scale, n):
    """Small integers times a scale: the same path, scaled."""
    whole = np.random.default_rng(n).integers(-50, 100, (n, n))
    path, base = sp.mass_path(whole * scale), sp.mass_path(whole)
    assert np.array_equal(path.masses, base.masses)
    np.testing.assert_allclose(path.prices / scale, base.prices, rtol=1e-12)
    np.testing.assert_allclose(path.values / scale, base.values, atol=n if scale < 1e-300 else 1e-9)
    assert np.array_equal(path.at(0.4).matrix, base.at(0.4).matrix)


@given(problems(), st.integers(-60, 60))
def test_a_power_of_two_scales_the_path_exactly(problem, exponent):
    cost, _, a, b = problem
    path, scaled = sp.mass_path(cost, a, b), sp.mass_path(cost * 2.0**exponent, a, b)
    assert np.array_equal(path.masses, scaled.masses)
    assert np.array_equal(path.values * 2.0**exponent, scaled.values)
    assert np.array_equal(path.prices * 2.0**exponent, scaled.prices)


@example((TWO_TREES, 1.0, np.array([1, 5, 0, 0, 1]) / 7, None))
@given(problems())
def test_rows_and_columns_may_trade_places(problem):
    cost, _, a, b = problem
    there, back = sp.mass_path(cost, a, b), sp.mass_path(cost.T, b, a)
    at_back = np.interp(back.masses, there.masses, there.values)
    np.testing.assert_allclose(at_back, back.values, rtol=1e-9, atol=1e-9)


def test_equal_weights_are_uniform_ones():
    cost = clouds(30, 50)
    given_weights = sp.mass_path(cost, uniform(30), uniform(50))
    assert np.array_equal(given_weights.values, sp.mass_path(cost).values)


def test_repr_says_how_large_it_is():
    assert repr(sp.mass_path(np.eye(3)[:, :2])).startswith("MassPath(shape=(3, 2), pieces=")
