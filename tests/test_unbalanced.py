"""Unbalanced transport without regularisation: total variation against a linear program, both with certificates."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spadeful as sp
from truths import clouds, costs, objective_of, uniform, variation_program, weights

PAIRS = [0.3, 2.0, (0.3, 1.0), (1.0, 0.3), (1e-3, 50.0)]


def variation(tau):
    return sp.Unbalanced(tau, divergence="tv")


def check_exact(plan, cost, problem, a=None, b=None, gap=1e-9):
    """Of the stated objective, and proved optimal by potentials that are feasible: all from the definitions."""
    a, b = (uniform(n) if w is None else w for w, n in zip((a, b), cost.shape, strict=True))
    assert plan.converged
    assert plan.n_iter == 0
    assert (plan.matrix >= 0).all()
    assert (plan.matrix[np.isinf(cost)] == 0).all()
    objective = objective_of(plan.matrix, cost, problem, a, b)
    unit = sum(problem.taus) + abs(objective)
    assert plan.objective == pytest.approx(objective, abs=1e-12 * unit)
    assert plan.mass == pytest.approx(plan.matrix.sum(), abs=1e-12 * max(1.0, plan.mass))
    bound = 0.0
    for prices, each, tau in zip((plan.row_prices, plan.col_prices), (a, b), problem.taus, strict=True):
        kept = each > 0
        if problem.divergence == "kl":
            bound -= tau * (each[kept] @ np.expm1(prices[kept] / tau))
        else:
            assert (np.abs(prices[kept]) <= tau + 1e-9 * unit).all()
            bound -= each[kept] @ prices[kept]
    alive = np.ix_(a > 0, b > 0)
    assert (-plan.row_prices[:, None] - plan.col_prices <= cost + 1e-9 * unit)[alive].all()
    assert -1e-9 * unit <= objective - bound <= gap * unit
    assert plan.gap == pytest.approx(objective - bound, abs=1e-9 * unit)


# Total variation.


@pytest.mark.parametrize("tau", PAIRS)
@given(costs(), st.data())
def test_total_variation_agrees_with_a_linear_program(tau, cost, data):
    """Also in failing: where a cost pays for making mass, there is no optimum."""
    a, b = (data.draw(weights(n)) for n in cost.shape)
    expected = variation_program(cost, variation(tau).taus, a, b)
    if expected is None:
        with pytest.raises(ValueError, match="no optimum"):
            sp.solve(cost, variation(tau), a, b)
        return
    plan = sp.solve(cost, variation(tau), a, b)
    assert plan.objective == pytest.approx(expected, rel=1e-8, abs=1e-7)
    assert abs(plan.gap) <= 1e-9 * (sum(variation(tau).taus) + abs(expected))


@pytest.mark.parametrize("tau", PAIRS)
@pytest.mark.parametrize("low", [-1.2, -0.5, 0.0, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_total_variation_is_certified(tau, low, weighted):
    rng = np.random.default_rng(7)
    cost = np.maximum(low + 3 * rng.random((9, 7)), 1e-3 - sum(variation(tau).taus))
    a, b = (rng.dirichlet(np.ones(n)) if weighted else None for n in (9, 7))
    if weighted:
        a[2] = b[0] = b[4] = 0
        a, b = a / a.sum(), b / b.sum()
    plan = sp.solve(cost, variation(tau), a, b)
    check_exact(plan, cost, variation(tau), a, b)
    expected = variation_program(cost, variation(tau).taus, a, b)
    assert plan.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("tau", [0.05, 0.3, 1.0, 10.0])
def test_total_variation_is_the_mass_path_cut_at_its_price(tau):
    cost = clouds(20, 15)
    plan, path = sp.solve(cost, variation(tau)), sp.mass_path(cost)
    assert plan.value == pytest.approx(path.at(plan.mass).value if plan.mass > 0 else 0.0, rel=1e-9)
    rest = path.values + 2 * tau * (1 - path.masses)
    assert plan.objective == pytest.approx(rest.min(), rel=1e-9)


@pytest.mark.parametrize("divergence", ["kl", "tv"])
def test_a_large_penalty_gives_balanced_transport(divergence):
    cost = clouds(12, 12)
    plan = sp.solve(cost, sp.Unbalanced(1e6, divergence=divergence))
    balanced = sp.solve(cost, sp.Balanced())
    np.testing.assert_allclose(plan.matrix, balanced.matrix, atol=1e-5)
    assert plan.value == pytest.approx(balanced.value, rel=1e-5)


def test_a_small_penalty_moves_nothing():
    plan = sp.solve(1 + clouds(5, 5), variation(0.4))
    assert plan.mass == plan.value == 0
    assert plan.objective == pytest.approx(0.8)


@pytest.mark.parametrize("tau", [0.3, (0.2, 0.9)])
@pytest.mark.parametrize("low", [0.8, -0.3])
def test_a_batch_of_total_variation_is_its_problems_one_by_one(tau, low):
    batch = low + np.random.default_rng(8).random((5, 6, 7))
    plans = [sp.solve(batch, variation(tau), threads=threads) for threads in (1, 2)]
    assert np.array_equal(plans[0].matrix, plans[1].matrix)
    for i, cost in enumerate(batch):
        alone = sp.solve(cost, variation(tau))
        assert np.array_equal(plans[0].matrix[i], alone.matrix)
        assert plans[0].objective[i] == pytest.approx(alone.objective, rel=1e-12)


@pytest.mark.parametrize("tau", [0.5, (0.2, 0.9)])
def test_total_variation_leaves_forbidden_points(tau):
    cost = clouds(6, 6)
    cost[np.random.default_rng(9).random((6, 6)) < 0.5] = np.inf
    cost[2] = np.inf
    plan = sp.solve(cost, variation(tau))
    assert plan.objective == pytest.approx(variation_program(cost, variation(tau).taus), rel=1e-9)
    assert plan.matrix[2].sum() == 0
    assert abs(plan.gap) <= 1e-9


def test_total_variation_without_an_optimum_is_refused():
    """A unit of mass that pays more than both penalties would be made without end."""
    with pytest.raises(ValueError, match=r"no optimum\. Raise tau, or the cost"):
        sp.solve(np.array([[0.0, -1.01]]), variation(0.5))
    assert sp.solve(np.array([[0.0, -0.99]]), variation(0.5)).objective < 0


# Kullback-Leibler.


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0, (0.3, 2.0)])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (12, 9), (40, 40)])
@pytest.mark.parametrize("weighted", [False, True])
def test_kullback_leibler_is_certified(tau, m, n, weighted):
    rng = np.random.default_rng(m * n)
    cost, problem = clouds(m, n, seed=m), sp.Unbalanced(tau)
    a, b = (rng.dirichlet(np.ones(k)) if weighted else None for k in (m, n))
    plan = sp.solve(cost, problem, a, b)
    check_exact(plan, cost, problem, a, b, gap=1e-7)
    assert plan.gap <= 1e-7 * abs(plan.objective)


@pytest.mark.parametrize("tau", [0.5, 3.0, (0.5, 2.0)])
def test_kullback_leibler_agrees_with_pot(tau):
    ot = pytest.importorskip("ot")
    rng = np.random.default_rng(10)
    cost, a, b = clouds(8, 7), rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rival = ot.unbalanced.mm_unbalanced(a, b, cost, tau, div="kl", numItermax=20_000, stopThr=1e-14)
    plan, theirs = sp.solve(cost, sp.Unbalanced(tau), a, b), objective_of(rival, cost, sp.Unbalanced(tau), a, b)
    assert plan.objective == pytest.approx(theirs, rel=1e-5)
    assert plan.objective <= theirs * (1 + 1e-7)


def test_one_pair_has_a_closed_form():
    """min c p + tau_a KL(p | 1) + tau_b KL(p | 1): p = exp(-c / (tau_a + tau_b))."""
    for tau, c in ((0.7, 3.0), ((0.2, 1.3), 0.4), (2.0, -1.0)):
        plan = sp.solve(np.array([[c]]), sp.Unbalanced(tau))
        assert plan.mass == pytest.approx(np.exp(-c / sum(sp.Unbalanced(tau).taus)), rel=1e-7)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_kullback_leibler_at_every_scale(scale, low):
    cost = scale * (low + 2 * np.random.default_rng(11).random((10, 8)))
    plan = sp.solve(cost, sp.Unbalanced(0.5 * scale))
    check_exact(plan, cost, sp.Unbalanced(0.5 * scale), gap=1e-7)
    base = sp.solve(cost / scale, sp.Unbalanced(0.5))
    assert plan.objective == pytest.approx(scale * base.objective, rel=1e-6)


@pytest.mark.parametrize("tau", [0.5, (0.3, 2.0)])
def test_kullback_leibler_with_points_without_weight_or_partner(tau):
    cost, a, b = clouds(5, 6), np.array([0.2, 0, 0.5, 0.2, 0.1]), np.array([0, 0.25, 0.25, 0, 0.4, 0.1])
    cost[2, :3] = cost[4] = np.inf
    problem = sp.Unbalanced(tau)
    plan = sp.solve(cost, problem, a, b)
    assert plan.objective == pytest.approx(objective_of(plan.matrix, cost, problem, a, b), rel=1e-12)
    assert plan.gap <= 1e-7 * plan.objective
    assert plan.matrix[4].sum() == plan.matrix[1].sum() == plan.matrix[:, 0].sum() == 0
    assert not np.isnan(plan.row_prices).any()


def test_a_batch_of_kullback_leibler_is_its_problems_one_by_one():
    batch = np.random.default_rng(12).random((4, 5, 6)) * np.array([0.01, 1.0, 10.0, 1.0])[:, None, None]
    plans = sp.solve(batch, sp.Unbalanced(0.5))
    for i, cost in enumerate(batch):
        alone = sp.solve(cost, sp.Unbalanced(0.5))
        np.testing.assert_allclose(plans.matrix[i], alone.matrix, atol=1e-12)
        assert plans.objective[i] == pytest.approx(alone.objective, rel=1e-12)


def test_kullback_leibler_of_any_sizes():
    """Taus, costs and weights of very different sizes, pairs forbidden, points without weight: proved all the same."""
    rng = np.random.default_rng(13)
    for _ in range(300):
        m, n = rng.integers(1, 20, 2)
        tau, scale = tuple(10 ** rng.uniform(-4, 4, 2)), 10 ** rng.uniform(-5, 5)
        cost = scale * rng.choice([rng.random((m, n)), rng.integers(1, 4, (m, n)), clouds(m, n)])
        cost[rng.random((m, n)) < rng.choice([0, 0.4])] = np.inf
        a, b = (rng.random(size) * 10 ** rng.uniform(-6 * rng.integers(2), 0, size) for size in (m, n))
        a[1:] *= rng.random(m - 1) < 0.9
        a, b, problem = a / a.sum(), b / b.sum(), sp.Unbalanced(tau)
        check_exact(sp.solve(cost, problem, a, b), cost, problem, a, b, gap=1e-7)


def test_a_plan_of_kullback_leibler_has_the_entries_of_a_tree():
    """Costs in general position leave no cycle of pairs that could be moved around."""
    for m, n in ((1, 1), (5, 5), (30, 40), (100, 60)):
        for tau in (0.3, 3.0, 100.0):
            plan = sp.solve(clouds(m, n), sp.Unbalanced(tau))
            rows, columns, masses = plan.triplets
            assert len(masses) <= m + n - 1
            assert (np.diff(rows * n + columns) > 0).all()


def test_kullback_leibler_of_any_orientation_and_number_of_threads():
    batch, problem = np.random.default_rng(14).random((9, 12, 7)), sp.Unbalanced((0.4, 1.5))
    plans = [sp.solve(batch, problem, threads=threads) for threads in (1, 3)]
    np.testing.assert_array_equal(*(plan.matrix for plan in plans))
    turned = sp.solve(batch.transpose(0, 2, 1), sp.Unbalanced((1.5, 0.4)))
    np.testing.assert_array_equal(turned.matrix.transpose(0, 2, 1), plans[0].matrix)
    single = sp.solve(batch.astype(np.float32), problem)
    np.testing.assert_allclose(single.matrix, plans[0].matrix, atol=1e-5)


# Both.


@pytest.fixture(params=["kl", "tv"])
def problem(request):
    return sp.Unbalanced(0.5, divergence=request.param)


def test_a_cost_that_forbids_everything_pays_for_all_weights(problem):
    plan = sp.solve(np.full((3, 4), np.inf), problem)
    assert plan.mass == 0
    assert plan.objective == pytest.approx(1.0)
    assert plan.gap == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i4", "u1", "g"])
def test_every_real_type(problem, dtype):
    cost = np.random.default_rng(0).permutation(24).reshape(4, 6)
    plan, expected = sp.solve(cost.astype(dtype), problem), sp.solve(cost.astype(np.float64), problem)
    assert plan.objective == pytest.approx(expected.objective, rel=1e-12)
    assert plan.matrix.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nan_and_minus_infinity_are_refused(problem, bad):
    cost = np.zeros((2, 3, 4))
    cost[1, 2, 1] = bad
    with pytest.raises(ValueError, match=r"cost must hold no NaN and no -inf.*Got (nan|-inf) at cost\[1, 2, 1\]"):
        sp.solve(cost, problem)


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (np.zeros(3), ValueError, "cost must have the shape"),
        (np.zeros((0, 0)), ValueError, "cost must not be empty"),
        (np.zeros((2, 0, 2)), ValueError, "cost must not be empty"),
        (np.eye(2) + 0j, TypeError, "cost must hold real numbers"),
        (np.array([["1", "2"]]), TypeError, "cost must hold real numbers"),
        (np.ma.masked_greater(np.eye(3), 0), TypeError, "cost must not be masked"),
    ],
    ids=["1-D", "empty", "empty batch", "complex", "string", "masked"],
)
def test_wrong_costs_are_refused(problem, cost, error, message):
    with pytest.raises(error, match=message):
        sp.solve(cost, problem)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("given_weights", [[0.5, 0.5], [0.5, 0.75, -0.25], [0.5, 0.5, np.nan], [1, 1, 1], [None] * 3])
def test_wrong_weights_are_refused(problem, name, given_weights):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
        sp.solve(np.zeros((3, 3)), problem, **{name: given_weights})


@pytest.mark.parametrize("threads", [0, 1.5, "2"])
def test_wrong_threads_are_refused(problem, threads):
    with pytest.raises((ValueError, TypeError), match="threads must be a whole number of at least 1, or None"):
        sp.solve(np.zeros((2, 3, 3)), problem, threads=threads)


@pytest.mark.torch
def test_the_gradient_of_the_objective_agrees_with_finite_differences(problem):
    torch = pytest.importorskip("torch")
    cost = torch.tensor(clouds(4, 5, seed=3), requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: sp.solve(c, problem).objective, cost, eps=1e-5, atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_tensors_stay_tensors(problem, dtype):
    torch = pytest.importorskip("torch")
    cost = torch.arange(20).reshape(4, 5).flip(0).to(getattr(torch, dtype))
    plan = sp.solve(cost, problem)
    expected = cost.dtype if cost.dtype.is_floating_point else torch.float64
    for field in ("matrix", "value", "objective", "mass", "gap", "row_prices", "col_prices"):
        assert getattr(plan, field).dtype == expected, field
        assert not getattr(plan, field).isnan().any(), field
    reference = sp.solve(cost.double().numpy(), problem)
    assert float(plan.objective) == pytest.approx(reference.objective, rel=1e-5)


@pytest.mark.parametrize("tau", [1e6, 1e9, 1e13])
def test_penalties_far_above_the_costs_are_proved_or_said_to_be_unproved(tau):
    cost = np.random.default_rng(0).random((50, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sp.NotConverged)
        plan = sp.solve(cost, sp.Unbalanced(tau))
    balanced = sp.solve(cost, sp.Balanced()).value
    assert plan.converged == (abs(plan.gap) <= 1e-7 * plan.objective)
    assert plan.converged == (tau <= 1e9)
    assert plan.mass == pytest.approx(1, abs=1e-3)
    if plan.converged:
        assert plan.objective == pytest.approx(balanced, rel=1e-6)


def test_the_unit_of_costs_does_not_matter():
    cost = np.random.default_rng(0).random((6, 7))
    one, other = sp.solve(cost, sp.Unbalanced(0.5)), sp.solve(1e-300 * cost, sp.Unbalanced(0.5e-300))
    np.testing.assert_allclose(one.matrix, other.matrix, rtol=1e-6, atol=1e-12)
    assert other.objective == pytest.approx(1e-300 * one.objective, rel=1e-9)


@pytest.mark.parametrize(
    "problem",
    [
        sp.Unbalanced(1.0),
        sp.Unbalanced(1.0, 0.1),
        sp.Unbalanced(1.0, 0.1, entropy="kl"),
        sp.Unbalanced(1.0, divergence="tv"),
    ],
    ids=str,
)
def test_a_column_that_only_points_without_weight_may_have(problem):
    alone = sp.solve([[1.0]], problem, b=[1.0])
    plan = sp.solve([[1.0, np.inf], [0.0, 0.0]], problem, a=[1.0, 0.0], b=[1.0, 0.0])
    assert plan.converged
    np.testing.assert_allclose(plan.matrix, [[alone.matrix[0, 0], 0], [0, 0]], atol=1e-9)
    half = sp.solve([[1.0, np.inf], [0.0, 0.0]], problem, a=[1.0, 0.0])  # the second column is missed
    assert half.converged
    assert half.matrix[0, 0] > 0
    assert np.isfinite(half.objective)


@pytest.mark.parametrize("ratio", [1, 10, 100, 1e3, 1e4])
def test_penalties_of_very_different_sizes_are_certified(ratio):
    rng = np.random.default_rng(int(ratio))
    for taus in ((1.0, 1 / ratio), (1 / ratio, 1.0)):
        for _ in range(10):
            cost = rng.random(rng.integers(1, 8, 2)) * rng.choice([0.1, 1, 10])
            plan = sp.solve(cost, sp.Unbalanced(taus))
            assert plan.converged
            assert abs(plan.gap) <= 1e-7 * plan.objective


def test_a_cloud_costs_nothing_to_itself():
    assert sp.solve(np.zeros((7, 6)), sp.Unbalanced(1.0)).converged
    x = np.random.default_rng(0).normal(size=(40, 2))
    assert sp.minibatch(x, x, sp.Unbalanced(10.0), 40, 3, seed=1).objective == pytest.approx(0, abs=1e-12)
