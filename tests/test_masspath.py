"""Every mass at once: against single solves and closed forms; convex, and with prices that are its slopes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spadeful as sp
from truths import clouds, problems, separate_pairs, uniform


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


def test_equal_weights_are_uniform_ones():
    cost = clouds(30, 50)
    given_weights = sp.mass_path(cost, uniform(30), uniform(50))
    assert np.array_equal(given_weights.values, sp.mass_path(cost).values)


def test_repr_says_how_large_it_is():
    assert repr(sp.mass_path(np.eye(3)[:, :2])).startswith("MassPath(shape=(3, 2), pieces=")
