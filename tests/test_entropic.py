"""Regularised transport: against independent solvers, references in long double, limits, and where others fail."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import spadeful as sp
from truths import check_entropic, check_feasible, clouds, largest_mass, long_sweeps, objective_of, uniform

KINDS = ("balanced", "partial", "kl", "kl of product", "tv", "tv of product")


def problem_of(kind, reg, tau=0.5):
    """One of each kind of problem, the unbalanced ones with penalties around tau."""
    return {
        "balanced": lambda: sp.Balanced(reg),
        "partial": lambda: sp.Partial(0.6, reg),
        "kl": lambda: sp.Unbalanced(tau, reg),
        "kl of product": lambda: sp.Unbalanced((tau, 2 * tau), reg, entropy="kl"),
        "tv": lambda: sp.Unbalanced(tau, reg, divergence="tv"),
        "tv of product": lambda: sp.Unbalanced((2 * tau, tau), reg, divergence="tv", entropy="kl"),
    }[kind]()


def random_weights(m, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(m, 3.0)), rng.dirichlet(np.full(n, 3.0))


def exact_of(problem):
    """The same problem without regularisation."""
    if isinstance(problem, sp.Unbalanced):
        return sp.Unbalanced(problem.tau, divergence=problem.divergence)
    return sp.Partial(getattr(problem, "mass", 1.0))


# Against independent solvers.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reg", [0.2, 3.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_long_double_sweeps(kind, reg, weighted):
    cost, problem = clouds(5, 4), problem_of(kind, reg)
    a, b = random_weights(5, 4) if weighted else (None, None)
    plan = sp.solve(cost, problem, a, b)
    check_entropic(plan, cost, problem, a, b)
    np.testing.assert_allclose(plan.matrix, long_sweeps(cost, problem, a, b), atol=1e-6)


@pytest.mark.parametrize("kind", ["balanced", "partial", "kl", "kl of product"])
def test_a_smaller_tolerance_gives_a_closer_plan(kind):
    cost, problem = clouds(5, 4, seed=1), problem_of(kind, 0.3)
    plan = sp.solve(cost, problem, tol=1e-12)
    check_entropic(plan, cost, problem, tol=1e-12)
    np.testing.assert_allclose(plan.matrix, long_sweeps(cost, problem), atol=1e-11)


@pytest.mark.parametrize("reg", [0.2, 1.0])
def test_agrees_with_pot_balanced(reg):
    ot = pytest.importorskip("ot")
    cost, (a, b) = clouds(20, 15), random_weights(20, 15)
    rival = ot.bregman.sinkhorn_log(a, b, cost, reg, numItermax=5000, stopThr=1e-10)
    plan = sp.solve(cost, sp.Balanced(reg), a, b, tol=1e-9)
    np.testing.assert_allclose(plan.matrix, rival, atol=1e-8)


@pytest.mark.parametrize("reg", [0.2, 1.0])
@pytest.mark.parametrize("mass", [0.3, 0.9])
def test_agrees_with_pot_partial(reg, mass):
    ot = pytest.importorskip("ot")
    cost, (a, b) = clouds(8, 9), random_weights(8, 9)
    rival = ot.partial.entropic_partial_wasserstein(a, b, cost, reg, m=mass, numItermax=3000, stopThr=1e-14)
    plan = sp.solve(cost, sp.Partial(mass, reg), a, b, tol=1e-9)
    np.testing.assert_allclose(plan.matrix, rival, atol=1e-7)


@pytest.mark.parametrize("tau", [0.3, 2.0, (0.5, 3.0)])
@pytest.mark.parametrize(("entropy", "name"), [("plain", "entropy"), ("kl", "kl")])
def test_agrees_with_pot_unbalanced(tau, entropy, name):
    ot = pytest.importorskip("ot")
    cost, (a, b) = clouds(12, 10), random_weights(12, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it speaks of a matrix that nobody passed
        rival = ot.unbalanced.sinkhorn_unbalanced(a, b, cost, 0.2, tau, reg_type=name, numItermax=20_000, stopThr=1e-13)
    plan = sp.solve(cost, sp.Unbalanced(tau, 0.2, entropy=entropy), a, b, tol=1e-9)
    np.testing.assert_allclose(plan.matrix, rival, atol=1e-8)


# Closed forms and limits.


def test_one_pair_has_a_closed_form():
    """min c p + 2 tau KL(p | 1) + reg p (log p - 1): p = exp(-c / (2 tau + reg)); against the product, the same."""
    for entropy in ("plain", "kl"):
        plan = sp.solve(np.array([[3.0]]), sp.Unbalanced(0.7, 0.2, entropy=entropy))
        assert plan.mass == pytest.approx(np.exp(-3 / 1.6), rel=1e-6)


@pytest.mark.parametrize("kind", ["balanced", "partial"])
def test_large_regularisation_spreads_the_mass(kind):
    """Only the entropy counts: the plan is the product of the weights, scaled to the mass where that fits."""
    problem, (a, b) = problem_of(kind, 1e9), random_weights(6, 5)
    plan = sp.solve(clouds(6, 5), problem, a, b)
    if kind == "balanced":
        np.testing.assert_allclose(plan.matrix, np.outer(a, b), atol=1e-6)
    uniformly = sp.solve(clouds(6, 5), problem)
    np.testing.assert_allclose(uniformly.matrix, plan.mass / 30, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_small_regularisation_approaches_the_exact_plan(kind):
    """The optimum is off by at most what the entropy of any plan can be."""
    cost = clouds(15, 15)
    off = []
    for reg in (1e-1, 1e-2, 1e-3):
        problem = problem_of(kind, reg)
        plan, best = sp.solve(cost, problem), sp.solve(cost, exact_of(problem))
        unregularised = objective_of(plan.matrix, cost, exact_of(problem))
        off.append(unregularised - best.objective)
        assert -1e-6 <= off[-1] <= 2 * reg * np.log(225)
    assert off[2] < off[0]


@pytest.mark.parametrize("divergence", ["kl", "tv"])
@pytest.mark.parametrize("entropy", ["plain", "kl"])
def test_a_large_penalty_approaches_balanced_transport(divergence, entropy):
    cost, (a, b) = clouds(9, 9), random_weights(9, 9)
    balanced = sp.solve(cost, sp.Balanced(0.1), a, b).matrix
    if entropy == "kl":
        np.testing.assert_allclose(balanced, sp.solve(cost, sp.Balanced(0.1), a, b).matrix)
    off = [
        np.abs(sp.solve(cost, sp.Unbalanced(tau, 0.1, divergence, entropy), a, b).matrix - balanced).max()
        for tau in (1.0, 1e2, 1e5)
    ]
    assert off[2] < 1e-5
    assert off[2] <= off[1] + 1e-7 <= off[0] + 2e-7  # up to what the iteration leaves


def test_full_mass_is_balanced():
    cost = clouds(12, 9)
    assert np.array_equal(sp.solve(cost, sp.Partial(1.0, 0.1)).matrix, sp.solve(cost, sp.Balanced(0.1)).matrix)
    nearly = sp.solve(cost, sp.Partial(1 - 1e-9, 0.1)).matrix
    np.testing.assert_allclose(nearly, sp.solve(cost, sp.Balanced(0.1)).matrix, atol=1e-6)


# The paper's figures.

EXAMPLE = 1 + (np.arange(1.0, 4)[:, None] - np.arange(3.0, 6)) ** 2


def test_every_entry_of_example_1_grows_with_tau():
    """Appendix on visualisation: "always non-zero for every value of tau"; "increasing tau leads to a higher value
    for entries"."""
    plans = [sp.solve(EXAMPLE, sp.Unbalanced(tau, 0.1)) for tau in (0.2, 0.5, 1.0, 10.0)]
    assert all((plan.matrix > 0).all() for plan in plans)
    masses = [plan.mass for plan in plans]
    assert masses == sorted(masses)
    assert masses[0] < 0.5 < masses[3]
    for plan in plans[:2]:  # "the mass of misspecified matchings is small compared to the right matchings"
        assert plan.matrix[2, 0] > 0.5 * plan.mass


@pytest.mark.parametrize("tau", [0.2, 0.5, 1.0, 10.0])
def test_scaling_the_supports_changes_unbalanced_plans(tau):
    plan, scaled = (sp.solve(c, sp.Unbalanced(tau, 0.1)).matrix for c in (EXAMPLE, 100 * EXAMPLE))
    assert scaled.sum() < 0.5 * plan.sum()


@pytest.mark.parametrize("mass", [1 / 3, 0.5, 2 / 3, 1.0])
def test_scaling_the_supports_leaves_partial_plans(mass):
    plan, scaled = (sp.solve(c, sp.Partial(mass)).matrix for c in (EXAMPLE, 100 * EXAMPLE))
    np.testing.assert_allclose(scaled, plan, atol=1e-12)
    soft, scaled = (sp.solve(t * EXAMPLE, sp.Partial(mass, 0.1 * t)).matrix for t in (1, 100))
    np.testing.assert_allclose(scaled, soft, atol=1e-12)


# Every scale and precision.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reg", [1e-4, 1e-2, 1.0, 1e2])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_every_regularisation_of_every_scale(kind, reg, scale):
    cost = clouds(14, 16)
    cost *= scale / cost.max()
    problem, (a, b) = problem_of(kind, reg * scale, 0.3 * scale), random_weights(14, 16)
    plan = sp.solve(cost, problem, a, b)
    check_entropic(plan, cost, problem, a, b)
    single = sp.solve(cost.astype(np.float32), problem, a, b)
    check_entropic(single, cost.astype(np.float32), problem, a, b)
    assert single.matrix.dtype == np.float32
    assert single.value == pytest.approx(plan.value, rel=1e-3, abs=1e-5 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost", [np.zeros((3, 4)), -np.ones((3, 4)), np.full((3, 4), 7.0), np.array([[5.0]])])
def test_constant_costs(kind, cost):
    problem = problem_of(kind, 0.1)
    check_entropic(sp.solve(cost, problem), cost, problem)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f2", "i4", "u1", ">f8", "g"])
def test_every_real_type(kind, dtype):
    cost = np.random.default_rng(0).permutation(24).reshape(4, 6)
    problem = problem_of(kind, 2.0, 3.0)
    plan = sp.solve(cost.astype(dtype), problem)
    expected = sp.solve(cost.astype(np.float64), problem)
    assert plan.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(plan.matrix, expected.matrix, rtol=1e-3, atol=1e-7)
    assert plan.matrix.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_points_does_not_matter(kind):
    cost, problem, (a, b) = clouds(8, 6), problem_of(kind, 0.1), random_weights(8, 6)
    rng = np.random.default_rng(0)
    rows, cols = rng.permutation(8), rng.permutation(6)
    plan, moved = (
        sp.solve(cost, problem, a, b, tol=1e-10),
        sp.solve(cost[rows][:, cols], problem, a[rows], b[cols], tol=1e-10),
    )
    np.testing.assert_allclose(moved.matrix, plan.matrix[rows][:, cols], atol=1e-9)


def test_inputs_are_never_modified():
    cost, (a, b) = clouds(6, 7), random_weights(6, 7)
    before = [x.copy() for x in (cost, a, b)]
    for x in (cost, a, b):
        x.flags.writeable = False
    for kind in KINDS:
        sp.solve(cost, problem_of(kind, 0.05), a, b)
    assert all(np.array_equal(now, then) for now, then in zip((cost, a, b), before, strict=True))


# Zero weights and forbidden pairs.


@pytest.mark.parametrize("kind", ["balanced", "partial", "kl", "kl of product", "tv of product"])
@pytest.mark.parametrize("reg", [1e-2, 1.0])
def test_points_without_weight_might_as_well_be_absent(kind, reg):
    cost, problem = clouds(6, 7), problem_of(kind, reg)
    a, b = np.array([0.2, 0, 0.5, 0.3, 0, 0]), np.array([0, 0.25, 0.25, 0, 0.4, 0.1, 0])
    plan = sp.solve(cost, problem, a, b)
    check_entropic(plan, cost, problem, a, b)
    present = sp.solve(cost[a > 0][:, b > 0], problem, a[a > 0], b[b > 0])
    np.testing.assert_allclose(plan.matrix[a > 0][:, b > 0], present.matrix, atol=1e-6)
    assert plan.matrix[a == 0].sum() == plan.matrix[:, b == 0].sum() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reg", [1e-2, 0.1, 1.0])
def test_forbidden_pairs_carry_nothing(kind, reg):
    """A very dear pair in their place gives the same plan."""
    rng = np.random.default_rng(3)
    forbidden = rng.random((10, 10)) < 0.4
    np.fill_diagonal(forbidden, False)
    cost, problem = rng.random((10, 10)), problem_of(kind, reg)
    plan = sp.solve(np.where(forbidden, np.inf, cost), problem)
    check_entropic(plan, np.where(forbidden, np.inf, cost), problem)
    dear = sp.solve(np.where(forbidden, 1e3, cost), problem)
    np.testing.assert_allclose(plan.matrix, dear.matrix, atol=1e-5)


@pytest.mark.parametrize("mass", [0.7, 1.0])
def test_mass_that_forbidden_pairs_leave_no_room_for_is_refused(mass):
    rng = np.random.default_rng(4)
    cost = np.where(rng.random((6, 5)) < 0.5, np.inf, rng.random((6, 5)))
    cost[:3] = np.inf
    a, b = random_weights(6, 5)
    largest = largest_mass(cost, a, b)
    assert largest < 0.7
    with pytest.raises(ValueError, match="cannot be transported") as error:
        sp.solve(cost, sp.Partial(mass, 0.1), a, b)
    named = float(re.search(r"room for at most ([\d.e+-]+)\. Ask", str(error.value))[1])
    assert named == pytest.approx(largest, abs=1e-9)


def test_the_error_names_the_problem_of_a_batch():
    batch = np.ones((4, 2, 2))
    batch[2, 0] = np.inf
    with pytest.raises(ValueError, match=r"cannot be transported for cost\[2\].* at most 0\.5\."):
        sp.solve(batch, sp.Balanced(0.1))


# Batches and threads.


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_easy_and_hard_problems_is_its_problems_one_by_one(kind):
    cost, problem = clouds(9, 8), problem_of(kind, 0.1)
    batch = np.stack([1e-3 * cost, cost, 100 * cost, np.zeros_like(cost), clouds(9, 8, seed=5) - 3, 0.1 * cost])
    plans = sp.solve(batch, problem, tol=1e-9)
    assert plans.converged.shape == plans.n_iter.shape == plans.marginal_error.shape == plans.objective.shape == (6,)
    for i, cost in enumerate(batch):
        alone = sp.solve(cost, problem, tol=1e-9)
        np.testing.assert_allclose(plans.matrix[i], alone.matrix, atol=1e-6)
        for field in ("value", "objective", "mass"):
            unit = 1 + np.abs(cost).max()
            assert getattr(plans, field)[i] == pytest.approx(getattr(alone, field), abs=1e-6 * unit), field


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_a_bit(kind):
    batch = np.random.default_rng(6).random((7, 12, 11)) * np.logspace(-2, 2, 7)[:, None, None]
    plans = [sp.solve(batch, problem_of(kind, 0.05), threads=threads) for threads in (1, 2, 5, None)]
    for field in ("matrix", "objective", "row_prices", "col_prices", "n_iter"):
        assert all(np.array_equal(getattr(plans[0], field), getattr(plan, field)) for plan in plans[1:]), field


def test_fields_of_one_problem_are_numbers():
    plan = sp.solve(clouds(3, 4), sp.Unbalanced(0.5, 0.1))
    fields = ("value", "objective", "mass", "gap", "price", "marginal_error")
    assert [type(getattr(plan, field)) for field in fields] == [float] * 6
    assert plan.converged is True
    assert type(plan.n_iter) is int
    assert plan.n_iter > 0


# Giving up.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_iter", [1, 2])
def test_a_plan_that_did_not_converge_says_so_and_is_feasible(kind, max_iter):
    cost, problem, (a, b) = clouds(20, 20), problem_of(kind, 0.01), random_weights(20, 20)
    with pytest.warns(sp.NotConverged, match=r"was not reached within \d sweeps for 1 of 1 .* Raise max_iter"):
        plan = sp.solve(cost, problem, a, b, max_iter=max_iter)
    assert plan.converged is False
    assert plan.marginal_error > 1e-6
    assert np.isfinite(plan.matrix).all()
    assert (plan.matrix >= 0).all()
    check_feasible(plan.matrix, problem, a, b)
    assert plan.gap > 0  # and still a bound: no better plan is known
    assert plan.objective - plan.gap <= sp.solve(cost, problem, a, b).objective


def test_a_batch_says_which_problems_did_not_converge():
    cost = clouds(20, 20)
    with pytest.warns(sp.NotConverged, match="for 1 of 2 problems"):
        plans = sp.solve(np.stack([np.zeros_like(cost), 100 * cost]), sp.Balanced(0.1), max_iter=3)
    assert plans.converged.tolist() == [True, False]


# Where other tools fail, each in a test of its own.


def test_pot_underflows_in_single_precision():
    """exp(-1.04 / 0.01) is 0 in float32: a batch whose costs all exceed it gets an all-zero plan."""
    cost = (1.05 + clouds(10, 10)).astype(np.float32)
    for kind in KINDS:
        problem = problem_of(kind, 0.01, 2.0)
        plan = sp.solve(cost, problem)
        check_entropic(plan, cost, problem)
        assert plan.matrix.sum() > 1e-3


def test_pot_gives_nan_for_one_dear_pair():
    """At the paper's VisDA setting, reg = 0.004, one cost above 2.98 is enough."""
    cost = np.random.default_rng(0).random((10, 10))
    cost[3, 4] = 3.1
    check_entropic(sp.solve(cost, sp.Partial(0.75, 0.004)), cost, sp.Partial(0.75, 0.004))


@pytest.mark.parametrize("reg", [1e-1, 1e-2, 1e-3, 1e-4])
def test_pot_gives_nan_at_small_regularisation(reg):
    """POT #723."""
    cost = clouds(12, 12)
    problem = sp.Partial(0.5, reg * cost.max())
    check_entropic(sp.solve(cost, problem), cost, problem)


@pytest.mark.parametrize("divergence", ["kl", "tv"])
def test_the_two_entropies_differ_by_a_constant_on_every_cost(divergence):
    """With m equal weights a side, the product's entropy is the plain one with costs raised by 2 reg log(m)."""
    cost, reg, m = clouds(8, 8), 0.1, 8
    product = sp.solve(cost, sp.Unbalanced(0.5, reg, divergence, "kl"), tol=1e-9)
    raised = sp.solve(cost + 2 * reg * np.log(m), sp.Unbalanced(0.5, reg, divergence, "plain"), tol=1e-9)
    np.testing.assert_allclose(product.matrix, raised.matrix, atol=1e-7)
    plain = sp.solve(cost, sp.Unbalanced(0.5, reg, divergence, "plain"))
    assert plain.mass > product.mass + 0.01
    # The product's own mass is the rest of it.
    assert product.objective == pytest.approx(raised.objective + reg, abs=1e-7)


def test_pot_leaves_open_which_term_a_cost_is():
    """POT #245: value is the transport part, objective all of it."""
    cost = clouds(5, 6)
    problem = sp.Unbalanced(0.5, 0.1)
    plan = sp.solve(cost, problem)
    assert plan.value == pytest.approx((cost * plan.matrix).sum(), rel=1e-12)
    assert plan.objective == pytest.approx(objective_of(plan.matrix, cost, problem), rel=1e-12)
    assert abs(plan.objective - plan.value) > 0.01


def test_no_library_solves_a_batch_of_partial_problems():
    """POT #392."""
    batch = np.random.default_rng(1).random((30, 6, 6))
    plans = sp.solve(batch, sp.Partial(0.5, 0.05))
    np.testing.assert_allclose(plans.mass, 0.5, atol=1e-9)
    assert (plans.gap < 1e-5).all()


# What is refused.


@pytest.fixture(params=KINDS)
def problem(request):
    return problem_of(request.param, 0.1)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_nan_and_minus_infinity_are_refused(problem, bad, dtype):
    cost = np.zeros((2, 3, 4), dtype)
    cost[1, 2, 1] = bad
    with pytest.raises(ValueError, match=r"cost must hold no NaN and no -inf.*Got (nan|-inf) at cost\[1, 2, 1\]"):
        sp.solve(cost, problem)


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (3.0, ValueError, "cost must have the shape"),
        (np.zeros(3), ValueError, "cost must have the shape"),
        (np.zeros((1, 1, 1, 1)), ValueError, "cost must have the shape"),
        (np.zeros((0, 0)), ValueError, "cost must not be empty"),
        (np.zeros((2, 0, 2)), ValueError, "cost must not be empty"),
        (np.eye(2) + 0j, TypeError, "cost must hold real numbers"),
        (np.array([["1", "2"]]), TypeError, "cost must hold real numbers"),
        (np.array([[1.0, None]]), TypeError, "cost must hold real numbers"),
        (np.ma.masked_greater(np.eye(3), 0), TypeError, "cost must not be masked"),
    ],
    ids=["number", "1-D", "4-D", "empty", "empty batch", "complex", "string", "object", "masked"],
)
def test_wrong_costs_are_refused(problem, cost, error, message):
    with pytest.raises(error, match=message):
        sp.solve(cost, problem)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"must have the shape \(3,\)"),
        ([0.5, 0.75, -0.25], "must hold finite weights"),
        ([0.5, 0.5, np.nan], "must hold finite weights"),
        ([1, 1, 1], "must sum to 1"),
        (np.full(3, 1 / 3) + 0j, "must hold real numbers"),
        (np.ma.masked_less(np.full(3, 1 / 3), 0), "must not be masked"),
    ],
)
def test_wrong_weights_are_refused(problem, name, weights, message):
    with pytest.raises((ValueError, TypeError), match=f"^{name} {message}"):
        sp.solve(np.zeros((3, 3)), problem, **{name: weights})


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_wrong_threads_are_refused(problem, threads):
    with pytest.raises((ValueError, TypeError), match="threads must be a whole number of at least 1, or None"):
        sp.solve(np.zeros((2, 3, 3)), problem, threads=threads)


@pytest.mark.torch
class TestTorch:
    """Tensors in, tensors out, and their gradients."""

    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
    def test_every_type(self, torch, kind, dtype):
        cost = torch.arange(20).reshape(4, 5).flip(0).to(getattr(torch, dtype))
        plan, problem = sp.solve(cost, problem_of(kind, 2.0, 3.0)), problem_of(kind, 2.0, 3.0)
        expected = cost.dtype if cost.dtype.is_floating_point else torch.float64
        for field in ("matrix", "value", "objective", "mass", "price", "gap", "row_prices", "col_prices"):
            found = getattr(plan, field)
            assert isinstance(found, torch.Tensor), field
            assert (found.dtype, found.device) == (expected, cost.device), field
        reference = sp.solve(cost.double().numpy(), problem)
        np.testing.assert_allclose(plan.matrix.double().numpy(), reference.matrix, rtol=2e-3, atol=1e-6)
        assert float(plan.value) == pytest.approx(reference.value, rel=2e-3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_batches_forbidden_pairs_and_weights(self, torch, kind):
        batch = np.random.default_rng(2).random((3, 5, 5))
        batch[1, 0, 1] = batch[2, 3, 3] = np.inf
        weights, problem = random_weights(5, 5), problem_of(kind, 0.05)
        plans = sp.solve(torch.tensor(batch), problem, *map(torch.tensor, weights))
        reference = sp.solve(batch, problem, *weights)
        np.testing.assert_allclose(plans.matrix.numpy(), reference.matrix, atol=1e-6)
        np.testing.assert_allclose(plans.objective.numpy(), reference.objective, atol=1e-6)

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_gradient_of_the_objective_agrees_with_finite_differences(self, torch, kind):
        cost = torch.tensor(clouds(4, 3), requires_grad=True)
        objective = lambda c: sp.solve(c, problem_of(kind, 0.3), tol=1e-12).objective  # noqa: E731
        assert torch.autograd.gradcheck(objective, cost, eps=1e-5, atol=1e-6)

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_gradient_of_the_value_is_the_plan(self, torch, kind):
        cost = torch.tensor(clouds(6, 7), requires_grad=True)
        plan = sp.solve(cost, problem_of(kind, 0.1))
        plan.value.backward()
        assert torch.equal(cost.grad, plan.matrix)
        assert not plan.matrix.requires_grad

    @pytest.mark.parametrize("kind", KINDS)
    def test_forbidden_pairs_have_no_gradient(self, torch, kind):
        cost = torch.tensor([[torch.inf, 2.0], [1.0, 0.0]], requires_grad=True)
        sp.solve(cost, problem_of(kind, 0.5, 2.0)).objective.backward()
        assert cost.grad[0, 0] == 0
        assert cost.grad.isfinite().all()
        assert (cost.grad.flatten()[1:3] > 0).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_single_precision_costs_give_no_nan(self, torch, kind):
        cost = torch.tensor(1.05 + clouds(8, 8), dtype=torch.float32, requires_grad=True)
        plan = sp.solve(cost, problem_of(kind, 0.004, 2.0))
        plan.objective.backward()
        assert plan.matrix.isfinite().all()
        assert cost.grad.isfinite().all()
        assert plan.mass > 1e-3


def test_nothing_is_warned_of_on_the_way():
    """Infinities and underflow inside are no concern of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            sp.solve(np.array([[0.0, np.inf, 1.0], [1e3, 0.0, 2.0]]), problem_of(kind, 1e-3), b=uniform(3))


SEESAW = [[1.0, 0.0], [0.0, 2.0]], [0.5, 0.5], [0.75, 0.25]
THREE = (
    [[0.413, 0.919, 0.866, 0.346, 0.857], [0.861, 1.048, 0.597, 1.083, 0.073], [1.116, 0.438, 0.944, 0.824, 0.99]],
    [0.1317, 0.4648, 0.4035],
    [0.2489, 0.4845, 0.0569, 0.1357, 0.074],
)


@pytest.mark.parametrize(
    ("problem", "cost", "a", "b"),
    [
        *((sp.Partial(0.99, reg), *SEESAW) for reg in (0.02, 0.01, 0.005)),
        (
            sp.Unbalanced((3.29, 1.89), 0.05, divergence="tv", entropy="kl"),
            [[0.0, 1.0, 1.0, -1.0, 2.0], [2.0, 4.0, 3.0, -1.0, 2.0]],
            [0.949, 0.051],
            [0.25, 0.004, 0.165, 0.469, 0.112],
        ),
        *((sp.Balanced(reg), *THREE) for reg in (5.7e-4, 3e-4)),
    ],
)
def test_newton_steps_that_lower_the_dual_or_overflow_are_not_taken(problem, cost, a, b):
    """Potentials that had run away took tens of thousands of sweeps, and did not come back."""
    plan = sp.solve(cost, problem, a, b)
    check_entropic(plan, cost, problem, np.array(a), np.array(b))
    assert plan.n_iter < 500


@pytest.mark.parametrize("divergence", ["kl", "tv"])
@pytest.mark.parametrize("reg", [1e-3, 1e-2])
def test_parts_that_no_pair_joins_may_have_prices_far_apart(divergence, reg):
    for size in (1, 20):
        labels = np.repeat([0, 1], size)
        cost = np.where(labels[:, None] == labels, np.random.default_rng(size).random((2 * size, 2 * size)), np.inf)
        a, b = (np.repeat(shares, size) / size for shares in ([0.3, 0.7], [0.6, 0.4]))
        problem = sp.Unbalanced(1000.0, reg, divergence=divergence)
        plan = sp.solve(cost, problem, a, b)
        check_entropic(plan, cost, problem, a, b)
        assert plan.n_iter < 500


@pytest.mark.parametrize("seed", range(8))
def test_clusters_of_every_tightness_converge_soon(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        m, n = rng.integers(2, 31, 2)
        centres, (x_width, y_width) = rng.normal(size=(4, 2)) * 3, 10.0 ** rng.uniform(-2, 0, 2)
        x = centres[rng.integers(0, 4, m)] + x_width * rng.normal(size=(m, 2))
        y = centres[rng.integers(0, 4, n)] + y_width * rng.normal(size=(n, 2))
        cost = ((x[:, None] - y) ** 2).sum(-1)
        scale = float(np.ptp(cost))
        reg, tau = (float(scale * 10.0 ** rng.uniform(low, high)) for low, high in ((-4, -1), (-3, 1)))
        mass = float(rng.choice([0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999]))
        kl, tv = (sp.Unbalanced(tau, reg, divergence=kind) for kind in ("kl", "tv"))
        for problem in (sp.Balanced(reg), sp.Partial(mass, reg), kl, tv):
            plan = sp.solve(cost, problem)
            check_entropic(plan, cost, problem)
            assert plan.n_iter < 2000, problem


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("reg", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("mass", [0.3, 0.8375, 0.99])
def test_one_row_fills_its_columns_like_water(n, reg, mass):
    """Each column takes a common level times its kernel, up to its weight."""
    cost = np.random.default_rng(n).random(n)
    logs = (cost.min() - cost) / reg
    low, high = -800.0, 800.0 + 1 / reg  # of the logarithm of the level
    for _ in range(200):
        middle = (low + high) / 2
        filled = np.minimum(1 / n, np.exp(np.minimum(0, middle + logs)))
        low, high = (middle, high) if filled.sum() < mass else (low, middle)
    plan = sp.solve(cost[None], sp.Partial(mass, reg), tol=1e-10)
    assert plan.converged
    np.testing.assert_allclose(plan.matrix[0], filled, atol=1e-6)


@pytest.mark.parametrize(
    "problem", [sp.Unbalanced(0.1, 1e-3, divergence="tv"), sp.Unbalanced(1e-4, 1e-4)], ids=["tv", "kl"]
)
def test_mass_beyond_counting_is_refused(problem):
    with pytest.raises(ValueError, match="so much mass would come into being"):
        sp.solve(np.array([[-1.0, 0.0], [0.0, 1.0]]), problem)


@pytest.mark.parametrize("log_mass", [650.0, 685.0, 705.0, 709.0, 709.7, 709.9, 720.0])
def test_mass_just_short_of_beyond_counting_is_right_or_refused(log_mass):
    cost, problem = np.array([[-0.01 * log_mass - 0.2]]), sp.Unbalanced(0.1, 0.01, divergence="tv")
    if log_mass > 690:
        with pytest.raises(ValueError, match="so much mass would come into being"):
            sp.solve(cost, problem)
        return
    plan = sp.solve(cost, problem)
    assert np.log(plan.mass) == pytest.approx(log_mass, rel=1e-9)
    assert np.isfinite([plan.objective, plan.gap, plan.value]).all()


def test_threads_leave_the_warnings_of_others_alone():
    x, y = np.random.default_rng(0).normal(size=(2, 100, 2))
    filters = [*warnings.filters]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda seed: sp.minibatch(x, y, sp.Balanced(0.1), 20, 40, seed=seed), range(20)))
    assert [*warnings.filters] == filters
