"""One mass at a time: against independent solvers and closed forms, and where other tools fail."""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import spadeful as sp
from truths import (
    check_plan,
    clouds,
    costs,
    finite_costs,
    largest_mass,
    linear_program,
    masses,
    problems,
    quantile_distance,
    separate_pairs,
    uniform,
)

# Against independent solvers.


@given(problems())
def test_agrees_with_a_linear_program(problem):
    cost, mass, a, b = problem
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    check_plan(plan, cost, mass, a, b)
    assert plan.value == pytest.approx(linear_program(cost, mass, a, b), rel=1e-8, abs=1e-7)


@given(problems(forbidden=True))
def test_agrees_with_a_linear_program_where_pairs_are_forbidden(problem):
    """Also in failing: the error names the largest mass, and that mass can be had."""
    cost, mass, a, b = problem
    largest = largest_mass(cost, a, b)
    assume(mass <= largest + 1e-14 or mass > largest + 1e-9)  # in between, HiGHS cannot tell
    if mass > largest + 1e-9:
        with pytest.raises(ValueError, match="cannot be transported") as error:
            sp.solve(cost, sp.Partial(mass), a, b)
        mass = named_mass(error)
        assert mass == pytest.approx(largest, abs=1e-9)
        assume(mass > 0)
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    check_plan(plan, cost, mass, a, b)
    assert plan.value == pytest.approx(linear_program(cost, min(mass, largest), a, b), rel=1e-8, abs=1e-7)


def named_mass(error):
    return float(re.search(r"room for at most ([\d.e+-]+)\. Ask for at most that mass", str(error.value))[1])


@given(costs(square=True, most=12))
def test_agrees_with_the_assignment_at_full_mass(cost):
    plan = sp.solve(cost, sp.Balanced())
    check_plan(plan, cost, 1.0)
    best = cost[linear_sum_assignment(cost)].mean()
    assert plan.value == pytest.approx(best, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [63, 64, 65, 128, 200])
@pytest.mark.parametrize("kind", ["plane", "space", "uniform", "integer", "product"])
def test_agrees_with_the_assignment_on_larger_costs(n, kind):
    rng = np.random.default_rng(n)
    cost = {
        "plane": lambda: clouds(n, n, 2, seed=n),
        "space": lambda: clouds(n, n, 64, seed=n),
        "uniform": lambda: rng.random((n, n)),
        "integer": lambda: rng.integers(0, 9, (n, n)).astype(float),
        "product": lambda: np.outer(np.arange(n), np.arange(n)).astype(float),
    }[kind]()
    plan = sp.solve(cost, sp.Balanced())
    check_plan(plan, cost, 1.0)
    assert plan.value == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-12)


@pytest.mark.parametrize(("m", "n"), [(150, 150), (150, 90), (90, 150)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mass", [0.3, 0.8, 1.0])
def test_agrees_with_pot(m, n, weighted, mass):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(m + n)
    cost = clouds(m, n, 3)
    a, b = (rng.dirichlet(np.ones(k)) if weighted else uniform(k) for k in (m, n))
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    check_plan(plan, cost, mass, a, b)
    rival = ot.emd(a, b, cost) if mass == 1 else ot.partial.partial_wasserstein(a, b, cost, m=mass, nb_dummies=5)
    assert plan.value == pytest.approx((rival * cost).sum(), rel=1e-9)


# Closed forms.


@pytest.mark.parametrize(
    ("mass", "pairs", "value"),
    [
        (1 / 3, [(3, 3)], 1 / 3),
        # Two spade strokes: (0,3)-(1,3) and either neighbour, or the two that keep the order: all cost 4 / 3.
        (2 / 3, None, 4 / 3),
        (1.0, None, 5.0),
    ],
)
def test_example_1_of_the_paper(mass, pairs, value):
    """Points (0,1)...(0,3) and (1,3)...(1,5): squared distances 1 + (i - j)^2. At s = 1/3 the one pair of the
    whole problem's plan that is in the batch is found, and no misspecified one."""
    i, j = np.arange(1.0, 4), np.arange(3.0, 6)
    cost = 1 + (i[:, None] - j) ** 2
    plan = sp.solve(cost, sp.Partial(mass))
    check_plan(plan, cost, mass)
    assert plan.value == pytest.approx(value, rel=1e-12)
    if pairs:
        assert [(i[row], j[col]) for row, col in np.argwhere(plan.matrix)] == pairs


def test_the_whole_of_example_1_is_the_identity():
    i = np.arange(1.0, 6)
    plan = sp.solve(1 + (i[:, None] - i) ** 2, sp.Balanced())
    assert np.array_equal(plan.matrix, np.eye(5) / 5)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), masses)
def test_separate_pairs_are_taken_from_the_nearest_on(gaps, mass):
    gaps = np.array(gaps, dtype=float)
    cost, values = separate_pairs(gaps)
    plan = sp.solve(cost, sp.Partial(mass))
    check_plan(plan, cost, mass)
    expected = np.interp(mass * len(gaps), np.arange(len(gaps) + 1), values)
    assert plan.value == pytest.approx(expected, rel=1e-9, abs=1e-12 * gaps.max())


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(("m", "n"), [(1, 5), (17, 17), (40, 23)])
@pytest.mark.parametrize("weighted", [False, True])
def test_on_a_line_quantile_goes_to_quantile(power, m, n, weighted):
    rng = np.random.default_rng(power * m * n)
    x, y = rng.normal(size=m), rng.normal(size=n) + 1
    a, b = (rng.dirichlet(np.ones(k)) if weighted else uniform(k) for k in (m, n))
    plan = sp.solve(np.abs(x[:, None] - y) ** power, sp.Balanced(), a, b)
    assert plan.value == pytest.approx(quantile_distance(x, y, a, b, power), rel=1e-10)


def test_one_row_fills_the_cheapest_columns_first():
    plan = sp.solve(np.array([[3.0, 1.0, 2.0]]), sp.Partial(0.6), b=np.array([0.2, 0.5, 0.3]))
    np.testing.assert_allclose(plan.matrix, [[0.0, 0.5, 0.1]], atol=1e-12)


# Symmetries.


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_points_does_not_matter(problem, random):
    cost, mass, a, b = problem
    rows, cols = (random.sample(range(n), n) for n in cost.shape)
    moved = sp.solve(
        cost[rows][:, cols],
        sp.Partial(mass),
        None if a is None else a[rows],
        None if b is None else b[cols],
    )
    assert moved.value == pytest.approx(sp.solve(cost, sp.Partial(mass), a, b).value, rel=1e-9, abs=1e-9)


@given(problems())
def test_rows_and_columns_may_trade_places(problem):
    cost, mass, a, b = problem
    there, back = sp.solve(cost, sp.Partial(mass), a, b), sp.solve(cost.T, sp.Partial(mass), b, a)
    assert there.value == pytest.approx(back.value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("m", "n"), [(30, 30), (30, 20)])
@pytest.mark.parametrize("mass", [0.4, 0.77, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_unique_plan_moves_with_its_points(m, n, mass, weighted):
    """Random costs have no ties, so the plan is the only one."""
    rng = np.random.default_rng(m * n)
    cost, rows, cols = rng.random((m, n)), rng.permutation(m), rng.permutation(n)
    a, b = (rng.dirichlet(np.ones(k)) if weighted else uniform(k) for k in (m, n))
    plan = sp.solve(cost, sp.Partial(mass), a, b).matrix
    moved = sp.solve(cost[rows][:, cols], sp.Partial(mass), a[rows], b[cols]).matrix
    turned = sp.solve(cost.T, sp.Partial(mass), b, a).matrix
    np.testing.assert_allclose(moved, plan[rows][:, cols], atol=1e-12)
    np.testing.assert_allclose(turned.T, plan, atol=1e-12)


@given(problems(), st.integers(-60, 60))
def test_a_power_of_two_scales_value_and_prices_and_leaves_the_plan(problem, exponent):
    """Scaling by a power of two rounds nothing, so all of it holds to the last bit."""
    cost, mass, a, b = problem
    plan, scaled = (sp.solve(c, sp.Partial(mass), a, b) for c in (cost, cost * 2.0**exponent))
    assert np.array_equal(plan.matrix, scaled.matrix)
    for field in ("value", "price", "row_prices", "col_prices"):
        assert np.array_equal(getattr(plan, field) * 2.0**exponent, getattr(scaled, field)), field


@pytest.mark.parametrize("n", [60, 200])
@pytest.mark.parametrize("mass", [0.503, 0.933, 0.999])
def test_scale_invariance_on_larger_costs(n, mass):
    """As above, where an auction may be used; 10 is no power of two, so there up to rounding. No mass is a
    whole number of points, where the price would have a choice."""
    cost = clouds(n, n)
    plan = sp.solve(cost, sp.Partial(mass))
    assert np.array_equal(plan.matrix, sp.solve(cost * 1024, sp.Partial(mass)).matrix)
    tenfold = sp.solve(cost * 10, sp.Partial(mass))
    np.testing.assert_allclose(tenfold.matrix, plan.matrix, atol=1e-12)
    assert tenfold.value == pytest.approx(10 * plan.value, rel=1e-12)
    assert tenfold.price == pytest.approx(10 * plan.price, rel=1e-9)


@given(problems(), finite_costs)
def test_a_constant_on_every_cost_is_paid_once_per_mass(problem, constant):
    cost, mass, a, b = problem
    plan, shifted = (sp.solve(c, sp.Partial(mass), a, b) for c in (cost, cost + constant))
    assert shifted.value == pytest.approx(plan.value + constant * mass, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mass", [0.3, 0.8, 1.0])
def test_points_without_weight_might_as_well_be_absent(mass):
    rng = np.random.default_rng(4)
    cost = rng.random((6, 7))
    a, b = np.array([0.2, 0, 0.5, 0.3, 0, 0]), np.array([0, 0.25, 0.25, 0, 0.4, 0.1, 0])
    cost[:, b == 0] -= 5  # tempting, yet worth nothing
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    check_plan(plan, cost, mass, a, b)
    present = sp.solve(cost[a > 0][:, b > 0], sp.Partial(mass), a[a > 0], b[b > 0])
    np.testing.assert_allclose(plan.matrix[a > 0][:, b > 0], present.matrix, atol=1e-12)


def test_the_same_input_gives_the_same_plan():
    cost = np.random.default_rng(5).integers(0, 3, (40, 40)).astype(float)
    plans = [sp.solve(cost, sp.Partial(0.71)).matrix for _ in range(3)]
    assert np.array_equal(plans[0], plans[1])
    assert np.array_equal(plans[0], plans[2])


def test_ties_go_to_the_lowest_index():
    plan = sp.solve(np.zeros((4, 4)), sp.Partial(0.5))
    assert np.array_equal(plan.matrix, np.diag([0.25, 0.25, 0, 0]))


# Where other tools fail, each in a test of its own.


@pytest.mark.parametrize("cost", [np.zeros((4, 4)), -np.ones((4, 4)), np.full((4, 4), 7.0), np.zeros((3, 5))])
def test_pot_moves_too_much_of_a_constant_cost(cost):
    """ot.partial.partial_wasserstein(m=.5) moves .75 of an all-zero cost and 1 of a negative one."""
    plan = sp.solve(cost, sp.Partial(0.5))
    check_plan(plan, cost, 0.5)
    assert plan.value == pytest.approx(0.5 * cost[0, 0], abs=1e-12)


def test_pot_refuses_full_mass_of_many_batch_sizes():
    """... for 74 of the 257 uniform sizes 3..259, for want of a rounding tolerance."""
    cost = np.random.default_rng(6).random((300, 300))
    for n in range(1, 301):
        plan = sp.solve(cost[:n, :n], sp.Partial(1.0), uniform(n), uniform(n))
        assert abs(plan.mass - 1) <= 1e-12
        np.testing.assert_allclose(plan.matrix.sum(1), 1 / n, atol=1e-12)


@pytest.mark.parametrize(("m", "n"), [(3, 7), (49, 98), (100, 300), (97, 89), (1, 300), (299, 2)])
@pytest.mark.parametrize("given_weights", [False, True])
def test_full_mass_of_rectangular_sizes(m, n, given_weights):
    weights = (uniform(m), uniform(n)) if given_weights else (None, None)
    cost = np.random.default_rng(7).random((m, n))
    plan = sp.solve(cost, sp.Partial(1.0), *weights)
    check_plan(plan, cost, 1.0)
    np.testing.assert_allclose(plan.matrix.sum(0), 1 / n, atol=1e-12)


def test_pot_answers_a_cost_with_nan():
    with pytest.raises(ValueError, match="NaN"):
        sp.solve(np.array([[1.0, np.nan], [2.0, 3.0]]), sp.Balanced())


def test_pot_gives_up_on_a_cost_with_infinity():
    """ot.emd returns an all-zero plan."""
    plan = sp.solve(np.array([[np.inf, 2.0], [1.0, 0.0]]), sp.Balanced())
    assert plan.matrix.tolist() == [[0, 0.5], [0.5, 0]]
    assert plan.value == 1.5


def test_pot_crashes_on_an_empty_cost():
    with pytest.raises(ValueError, match="empty"):
        sp.solve(np.zeros((0, 0)), sp.Balanced())


def test_pot_answers_an_integer_cost_with_zeros():
    plan = sp.solve(np.array([[1, 2], [3, 0]]), sp.Balanced())
    assert plan.matrix.tolist() == [[0.5, 0], [0, 0.5]]


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1e-100, 1e12, 1e100, 1e300])
@pytest.mark.parametrize("n", [5, 70, 200])
@pytest.mark.parametrize("mass", [0.35, 0.95, 1.0])
def test_pot_answers_very_large_costs_wrongly(scale, n, mass):
    """Tiny ones too must keep their differences: small integers times the scale are exact at every scale."""
    rng = np.random.default_rng(n)
    cost = rng.integers(-50, 100, (n, n)) * scale
    plan = sp.solve(cost, sp.Partial(mass))
    # Values of subnormal costs are rounded to whole multiples of the smallest number, term by term.
    check_plan(plan, cost, mass, unit=max(scale, 5e-324 * 1e9 * n))
    base = sp.solve(np.rint(cost / scale), sp.Partial(mass))
    assert (np.rint(cost / scale) * plan.matrix).sum() == pytest.approx(base.value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e100])
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("outliers", ["rows", "columns", "both"])
def test_far_outliers_do_not_blur_the_rest(far, n, outliers):
    """Points to leave behind are what partial transport is for: however far, they must not cost precision."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) + 0.5
    few = n // 20
    if outliers != "columns":
        x[:few] += far
    if outliers != "rows":
        y[-few:] -= far
    cost = ((x[:, None] - y) ** 2).sum(-1)
    near = cost[few:, :-few]
    plan = sp.solve(cost, sp.Partial(0.9))
    check_plan(plan, cost, 0.9)
    assert plan.value == pytest.approx(sp.mass_path(cost).at(0.9).value, rel=1e-9)
    if outliers == "both":
        inside = sp.solve(near, sp.Partial(min(1.0, 0.9 * n / (n - few))))
        assert plan.value == pytest.approx(inside.value * (n - few) / n, rel=1e-9)


@pytest.mark.parametrize("edge", [1.5e308, np.finfo(float).max])
@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("mass", [0.5, 1.0])
def test_the_edge_of_double_precision_gives_no_nan(edge, n, mass):
    """Beyond 1e300 sums may overflow: right or refused, but no NaN and no talk of forbidden pairs."""
    cost = edge * np.random.default_rng(9).choice([-1, -0.5, 0.5, 1], (n, n))
    try:
        plan = sp.solve(cost, sp.Partial(mass))
        path = sp.mass_path(cost)
    except ValueError as error:
        assert "forbidden" not in str(error)  # noqa: PT017
        return
    assert np.isfinite([plan.value, plan.mass]).all()
    assert np.isfinite(path.values).all()
    assert np.isfinite(path.prices).all()


# Masses near a whole number of points, and near the ends.


@pytest.mark.parametrize("n", [1, 3, 7, 64, 100])
def test_masses_at_and_around_whole_points(n):
    rng = np.random.default_rng(n)
    cost = rng.random((n, n))
    values = sp.mass_path(cost).values
    for k in {1, n // 3, n // 2, n - 1, n} - {0}:
        s = k / n
        for near in (s, np.nextafter(s, 0), np.nextafter(s, 1), s - 1e-12, min(1, s + 1e-12)):
            plan = sp.solve(cost, sp.Partial(float(near)))
            check_plan(plan, cost, near)
            assert plan.value == pytest.approx(values[k], abs=1e-11)
            assert len(plan.triplets[0]) <= 2 * k + 1


@pytest.mark.parametrize("n", [3, 7, 49, 100, 299])
def test_whole_points_move_whole(n):
    """k/n is rarely a double: what comes out must be a matching all the same, without crumbs."""
    cost = np.random.default_rng(n).random((n, n))
    for k in range(1, n + 1, max(1, n // 25)):
        rows, cols, moved = sp.solve(cost, sp.Partial(k / n)).triplets
        assert len(rows) == len(set(rows)) == len(set(cols)) == k
        assert np.array_equal(moved, np.full(k, 1 / n))


@pytest.mark.parametrize("mass", [1e-300, 1e-15, 1e-12, 1e-9, 1 - 1e-9, 1 - 1e-12, 1 - 2e-14, np.nextafter(1, 0)])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (3, 2), (5, 5), (80, 80)])
@pytest.mark.parametrize("weighted", [False, True])
def test_masses_near_the_ends(mass, m, n, weighted):
    rng = np.random.default_rng(m * n)
    cost = rng.random((m, n))
    a, b = (rng.dirichlet(np.ones(k)) if weighted else None for k in (m, n))
    check_plan(sp.solve(cost, sp.Partial(mass), a, b), cost, mass, a, b)


# Forbidden pairs.


def test_the_error_names_the_largest_mass():
    cost = np.full((4, 4), np.inf)
    cost[0, :] = cost[:, 0] = 1.0
    with pytest.raises(
        ValueError,
        match=r"^The mass 0\.75 cannot be transported: the forbidden pairs \(inf\) leave room for at most "
        r"0\.5\. Ask for at most that mass, or allow more pairs\.$",
    ):
        sp.solve(cost, sp.Partial(0.75))
    check_plan(sp.solve(cost, sp.Partial(0.5)), cost, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_the_mass_that_the_error_names_can_be_had(seed):
    """To the last digit, whatever the weights."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(2, 7, 2)
    cost = np.where(rng.random((m, n)) < 0.6, np.inf, rng.random((m, n)))
    cost[0, 0], cost[-1, :] = 0.0, np.inf
    a, b = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n))
    with pytest.raises(ValueError, match="cannot be transported") as error:
        sp.solve(cost, sp.Balanced(), a, b)
    largest = named_mass(error)
    check_plan(sp.solve(cost, sp.Partial(largest), a, b), cost, largest, a, b)


def test_a_cost_that_forbids_everything_moves_nothing():
    with pytest.raises(ValueError, match=r"at most 0\.0\."):
        sp.solve(np.full((3, 3), np.inf), sp.Partial(1e-6))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_names_the_problem_of_a_batch(threads):
    batch = np.ones((6, 2, 2))
    batch[3, 0] = batch[4] = np.inf
    with pytest.raises(ValueError, match=r"cannot be transported for cost\[3\].* at most 0\.5\."):
        sp.solve(batch, sp.Balanced(), threads=threads)


@pytest.mark.parametrize("n", [20, 150])
@pytest.mark.parametrize("mass", [0.6, 0.95, 1.0])
def test_forbidden_pairs_on_larger_costs(n, mass):
    """A band around the diagonal, so that paths are long; a big number in their place gives the same plan."""
    cost = clouds(n, n, seed=n)
    forbidden = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) > 4
    plan = sp.solve(np.where(forbidden, np.inf, cost), sp.Partial(mass))
    check_plan(plan, np.where(forbidden, np.inf, cost), mass)
    assert plan.value == pytest.approx(sp.solve(np.where(forbidden, 1e6, cost), sp.Partial(mass)).value, rel=1e-9)


def test_arrays_of_other_libraries_give_those_of_numpy():
    plan = sp.solve(memoryview(np.eye(2)), sp.Balanced())
    assert isinstance(plan.matrix, np.ndarray)
    np.testing.assert_array_equal(plan.matrix, [[0, 0.5], [0.5, 0]])
