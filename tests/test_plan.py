"""The one result type: its certificate, its fields for one problem and for a batch, NumPy and torch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spadeful as sp
from truths import check_plan, clouds, problems, uniform

FIELDS = ("matrix", "value", "mass", "price", "gap", "row_prices", "col_prices")


@pytest.mark.parametrize("n", [90, 120, 250])
@pytest.mark.parametrize("points", [0.5, 0.75, 0.93, 0.98])
@pytest.mark.parametrize("fraction", [0, 0.5, 1e-9])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_certificate_holds_on_hard_costs(n, points, fraction, seed):
    """Points in a plane, at masses that are whole points and that are not."""
    cost = clouds(n, n, seed=seed)
    mass = (int(points * n) + fraction) / n
    check_plan(sp.solve(cost, sp.Partial(mass)), cost, mass)


@given(problems())
def test_prices_are_zero_where_there_is_room(problem):
    """What a row or column takes off the price of mass is nothing unless it is full."""
    cost, mass, a, b = problem
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    for axis, weights, prices in ((1, a, plan.row_prices), (0, b, plan.col_prices)):
        room = (uniform(len(prices)) if weights is None else weights) - plan.matrix.sum(axis)
        assert (prices[room > 1e-9] <= 1e-9).all()


@given(problems(), st.data())
def test_the_gap_bounds_what_any_other_plan_could_save(problem, data):
    """Random feasible plans of the same mass never cost less than value - gap."""
    cost, mass, a, b = problem
    m, n = cost.shape
    a, b = uniform(m) if a is None else a, uniform(n) if b is None else b
    plan = sp.solve(cost, sp.Partial(mass), a, b)
    left_a, left_b, other = a.copy(), b.copy(), np.zeros((m, n))
    for i, j in data.draw(st.permutations([(i, j) for i in range(m) for j in range(n)])):
        moved = min(left_a[i], left_b[j], max(0.0, mass - other.sum()))
        other[i, j] += moved
        left_a[i] -= moved
        left_b[j] -= moved
    assert (cost * other).sum() >= plan.value - plan.gap - 1e-9 * (1 + np.abs(cost).max())


def test_fields_of_one_problem_are_numbers_and_arrays():
    plan = sp.solve(np.arange(6.0).reshape(2, 3), sp.Partial(0.5))
    assert [type(getattr(plan, field)) for field in ("value", "mass", "price", "gap")] == [float] * 4
    assert plan.matrix.shape == (2, 3)
    assert plan.row_prices.shape == (2,)
    assert plan.col_prices.shape == (3,)
    assert plan.converged is True
    assert repr(plan) == f"Plan(shape=(2, 3), value={plan.value}, mass=0.5)"


def test_triplets_run_by_row_then_column():
    rows, cols, masses = sp.solve(clouds(30, 20), sp.Balanced()).triplets
    assert rows.dtype == cols.dtype == np.int64
    assert masses.dtype == np.float64
    assert np.array_equal(np.lexsort((cols, rows)), np.arange(len(rows)))


def test_exact_plans_are_sparse():
    """A basic solution has fewer entries than points."""
    rng = np.random.default_rng(0)
    cost, a, b = rng.random((40, 60)), rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(60))
    for s in (0.3, 0.8, 1.0):
        assert len(sp.solve(cost, sp.Partial(s), a, b).triplets[0]) <= 100


@pytest.mark.parametrize(("m", "n"), [(1, 1), (6, 6), (5, 8), (70, 70)])
@pytest.mark.parametrize("mass", [0.37, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_is_its_problems_one_by_one(m, n, mass, weighted):
    rng = np.random.default_rng(m * n)
    batch = rng.normal(size=(7, m, n))
    a, b = (rng.dirichlet(np.ones(k)) if weighted else None for k in (m, n))
    plans = sp.solve(batch, sp.Partial(mass), a, b)
    single = [sp.solve(cost, sp.Partial(mass), a, b) for cost in batch]
    for field in FIELDS:
        expected = np.stack([getattr(plan, field) for plan in single])
        assert getattr(plans, field).shape == expected.shape
        # Sums are formed in another order.
        np.testing.assert_allclose(getattr(plans, field), expected, rtol=1e-12, atol=1e-14)
    assert np.array_equal(plans.matrix, np.stack([plan.matrix for plan in single]))
    problem, rows, cols, masses = plans.triplets
    assert np.array_equal(plans.matrix[problem, rows, cols], masses)
    assert len(rows) == sum(len(plan.triplets[0]) for plan in single)
    assert plans.converged.all()


@pytest.mark.parametrize("size", range(1, 300, 13))
def test_batches_of_every_size(size):
    batch = np.random.default_rng(size).random((size, 3, 3))
    plans = sp.solve(batch, sp.Balanced())
    np.testing.assert_allclose(plans.matrix.sum(1), 1 / 3, atol=1e-12)
    assert (np.abs(plans.gap) < 1e-12).all()


def test_plans_keep_what_they_need():
    """The cost array may go out of scope before the first field is asked for."""
    plan, path = sp.solve(np.eye(50) * 2 + 1, sp.Balanced()), sp.mass_path(np.eye(50) * 2 + 1)
    assert plan.value == pytest.approx(1.0)
    assert path.at(0.5).value == pytest.approx(0.5)
    assert plan.gap == pytest.approx(0.0, abs=1e-12)


@pytest.mark.torch
class TestTorch:
    """Tensors in, tensors out."""

    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"])
    def test_every_type(self, torch, dtype):
        cost = torch.arange(20).reshape(4, 5).flip(0).to(getattr(torch, dtype))
        plan = sp.solve(cost, sp.Partial(0.5))
        expected = cost.dtype if cost.dtype.is_floating_point else torch.float64
        for field in FIELDS:
            assert isinstance(getattr(plan, field), torch.Tensor), field
            assert getattr(plan, field).dtype == expected, field
        reference = sp.solve(cost.double().numpy(), sp.Partial(0.5))
        assert torch.equal(plan.matrix, torch.from_numpy(reference.matrix).to(expected))
        assert plan.value.ndim == plan.mass.ndim == 0
        assert float(plan.value) == pytest.approx(reference.value, rel=1e-2 if expected.itemsize == 2 else 1e-6)

    @pytest.mark.parametrize("layout", ["transposed", "strided", "expanded"])
    def test_every_layout(self, torch, layout):
        cost = torch.tensor(clouds(6, 8))
        view = {
            "transposed": lambda: cost.T.contiguous().T,
            "strided": lambda: cost.repeat_interleave(2, dim=1)[:, ::2],
            "expanded": lambda: cost[:1].expand(6, 8),
        }[layout]()
        dense = sp.solve(view.contiguous(), sp.Partial(0.6))
        assert torch.equal(sp.solve(view, sp.Partial(0.6)).matrix, dense.matrix)

    def test_parts_of_complex_tensors(self, torch):
        cost = torch.tensor(clouds(6, 8))
        view = torch.complex(cost, -cost).conj().imag
        assert view.is_neg()
        assert torch.equal(sp.solve(view, sp.Partial(0.6)).matrix, sp.solve(cost, sp.Partial(0.6)).matrix)

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
    def test_a_path_has_a_plan_for_each_of_its_own_masses(self, torch, dtype):
        cost = torch.tensor(clouds(3, 3)).to(getattr(torch, dtype))
        cost[0] = torch.inf
        path = sp.mass_path(cost)
        for mass in (path.masses[-1], float(path.masses[-1]), 2 / 3):
            assert float(path.at(mass).mass) == pytest.approx(2 / 3, rel=1e-3 if dtype == "float16" else 1e-6)
        with pytest.raises(ValueError, match="leave room for at most"):
            path.at(0.7)

    def test_the_gradient_is_the_plan(self, torch):
        cost = torch.tensor(clouds(9, 7), requires_grad=True)
        plan = sp.solve(cost, sp.Partial(0.6))
        plan.value.backward()
        assert torch.equal(cost.grad, plan.matrix)
        assert not plan.matrix.requires_grad

    def test_the_gradient_agrees_with_finite_differences(self, torch):
        cost = torch.tensor(clouds(4, 5), requires_grad=True)
        assert torch.autograd.gradcheck(lambda c: sp.solve(c, sp.Partial(0.55)).value, cost, eps=1e-7, atol=1e-6)

    def test_the_gradient_reaches_the_points(self, torch):
        x = torch.tensor([[0.0], [5.0]], requires_grad=True)
        y = torch.tensor([[1.0], [50.0]])
        sp.solve((x - y.T) ** 2, sp.Partial(0.5)).value.backward()
        assert x.grad.tolist() == [[-1.0], [0.0]]

    def test_the_gradient_of_a_batch(self, torch):
        batch = torch.rand(5, 6, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)
        plans = sp.solve(batch, sp.Partial(0.5))
        assert plans.value.shape == (5,)
        weights = torch.arange(1.0, 6.0)
        (plans.value * weights).sum().backward()
        torch.testing.assert_close(batch.grad, plans.matrix * weights[:, None, None])

    def test_forbidden_pairs_have_no_gradient(self, torch):
        cost = torch.tensor([[torch.inf, 2.0], [1.0, 0.0]], requires_grad=True)
        sp.solve(cost, sp.Balanced()).value.backward()
        assert cost.grad.tolist() == [[0, 0.5], [0.5, 0]]

    def test_weights_and_the_path(self, torch):
        cost, a = torch.tensor(clouds(4, 6)), torch.tensor([0.1, 0.2, 0.3, 0.4])
        path = sp.mass_path(cost, a=a)
        plan = sp.solve(cost, sp.Partial(0.7), a=a)
        assert isinstance(path.values, torch.Tensor)
        assert torch.allclose(path.at(0.7).matrix, plan.matrix)
        torch.testing.assert_close(plan.matrix.sum(1) <= a + 1e-6, torch.ones(4, dtype=torch.bool))
        numpy_path = sp.mass_path(cost.numpy(), a=a.numpy())
        assert np.array_equal(path.values.numpy(), numpy_path.values)

    def test_the_input_is_left_alone(self, torch):
        cost = torch.rand(8, 8, generator=torch.Generator().manual_seed(2))
        before = cost.clone()
        plan = sp.solve(cost, sp.Partial(0.5))
        plan.gap, plan.row_prices  # noqa: B018
        assert torch.equal(cost, before)

    def test_bad_tensors_are_refused(self, torch):
        with pytest.raises(ValueError, match=r"Got nan at cost\[0, 1\]"):
            sp.solve(torch.tensor([[0.0, torch.nan]]), sp.Balanced())
        with pytest.raises(ValueError, match="cost must have the shape"):
            sp.solve(torch.zeros(3), sp.Balanced())
        with pytest.raises(TypeError, match="cost must hold real numbers"):
            sp.solve(torch.zeros(2, 2, dtype=torch.complex64), sp.Balanced())
