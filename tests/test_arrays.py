"""Inputs: every real array is read right whatever its type and layout; the rest is refused."""

import numpy as np
import pytest

import spadeful as sp
from truths import check_plan, clouds

HALF = sp.Partial(0.5)

# Whole numbers, which every type holds, with the same plan at every precision.
COST = np.random.default_rng(0).permutation(24).reshape(4, 6)


def solved():
    return sp.solve(COST.astype(np.float64), HALF)


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", "g", ">f2", ">f4", ">f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4"],
)
def test_every_real_type(dtype):
    cost = COST.astype(dtype)
    plan = sp.solve(cost, HALF)
    check_plan(plan, cost, 0.5)
    assert plan.value == solved().value
    assert plan.matrix.dtype == (cost.dtype if cost.dtype.kind == "f" else np.float64)
    assert np.array_equal(sp.mass_path(cost).values, sp.mass_path(COST).values)


def test_boolean_cost_counts_the_true_pairs():
    cost = ~np.eye(5, dtype=bool)
    assert sp.solve(cost, sp.Balanced()).value == 0
    assert sp.solve(~cost, sp.Balanced()).value == 0
    assert sp.solve(np.ones((5, 5), dtype=bool), HALF).value == pytest.approx(0.5, abs=1e-12)


def test_float32_is_solved_in_double_precision():
    """Sums of float32 costs, formed in float32, would be off by 1e-7 of themselves."""
    cost = clouds(40, 50).astype(np.float32)
    plan = sp.solve(cost, sp.Partial(0.9))
    assert plan.value == pytest.approx(sp.solve(cost.astype(np.float64), sp.Partial(0.9)).value, rel=1e-15)
    assert abs(plan.gap) < 1e-12


LAYOUTS = {
    "fortran": np.asfortranarray,
    "transposed": lambda cost: np.ascontiguousarray(cost.T).T,
    "strided rows": lambda cost: np.repeat(cost, 3, axis=0)[::3],
    "strided columns": lambda cost: np.repeat(cost, 2, axis=1)[:, ::2],
    "reversed": lambda cost: np.ascontiguousarray(cost[::-1, ::-1])[::-1, ::-1],
    "inner block": lambda cost: np.pad(cost, 2, constant_values=-99)[2:-2, 2:-2],
    "field of a record": lambda cost: cost.astype([("flag", "i1"), ("cost", cost.dtype)])["cost"],
    "unaligned": lambda cost: np.frombuffer(b"\0" + cost.tobytes(), cost.dtype, offset=1).reshape(cost.shape),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout, dtype):
    """Read-only too, so that a write would show."""
    cost = LAYOUTS[layout](COST.astype(dtype))
    assert np.array_equal(cost, COST)
    cost.flags.writeable = False
    plan = sp.solve(cost, HALF)
    check_plan(plan, cost, 0.5)
    assert np.array_equal(plan.matrix, solved().matrix.astype(plan.matrix.dtype))
    assert np.array_equal(sp.mass_path(cost).values, sp.mass_path(COST).values)


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_every_layout_of_a_batch(axes):
    batch = np.random.default_rng(1).random((5, 4, 3))
    stored = np.ascontiguousarray(batch.transpose(axes)).transpose(np.argsort(axes))
    assert np.array_equal(stored, batch)
    assert np.array_equal(sp.solve(stored, HALF).matrix, sp.solve(batch, HALF).matrix)


def test_repeated_problems_need_no_memory():
    """A batch with stride 0 repeats one problem."""
    batch = np.broadcast_to(COST.astype(np.float64), (3, 4, 6))
    assert np.array_equal(sp.solve(batch, HALF).matrix, np.stack([solved().matrix] * 3))


def test_lists_are_arrays():
    plan = sp.solve(COST.tolist(), HALF, a=[0.25] * 4, b=[1 / 6] * 6)
    assert np.array_equal(plan.matrix, solved().matrix)
    assert sp.mass_path(COST.tolist()).at(0.5).value == plan.value


def test_inputs_are_never_modified():
    rng = np.random.default_rng(2)
    cost, a, b = rng.random((3, 30, 30)), rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(30))
    before = cost.copy(), a.copy(), b.copy()
    for problem in (sp.Balanced(), sp.Partial(0.3)):
        for weights in ((None, None), (a, b)):
            plan = sp.solve(cost, problem, *weights)
            plan.gap, plan.matrix, plan.triplets  # noqa: B018
            sp.mass_path(cost[0], *weights).at(0.3).gap  # noqa: B018
    assert all(np.array_equal(now, then) for now, then in zip((cost, a, b), before, strict=True))


# What follows is refused, by both functions alike.


def mass_path(cost, **weights):
    return sp.mass_path(cost, **weights)


def balanced(cost, **weights):
    return sp.solve(cost, sp.Balanced(), **weights)


@pytest.fixture(params=[balanced, mass_path], ids=["solve", "mass_path"])
def solver(request):
    return request.param


@pytest.mark.parametrize(
    "cost",
    [3.0, None, np.zeros(3), np.zeros((1, 1, 1, 1)), [1.0, 2.0]],
    ids=["number", "None", "1-D", "4-D", "flat list"],
)
def test_cost_of_another_dimension_is_refused(solver, cost):
    with pytest.raises((ValueError, TypeError), match=r"cost must have the shape \(m, n\).* Got"):
        solver(cost)


def test_the_path_takes_no_batch():
    with pytest.raises(ValueError, match=r"cost must have the shape \(m, n\)\. Got the shape \(2, 3, 4\)"):
        sp.mass_path(np.zeros((2, 3, 4)))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_empty_cost_is_refused(solver, shape, dtype):
    with pytest.raises(ValueError, match=r"cost must not be empty\. Got the shape"):
        solver(np.zeros(shape, dtype))


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_empty_batch_is_refused(shape):
    with pytest.raises(ValueError, match=r"cost must not be empty\. Got the shape"):
        balanced(np.zeros(shape))


@pytest.mark.parametrize(
    "cost",
    [
        np.eye(2) + 0j,
        np.array([["1", "2"]]),
        np.array([[1.0, None]]),
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
    ],
    ids=["complex", "string", "object", "date"],
)
def test_cost_that_is_not_real_is_refused(solver, cost):
    with pytest.raises(TypeError, match=r"cost must hold real numbers\. Got the type"):
        solver(cost)


def test_masked_cost_is_refused(solver):
    with pytest.raises(TypeError, match=r"cost must not be masked.*cost\.filled\(np\.inf\)"):
        solver(np.ma.masked_greater(COST, 20))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (7, 7), (70, 70)], ids=str)
def test_nan_and_minus_infinity_are_refused(solver, bad, dtype, shape):
    cost = np.zeros(shape, dtype)
    cost[-1, shape[1] // 2] = bad
    where = rf"\[{shape[0] - 1}, {shape[1] // 2}\]"
    with pytest.raises(ValueError, match=rf"cost must hold no NaN and no -inf.*Got (nan|-inf) at cost{where}"):
        solver(cost)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_message_names_the_bad_entry_of_a_batch(threads):
    batch = np.zeros((9, 4, 4))
    batch[5, 2, 1] = batch[7, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"Got nan at cost\[5, 2, 1\]"):
        sp.solve(batch, sp.Balanced(), threads=threads)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"must have the shape \(3,\)"),
        (np.full((3, 1), 1 / 3), r"must have the shape \(3,\)"),
        (1.0, r"must have the shape \(3,\)"),
        ([0.5, 0.75, -0.25], "must hold finite weights of at least 0. Got -0.25"),
        ([0.5, 0.5, np.nan], "must hold finite weights of at least 0. Got nan"),
        ([0.5, 0.5, np.inf], "must hold finite weights of at least 0. Got inf"),
        ([1, 1, 1], "must sum to 1. Got a sum of 3"),
        ([0.0, 0.0, 0.0], "must sum to 1. Got a sum of 0"),
    ],
)
def test_wrong_weights_are_refused(solver, name, weights, message):
    with pytest.raises(ValueError, match=f"^{name} {message}"):
        solver(np.zeros((3, 3)), **{name: weights})


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize(
    "weights",
    [np.full(3, 1 / 3) + 0j, ["x", "y", "z"], np.ma.masked_less(np.full(3, 1 / 3), 0), [None] * 3],
    ids=["complex", "string", "masked", "object"],
)
def test_weights_that_are_no_plain_numbers_are_refused(solver, name, weights):
    """A mask or an imaginary part must not be dropped without a word."""
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        solver(np.zeros((3, 3)), **{name: weights})


def test_weights_off_by_rounding_are_taken():
    """Sums as float32 code forms them miss 1 by 1e-7 or so."""
    weights = np.full(3000, 1 / 3000, dtype=np.float32) * np.float32(1 + 2e-7)
    plan = sp.solve(np.zeros((3000, 2)), sp.Balanced(), a=weights, b=[0.25, 0.75])
    assert plan.mass == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(plan.matrix.sum(0), [0.25, 0.75], atol=1e-12)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_wrong_threads_are_refused(threads):
    with pytest.raises((ValueError, TypeError), match="threads must be a whole number of at least 1, or None"):
        sp.solve(np.zeros((2, 3, 3)), sp.Balanced(), threads=threads)


def test_numpy_integers_count_threads():
    assert sp.solve(np.zeros((2, 3, 3)), sp.Balanced(), threads=np.int64(2)).value.tolist() == [0, 0]


@pytest.mark.parametrize("problem", [None, 0.5, "balanced", sp.Balanced, sp.Partial])
def test_anything_but_a_problem_is_refused(problem):
    with pytest.raises(TypeError, match=r"problem must be Balanced\(\), Partial\(mass\) or Unbalanced\(tau\)\. Got"):
        sp.solve(COST, problem)
