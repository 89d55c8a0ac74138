"""Transport on lines: against the exact solver for every mass; sliced over directions, against closed forms."""

import copy
import math
import sys

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
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (6, 4), (4001, 4003), (99_991, 100_003)])
def test_all_the_mass_costs_the_integral_between_the_quantiles_whatever_the_sizes(p, m, n):
    rng = np.random.default_rng(m)
    x, y = rng.normal(size=m), 1 + rng.normal(size=n)
    ends = np.union1d(np.arange(1, m + 1) * n, np.arange(1, n + 1) * m)  # in parts of 1 / (m n)
    way = abs(np.sort(x)[(ends - 1) // n] - np.sort(y)[(ends - 1) // m])
    expected = (np.diff(ends, prepend=0) / (m * n)) @ way**p
    assert _core.lines(x[None], y[None], 1.0, p, 1).values[0] == pytest.approx(expected, rel=1e-12)


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


def cloud(n=60, d=3, seed=0, shift=0.0):
    return np.random.default_rng(seed).normal(size=(n, d)) + shift


@POWERS
def test_two_points_cost_their_distance_along_each_direction(p):
    x, y = np.array([[0.0, 0, 0]]), np.array([[1.0, -2, 2]])
    for problem, mass in ((sp.Balanced(), 1.0), (sp.Partial(0.4), 0.4)):
        found = sp.sliced(x, y, problem, 20, p=p)
        np.testing.assert_allclose(np.linalg.norm(found.directions, axis=1), 1, rtol=1e-14)
        np.testing.assert_allclose(found.values, mass * abs(found.directions @ y[0]) ** p, atol=1e-14)
        assert found.value == pytest.approx(found.values.mean())
        assert found.standard_error == pytest.approx(found.values.std(ddof=1) / math.sqrt(20))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_translation_costs_its_square_over_the_dimension(d):
    x, t = cloud(40, d), np.arange(1.0, d + 1)
    found = sp.sliced(x, x + t, sp.Balanced(), 2000)
    np.testing.assert_allclose(found.values, (found.directions @ t) ** 2, rtol=1e-10)
    assert abs(found.value - t @ t / d) <= 4 * found.standard_error + 1e-12


def test_directions_are_uniform():
    towards = sp.sliced(cloud(1), cloud(1), sp.Balanced(), 20_000).directions
    np.testing.assert_allclose(towards.mean(0), 0, atol=4 / math.sqrt(3 * 20_000))
    np.testing.assert_allclose(towards.T @ towards / 20_000, np.eye(3) / 3, atol=0.01)


@POWERS
def test_each_direction_is_solved_as_the_exact_solver_does(p):
    x, y = cloud(12), cloud(18, seed=1, shift=0.5)
    for problem in (sp.Balanced(), sp.Partial(0.55)):
        found = sp.sliced(x, y, problem, 10, p=p, seed=3)
        costs = abs((found.directions @ x.T)[:, :, None] - (found.directions @ y.T)[:, None]) ** p
        np.testing.assert_allclose(found.values, sp.solve(costs, problem).value, rtol=1e-10)


@POWERS
def test_a_part_of_the_mass_leaves_far_outliers(p):
    x, y = cloud(100), cloud(100, seed=1)
    clean = sp.sliced(x[10:], y[10:], sp.Balanced(), p=p).value
    x[:10], y[:10] = 1e4, -1e4
    partial, whole = (sp.sliced(x, y, problem, p=p) for problem in (sp.Partial(0.9), sp.Balanced()))
    assert partial.value <= 0.9 * clean * (1 + 1e-9), "the clean points alone are one of the choices"
    assert whole.value > 100 * clean
    assert not partial.gradients[0][:10].any()
    assert not partial.gradients[1][:10].any()


@POWERS
def test_gradients_are_those_of_finite_differences(p):
    x, y, problem = cloud(8), cloud(6, seed=1, shift=0.3), sp.Partial(0.7)
    found = sp.sliced(x, y, problem, 30, p=p)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-6
        slope = (sp.sliced(x + step, y, problem, 30, p=p).value - sp.sliced(x - step, y, problem, 30, p=p).value) / 2e-6
        assert found.gradients[0][at] == pytest.approx(slope, abs=1e-6)
    np.testing.assert_allclose(found.gradients[0].sum(0), -found.gradients[1].sum(0), atol=1e-12)


@POWERS
def test_what_does_not_matter_and_what_scales(p):
    x, y, problem = cloud(30), cloud(40, seed=1, shift=1), sp.Partial(0.8)
    value = sp.sliced(x, y, problem, p=p).value
    assert sp.sliced(y, x, problem, p=p).value == pytest.approx(value)
    assert sp.sliced(x[::-1], y, problem, p=p).value == pytest.approx(value)
    assert sp.sliced(x + 1e3, y + 1e3, problem, p=p).value == pytest.approx(value, rel=1e-9)
    assert sp.sliced(3 * x, 3 * y, problem, p=p).value == pytest.approx(3**p * value)
    assert sp.sliced(np.tile(x, (2, 1)), y, problem, p=p).value == pytest.approx(value), "weights are of the points"
    assert sp.sliced(x, y, sp.Partial(0.6), p=p).value < value < sp.sliced(x, y, sp.Balanced(), p=p).value
    assert sp.sliced(x, x, sp.Balanced(), p=p).value == 0


def test_threads_change_nothing_and_the_seed_decides():
    x, y = cloud(300), cloud(200, seed=1)
    one, four = (sp.sliced(x, y, sp.Partial(0.8), 33, threads=threads) for threads in (1, 4))
    np.testing.assert_array_equal(one.values, four.values)
    np.testing.assert_array_equal(one.gradients[0], four.gradients[0])
    assert one.value != sp.sliced(x, y, sp.Partial(0.8), 33, seed=1).value
    assert repr(one).startswith("SlicedCost(33 directions, value=")
    assert sp.sliced(x, y, sp.Partial(0.8), 1).standard_error == math.inf


def test_many_projections_are_taken_a_few_at_a_time(monkeypatch):
    x, y = cloud(20), cloud(20, seed=1)
    at_once = sp.sliced(x, y, sp.Partial(0.8), 50)
    monkeypatch.setattr(sys.modules["spadeful.sliced"], "AT_A_TIME", 1)
    in_parts = sp.sliced(x, y, sp.Partial(0.8), 50)
    np.testing.assert_allclose(in_parts.values, at_once.values, rtol=1e-12)
    np.testing.assert_allclose(in_parts.gradients[1], at_once.gradients[1], atol=1e-12)


def test_wrong_arguments_are_refused():
    x = cloud(5)
    for arguments, error, words in (
        ((sp.Unbalanced(1.0),), TypeError, "Balanced.. or Partial"),
        ((sp.Partial(0.5, reg=0.1),), TypeError, "without reg"),
        ((sp.Balanced(), 0), ValueError, "'n_projections'.*at least 1"),
        ((sp.Balanced(), 2.5), ValueError, "'n_projections'.*whole number"),
        ((sp.Balanced(), 5, 3), ValueError, "'p'.*1 or 2"),
        ((sp.Balanced(), 5, True), ValueError, "'p'.*1 or 2"),
        ((sp.Balanced(), 5, 2, -1), ValueError, "'seed'.*at least 0"),
    ):
        with pytest.raises(error, match=words):
            sp.Sliced(*arguments)
    for bad in (np.nan, np.inf, 1e200):
        with pytest.raises(ValueError, match=r"y must hold finite numbers.*y\[3\]"):
            sp.sliced(x, np.where(np.arange(5)[:, None] == 3, bad, x), sp.Balanced())
    with pytest.raises(ValueError, match="same number of dimensions"):
        sp.sliced(x, x[:, :2], sp.Balanced())
    with pytest.raises(ValueError, match="at least one point"):
        sp.sliced(x[:0], x, sp.Balanced())
    with pytest.raises(ValueError, match="least common multiple"):
        sp.sliced(np.zeros((4001, 1)), np.zeros((4003, 1)), sp.Partial(0.5))
    with pytest.raises(TypeError, match="takes points"):
        sp.solve(np.ones((2, 2)), sp.Sliced(sp.Balanced()))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.torch
def test_torch_points_give_torch_values_and_gradients(torch):
    x, y = cloud(9), cloud(7, seed=1)
    expected = sp.sliced(x, y, sp.Partial(0.6), 20)
    source, target = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    found = sp.sliced(source, target, sp.Partial(0.6), 20)
    found.value.backward()
    assert found.value.item() == expected.value
    np.testing.assert_array_equal(found.values.numpy(), expected.values)
    for points, gradient in zip((source, target), expected.gradients, strict=True):
        np.testing.assert_allclose(points.grad.numpy(), gradient, rtol=1e-12)
    assert sp.sliced(source.float(), target.float(), sp.Partial(0.6), 20).values.dtype == torch.float32


def of_features(torch, k=2, m=6, n=8, dtype=None):
    dtype = dtype or torch.float64
    source, target = (torch.tensor(cloud(k * size, seed=seed), dtype=dtype) for size, seed in ((m, 1), (n, 2)))
    return source.requires_grad_(), target.requires_grad_()


@pytest.mark.torch
@POWERS
def test_the_loss_is_the_mean_over_batches_with_new_directions_each_call(torch, p):
    asked = sp.Sliced(sp.Partial(0.7), 25, p, seed=4)
    loss = sp.MiniBatchLoss(asked, n_batches=2)
    source, target = of_features(torch)
    first, second = loss(source, target), loss(source, target)
    x, y = (points.detach().numpy().reshape(2, -1, 3) for points in (source, target))
    found = [sp.sliced(*pair, asked.problem, 25, p=p, seed=4) for pair in zip(x, y, strict=True)]
    assert first.item() == pytest.approx(np.mean([each.value for each in found]), rel=1e-12)
    first.backward()
    expected = np.concatenate([each.gradients[0] for each in found]) / 2
    np.testing.assert_allclose(source.grad.numpy(), expected, atol=1e-13)
    assert second != first
    again = sp.MiniBatchLoss(asked, n_batches=2).at(1)
    assert again(source, target) == second, "the seed and the iteration decide"
    assert copy.deepcopy(again)(source, target) == again(source, target) == loss.at(2)(source, target)
    assert torch.autograd.gradcheck(lambda s, t: loss.at(0)(s, t), (source, target), atol=1e-5)


@pytest.mark.torch
def test_the_loss_in_half_and_with_a_schedule(torch):
    asked = sp.Sliced(sp.Partial(0.9), 25)
    source, target = of_features(torch)
    half = sp.MiniBatchLoss(asked)(source.detach().half(), target.detach().half())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(sp.MiniBatchLoss(asked)(source, target).item(), rel=0.01)
    loss = sp.MiniBatchLoss(asked, schedule=sp.Ramp(0.2, 0.8, 10)).at(10)
    assert loss.mass == 0.8
    assert loss(source, target) == sp.MiniBatchLoss(sp.Sliced(sp.Partial(0.8), 25)).at(10)(source, target)


@pytest.mark.torch
def test_the_loss_is_the_same_compiled_in_one_graph(torch):
    asked = sp.Sliced(sp.Partial(0.7), 25)
    plain = sp.MiniBatchLoss(asked, n_batches=2)
    compiled = torch.compile(sp.MiniBatchLoss(asked, n_batches=2), backend="aot_eager", fullgraph=True)
    for _ in range(3):
        gradients = []
        for loss in (plain, compiled):
            source, target = of_features(torch)
            loss(source, target).backward()
            gradients.append(torch.cat([source.grad, target.grad]))
        torch.testing.assert_close(*gradients)


@pytest.mark.torch
def test_the_loss_refuses_what_it_cannot_slice(torch):
    source, target = of_features(torch)
    loss = sp.MiniBatchLoss(sp.Sliced(sp.Balanced()))
    with pytest.raises(ValueError, match="cost must be left out"):
        sp.MiniBatchLoss(sp.Sliced(sp.Balanced()), sp.JointCost())
    with pytest.raises(ValueError, match="schedule is of the mass"):
        sp.MiniBatchLoss(sp.Sliced(sp.Balanced()), schedule=sp.Ramp(0.1, 0.2, 3))
    with pytest.raises(ValueError, match="points alone"):
        loss(source, target, labels=torch.zeros(12, dtype=torch.int64))
    with pytest.raises(ValueError, match="same number of dimensions"):
        loss(source, target[:, :2])
    with pytest.raises(ValueError, match="source must hold finite numbers"):
        loss(source * np.nan, target)
