"""The loop itself: sums that neither overflow nor vanish, sweeps that never lose, Newton steps that agree with them."""

import numpy as np
import pytest

import spadeful as sp
from spadeful import _core, entropic
from spadeful.entropic import steps_of
from spadeful.sweeps import Exponents, Kernel, Potentials, iterate, log_sum_exp, newton, run, sweep
from truths import clouds, uniform

PROBLEMS = [
    sp.Balanced(0.2),
    sp.Partial(0.6, 0.2),
    sp.Unbalanced(0.5, 0.2),
    sp.Unbalanced((0.3, 1.0), 0.2),
    sp.Unbalanced(0.5, 0.2, divergence="tv"),
    sp.Unbalanced(0.5, 0.2, entropy="kl"),
]


def start(cost, problem):
    """Exponents, potentials at 0 and the problem's steps, for a batch (k, m, n)."""
    k, m, n = cost.shape
    log_a, log_b = np.log(uniform(m))[None], np.log(uniform(n))[None]
    at = Potentials(np.zeros((k, m)), np.zeros((k, n)), np.zeros(k))
    of_product = getattr(problem, "entropy", "plain") == "kl"
    exponents = Exponents(np, cost, problem.reg, log_a, log_b, of_product)
    return exponents, at, steps_of(problem, problem.reg, log_a, log_b)


@pytest.mark.parametrize("shift", [-1e5, 0.0, 1e5])
def test_log_sum_exp_neither_overflows_nor_vanishes(shift):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for axis in (1, 2):
        np.testing.assert_allclose(log_sum_exp(np, x + shift, axis), np.logaddexp.reduce(x, axis) + shift, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_log_sum_exp_of_nothing_is_minus_infinity():
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    assert log_sum_exp(np, x, 1).tolist() == [-np.inf, 0.0]


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("far", [0.0, 50.0, 500.0, 2000.0])
def test_sums_beside_the_kernel_are_those_of_the_logarithms(far):
    """However far the potentials have moved from those that the kernel was made at."""
    rng = np.random.default_rng(1)
    exponents, zero, _ = start(20 * rng.random((2, 4, 5)), sp.Balanced(1.0))
    logs, kernel = exponents.logs, Kernel.make(exponents, zero)
    now = Potentials(far * rng.normal(size=(2, 4)), far * rng.normal(size=(2, 5)), rng.normal(size=2))
    total = now.total[:, None]
    rows = np.logaddexp.reduce(logs + now.columns[:, None, :], 2) + total
    columns = np.logaddexp.reduce(logs + now.rows[:, :, None], 1) + total
    np.testing.assert_allclose(kernel.log_row_sums(now), rows, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(kernel.log_column_sums(now), columns, rtol=1e-10, atol=1e-10)
    kernel.absorb(now, kernel.far(now))
    np.testing.assert_allclose(kernel.log_row_sums(now), rows, rtol=1e-10, atol=1e-10)
    assert not kernel.far(now).any()


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_no_sweep_lowers_the_dual_objective(problem):
    """Each step maximises it over its own unknowns; no plan's objective is ever below it."""
    cost = clouds(6, 5)[None]
    exponents, now, steps = start(cost, problem)
    duals = []
    for _ in range(30):
        now, _, dual = sweep(Kernel.make(exponents, now), now, steps)
        duals.append(problem.reg * dual[0])
    assert (np.diff(duals) >= -1e-12).all()
    assert duals[-1] <= sp.solve(cost[0], problem).objective + 1e-12


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_newton_steps_stop_where_sweeps_stop(problem):
    """Both have the same fixed point, and close to it one Newton step does what many sweeps do."""
    exponents, now, steps = start(clouds(6, 5, seed=2)[None], problem)
    errors = []
    for _ in range(4000):
        now, error, _ = sweep(Kernel.make(exponents, now), now, steps)
        errors.append(error[0])
        if error[0] < 1e-4 and len(errors) > 1:
            break
    near = now
    for _ in range(8):
        near = near + newton(exponents.plan(near), np, near, steps, 1e-9)
    swept, error, _ = sweep(Kernel.make(exponents, near), near, steps)
    assert error[0] < 1e-10
    np.testing.assert_allclose(exponents.plan(swept), exponents.plan(near), atol=1e-10)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_problems_of_a_batch_do_not_touch_each_other(problem):
    batch = np.stack([0.01 * clouds(5, 6), clouds(5, 6, seed=3), 0.3 * clouds(5, 6, seed=4)])
    exponents, at, steps = start(batch, problem)
    together, counts, errors = iterate(exponents, at, steps, 1e-6, 5000)
    assert (errors <= 1e-6).all()
    assert counts.min() < counts.max()  # easy ones are put aside
    for i in range(3):
        one = slice(i, i + 1)
        alone, count, _ = iterate(exponents.pick(one), at.pick(one), steps, 1e-6, 5000)
        assert count[0] == counts[i]
        np.testing.assert_allclose(together.rows[i], alone.rows[0], atol=1e-9)
        np.testing.assert_allclose(together.columns[i], alone.columns[0], atol=1e-9)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_core_sweeps_by_the_same_formulas(problem, scale):
    """Also where the exponentials of the costs vanish."""
    exponents, now, steps = start(scale * clouds(7, 5)[None], problem)
    if steps.mass:
        now.total[:] = -exponents.logs.max()
    compiled = now * 1.0
    for _ in range(5):
        now, error, _ = sweep(Kernel.make(exponents, now), now, steps)
        count, found = run(exponents, compiled, steps, 0.0, 1)
        assert count.tolist() == [1]
        for name in ("rows", "columns", "total"):
            np.testing.assert_allclose(getattr(compiled, name), getattr(now, name), rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(found, error, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("level", ["scalar", "avx2", "avx512"])
def test_exponentials_and_sweeps_have_the_same_bits_at_every_level(level):
    rng = np.random.default_rng(5)
    costs, rows, columns = rng.uniform(-750, 800, (2, 9, 13)), rng.normal(size=(2, 9)), rng.normal(size=(2, 13))
    near, at, steps = start(np.stack([clouds(9, 13), clouds(9, 13, seed=1)]), sp.Unbalanced(0.5, 0.2))
    results = []
    try:
        for name in ("best", level):
            if not _core.choose_simd_level(name):
                pytest.skip(f"this processor has no {level}")
            there = at * 1.0
            run(near, there, steps, 0.0, 30)
            plans = np.empty_like(costs)
            _core.plans(costs, 1.0, rows, columns, np.zeros(2), plans, 1)
            results.append([plans, there.rows, there.columns])
    finally:
        _core.choose_simd_level("best")
    with np.errstate(over="ignore", under="ignore"):
        truth = np.exp(columns[:, None, :] - costs + rows[:, :, None])
    normal = (truth > 1e-306) & (truth < 1e307)
    assert normal.any()
    np.testing.assert_allclose(results[0][0][normal], truth[normal], rtol=1e-12)
    for best, other in zip(*results, strict=True):
        np.testing.assert_array_equal(best, other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"rows": np.zeros((1, 3))}, "potentials must have"), ({"log_a": np.zeros(3)}, "weights must have")],
)
def test_the_core_refuses_shapes_that_do_not_fit(wrong, message):
    step = (1.0, -np.inf, np.inf, 0.0)
    given = {"rows": np.zeros((1, 4)), "columns": np.zeros((1, 5)), "totals": np.zeros(1)}
    given |= {"log_a": np.zeros(4), "log_b": np.zeros(5)}
    with pytest.raises(ValueError, match=message):
        _core.sweeps(
            np.zeros((1, 4, 5)),
            1.0,
            False,
            **(given | wrong),
            row_step=step,
            column_step=step,
            mass=0.0,
            tol=1.0,
            most=1,
            worth=1.0,
            threads=1,
        )


@pytest.mark.torch
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_tensors_on_a_device_give_the_same_plan(problem, monkeypatch):
    """The processor's memory stands in for the device's."""
    torch = pytest.importorskip("torch")
    costs = np.stack([0.01 * clouds(5, 6), clouds(5, 6, seed=3), 0.3 * clouds(5, 6, seed=4)])
    costs[1, 0, 0] = np.inf
    plan = sp.solve(costs, problem)
    monkeypatch.setattr(entropic, "on_device", entropic.is_torch)
    found = sp.solve(torch.tensor(costs), problem)
    assert isinstance(found._answer.dense, torch.Tensor)
    np.testing.assert_allclose(found.matrix.numpy(), plan.matrix, atol=1e-6)
    np.testing.assert_allclose(found.objective.numpy(), plan.objective, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_numpy_and_torch_sweep_alike(problem):
    torch = pytest.importorskip("torch")
    exponents, at, steps = start(clouds(5, 4)[None], problem)
    tensors = Potentials(*(torch.tensor(x) for x in (at.rows, at.columns, at.total)))
    log_weights = [torch.tensor(side.log_weights) for side in (steps.rows, steps.columns)]
    same = steps_of(problem, problem.reg, *log_weights)
    new, error, dual = sweep(Kernel.make(exponents, at), at, steps)
    on_device = Exponents(torch, torch.tensor(exponents.cost), problem.reg, *log_weights, exponents.of_product)
    found = sweep(Kernel.make(on_device, tensors), tensors, same)
    np.testing.assert_allclose(found[0].rows.numpy(), new.rows, rtol=1e-12)
    np.testing.assert_allclose(found[0].columns.numpy(), new.columns, rtol=1e-12)
    np.testing.assert_allclose([float(found[1]), float(found[2])], [error[0], dual[0]], rtol=1e-12)
