"""The edges of regularised transport: nothing allowed, nothing to gain, no time, no room."""

import numpy as np
import pytest

import spadeful as sp
from test_entropic import KINDS, problem_of
from truths import check_entropic, check_feasible, clouds, objective_of

UNBALANCED = KINDS[2:]


@pytest.mark.parametrize("kind", UNBALANCED)
def test_a_cost_that_forbids_everything_pays_for_all_weights(kind):
    problem = problem_of(kind, 0.1)
    plan = sp.solve(np.full((3, 4), np.inf), problem)
    assert plan.mass == 0
    assert plan.objective == pytest.approx(objective_of(np.zeros((3, 4)), np.full((3, 4), np.inf), problem))


@pytest.mark.parametrize("kind", UNBALANCED)
def test_points_without_partner_are_paid_for(kind):
    """The product's entropy counts them too."""
    cost, problem = clouds(4, 5), problem_of(kind, 0.1)
    cost[0] = np.inf
    check_entropic(sp.solve(cost, problem), cost, problem)


@pytest.mark.parametrize("reg", [0.05, 0.2, 0.3])
@pytest.mark.parametrize("tau", [0.5, (0.5, 1.0)])
def test_total_variation_is_as_close_as_was_asked(reg, tau):
    problem = sp.Unbalanced(tau, reg, divergence="tv")
    check_entropic(sp.solve(clouds(6, 7), problem, tol=1e-10), clouds(6, 7), problem, tol=1e-10)


@pytest.mark.parametrize("kind", ["balanced", "partial"])
def test_forbidden_pairs_leave_a_feasible_plan_without_convergence(kind):
    rng = np.random.default_rng(3)
    cost = np.where(rng.random((10, 10)) < 0.4, np.inf, rng.random((10, 10)))
    np.fill_diagonal(cost, 1.0)
    with pytest.warns(sp.NotConverged):
        plan = sp.solve(cost, problem_of(kind, 0.01), max_iter=2)
    check_feasible(plan.matrix, problem_of(kind, 0.01), np.full(10, 0.1), np.full(10, 0.1))
    assert plan.gap >= 0


@pytest.mark.parametrize("options", [{"tol": -1}, {"tol": np.nan}, {"tol": "x"}, {"max_iter": 0}, {"max_iter": 1.5}])
def test_wrong_tolerances_are_refused(options):
    (name,) = options
    with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
        sp.solve(clouds(4, 4), sp.Balanced(0.1), **options)


@pytest.mark.torch
def test_wrong_threads_are_refused_with_tensors():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="threads must be"):
        sp.solve(torch.zeros(2, 3, 3), sp.Balanced(0.1), threads=0)


@pytest.mark.parametrize("problem", [sp.Balanced(1e-300), sp.Partial(0.5, 1e-12), sp.Unbalanced(0.5, 1e-300)])
def test_a_regularisation_too_small_to_tell_from_none_is_refused(problem):
    cost = clouds(8, 8)
    with pytest.raises(ValueError, match="reg must be at least"):
        sp.solve(cost / cost.max(), problem)
