"""The mini-batch loss: against its definition, the envelope theorem, closed forms, compiled, in half, in parallel."""

import copy
import math
import os
import pickle
import shutil
import time

import numpy as np
import pytest

import spadeful as sp
from truths import uniform

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

from spadeful.loss import squared_distances, taken_apart, transport_plan  # noqa: E402

pytestmark = pytest.mark.torch

EXACT = {
    "balanced": sp.Balanced(),
    "partial": sp.Partial(0.6),
    "kl": sp.Unbalanced(0.8),
    "tv": sp.Unbalanced(1.5, divergence="tv"),
}
REGULARISED = {
    "entropic balanced": sp.Balanced(0.2),
    "entropic partial": sp.Partial(0.6, 0.2),
    "entropic kl": sp.Unbalanced((0.8, 1.6), 0.2),
    "entropic kl of product": sp.Unbalanced(0.8, 0.2, entropy="kl"),
    "entropic tv": sp.Unbalanced(1.5, 0.2, divergence="tv"),
}
PROBLEMS = EXACT | REGULARISED
COSTS = ("sqeuclidean", "joint", "function")


def of_each(problems):
    return pytest.mark.parametrize("problem", problems.values(), ids=problems.keys())


def tensor(*shape, seed=0, dtype=torch.float64, requires_grad=False):
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.tensor(values, dtype=dtype, requires_grad=requires_grad)


def batch(m=6, n=8, classes=4, dimension=3, dtype=torch.float64):
    """Source and target features, labels and logits; all but the labels want gradients."""
    source = tensor(m, dimension, seed=1, dtype=dtype, requires_grad=True)
    target = (0.3 + tensor(n, dimension, seed=2, dtype=dtype)).requires_grad_()
    labels = torch.tensor(np.random.default_rng(3).integers(0, classes, m))
    return source, target, labels, tensor(n, classes, seed=4, dtype=dtype, requires_grad=True)


def manhattan(source, target):
    return (source[:, :, None] - target[:, None]).abs().sum(-1)


def loss_of(problem, cost, n_batches=1):
    known = {"joint": sp.JointCost(0.4, 0.7), "function": manhattan}
    return sp.MiniBatchLoss(problem, known.get(cost, cost), n_batches)


def arguments(cost, inputs):
    return inputs if cost == "joint" else inputs[:2]


def by_hand(cost, source, target, labels=None, logits=None, alpha=0.4, lam=0.7):
    """The costs of one mini-batch (m, n), an entry at a time from the formula."""
    found = np.zeros((len(source), len(target)))
    for i, x in enumerate(source):
        for j, y in enumerate(target):
            if cost == "function":
                found[i, j] = sum(abs(x - y))
                continue
            found[i, j] = sum((x - y) ** 2)
            if cost == "joint":
                highest = max(logits[j])
                normaliser = highest + math.log(sum(math.exp(z - highest) for z in logits[j]))
                found[i, j] = alpha * found[i, j] - lam * (logits[j][labels[i]] - normaliser)
    return found


def costs_by_hand(cost, inputs, n_batches=1, **weights):
    parts = [np.split(x.detach().double().numpy() if x.is_floating_point() else x.numpy(), n_batches) for x in inputs]
    return [by_hand(cost, *arguments(cost, one), **weights) for one in zip(*parts, strict=True)]


def gradients(value, inputs):
    return torch.autograd.grad(value, [x for x in inputs if x.requires_grad])


def close(found, expected, **tolerances):
    torch.testing.assert_close(found, expected, check_dtype=False, **tolerances)


# The value is its definition.


@of_each(PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("n_batches", [1, 2])
def test_the_value_is_the_mean_over_mini_batches(problem, cost, n_batches):
    inputs = batch()
    loss = loss_of(problem, cost, n_batches)
    value = loss(*arguments(cost, inputs))
    plans = [sp.solve(c, problem) for c in costs_by_hand(cost, inputs, n_batches)]
    assert value.shape == ()
    assert value.item() == pytest.approx(np.mean([plan.value for plan in plans]), rel=1e-5 if problem.reg else 1e-9)
    np.testing.assert_allclose(loss.plan, [plan.matrix for plan in plans], atol=1e-6 if problem.reg else 1e-9)


@of_each(PROBLEMS)
def test_the_plan_is_shown_and_keeps_its_marginals(problem):
    loss = loss_of(problem, "sqeuclidean", 2)
    assert loss.plan is None
    loss(*batch()[:2])
    plan = loss.plan.numpy()
    assert plan.shape == (2, 3, 4)
    assert (plan >= 0).all()
    if isinstance(problem, sp.Unbalanced):
        return
    np.testing.assert_allclose(plan.sum((1, 2)), getattr(problem, "mass", 1.0), atol=1e-9)
    assert (plan.sum(2) <= uniform(3) + 1e-9).all()
    assert (plan.sum(1) <= uniform(4) + 1e-9).all()


@of_each(PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
def test_n_batches_is_the_mean_of_as_many_calls(problem, cost):
    inputs = arguments(cost, batch(9, 12))
    together, alone = loss_of(problem, cost, 3), loss_of(problem, cost)
    parts = list(zip(*(x.chunk(3) for x in inputs), strict=True))
    values, plans = [], []
    for part in parts:
        values.append(alone(*part))
        plans.append(alone.plan[0])
    value, mean = together(*inputs), torch.stack(values).mean()
    tolerances = {"rtol": 1e-5, "atol": 1e-6} if problem.reg else {"rtol": 1e-10, "atol": 1e-12}
    close(value, mean, **tolerances)
    close(together.plan, torch.stack(plans), **tolerances)
    for found, expected in zip(gradients(value, inputs), gradients(mean, inputs), strict=True):
        close(found, expected, **tolerances)


def test_a_translation_has_a_closed_form():
    """Points moved by v: the plan pairs each with its image, so the value is |v|^2 and the gradient -2v/m."""
    x, v = tensor(7, 3, requires_grad=True), torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    value = sp.MiniBatchLoss(sp.Balanced())(x, x.detach().flip(0) + v)
    assert value.item() == pytest.approx(5.25)
    close(*gradients(value, [x]), (-2 * v / 7).expand(7, 3))


def test_partial_transport_leaves_an_outlier_alone():
    x, y = tensor(5, 2), tensor(5, 2, seed=1)
    x[3] += 100
    x.requires_grad_()
    loss = sp.MiniBatchLoss(sp.Partial(0.8))
    (gradient,) = gradients(loss(x, y), [x])
    assert (loss.plan[0, 3] == 0).all()
    assert (gradient[3] == 0).all()
    assert (gradient[[0, 1, 2, 4]] != 0).any(1).all()


def test_a_joint_cost_without_weight_on_labels_is_that_of_features():
    source, target, labels, logits = batch()
    joint = sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(alpha=1.0, lam=0.0))(source, target, labels, logits)
    close(joint, sp.MiniBatchLoss(sp.Partial(0.5))(source, target))


def test_the_joint_cost_has_the_weights_of_the_digits():
    assert sp.JointCost() == sp.JointCost(alpha=0.1, lam=0.1)


def test_a_plain_cost_takes_no_notice_of_labels():
    inputs = batch()
    loss = sp.MiniBatchLoss(sp.Balanced())
    assert torch.equal(loss(*inputs), loss(*inputs[:2]))


@of_each(EXACT)
def test_terms_add_up(problem):
    source, target, *_ = batch()

    def terms(x, y):
        return {"near": manhattan(x, y), "far": 0.5 * squared_distances(x, y), "level": torch.ones(1, 6, 8)}

    split = sp.MiniBatchLoss(problem, terms)
    whole = sp.MiniBatchLoss(problem, lambda x, y: sum(terms(x, y).values()))
    values = split(source, target), whole(source, target)
    close(*values)
    for found, expected in zip(*(gradients(value, [source, target]) for value in values), strict=True):
        close(found, expected)


def test_a_function_is_given_mini_batches():
    shapes = []

    def cost(source, target, labels, logits):
        shapes.extend(tuple(x.shape) for x in (source, target, labels, logits))
        return manhattan(source, target)

    sp.MiniBatchLoss(sp.Balanced(), cost, 2)(*batch())
    assert shapes == [(2, 3, 3), (2, 4, 3), (2, 3), (2, 4, 4)]


@of_each(PROBLEMS)
def test_forbidden_pairs_carry_nothing_and_give_no_nan(problem):
    source, target, *_ = batch(6, 6)
    forbidden = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(0)) < 0.3
    forbidden[0, range(6), range(6)] = False
    loss = sp.MiniBatchLoss(problem, lambda x, y: squared_distances(x, y).masked_fill(forbidden, torch.inf))
    value = loss(source, target)
    cost = squared_distances(source, target).detach()[None].masked_fill(forbidden, torch.inf)
    assert (loss.plan[forbidden] == 0).all()
    assert value.item() == pytest.approx(sp.solve(cost.numpy(), problem).value[0], rel=1e-6)
    allowed = (loss.plan * squared_distances(source, target)[None].masked_fill(forbidden, 0.0)).sum()
    for found, expected in zip(*(gradients(v, [source, target]) for v in (value, allowed)), strict=True):
        assert found.isfinite().all()
        close(found, expected)


def test_a_class_that_cannot_be_is_forbidden():
    source, target, labels, logits = batch()
    masked = logits.detach().clone()
    masked[:4, labels[0]] = -torch.inf
    masked.requires_grad_()
    loss = sp.MiniBatchLoss(sp.Balanced(), sp.JointCost())
    value = loss(source, target, labels, masked)
    assert (loss.plan[0, 0, :4] == 0).all()
    assert value.isfinite()
    assert all(g.isfinite().all() for g in gradients(value, [source, target, masked]))


def test_when_too_much_is_forbidden_the_error_says_how_much_can_be_moved():
    def cost(x, y):
        forbidden = torch.zeros(1, 4, 4, dtype=torch.bool)
        forbidden[0, 0] = True
        return squared_distances(x, y).masked_fill(forbidden, torch.inf)

    x, y = tensor(4, 2), tensor(4, 2, seed=1)
    with pytest.raises(ValueError, match=r"0\.75"):
        sp.MiniBatchLoss(sp.Balanced(), cost)(x, y)
    assert sp.MiniBatchLoss(sp.Partial(0.75), cost)(x, y).isfinite()


# Gradients.


@of_each(PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
def test_gradients_are_those_with_the_plan_held_fixed(problem, cost):
    inputs = batch()
    loss = loss_of(problem, cost, 2)
    value = loss(*arguments(cost, inputs))
    source, target, labels, logits = (x.reshape(2, -1, *x.shape[1:]) for x in inputs)
    costs = manhattan(source, target) if cost == "function" else (source[:, :, None] - target[:, None]).square().sum(-1)
    if cost == "joint":
        classes = nn.functional.one_hot(labels, 4).double()
        costs = 0.4 * costs - 0.7 * classes @ logits.log_softmax(-1).transpose(1, 2)
    assert not loss.plan.requires_grad
    fixed = (loss.plan * costs).sum() / 2
    wanted = arguments(cost, inputs)
    for found, expected in zip(gradients(value, wanted), gradients(fixed, wanted), strict=True):
        close(found, expected, rtol=1e-9, atol=1e-12)


@of_each(PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
def test_gradients_are_those_of_the_optimum(problem, cost):
    """The envelope theorem: what was minimised changes as the cost does with its plan held fixed."""
    inputs = batch(5, 4)
    directions = [tensor(*x.shape, seed=i) if x.requires_grad else None for i, x in enumerate(inputs)]

    def optimum(step):
        moved = [x if d is None else x.detach() + step * d for x, d in zip(inputs, directions, strict=True)]
        (found,) = costs_by_hand(cost, moved)
        return sp.solve(found, problem, tol=1e-11).objective

    wanted = arguments(cost, inputs)
    slopes = gradients(loss_of(problem, cost)(*wanted), wanted)
    along = arguments(cost, directions)
    slope = sum((g * d).sum() for g, d in zip(slopes, [d for d in along if d is not None], strict=True))
    step = 1e-5
    assert (optimum(step) - optimum(-step)) / (2 * step) == pytest.approx(slope.item(), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.6), sp.Partial(0.55)], ids=str)
@pytest.mark.parametrize("cost", COSTS)
def test_exact_values_pass_the_check_of_gradients(problem, cost):
    source, target, labels, logits = batch(4, 4)
    loss = loss_of(problem, cost, 2)
    if cost == "joint":
        assert torch.autograd.gradcheck(lambda x, y, z: loss(x, y, labels, z), (source, target, logits))
    else:
        assert torch.autograd.gradcheck(loss, (source, target))


@of_each(PROBLEMS)
def test_coincident_points_have_finite_gradients(problem):
    x = tensor(6, 3, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    value = sp.MiniBatchLoss(problem)(x, y)
    found = gradients(value, [x, y])
    assert all(g.isfinite().all() for g in found)
    if not problem.reg:
        assert value.item() == pytest.approx(0, abs=1e-14)
        assert all(g.abs().max() < 1e-14 for g in found)


@of_each(PROBLEMS)
def test_points_all_in_one_place(problem):
    x, y = torch.ones(4, 3, requires_grad=True), torch.ones(5, 3, requires_grad=True)
    value = sp.MiniBatchLoss(problem)(x, y)
    assert value.item() == 0
    assert all((g == 0).all() for g in gradients(value, [x, y]))


def test_gradients_reach_features_and_logits_and_nothing_else():
    source, target, labels, logits = batch()
    loss = sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost())
    loss(source, target, labels, logits).backward()
    for x in (source, target, logits):
        assert (x.grad != 0).any()
    carried = loss.plan[0].sum(0) > 0
    assert (logits.grad[~carried] == 0).all()
    assert (logits.grad[carried] != 0).any(1).all()
    assert labels.grad is None
    assert loss.plan.grad_fn is None
    assert list(loss.parameters()) == []


def test_a_detached_side_has_no_gradient():
    source, target, *_ = batch()
    sp.MiniBatchLoss(sp.Balanced())(source, target.detach()).backward()
    assert target.grad is None
    assert (source.grad != 0).any()
    assert not sp.MiniBatchLoss(sp.Balanced())(source.detach(), target.detach()).requires_grad


def test_no_gradients_are_kept_where_none_are_wanted():
    with torch.no_grad():
        value = sp.MiniBatchLoss(sp.Partial(0.5))(*batch()[:2])
    assert not value.requires_grad


def test_a_cost_with_parameters_can_learn():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def forward(self, source, target):
            return self.scale * squared_distances(source, target)

    loss = sp.MiniBatchLoss(sp.Partial(0.5), Scaled())
    value = loss(*batch()[:2])
    (slope,) = gradients(value, loss.parameters())
    close(slope, value.detach() / 2)
    assert list(loss.state_dict()) == ["cost.scale"]


# Numbers that are hard, and numbers that are wrong.


@of_each(PROBLEMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_huge_logits(problem, dtype):
    inputs = batch(dtype=dtype)
    inputs = (*inputs[:3], (1e4 * inputs[3].detach()).requires_grad_())
    value = sp.MiniBatchLoss(problem, sp.JointCost(0.4, 1e-3))(*inputs)
    (cost,) = costs_by_hand("joint", inputs, lam=1e-3)
    assert value.item() == pytest.approx(sp.solve(cost, problem).value, rel=1e-4 if dtype == torch.float32 else 1e-5)
    assert all(g.isfinite().all() for g in gradients(value, inputs))


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.6)], ids=str)
def test_tiny_features(problem):
    """The exact plan does not depend on the unit: features times t cost t squared."""
    source, target, *_ = batch(dtype=torch.float32)
    loss = sp.MiniBatchLoss(problem)
    value, gradient = loss(source, target).item(), gradients(loss(source, target), [source])[0]
    small = (source.detach() * 2**-50).requires_grad_()
    tiny = loss(small, target.detach() * 2**-50)
    assert tiny.item() == pytest.approx(value * 2**-100, rel=1e-6, abs=0)
    close(gradients(tiny, [small])[0] * 2**50, gradient)


@pytest.mark.parametrize("offset", [10.0, 1e4, -1e4, 1e6])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_a_large_offset_costs_no_digits(offset, n_batches):
    source = (tensor(30, 16, dtype=torch.float32) + offset).requires_grad_()
    target = tensor(60, 16, seed=1, dtype=torch.float32) + offset
    x, y = (z.detach().double().reshape(n_batches, -1, 16) for z in (source, target))
    found = squared_distances(x.float(), y.float()).double()
    expected = (x[:, :, None] - y[:, None]).square().sum(-1)
    assert ((found - expected).abs() / expected).max() < 1e-5
    exact = source.detach().double().requires_grad_()
    loss = sp.MiniBatchLoss(sp.Partial(0.75), n_batches=n_batches)
    values = loss(source, target), loss(exact, target.double())
    close(*values, rtol=1e-5, atol=0)
    close(*gradients(values[0], [source]), *gradients(values[1], [exact]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrong", [4, -1])
def test_labels_out_of_range_are_refused(wrong, compiled):
    source, target, labels, logits = batch()
    labels[2] = wrong
    loss = sp.MiniBatchLoss(sp.Balanced(), sp.JointCost())
    if compiled:
        loss = torch.compile(loss, backend="aot_eager", fullgraph=True)
    with pytest.raises((ValueError, RuntimeError), match=f"(?s)({wrong}.*out of bounds|label)"):
        loss(source, target, labels, logits)


@of_each(PROBLEMS)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_features_that_are_not_finite_are_refused_with_their_place(problem, wrong):
    source, target, labels, logits = batch(9, 12)
    with torch.no_grad():
        source[7, 1] = wrong
    for cost in ("sqeuclidean", sp.JointCost()):
        given = (source, target) if cost == "sqeuclidean" else (source, target, labels, logits)
        with pytest.raises(ValueError, match=r"term 'features' .* Got nan in mini-batch 2, between source point 1 and"):
            sp.MiniBatchLoss(problem, cost, 3)(*given)


def test_logits_that_are_not_finite_are_refused_with_their_place():
    source, target, labels, logits = batch(9, 12)
    with torch.no_grad():
        logits[6, 0] = torch.nan
    with pytest.raises(
        ValueError, match=r"term 'labels' .* Got nan in mini-batch 1, .* source point 0 and target point 2"
    ):
        sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(), 3)(source, target, labels, logits)


def test_a_term_of_a_function_is_refused_by_name():
    def cost(x, y):
        return {"fine": squared_distances(x, y), "broken": torch.full((1, 6, 8), -torch.inf)}

    with pytest.raises(
        ValueError, match=r"term 'broken' .* Got -inf in mini-batch 0, .* source point 0 and target point 0"
    ):
        sp.MiniBatchLoss(sp.Balanced(), cost)(*batch()[:2])


@pytest.mark.parametrize(
    ("sizes", "n_batches", "message"),
    [
        ((6, 8), 4, "source must hold 4 mini-batches of one size .* Got 6 points"),
        ((8, 6), 4, "target must hold 4 mini-batches of one size .* Got 6 points"),
        ((0, 6), 1, "source must hold 1 mini-batches of one size .* Got 0 points"),
        ((6, 0), 1, "target must hold 1 mini-batches of one size .* Got 0 points"),
        ((2, 6), 4, "source must hold 4 mini-batches of one size .* Got 2 points"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes, n_batches, message):
    with pytest.raises(ValueError, match=message):
        sp.MiniBatchLoss(sp.Balanced(), n_batches=n_batches)(*(torch.ones(size, 2) for size in sizes))


def test_labels_that_do_not_divide_are_refused():
    source, target, labels, logits = batch()
    with pytest.raises(ValueError, match="labels must hold 2 mini-batches"):
        sp.MiniBatchLoss(sp.Balanced(), sp.JointCost(), 2)(source, target, labels[:5], logits)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (7, 1), (3, 8), (8, 3)])
@of_each(EXACT)
def test_source_and_target_may_differ_in_size(problem, sizes):
    inputs = batch(*sizes)
    (cost,) = costs_by_hand("sqeuclidean", inputs)
    assert sp.MiniBatchLoss(problem)(*inputs[:2]).item() == pytest.approx(sp.solve(cost, problem).value, rel=1e-9)


def test_images_are_flattened():
    x, y = tensor(4, 3, 5, 2, requires_grad=True), tensor(6, 3, 5, 2, seed=1)
    loss = sp.MiniBatchLoss(sp.Partial(0.7), n_batches=2)
    value, flat = loss(x, y), loss(x.flatten(1), y.flatten(1))
    close(value, flat)
    close(*gradients(value, [x]), *gradients(flat, [x]))


def test_images_out_of_line_in_memory():
    x, y = tensor(4, 3, 5, 2), tensor(6, 3, 5, 2, seed=1)
    loss = sp.MiniBatchLoss(sp.Partial(0.7), n_batches=2)
    last = (z.to(memory_format=torch.channels_last) for z in (x, y))
    close(loss(*last), loss(x, y))


@pytest.mark.parametrize("problem", [0.5, "partial", None, sp.Partial])
def test_what_is_no_problem_is_refused(problem):
    with pytest.raises(
        TypeError, match=r"problem must be Balanced\(\), Partial\(mass\), Unbalanced\(tau\) or Sliced\(problem\)"
    ):
        sp.MiniBatchLoss(problem)


@pytest.mark.parametrize("cost", ["euclid", None, 3.0])
def test_what_is_no_cost_is_refused(cost):
    with pytest.raises(ValueError, match="cost must be 'sqeuclidean', a JointCost or a function"):
        sp.MiniBatchLoss(sp.Balanced(), cost)


@pytest.mark.parametrize("n_batches", [0, -1, 1.5, "2", True, None])
def test_a_number_of_mini_batches_that_is_none_is_refused(n_batches):
    with pytest.raises(ValueError, match="n_batches must be a whole number of at least 1"):
        sp.MiniBatchLoss(sp.Balanced(), n_batches=n_batches)


# Half precision.


@of_each(PROBLEMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_features_are_solved_in_full_precision(problem, dtype):
    inputs = batch(dtype=dtype)
    wide = [x.detach().float().requires_grad_() if x.is_floating_point() else x for x in inputs]
    loss = sp.MiniBatchLoss(problem, sp.JointCost())
    value, expected = loss(*inputs), loss(*wide)
    assert value.dtype == loss.plan.dtype == torch.float32
    assert torch.equal(value, expected)
    for found, full in zip(gradients(value, inputs), gradients(expected, wide), strict=True):
        assert found.dtype == dtype
        assert torch.equal(found, full.to(dtype))


@of_each(PROBLEMS)
def test_under_autocast_the_loss_is_in_full_precision(problem):
    """All that autocast changes are the features: of equal features the loss is the same to the last bit."""
    inputs = batch(dtype=torch.float32)
    loss = sp.MiniBatchLoss(problem, sp.JointCost())
    value = loss(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = loss(*inputs)
    assert within.dtype == loss.plan.dtype == torch.float32
    assert torch.equal(within, value)
    for found, expected in zip(gradients(within, inputs), gradients(value, inputs), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.6), sp.Balanced(0.02)], ids=str)
def test_training_under_autocast_is_close_to_full_precision(problem):
    """The optimum is continuous in the features; its slope only where the plan is, that is if regularised."""
    network, (source, target, labels, _) = network_of(torch.float32), batch(dtype=torch.float32)
    loss = sp.MiniBatchLoss(problem, sp.JointCost())
    value = loss(*features(network, source, target, labels))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given = features(network, source, target, labels)
        within = loss(*given)
    assert given[0].dtype == torch.bfloat16
    close(within, value, rtol=0.02, atol=0.0)
    slopes = [torch.cat([g.flatten() for g in gradients(v, network.parameters())]) for v in (within, value)]
    assert all(slope.isfinite().all() for slope in slopes)
    if problem.reg:
        assert torch.cosine_similarity(*slopes, dim=0) > 0.999


def network_of(dtype=torch.float64):
    """Features and a classifier of them."""
    generator = torch.Generator().manual_seed(0)
    network = nn.ModuleList([nn.Linear(3, 5), nn.Linear(5, 4)])
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return network.to(dtype)


def features(network, source, target, labels):
    embed, classify = network
    found = embed(target).tanh()
    return embed(source).tanh(), found, labels, classify(found)


# Compiled.


@pytest.fixture
def counter():
    """A backend that differentiates ahead of time and counts the graphs it is given."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


def check_compiled(compiled, loss, inputs, **tolerances):
    values = compiled(*inputs), loss(*inputs)
    close(*values, **tolerances)
    for found, expected in zip(*(gradients(value, inputs) for value in values), strict=True):
        close(found, expected, **tolerances)


@of_each({name: PROBLEMS[name] for name in ("partial", "tv", "entropic kl")})
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph_it_is_the_same(problem, backend, counter):
    loss = sp.MiniBatchLoss(problem, sp.JointCost(), 2)
    check_compiled(torch.compile(loss, backend=backend, fullgraph=True), loss, batch(), rtol=1e-12, atol=1e-12)
    assert loss.plan.shape == (2, 3, 4)


def test_all_masses_of_a_schedule_share_one_graph(counter):
    loss = sp.MiniBatchLoss(sp.Partial(0.325), sp.JointCost(), schedule=sp.Ramp(0.01, 0.325, 10))
    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    for iteration in (0, 1, 5, 10, 20):
        loss.at(iteration)
        check_compiled(compiled, loss, batch(), rtol=1e-12, atol=1e-12)
        assert loss.plan.sum().item() == pytest.approx(loss.schedule(iteration), abs=1e-12)
    assert counter.frame_count == 1


def test_a_compiled_step_of_training_is_one_graph(counter):
    network, (source, target, labels, _) = network_of(), batch()
    loss = sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(), 2)

    def step(source, target, labels):
        return loss(*features(network, source, target, labels))

    compiled = torch.compile(step, backend=counter, fullgraph=True)
    for _ in range(2):
        values = compiled(source, target, labels), step(source, target, labels)
        for found, expected in zip(*(gradients(v, network.parameters()) for v in values), strict=True):
            close(found, expected)
    assert counter.frame_count == 1


def test_batches_of_any_size_share_a_graph(counter):
    loss = sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(), 2)
    compiled = torch.compile(loss, backend=counter, fullgraph=True, dynamic=True)
    for sizes in ((6, 8), (10, 12), (14, 8)):
        check_compiled(compiled, loss, batch(*sizes), rtol=1e-12, atol=1e-12)
    assert (
        sum(len(graph.graph.nodes) > 0 for graph in counter.graphs) == 1
    )  # the checks of shapes may leave an empty one


def test_compiled_it_refuses_what_is_not_finite(counter):
    source, target, *_ = batch()
    compiled = torch.compile(sp.MiniBatchLoss(sp.Balanced()), backend=counter, fullgraph=True)
    compiled(source, target)
    with torch.no_grad():
        source[1, 1] = torch.nan
    with pytest.raises(ValueError, match=r"term 'features' .* between source point 1 and target point 0"):
        compiled(source, target)


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler")
@pytest.mark.filterwarnings("default")  # of what the compiler of torch itself calls
@pytest.mark.parametrize("problem", [sp.Partial(0.6), sp.Balanced(0.2)], ids=str)
def test_compiled_to_machine_code_it_is_the_same(problem, counter):
    loss = sp.MiniBatchLoss(problem, sp.JointCost(), 2)
    check_compiled(torch.compile(loss, fullgraph=True), loss, batch(), rtol=1e-9, atol=1e-9)


@of_each(PROBLEMS)
def test_the_operator_keeps_the_rules_of_torch(problem):
    kind, numbers = taken_apart(problem)
    cost = tensor(2, 3, 4).square()
    torch.library.opcheck(
        transport_plan, (cost, torch.tensor(numbers, dtype=torch.float64), kind, [cost], "cost", 1e-6, 100)
    )
    assert torch.ops.spadeful.transport_plan.default is not None


# Several processes.

PROCESSES = 2


def train_in_parallel(rank, folder, gather, k):
    """One step of a process that has its own mini-batches, its gradients averaged over all."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES
    )
    network, loss = Pipeline(), sp.MiniBatchLoss(sp.Partial(0.6), sp.JointCost(), k, gather=gather)
    parallel = nn.parallel.DistributedDataParallel(network)
    loss(*parallel(*(x.chunk(PROCESSES)[rank] for x in training_set()))).backward()
    torch.save([p.grad for p in network.parameters()], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in order (pytorch/pytorch#190489)


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network_of()

    def forward(self, source, target, labels):
        return features(self.network, source, target, labels)


def training_set():
    source, target, labels, _ = batch(12, 8)
    return source.detach(), target.detach(), labels


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
@pytest.mark.parametrize(("gather", "k"), [(False, 1), (True, 1), (True, 2)])
def test_processes_with_a_mini_batch_each_are_one_with_all_of_them(tmp_path, gather, k):
    """Gradients averaged over processes are those of as many mini-batches, the same mean; or, of problems between the
    points of all, those of one process that has them all."""
    processes = torch.multiprocessing.start_processes(
        train_in_parallel, (str(tmp_path), gather, k), nprocs=PROCESSES, join=False, start_method="spawn"
    )
    try:
        deadline = time.monotonic() + 120
        while not processes.join(timeout=5):
            assert time.monotonic() < deadline, "the processes do not end"
    finally:
        for process in processes.processes:
            process.kill()
    network = Pipeline()
    # The k-th mini-batches of all processes are one, or else each is its own.
    points = [x.unflatten(0, (PROCESSES, k, -1)).transpose(0, 1).flatten(0, 2) for x in training_set()]
    loss = sp.MiniBatchLoss(sp.Partial(0.6), sp.JointCost(), k if gather else PROCESSES)
    loss(*network(*points)).backward()
    for rank in range(PROCESSES):
        found = torch.load(tmp_path / f"{rank}.pt")
        for gradient, parameter in zip(found, network.parameters(), strict=True):
            assert (gradient != 0).any()
            close(gradient, parameter.grad, rtol=1e-10, atol=1e-12)


# The mass over time, and the module as users keep it.


def test_the_ramp_of_partial_domain_adaptation():
    ramp = sp.Ramp(0.01, 0.325, iterations=2500)
    assert [ramp(i) for i in (0, 1250, 2500, 5000)] == [0.01, 0.1675, 0.325, 0.325]
    assert ramp(-1) == 0.01
    steps = np.diff([ramp(i) for i in range(2501)])
    np.testing.assert_allclose(steps, 0.315 / 2500, rtol=1e-6)


def test_a_ramp_may_fall_or_take_no_time():
    assert [sp.Ramp(1.0, 0.5, 10)(i) for i in (0, 5, 10)] == [1.0, 0.75, 0.5]
    assert sp.Ramp(0.1, 0.5, 0)(0) == 0.5


def test_a_schedule_sets_the_mass():
    loss = sp.MiniBatchLoss(sp.Partial(0.325), schedule=sp.Ramp(0.01, 0.325, 2500))
    inputs = batch()[:2]
    for iteration, mass in ((None, 0.01), (1250, 0.1675), (2500, 0.325), (5000, 0.325), (0, 0.01)):
        if iteration is not None:
            assert loss.at(iteration) is loss
        assert loss.mass == mass
        assert torch.equal(loss(*inputs), sp.MiniBatchLoss(sp.Partial(mass))(*inputs))


@pytest.mark.parametrize("reg", [0.0, 0.2])
def test_a_schedule_leaves_the_regularisation_alone(reg):
    loss, inputs = sp.MiniBatchLoss(sp.Partial(0.9, reg), schedule=sp.Ramp(0.2, 0.4, 2)), batch()[:2]
    assert torch.equal(loss.at(1)(*inputs), sp.MiniBatchLoss(sp.Partial(0.3, reg))(*inputs))


def test_without_a_schedule_the_mass_stays():
    assert sp.MiniBatchLoss(sp.Partial(0.3)).at(1000).mass == 0.3


@pytest.mark.parametrize("mass", [0.0, -0.5, 1.1, math.nan])
def test_a_mass_out_of_range_is_refused_and_changes_nothing(mass):
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        sp.MiniBatchLoss(sp.Partial(0.5), schedule=lambda iteration: mass)
    loss = sp.MiniBatchLoss(sp.Partial(0.5), schedule=lambda iteration: mass if iteration else 0.25)
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        loss.at(1)
    assert loss.mass == 0.25


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Unbalanced(0.5)], ids=str)
def test_a_schedule_of_what_has_no_mass_is_refused(problem):
    with pytest.raises(ValueError, match="schedule is of the mass of a Partial problem"):
        sp.MiniBatchLoss(problem, schedule=sp.Ramp(0.1, 0.5, 10))


def test_the_module_keeps_no_state_of_its_own():
    loss = sp.MiniBatchLoss(sp.Partial(0.5), schedule=sp.Ramp(0.1, 0.5, 10))
    loss(*batch()[:2])
    assert not loss.state_dict()
    assert list(loss.parameters()) == list(loss.buffers()) == []
    loss.load_state_dict({})
    assert list(nn.Sequential(nn.Linear(2, 2), loss).state_dict()) == ["0.weight", "0.bias"]


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))], ids=["copy", "pickle"]
)
def test_a_copy_goes_its_own_way(twin_of):
    inputs = batch()
    loss = sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(), 2, schedule=sp.Ramp(0.1, 0.5, 10)).at(5)
    value = loss(*inputs)
    twin = twin_of(loss)
    assert torch.equal(twin(*inputs), value)
    twin.at(10)
    assert (twin.mass, loss.mass) == (0.5, 0.3)
    assert torch.equal(loss(*inputs), value)


@pytest.mark.parametrize("move", [lambda x: x.half(), lambda x: x.to(torch.bfloat16), lambda x: x.to("meta")])
def test_moving_a_network_leaves_the_mass_alone(move):
    """The numbers of the problem are no weights: a mass in bfloat16 would be another."""
    loss = move(nn.Sequential(nn.Linear(2, 2), sp.MiniBatchLoss(sp.Partial(0.325))))[1]
    assert loss.mass == 0.325
    assert loss(*batch()[:2]).isfinite()


def test_it_says_what_it_is():
    shown = repr(sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost(), 3))
    assert shown == "MiniBatchLoss(Partial(mass=0.5, reg=0.0), cost=JointCost(alpha=0.1, lam=0.1), n_batches=3)"


def test_the_inputs_are_left_alone():
    inputs = batch()
    before = [x.detach().clone() for x in inputs]
    sp.MiniBatchLoss(sp.Partial(0.5), sp.JointCost()).forward(*inputs).backward()
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


def test_the_same_features_give_the_same_plan():
    inputs = [x.detach().round() if x.is_floating_point() else x for x in batch(20, 20)]
    losses = [sp.MiniBatchLoss(sp.Partial(0.5)) for _ in range(2)]
    values = [loss(*inputs) for loss in losses]
    assert torch.equal(*values)
    assert torch.equal(*(loss.plan for loss in losses))


# Devices.

AWAY = torch.device("meta")


class Elsewhere(torch.Tensor):
    """A tensor that says it is on a device with a memory of its own; `trips` counts what leaves it or arrives."""

    trips: list

    @staticmethod
    def __new__(cls, inner):
        return cls._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=AWAY)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        assert all(isinstance(x, cls) for x in tensors), f"{func} mixes devices"
        home = kwargs.get("device") == torch.device("cpu")
        if home:
            cls.trips.append(("home", *args[0].shape))
        inner = func(*tree_map(lambda x: x.inner if isinstance(x, cls) else x, args), **kwargs)
        return inner if home else tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, inner)


class Arrivals(TorchFunctionMode):
    """What is made of numbers at home for the other device goes there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.as_tensor and kwargs.get("device") == AWAY:
            Elsewhere.trips.append(("there", *args[0].shape))
            return Elsewhere(func(*args, **kwargs | {"device": "cpu"}))
        return func(*args, **kwargs)


@of_each(EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_exact_plan_takes_one_trip_home_and_one_back(problem, dtype):
    cost, (kind, numbers) = tensor(2, 3, 4, dtype=dtype).square(), taken_apart(problem)
    numbers, terms = torch.tensor(numbers, dtype=torch.float64), [Elsewhere(cost / 2), Elsewhere(cost / 2)]
    Elsewhere.trips = []
    with Arrivals():
        plan = transport_plan._init_fn(Elsewhere(cost), numbers, kind, terms, "one\nother", 1e-6, 100)
    assert Elsewhere.trips == [("home", 2, 3, 4), ("there", 2, 3, 4)]
    assert plan.device == AWAY
    assert plan.dtype == dtype
    assert torch.equal(plan.inner, sp.solve(cost, problem).matrix)


@of_each(REGULARISED)
def test_a_regularised_plan_is_solved_where_the_features_are(problem, monkeypatch):
    inputs = batch()
    loss = sp.MiniBatchLoss(problem, sp.JointCost(), 2)
    at_home = loss(*inputs)
    monkeypatch.setattr("spadeful.entropic.on_device", lambda cost: True)
    monkeypatch.setattr("spadeful.entropic._core", None)  # nothing of it may be asked of the processor
    away = loss(*inputs)
    assert isinstance(loss.plan, torch.Tensor)
    close(away, at_home, rtol=1e-5, atol=1e-7)
    for found, expected in zip(gradients(away, inputs), gradients(at_home, inputs), strict=True):
        close(found, expected, rtol=1e-4, atol=1e-6)


def test_distances_by_one_product_have_the_values_and_gradients_of_differences():
    rng = torch.Generator().manual_seed(3)
    x, y = (torch.randn(2, n, 5, dtype=torch.float64, generator=rng, requires_grad=True) for n in (7, 9))
    slope = torch.randn(2, 7, 9, dtype=torch.float64, generator=rng)
    plain = (x[:, :, None] - y[:, None]).square().sum(-1)
    found = squared_distances(x, y)
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(d, (x, y), slope) for d in (found, plain)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_whole_joint_cost_is_the_sum_of_its_terms():
    rng = torch.Generator().manual_seed(4)
    source, target, logits = (torch.randn(n, d, generator=rng) for n, d in ((6, 4), (8, 4), (8, 3)))
    labels, cost = torch.arange(6) % 3, sp.JointCost(0.3, 0.7)
    terms = cost(source[None].double(), target[None].double(), labels[None], logits[None].double())
    torch.testing.assert_close(cost.whole(source, target, labels, logits), sum(terms.values())[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.4), sp.Partial(0.43)], ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (9, 4), (6, 2, 2)], ids=str)
def test_pairs_of_a_plan_cost_and_pull_as_all_entries_do(problem, shape):
    """Of an exact plan only the pairs that carry mass are differentiated; with a cost of one's own, all entries are."""
    torch.manual_seed(0)
    source, target = torch.randn(12, *shape[1:], requires_grad=True), torch.randn(2 * shape[0], *shape[1:])
    target.requires_grad_()
    found = []
    for cost in ("sqeuclidean", lambda x, y: (x.flatten(2)[:, :, None] - y.flatten(2)[:, None]).square().sum(-1)):
        value = sp.MiniBatchLoss(problem, cost, n_batches=2)(source, target)
        found.append([value.detach(), *torch.autograd.grad(value, (source, target))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.75)], ids=str)
def test_distances_beyond_single_precision_forbid_nothing(problem):
    """A finite point whose squared distance is not a float32: dear, not forbidden."""
    x, y = torch.randn(4, 2), torch.randn(4, 2)
    x[0] = 1e25
    loss = sp.MiniBatchLoss(problem)
    loss(x, y)
    assert bool(torch.isfinite(squared_distances(x, y)).all())
    assert loss.plan.sum().item() == pytest.approx(loss.mass, rel=1e-4)


def test_points_of_other_dimensions_or_kinds_are_refused():
    loss = sp.MiniBatchLoss(sp.Partial(0.5))
    with pytest.raises(ValueError, match=r"same number of dimensions\. Got 2 and 3"):
        loss(torch.zeros(4, 2), torch.zeros(4, 3))
    with pytest.raises(TypeError, match=r"source must be a tensor\. Got ndarray"):
        loss(np.zeros((4, 2)), np.zeros((4, 2)))


def test_points_that_are_close_but_far_from_others_keep_their_digits():
    """In single precision too: the differences are taken in double."""
    torch.manual_seed(0)
    x, y = (torch.cat([1e-3 * torch.randn(32, 2), torch.randn(32, 2) + 1e4]) for _ in range(2))
    expected = sp.solve(((x.double()[:, None] - y.double()) ** 2).sum(-1), sp.Partial(0.5)).value
    assert float(sp.MiniBatchLoss(sp.Partial(0.5))(x, y)) == pytest.approx(float(expected), rel=1e-4)
