"""Mini-batch transport: its definitions by brute force, its estimates, and the same bits whoever does the work."""

import json
import math
import os
import tracemalloc
from itertools import combinations, product

import joblib
import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import spadeful as sp
from spadeful import engine
from spadeful.aggregate import Part, PlanSum
from spadeful.batches import sampled
from spadeful.checkpoint import Checkpoint

PROBLEMS = [
    sp.Balanced(),
    sp.Balanced(reg=0.5),
    sp.Partial(0.6),
    sp.Partial(0.6, reg=0.5),
    sp.Unbalanced(1.0),
    sp.Unbalanced((0.5, 2.0), reg=0.5),
    sp.Unbalanced(1.0, reg=0.5, entropy="kl"),
    sp.Unbalanced(1.0, divergence="tv"),
    sp.Unbalanced(1.0, reg=0.5, divergence="tv"),
]
OUTER = [sp.Balanced(), sp.Partial(0.5), sp.Balanced(reg=1.0), sp.Unbalanced(1.0, divergence="tv")]
FIELDS = ("values", "objectives", "weights")


def points(n_x=9, n_y=7, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_x, d)), rng.normal(size=(n_y, d)) + 0.5


def drawn(size, batch_size, count, side, seed=0, replace=False):
    return sampled(size, batch_size, count, replace, seed, side, None, "xy"[side]).draw(np.arange(count))


def brute_force(x, y, problem, pairs, cost="sqeuclidean"):
    """Values, objectives and plans, each padded to all points, of pairs of batches solved one by one."""
    values, objectives, plans = [], [], []
    for r, c in pairs:
        plan = sp.solve(cdist(x[r], y[c], cost), problem)
        padded = np.zeros((len(x), len(y)))
        np.add.at(padded, np.ix_(r, c), plan.matrix)
        values.append(plan.value)
        objectives.append(plan.objective)
        plans.append(padded)
    return np.array(values), np.array(objectives), np.array(plans)


def check_same(one, other):
    """Equal to the last bit."""
    for field in FIELDS:
        assert np.array_equal(getattr(one, field), getattr(other, field)), field
    for field in ("shape", "indptr", "indices", "data"):
        assert np.array_equal(getattr(one.plan, field), getattr(other.plan, field)), field


@pytest.fixture
def small_tasks(monkeypatch):
    """Eight pairs of batches a task."""
    monkeypatch.setattr(engine, "CHUNK", 1)
    monkeypatch.setattr(engine, "CHUNKS_PER_TASK", 1)


# Definitions.


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize(("m", "n"), [(4, 4), (5, 3), (1, 6)])
@pytest.mark.parametrize("replace", [False, True])
def test_the_definition(problem, m, n, replace):
    """The means over the i-th batch of x and the i-th of y (equation 3 of the paper and those like it)."""
    x, y = points()
    rows, cols = drawn(9, m, 6, 0, 3, replace), drawn(7, n, 6, 1, 3, replace)
    values, objectives, plans = brute_force(x, y, problem, zip(rows, cols, strict=True))
    result = sp.minibatch(x, y, problem, (m, n), 6, seed=3, replace=replace)
    np.testing.assert_allclose(result.values, values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.objectives, objectives, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.plan.toarray(), plans.mean(0), rtol=1e-7, atol=1e-12)
    assert result.value == pytest.approx(values.mean(), rel=1e-9)
    assert result.objective == pytest.approx(objectives.mean(), rel=1e-9)
    assert result.weights.tolist() == [1 / 6] * 6
    assert sparse.issparse(result.plan)
    assert result.plan.format == "csr"
    assert result.plan.shape == (9, 7)
    assert result.plan.has_canonical_format
    assert (result.plan.data > 0).all()


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("pairing", ["all", "bomb", *OUTER], ids=str)
def test_other_pairings(problem, pairing):
    """All pairs of batches, weighted equally or by a plan between the batches."""
    x, y = points(30, 20)  # so many that no batch comes twice, and the plan between them is the only one
    rows, cols = drawn(30, 4, 5, 0), drawn(20, 3, 5, 1)
    values, objectives, plans = brute_force(x, y, problem, product(rows, cols))
    values, objectives = values.reshape(5, 5), objectives.reshape(5, 5)
    outer = sp.Balanced() if pairing == "bomb" else pairing
    weights = np.full((5, 5), 1 / 25) if pairing == "all" else sp.solve(objectives, outer).matrix
    result = sp.minibatch(x, y, problem, (4, 3), 5, pairing=pairing)
    np.testing.assert_allclose(result.values, values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.objectives, objectives, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.weights, weights, rtol=1e-6, atol=1e-12)
    expected = (weights.ravel()[:, None, None] * plans).sum(0)
    np.testing.assert_allclose(result.plan.toarray(), expected, rtol=1e-6, atol=1e-12)
    assert result.value == pytest.approx((weights * values).sum(), rel=1e-6)
    assert result.objective == pytest.approx((weights * objectives).sum(), rel=1e-6)


def test_transport_between_the_batches_costs_no_more_than_any_pairing():
    """To pair them in order, or all with all, are two of the plans that it chooses from."""
    for seed in range(20):
        x, y = points(seed=seed)
        bomb, paired, every = (
            sp.minibatch(x, y, sp.Partial(0.7), 4, 6, seed=seed, pairing=pairing)
            for pairing in ("bomb", "paired", "all")
        )
        assert bomb.objective <= min(paired.objective, every.objective) + 1e-12
        assert np.array_equal(np.diag(every.values), paired.values)
        assert np.array_equal(bomb.values, every.values)


@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean", "cosine", lambda a, b: cdist(a, b, "cityblock")])
def test_every_ground_cost(cost):
    x, y = points(d=3)
    rows, cols = drawn(9, 4, 6, 0), drawn(7, 4, 6, 1)
    name = "cityblock" if callable(cost) else cost
    values, _, plans = brute_force(x, y, sp.Partial(0.6), zip(rows, cols, strict=True), name)
    result = sp.minibatch(x, y, sp.Partial(0.6), 4, 6, cost=cost)
    np.testing.assert_allclose(result.values, values, rtol=1e-9)
    np.testing.assert_allclose(result.plan.toarray(), plans.mean(0), atol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_one_batch_of_everything_is_the_whole_problem(problem):
    x, y = points()
    plan = sp.solve(cdist(x, y, "sqeuclidean"), problem, tol=1e-9)
    result = sp.minibatch(x, y, problem, (9, 7), 1, tol=1e-9)
    assert result.value == pytest.approx(plan.value, rel=1e-6)
    assert result.objective == pytest.approx(plan.objective, rel=1e-6)
    np.testing.assert_allclose(result.plan.toarray(), plan.matrix, atol=1e-8)


def test_batches_of_one_point():
    x, y = points()
    rows, cols = drawn(9, 1, 50, 0).ravel(), drawn(7, 1, 50, 1).ravel()
    result = sp.minibatch(x, y, sp.Partial(0.3), 1, 50)
    np.testing.assert_allclose(result.values, 0.3 * ((x[rows] - y[cols]) ** 2).sum(1), rtol=1e-12)
    expected = np.zeros((9, 7))
    np.add.at(expected, (rows, cols), 0.3 / 50)
    np.testing.assert_allclose(result.plan.toarray(), expected, rtol=1e-12)


def test_one_point_and_equal_points():
    x, y = points()
    single = sp.minibatch(x[:1], y, sp.Balanced(), (1, 3), 40)
    np.testing.assert_allclose(single.row_mass, [1.0], rtol=1e-12)
    same = sp.minibatch(np.ones((8, 2)), np.ones((5, 2)), sp.Partial(0.5), 3, 40)
    assert same.value == 0
    assert same.mass == pytest.approx(0.5, abs=1e-12)


def test_a_point_drawn_twice_counts_twice():
    """Of one point every batch is that point, again and again."""
    result = sp.minibatch([[2.0]], [[0.0], [1.0]], sp.Balanced(), (5, 2), 3, replace=True)
    np.testing.assert_allclose(result.row_mass, [1.0], rtol=1e-12)
    assert result.plan.nnz <= 2
    assert result.plan.has_canonical_format


# Every pair of batches that there is.


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 1), (5, 4)])
def test_the_full_mean(problem, m, n):
    """Definition of the full mini-batch version (appendix A)."""
    x, y = points(5, 4)
    subsets = product(map(list, combinations(range(5), m)), map(list, combinations(range(4), n)))
    values, objectives, plans = brute_force(x, y, problem, subsets)
    result = sp.full_minibatch(x, y, problem, (m, n))
    assert result.values.shape == (math.comb(5, m), math.comb(4, n))
    np.testing.assert_allclose(result.values.ravel(), values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.plan.toarray(), plans.mean(0), rtol=1e-7, atol=1e-12)
    assert result.value == pytest.approx(values.mean(), rel=1e-9)
    assert result.objective == pytest.approx(objectives.mean(), rel=1e-9)
    assert result.standard_error == 0


def test_too_many_pairs_are_refused_with_their_number():
    x, y = points(30, 25)
    with pytest.raises(ValueError, match=rf"at most 1000000 pairs.*Got {math.comb(30, 5) * math.comb(25, 4)} instead"):
        sp.full_minibatch(x, y, sp.Balanced(), (5, 4))
    with pytest.raises(ValueError, match="batch_size must be at most the points of y, 25"):
        sp.full_minibatch(x, y, sp.Balanced(), (30, 26))


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.4), sp.Unbalanced(1.0, reg=0.5)], ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 2), (4, 3)])
def test_the_estimate_is_unbiased(problem, m, n):
    """Value and plan are within a few standard errors of the mean over all pairs of batches."""
    x, y = points(6, 5)
    full = sp.full_minibatch(x, y, problem, (m, n))
    k = 20_000
    result = sp.minibatch(x, y, problem, (m, n), k)
    assert result.standard_error == pytest.approx(full.values.std() / math.sqrt(k), rel=0.05)
    assert abs(result.value - full.value) < 4 * result.standard_error
    mean = full.plan.toarray()
    most = 1 / min(m, n) if not hasattr(problem, "taus") else 2.0  # of one entry of one plan
    error = np.sqrt(mean * most / k)  # its variance is at most the mean times the largest
    assert (abs(result.plan.toarray() - mean) <= 4.5 * error).all()


def test_with_replacement_it_estimates_the_mean_over_tuples():
    x, y = points(3, 3)
    tuples = [list(t) for t in product(range(3), repeat=2)]
    values, _, plans = brute_force(x, y, sp.Partial(0.5), product(tuples, tuples))
    result = sp.minibatch(x, y, sp.Partial(0.5), 2, 20_000, replace=True)
    assert abs(result.value - values.mean()) < 4 * result.standard_error
    assert (abs(result.plan.toarray() - plans.mean(0)) <= 4.5 * plans.std(0) / math.sqrt(20_000) + 1e-12).all()


@pytest.mark.parametrize(("pairing", "low", "high"), [("paired", 0.88, 1.12), ("all", 0.88, 1.25)])
def test_the_standard_error_is_the_spread_over_seeds(pairing, low, high):
    """With all pairs it is an upper estimate, too large by a share of 1/k."""
    x, y = points(60, 50)
    results = [sp.minibatch(x, y, sp.Partial(0.7), 5, 12, seed=seed, pairing=pairing) for seed in range(250)]
    spread = np.std([result.value for result in results])
    told = np.sqrt(np.mean([result.standard_error**2 for result in results]))
    assert low < told / spread < high
    # And the mean over seeds is where a long run says it is.
    long = sp.minibatch(x, y, sp.Partial(0.7), 5, 20_000, seed=1000)
    assert abs(np.mean([result.value for result in results]) - long.value) < 4 * (
        spread / math.sqrt(250) + long.standard_error
    )


def test_the_standard_error_where_one_cannot_tell():
    x, y = points()
    assert sp.minibatch(x, y, sp.Balanced(), 3, 1).standard_error == math.inf
    assert sp.minibatch(x, y, sp.Balanced(), 3, 1, pairing="all").standard_error == math.inf
    for pairing in ("bomb", sp.Partial(0.5)):
        assert sp.minibatch(x, y, sp.Balanced(), 3, 4, pairing=pairing).standard_error == math.inf


# The plan.


@pytest.mark.parametrize("mass", [0.1, 1 / 3, 0.75, 1.0])
@pytest.mark.parametrize("pairing", ["paired", "all", "bomb"])
@pytest.mark.parametrize("reg", [0.0, 0.5])
def test_mass_and_marginals(mass, pairing, reg):
    """The mass is s, and no point sends more than its batches gave it."""
    x, y = points(40, 30)
    k, m, n = 12, 6, 5
    result = sp.minibatch(x, y, sp.Partial(mass, reg=reg), (m, n), k, pairing=pairing)
    slack = 1e-12 if reg == 0 else 1e-8
    assert abs(result.mass - mass) <= slack
    assert abs(result.row_mass.sum() - mass) <= slack
    np.testing.assert_allclose(result.row_mass, result.plan.toarray().sum(1), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(result.col_mass, result.plan.toarray().sum(0), rtol=1e-12, atol=1e-15)
    of_rows = np.bincount(drawn(40, m, k, 0).ravel(), minlength=40) / (k * m)
    of_cols = np.bincount(drawn(30, n, k, 1).ravel(), minlength=30) / (k * n)
    assert (result.row_mass <= of_rows + slack).all()
    assert (result.col_mass <= of_cols + slack).all()
    if mass == 1:
        np.testing.assert_allclose(result.row_mass, of_rows, atol=slack)
        np.testing.assert_allclose(result.col_mass, of_cols, atol=slack)


def test_no_dense_matrix_is_formed():
    """Of 200,000 points a side: the plan as a matrix would take 320 GB, the plan as it is takes what it holds."""
    rng = np.random.default_rng(0)
    x, y = rng.random((200_000, 2)), rng.random((200_000, 2))
    tracemalloc.start()
    try:
        result = sp.minibatch(x, y, sp.Partial(0.8), 100, 200)
        moved, pairs = result.map(y, missing=x), result.sample(1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6
    assert abs(result.mass - 0.8) <= 1e-12
    assert result.plan.nnz <= 200 * 200
    assert moved.shape == x.shape
    assert len(pairs[0]) == 1000


def test_memory_mapped_points_are_read_batch_by_batch(tmp_path):
    """Two files of 80 MB, of which only the points that were drawn are read."""
    shape = (200_000, 100)
    x, y = (np.lib.format.open_memmap(tmp_path / name, "w+", np.float32, shape) for name in ("x.npy", "y.npy"))
    tracemalloc.start()
    try:
        result = sp.minibatch(x, y, sp.Balanced(), 20, 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    assert result.value == 0
    assert abs(result.mass - 1) <= 1e-12


@pytest.mark.parametrize("pairing", ["paired", "all", "bomb"])
def test_values_without_the_plan(pairing):
    x, y = points()
    full, bare = (sp.minibatch(x, y, sp.Partial(0.6), 4, 5, pairing=pairing, keep_plan=k) for k in (True, False))
    for field in FIELDS:
        assert np.array_equal(getattr(full, field), getattr(bare, field))
    assert bare.plan.nnz == 0
    assert bare.plan.shape == full.plan.shape
    assert "no plan" in repr(bare)
    asked = (lambda: bare.mass, lambda: bare.row_mass, lambda: bare.map(y), lambda: bare.sample(1))
    for ask in (*asked, lambda: sp.count_mappings(bare, full.plan)):
        with pytest.raises(ValueError, match="keep_plan"):
            ask()
    full = sp.full_minibatch(x, y, sp.Partial(0.6), 2, keep_plan=False)
    assert full.plan.nnz == 0
    assert full.value == sp.full_minibatch(x, y, sp.Partial(0.6), 2).value


def test_limits_may_be_numbers_of_numpy(tmp_path):
    x, y = points()
    limits = {"tol": np.float32(1e-4), "max_iter": np.int64(1000)}
    kept, plain = (sp.minibatch(x, y, sp.Partial(0.5, 0.1), 4, 3, checkpoint=at, **limits) for at in (tmp_path, None))
    assert kept.value == plain.value


@pytest.mark.parametrize("per_pair", [1, 3, 7, 100])
def test_plans_are_added_up_in_any_portions(per_pair, monkeypatch):
    """Portions change the order of the sum only."""
    x, y = points()
    whole = sp.minibatch(x, y, sp.Balanced(), 4, 50)
    monkeypatch.setattr("spadeful.aggregate.FOLD", 8 * per_pair)
    assert PlanSum((9, 7), 8).fold == per_pair
    parts = sp.minibatch(x, y, sp.Balanced(), 4, 50)
    assert np.array_equal(parts.values, whole.values)
    np.testing.assert_allclose(parts.plan.toarray(), whole.plan.toarray(), rtol=1e-13)


def test_a_portion_is_added_up_as_soon_as_it_is_whole(monkeypatch):
    """So that no more than one waits in memory."""
    monkeypatch.setattr("spadeful.aggregate.FOLD", 4)
    total = PlanSum((2, 3), 2)
    one = Part(
        *np.zeros((2, 1)), np.ones(1, bool), np.array([2]), np.array([0, 1]), np.array([2, 0]), np.array([0.5, 0.5])
    )
    seen = []
    for _ in range(5):
        total.add(one, np.array([0.2]))
        seen.append(sum(float(each.sum()) for each in total._sums))
    assert seen == pytest.approx([0, 0.4, 0.4, 0.8, 0.8])
    np.testing.assert_allclose(total.finish().toarray(), [[0, 0, 0.5], [0.5, 0, 0]])


def test_sums_are_joined_with_their_like(monkeypatch):
    """Of 64 portions without a common entry the sums double, so that none is copied 64 times."""
    monkeypatch.setattr("spadeful.aggregate.FOLD", 1)
    total, sizes = PlanSum((64, 1), 1), []
    for row in range(64):
        entry = np.array([row]), np.array([0]), np.ones(1)
        total.add(Part(*np.zeros((2, 1)), np.ones(1, bool), np.array([1]), *entry), np.ones(1))
        sizes.append([each.nnz for each in total._sums])
    assert sizes[62] == [32, 16, 8, 4, 2, 1]
    assert sizes[63] == [64]
    assert total.finish().toarray().ravel().tolist() == [1.0] * 64


def test_the_result_says_what_it_is():
    x, y = points()
    result = sp.minibatch(x, y, sp.Partial(0.5), (4, 3), 6, seed=2)
    assert repr(result) == f"MiniBatchPlan(9x7, value={result.value:.6g} ± {result.standard_error:.2g}, mass=0.5)"
    assert result.settings == json.loads(json.dumps(result.settings))
    told = {"problem": "Partial", "mass": 0.5, "batch_size": [4, 3], "n_batches": 6, "seed": 2, "pairing": "paired"}
    assert told.items() <= result.settings.items()


# Draws.


def test_labels_balance_the_batches_of_their_side():
    x, y = points(30, 20)
    of_x, of_y = np.array(["a", "b", "c"])[np.arange(30) % 3], np.arange(20) % 2
    for labels, x_even, y_even in ((of_x, True, False), ((of_x, of_y), True, True), ((None, of_y), False, True)):
        result = sp.minibatch(x, y, sp.Balanced(), 6, 40, labels=labels)
        shares = [result.row_mass[of_x == name].sum() for name in "abc"]
        assert np.allclose(shares, 1 / 3, atol=1e-12) == x_even
        assert np.allclose([result.col_mass[of_y == c].sum() for c in (0, 1)], 1 / 2, atol=1e-12) == y_even


def test_first_batches_stay_when_more_are_drawn():
    x, y = points(50, 40)
    few, many = (sp.minibatch(x, y, sp.Partial(0.5), 6, k, seed=4) for k in (7, 100))
    assert np.array_equal(few.values, many.values[:7])
    assert not np.array_equal(few.values, sp.minibatch(x, y, sp.Partial(0.5), 6, 7, seed=5).values)


def test_the_two_sides_are_not_drawn_alike():
    x, _ = points(1000)
    result = sp.minibatch(x, x, sp.Balanced(), 10, 20)
    assert (result.values > 0).all()


# Whoever does the work.


@pytest.mark.parametrize("problem", [sp.Partial(0.6), sp.Balanced(0.3), sp.Unbalanced(1.0)], ids=str)
@pytest.mark.parametrize("pairing", ["paired", "all", "bomb"])
def test_processes_change_nothing(problem, pairing, small_tasks):
    x, y = points(60, 50, d=3)
    k = 30 if pairing == "paired" else 5
    one = sp.minibatch(x, y, problem, (7, 5), k, pairing=pairing)
    for n_jobs in (1, 2):
        check_same(sp.minibatch(x, y, problem, (7, 5), k, pairing=pairing, n_jobs=n_jobs), one)


def test_processes_change_nothing_for_functions_classes_and_files(small_tasks, tmp_path):
    x, y = points(2000, 1500, d=100)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    options = {"cost": lambda a, b: np.abs(a[:, None] - b).sum(-1), "labels": np.arange(2000) % 4, "seed": 9}
    one = sp.minibatch(x, y, sp.Partial(0.6), 8, 40, **options)
    check_same(sp.minibatch(mapped, y, sp.Partial(0.6), 8, 40, **options, n_jobs=2), one)
    check_same(
        sp.full_minibatch(x[:6], y[:5], sp.Balanced(), 3, n_jobs=2), sp.full_minibatch(x[:6], y[:5], sp.Balanced(), 3)
    )


@pytest.mark.parametrize("backend", ["threading", "loky", "sequential"])
def test_the_backend_changes_nothing(backend, small_tasks):
    x, y = points(60, 50)
    one = sp.minibatch(x, y, sp.Partial(0.6), 7, 50)
    with joblib.parallel_config(backend, n_jobs=1 if backend == "sequential" else 2):
        check_same(sp.minibatch(x, y, sp.Partial(0.6), 7, 50), one)


def test_workers_that_die_are_replaced(small_tasks, tmp_path):
    x, y = points(60, 50)
    parent, mark = os.getpid(), tmp_path / "died"

    def cost(a, b):
        if os.getpid() != parent and not mark.exists():
            mark.touch()
            os._exit(1)
        return ((a[:, None] - b) ** 2).sum(-1)

    expected = sp.minibatch(x, y, sp.Balanced(), 6, 40, cost=cost)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # joblib tells of the death
        check_same(sp.minibatch(x, y, sp.Balanced(), 6, 40, cost=cost, n_jobs=2), expected)
    assert mark.exists()


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_portions_and_threads_change_nothing(problem, monkeypatch):
    x, y = points(60, 50)
    k = 30 if problem == sp.Unbalanced(1.0) else 300
    one = sp.minibatch(x, y, problem, (7, 5), k)
    for chunk, tasks, threads in ((1, 1, 1), (1, 3, 3), (35 * 50, 2, 8), (1 << 30, 100, 2)):
        monkeypatch.setattr(engine, "CHUNK", chunk)
        monkeypatch.setattr(engine, "CHUNKS_PER_TASK", tasks)
        monkeypatch.setattr(engine, "all_cores", lambda threads=threads: threads)
        check_same(sp.minibatch(x, y, problem, (7, 5), k), one)


def test_any_kind_of_points_gives_the_same(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 100, (60, 3)).astype(float), rng.integers(0, 100, (50, 3)).astype(float)
    one = sp.minibatch(x, y, sp.Partial(0.6), 7, 20)
    np.save(tmp_path / "x.npy", x)
    kinds = {name: x.astype(name) for name in ("f4", "f2", "i8", "i4", "u1", ">f8")} | {
        "Fortran": np.asfortranarray(x),
        "strided": np.repeat(x, 2, axis=0)[::2],
        "memory-mapped": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "list": x.tolist(),
    }
    for name, kind in kinds.items():
        other = sp.minibatch(kind, y, sp.Partial(0.6), 7, 20)
        assert np.array_equal(one.values, other.values), name
        check_same(other, one)


@pytest.mark.torch
def test_tensors_give_the_same():
    torch = pytest.importorskip("torch")
    x, y = points(60, 50)
    one = sp.minibatch(x, y, sp.Partial(0.6), 7, 20)
    check_same(sp.minibatch(torch.tensor(x, requires_grad=True), torch.tensor(y), sp.Partial(0.6), 7, 20), one)
    half = torch.tensor(x).bfloat16()
    rounded = sp.minibatch(half.double().numpy(), y, sp.Partial(0.6), 7, 20)
    check_same(sp.minibatch(half, y, sp.Partial(0.6), 7, 20), rounded)


def test_pairs_that_did_not_converge_are_counted_in_one_warning():
    x, y = points()
    with pytest.warns(sp.NotConverged, match="6 of 6 pairs of batches did not reach.*within 1 sweeps") as said:
        result = sp.minibatch(x, y, sp.Balanced(reg=0.01), 4, 6, tol=1e-12, max_iter=1)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert np.isfinite(result.value)


def test_progress_is_for_terminals(capfd):
    x, y = points()
    check_same(sp.minibatch(x, y, sp.Balanced(), 4, 6, progress=True), sp.minibatch(x, y, sp.Balanced(), 4, 6))
    assert capfd.readouterr() == ("", "")


# Interruptions.


class Stopping:
    """A cost that counts its calls, and stops at one of them."""

    def __init__(self, at=math.inf):
        self.calls, self.at = 0, at

    def __call__(self, x, y):
        self.calls += 1
        if self.calls > self.at:
            raise KeyboardInterrupt
        return cdist(x, y)


@pytest.mark.parametrize("at", [0, 3, 20, 49])
@pytest.mark.parametrize("problem", [sp.Partial(0.6), sp.Balanced(0.5)], ids=str)
@pytest.mark.parametrize("keep_plan", [True, False])
def test_an_interrupted_run_goes_on(at, problem, keep_plan, small_tasks, tmp_path):
    x, y = points(30, 20)
    options = {"batch_size": 5, "n_batches": 50, "keep_plan": keep_plan}
    whole = sp.minibatch(x, y, problem, cost=Stopping(), **options)
    with pytest.raises(KeyboardInterrupt):
        sp.minibatch(x, y, problem, cost=Stopping(at), checkpoint=tmp_path, **options)
    rest = Stopping()
    check_same(sp.minibatch(x, y, problem, cost=rest, checkpoint=tmp_path, **options), whole)
    assert rest.calls == 50 - at // 8 * 8  # finished tasks are not done again
    nothing = Stopping()
    check_same(sp.minibatch(x, y, problem, cost=nothing, checkpoint=tmp_path, **options), whole)
    assert nothing.calls == 0


@pytest.mark.parametrize("at", [10, 40, 55])
def test_transport_between_the_batches_goes_on_too(at, small_tasks, tmp_path):
    """Within the values of all pairs, or within the plans of those that are used."""
    x, y = points(30, 20)
    options = {"batch_size": 5, "n_batches": 7, "pairing": sp.Balanced(reg=1.0)}
    whole = sp.minibatch(x, y, sp.Partial(0.6), cost=Stopping(), **options)
    with pytest.raises(KeyboardInterrupt):
        sp.minibatch(x, y, sp.Partial(0.6), cost=Stopping(at), checkpoint=tmp_path, **options)
    rest = Stopping()
    check_same(sp.minibatch(x, y, sp.Partial(0.6), cost=rest, checkpoint=tmp_path, **options), whole)
    assert rest.calls < 98 - at + 8


def test_any_worker_takes_up_what_others_left(small_tasks, tmp_path):
    x, y = points(30, 20)
    whole = sp.minibatch(x, y, sp.Partial(0.6), 5, 50, cost=Stopping())
    with pytest.raises(KeyboardInterrupt):
        sp.minibatch(x, y, sp.Partial(0.6), 5, 50, cost=Stopping(20), checkpoint=tmp_path)
    check_same(sp.minibatch(x, y, sp.Partial(0.6), 5, 50, cost=Stopping(), checkpoint=tmp_path, n_jobs=2), whole)


def test_parts_written_by_half_do_not_count(small_tasks, tmp_path, monkeypatch):
    """A part is renamed to its name when it is whole; what an end without warning leaves has another name."""
    x, y = points(30, 20)
    whole = sp.minibatch(x, y, sp.Partial(0.6), 5, 50)

    def die(file, **arrays):
        file.write(b"half of")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", die)
        with pytest.raises(KeyboardInterrupt):
            sp.minibatch(x, y, sp.Partial(0.6), 5, 50, checkpoint=tmp_path)
    (tmp_path / "plans" / ".part-00000000-abc.npz").write_bytes(b"half of")
    check_same(sp.minibatch(x, y, sp.Partial(0.6), 5, 50, checkpoint=tmp_path), whole)


RUN = {"problem": sp.Partial(0.6), "batch_size": 5, "n_batches": 9}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"problem": sp.Partial(0.7)}, "mass was 0.6 and is 0.7"),
        ({"problem": sp.Balanced()}, "problem was 'Partial' and is 'Balanced'"),
        ({"n_batches": 10}, "n_batches was 9 and is 10"),
        ({"batch_size": (5, 4)}, r"batch_size was \[5, 5\] and is \[5, 4\]"),
        ({"cost": "euclidean"}, "cost was 'sqeuclidean' and is 'euclidean'"),
        ({"replace": True}, "replace was False and is True"),
        ({"pairing": "all"}, "pairing was 'paired' and is 'all'"),
        ({"labels": [0] * 30}, "labels"),
        ({"tol": 1e-3}, "tol was 1e-06 and is 0.001"),
        ({"x": points(31, 20)[0]}, "points was"),
        ({"x": points(30, 20)[0] + 1}, "points was"),
        ({"x": points(30, 20)[0].astype("f4")}, "points was"),
        ({"y": points(30, 20)[1] * 2}, "points was"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(change, message, tmp_path):
    x, y = points(30, 20)
    sp.minibatch(**{"x": x, "y": y, **RUN}, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=f"must belong to the same run. It differs: .*{message}.*another folder"):
        sp.minibatch(**{"x": x, "y": y, **RUN, **change}, checkpoint=tmp_path)


def test_other_classes_and_one_other_point_make_another_run(tmp_path):
    x, y = points(1000, 20)
    options = {**RUN, "labels": np.arange(1000) % 2, "checkpoint": tmp_path}
    sp.minibatch(x, y, **options)
    with pytest.raises(ValueError, match="It differs: classes was"):
        sp.minibatch(x, y, **{**options, "labels": np.arange(1000) // 500})
    x[3, 1] += 1
    with pytest.raises(ValueError, match="It differs: points was"):
        sp.minibatch(x, y, **options)


def test_a_damaged_part_is_named_and_can_be_removed(small_tasks, tmp_path):
    x, y = points(30, 20)
    whole = sp.minibatch(x, y, sp.Partial(0.6), 5, 50, checkpoint=tmp_path)
    part = tmp_path / "plans" / "part-00000002.npz"
    for damage in (part.read_bytes()[:100], b"", b"something else"):
        part.write_bytes(damage)
        with pytest.raises(ValueError, match=r"part-00000002\.npz must be whole. It is damaged; remove it"):
            sp.minibatch(x, y, sp.Partial(0.6), 5, 50, checkpoint=tmp_path)
    part.unlink()
    check_same(sp.minibatch(x, y, sp.Partial(0.6), 5, 50, checkpoint=tmp_path), whole)


def test_a_checkpoint_keeps_arrays(tmp_path):
    store = Checkpoint(tmp_path / "new" / "folder", {"seed": 1})
    assert store.finished() == set()
    store.save(3, {"a": np.arange(3), "b": np.ones((2, 2))})
    again = Checkpoint(tmp_path / "new" / "folder", {"seed": 1})
    assert again.finished() == {3}
    assert again.load(3)["a"].tolist() == [0, 1, 2]


def test_a_checkpoint_knows_its_parts_from_other_files(tmp_path):
    store = Checkpoint(tmp_path, {"seed": 1})
    store.save(3, {"a": np.arange(3)})
    for name in ("part-old.npz", "part-4.npz", "part-00000003.npz.bak"):
        (tmp_path / name).write_bytes(b"")
    assert store.finished() == {3}


@pytest.mark.parametrize("damage", ["", "[1, 2]", "3", '{"seed": 1'])
def test_damaged_settings_of_a_checkpoint_are_named(tmp_path, damage):
    (tmp_path / "settings.json").write_text(damage)
    with pytest.raises(ValueError, match=r"settings\.json must be whole. It is damaged; remove the folder"):
        Checkpoint(tmp_path, {"seed": 1})


# What is refused.


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.arange(9.0)}, ValueError, r"x must have the shape \(points, dimensions\). Got \(9,\)"),
        ({"y": np.zeros((0, 2))}, ValueError, r"y must hold at least one point.*\(0, 2\)"),
        ({"y": np.zeros((7, 3))}, ValueError, "x and y must have the same number of dimensions. Got 2 and 3"),
        ({"x": np.ones((9, 2)) * 1j}, TypeError, "x must hold real numbers. Got the type complex128"),
        ({"y": [["a", "b"]]}, TypeError, "y must hold real numbers"),
        ({"x": np.ma.masked_less(np.eye(2), 1)}, TypeError, "x must not be masked"),
        ({"y": sparse.eye_array(2)}, TypeError, "y must be dense"),
        ({"x": np.full((9, 2), np.nan)}, ValueError, r"x must hold finite numbers.*x\[\d\]"),
        ({"problem": "partial"}, TypeError, "problem must be Balanced.*Got 'partial'"),
        ({"problem": sp.Balanced}, TypeError, "problem must be Balanced"),
        ({"problem": None}, TypeError, "problem must be Balanced.*Got None"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number of at least 1. Got 0"),
        ({"batch_size": -3}, ValueError, "batch_size must be a whole number of at least 1. Got -3"),
        ({"batch_size": 2.5}, ValueError, "batch_size must be a whole number of at least 1. Got 2.5"),
        ({"batch_size": True}, ValueError, "batch_size must be a whole number of at least 1. Got True"),
        ({"batch_size": "4"}, ValueError, "batch_size must be a whole number of at least 1. Got '4'"),
        ({"batch_size": None}, ValueError, "batch_size must be a whole number of at least 1. Got None"),
        ({"batch_size": (4, 0)}, ValueError, "batch_size must be a whole number of at least 1. Got 0"),
        ({"batch_size": (1, 2, 3)}, ValueError, r"a whole number or a pair of them. Got \(1, 2, 3\)"),
        ({"batch_size": (1,)}, ValueError, r"a whole number or a pair of them. Got \(1,\)"),
        ({"batch_size": 8}, ValueError, "batch_size must be at most the number of points of y, 7. Got 8.*replace=True"),
        ({"batch_size": (10, 2)}, ValueError, "batch_size must be at most the number of points of x, 9. Got 10"),
        ({"n_batches": 0}, ValueError, "n_batches must be a whole number of at least 1. Got 0"),
        ({"n_batches": 1.5}, ValueError, "n_batches must be a whole number of at least 1. Got 1.5"),
        ({"n_batches": 10_001, "pairing": "all"}, ValueError, "n_batches must be at most 10000 where all"),
        ({"pairing": "x"}, ValueError, "pairing must be 'paired', 'all', 'bomb' or a problem. Got 'x'"),
        ({"pairing": None}, ValueError, "pairing must be 'paired'"),
        ({"cost": "manhattan"}, ValueError, "cost must be one of.*Got 'manhattan'"),
        ({"cost": lambda a, b: np.ones(3)}, ValueError, r"cost must return the shape \(3, 3\). Got \(3,\)"),
        ({"seed": -1}, ValueError, "seed must be a whole number of at least 0. Got -1"),
        ({"seed": None}, ValueError, "seed must be a whole number of at least 0. Got None"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be a number of processes"),
        ({"tol": 0.0}, ValueError, "tol must be a number between 0 and 1. Got 0.0"),
        ({"max_iter": 0}, ValueError, "max_iter must be a whole number of at least 1. Got 0"),
        ({"labels": [0, 1]}, ValueError, r"labels of x must hold one label a point, 9 of them. Got the shape \(2,\)"),
        ({"labels": ([0] * 9, [0, 1])}, ValueError, "labels of y must hold one label a point, 7 of them"),
        ({"labels": [0] * 8 + [1], "batch_size": 4}, ValueError, "Every class of x must have at least 2 points"),
    ],
    ids=str,
)
def test_bad_input(change, error, message):
    x, y = points()
    good = {"x": x, "y": y, "problem": sp.Balanced(), "batch_size": 3, "n_batches": 4}
    assert sp.minibatch(**good).mass == pytest.approx(1)
    with pytest.raises(error, match=message):
        sp.minibatch(**{**good, **change})
    shared = {"x", "y", "problem", "batch_size", "cost", "n_jobs", "tol", "max_iter"}
    if set(change) <= shared and "replace" not in message and "number of points" not in message:
        full = {name: value for name, value in good.items() if name != "n_batches"}
        with pytest.raises(error, match=message):
            sp.full_minibatch(**{**full, **change})


def test_several_masses_share_the_batches_and_agree_with_one_at_a_time():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(90, 3)), rng.normal(size=(70, 3)) + 0.5
    masses = (0.31, 0.9, 1.0)
    results = sp.minibatch_masses(x, y, masses, batch_size=(12, 15), n_batches=40, seed=3)
    spread = sp.minibatch_masses(x, y, masses, batch_size=(12, 15), n_batches=40, seed=3, n_jobs=2)
    for mass, result, other in zip(masses, results, spread, strict=True):
        alone = sp.minibatch(x, y, sp.Partial(mass), (12, 15), 40, seed=3)
        np.testing.assert_allclose(result.values, alone.values, rtol=1e-12)
        np.testing.assert_allclose(result.plan.toarray(), alone.plan.toarray(), atol=1e-15)
        assert result.settings == alone.settings
        assert result.plan.data.tobytes() == other.plan.data.tobytes()
        assert result.values.tobytes() == other.values.tobytes()


def test_masses_that_cannot_be_are_refused():
    x = np.zeros((4, 2))
    with pytest.raises(ValueError, match="at least one"):
        sp.minibatch_masses(x, x, [], 2, 3)
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        sp.minibatch_masses(x, x, [0.5, 1.2], 2, 3)
    with pytest.raises(ValueError, match=r"leave room for at most 0\.5"):
        sp.minibatch_masses(x, x, [0.5, 0.7], 2, 3, cost=lambda a, b: np.array([[0.0, 1.0], [np.inf, np.inf]]))


def test_masses_must_be_listed():
    x, y = points()
    with pytest.raises(TypeError, match=r"'masses' parameter of minibatch_masses must list numbers"):
        sp.minibatch_masses(x, y, 0.5, 4, 5)
    with pytest.raises(ValueError, match="at least one number"):
        sp.minibatch_masses(x, y, [], 4, 5)


def test_results_stand_for_their_plans():
    x, y = points()
    result = sp.minibatch(x, y, sp.Partial(0.6), 4, 5)
    assert sp.count_mappings(result, result.plan) == (result.plan.nnz, 0, result.plan.nnz)
    with pytest.raises(ValueError, match="size must be a whole number"):
        result.sample(-1)
