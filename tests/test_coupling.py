"""Pairs for flow matching: matchings against SciPy's, all else against the plan in the mean; training with torchcfm."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

import spadeful as sp
from spadeful.coupling import near_whole, systematic
from spadeful.entropic import NotConverged

FRACTIONAL = sp.Partial(0.55)  # 3.3 pairs of 6 points
PROBLEMS = [
    FRACTIONAL,
    sp.Balanced(reg=0.5),
    sp.Partial(0.55, reg=0.5),
    sp.Unbalanced(0.8, reg=0.1),
    sp.Unbalanced(0.4),
    sp.Unbalanced(0.25, divergence="tv"),
]


def cloud(size, seed, dimensions=2, shift=0.0):
    return np.random.default_rng(seed).normal(size=(size, dimensions)) + shift


def frequencies(draw, shape, times):
    """How often each pair was drawn, a time."""
    counts = np.zeros(shape)
    for seed in range(times):
        np.add.at(counts, draw(seed), 1 / times)
    return counts


def agree(found, expected, times):
    """Within five standard errors, for means of numbers that are 0 or 1, or the two whole ones around their mean."""
    part = expected % 1
    return (abs(found - expected) <= 5 * np.sqrt(part * (1 - part) / times) + 5 / times).all()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def cfm():
    return pytest.importorskip("torchcfm")


@pytest.fixture
def solved_once(monkeypatch):
    """Draws from one cost: each problem is solved for the first of them only."""
    solved = {}

    def solve(cost, problem):
        if problem not in solved:
            solved[problem] = sp.solve(cost, problem)
        return solved[problem]

    monkeypatch.setattr("spadeful.coupling.solve", solve)


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 1000))
def test_balanced_is_the_optimal_permutation(m, dimensions, seed):
    x0, x1 = cloud(m, seed, dimensions), cloud(m, seed + 1, dimensions, shift=1.0)
    i, j = sp.couple(x0, x1)
    assert i.dtype == j.dtype == np.int64
    assert np.array_equal(i, np.arange(m))
    assert np.array_equal(np.sort(j), np.arange(m))
    cost = cdist(x0, x1, "sqeuclidean")
    assert cost[i, j].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-12)


@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean", "cosine"])
def test_the_pairs_are_optimal_for_the_cost_that_was_asked(cost):
    x0, x1 = cloud(40, 0), cloud(40, 1, shift=2.0)
    costs = cdist(x0, x1, cost)
    best = costs[linear_sum_assignment(costs)].sum()
    assert costs[sp.couple(x0, x1, cost=cost)].sum() == pytest.approx(best, rel=1e-12)
    by_function = sp.couple(x0, x1, cost=functools.partial(cdist, metric=cost))
    assert costs[by_function].sum() == pytest.approx(best, rel=1e-12)


@given(st.integers(1, 40), st.floats(0.0, 1.0), st.integers(0, 1000))
def test_partial_repeats_no_point_and_rounds_the_number_of_pairs(m, part, seed):
    mass = max(part, 1 / m)
    x0, x1 = cloud(m, seed), cloud(m, seed + 1, shift=1.0)
    i, j = sp.couple(x0, x1, sp.Partial(mass), seed=seed)
    assert len(np.unique(i)) == len(np.unique(j)) == len(i) == len(j)
    k = len(i)
    assert k in (np.floor(near_whole(mass * m)), np.ceil(near_whole(mass * m)))
    value = sp.solve(cdist(x0, x1, "sqeuclidean"), sp.Partial(k / m)).value
    assert ((x0[i] - x1[j]) ** 2).sum() / m == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_whole_numbers_of_pairs_are_never_rounded_away():
    for m in range(1, 130):
        for k in {1, (m + 1) // 2, m}:
            assert len(sp.couple(cloud(m, 0), cloud(m, 1), sp.Partial(k / m), seed=m)[0]) == k
    for mass in (0.1, 0.3, 0.7, 0.9):  # times ten these are not whole as doubles
        for n in (10, 13):
            sizes = {len(sp.couple(cloud(10, 0), cloud(n, 1), sp.Partial(mass), seed=s)[0]) for s in range(30)}
            assert sizes == {round(mass * 10)}


@pytest.mark.usefixtures("solved_once")
@pytest.mark.parametrize(("m", "n"), [(6, 6), (6, 9), (9, 6)])
@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_pairs_are_drawn_as_often_as_the_plan_says(m, n, problem):
    x0, x1 = cloud(m, 0), cloud(n, 1, shift=0.5)
    plan = sp.solve(cdist(x0, x1, "sqeuclidean"), problem).matrix
    expected = m * plan / max(plan.sum(), 1)
    times = 800
    found = frequencies(lambda seed: sp.couple(x0, x1, problem, seed=seed), (m, n), times)
    rows = expected.sum(axis=1)
    assert agree(found.sum(axis=1), rows, times)
    # Where a row may come twice, its pairs come as independent draws do at most.
    loose = np.sqrt(expected / times) * (rows > 1 + 1e-9)[:, None]
    assert agree(found[loose == 0], expected[loose == 0], times)
    assert (abs(found - expected)[loose > 0] <= 5 * loose[loose > 0] + 5 / times).all()
    assert not found[expected == 0].any()


@pytest.mark.usefixtures("solved_once")
@pytest.mark.parametrize("problem", [sp.Partial(0.5), sp.Partial(0.5, reg=0.5)], ids=repr)
def test_a_part_of_the_pairs_has_the_odds_of_the_whole(problem):
    """One pair of one and a half: where there is but one, it must not be drawn more often for that."""
    x0, x1 = cloud(3, 0), cloud(3, 1, shift=0.5)
    plan = sp.solve(cdist(x0, x1, "sqeuclidean"), problem).matrix
    times = 1000
    found = frequencies(lambda seed: sp.couple(x0, x1, problem, seed=seed, n_pairs=1), plan.shape, times)
    assert agree(found, plan / plan.sum(), times)


@pytest.mark.usefixtures("solved_once")
def test_a_fractional_number_of_pairs_keeps_its_mean():
    x0, x1 = cloud(6, 0), cloud(6, 1)
    sizes = np.array([len(sp.couple(x0, x1, FRACTIONAL, seed=seed)[0]) for seed in range(1000)])
    assert set(sizes) == {3, 4}
    assert agree(sizes.mean(), 3.3, 1000)


@pytest.mark.parametrize("n", [5, 12, 20])
@pytest.mark.parametrize("reg", [0.0, 0.3])
def test_balanced_pairs_every_row_once_whatever_the_sizes(n, reg):
    for seed in range(50):
        i, j = sp.couple(cloud(12, 0), cloud(n, 1), sp.Balanced(reg), seed=seed)
        assert np.array_equal(i, np.arange(12))
        assert ((j >= 0) & (j < n)).all()


def test_every_row_once_even_if_the_iteration_was_cut_short(monkeypatch):
    monkeypatch.setattr("spadeful.coupling.solve", functools.partial(sp.solve, max_iter=1))
    with pytest.warns(NotConverged):
        i, _ = sp.couple(cloud(20, 0), cloud(20, 1, shift=3), sp.Balanced(1e-3), seed=0)
    assert np.array_equal(i, np.arange(20))


@pytest.mark.parametrize("problem", [sp.Partial(0.6), sp.Partial(0.6, reg=0.3)], ids=repr)
def test_partial_pairs_a_row_at_most_once_whatever_the_sizes(problem):
    for n, seed in itertools.product((7, 12, 20), range(50)):
        i, _ = sp.couple(cloud(12, 0), cloud(n, 1), problem, seed=seed)
        assert (np.diff(i) > 0).all()
        assert len(i) in (7, 8)


def test_total_variation_pairs_what_costs_less_than_its_penalty():
    """One far point a side: it is left, the others are matched as if it were not there."""
    x0, x1 = np.array([[0.0], [1.0], [90.0]]), np.array([[-50.0], [1.1], [0.2]])
    i, j = sp.couple(x0, x1, sp.Unbalanced(tau=1.0, divergence="tv"))
    assert i.tolist() == [0, 1]
    assert j.tolist() == [2, 1]


def test_mass_that_is_made_makes_no_more_pairs_than_points():
    x0, x1 = cloud(10, 0), cloud(10, 1)
    problem = sp.Unbalanced(1.0, reg=10.0)
    assert sp.solve(cdist(x0, x1, "sqeuclidean"), problem).mass > 10
    assert len(sp.couple(x0, x1, problem, seed=0)[0]) == 10


@given(st.lists(st.floats(0, 3), min_size=1, max_size=30), st.integers(0, 1000))
def test_systematic_sampling_rounds_every_count_and_their_sum(counts, seed):
    counts = np.array(counts)
    drawn = np.bincount(systematic(counts, np.random.default_rng(seed)), minlength=len(counts))
    assert (abs(drawn - counts) < 1 + 1e-6).all()
    assert abs(drawn.sum() - counts.sum()) < 1 + 1e-6


def test_equal_shares_are_drawn_as_any_subset():
    """In random order systematic sampling of equal shares is simple random sampling: neighbours come together too."""
    rng = np.random.default_rng(0)
    drawn = [tuple(sorted(systematic(np.full(4, 0.5), rng))) for _ in range(3000)]
    for subset in itertools.combinations(range(4), 2):
        assert drawn.count(subset) / 3000 == pytest.approx(1 / 6, abs=5 * np.sqrt(5 / 36 / 3000))


class TestNumberOfPairs:
    def test_they_are_some_of_all_pairs_in_random_order(self):
        x0, x1 = cloud(50, 0), cloud(50, 1)
        every = set(zip(*sp.couple(x0, x1), strict=True))
        i, j = sp.couple(x0, x1, seed=0, n_pairs=20)
        some = set(zip(i, j, strict=True))
        assert len(some) == 20
        assert some < every
        assert (np.diff(i) < 0).any()
        assert not np.array_equal(i, sp.couple(x0, x1, seed=1, n_pairs=20)[0])

    @pytest.mark.parametrize("problem", [sp.Balanced(), sp.Balanced(0.3), sp.Partial(0.5), sp.Partial(0.5, reg=0.3)])
    @pytest.mark.parametrize("n", [15, 30, 40])
    def test_no_row_is_repeated(self, problem, n):
        most = 15 if isinstance(problem, sp.Partial) else 30
        for count, seed in itertools.product((1, 7, most), range(5)):
            i, j = sp.couple(cloud(30, 0), cloud(n, 1), problem, seed=seed, n_pairs=count)
            assert len(np.unique(i)) == len(i) == len(j) == count

    @pytest.mark.parametrize("problem", [sp.Partial(0.55), sp.Partial(0.55, reg=0.3)])
    @pytest.mark.parametrize("n", [6, 9])
    def test_more_than_there_are_is_an_error_whatever_the_rounding(self, problem, n):
        for seed in range(20):
            assert len(sp.couple(cloud(6, 0), cloud(n, 1), problem, seed=seed, n_pairs=3)[0]) == 3
            with pytest.raises(ValueError, match=r"n_pairs must be at most the pairs that there are, 3\. Got 4"):
                sp.couple(cloud(6, 0), cloud(n, 1), problem, seed=seed, n_pairs=4)

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3"])
    def test_others_are_refused(self, bad):
        with pytest.raises(ValueError, match="n_pairs must be a whole number of at least 1"):
            sp.couple(cloud(6, 0), cloud(6, 1), n_pairs=bad)


class TestRandomness:
    @pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
    def test_the_seed_decides(self, problem):
        x0, x1 = cloud(9, 0), cloud(12, 1)
        drawn = [np.array(sp.couple(x0, x1, problem, seed=s)) for s in (5, 5, np.random.default_rng(5))]
        assert np.array_equal(drawn[0], drawn[1])
        assert np.array_equal(drawn[0], drawn[2])

    def test_a_generator_goes_on(self):
        x0, x1, rng = cloud(30, 0), cloud(30, 1), np.random.default_rng(0)
        first, second = (sp.couple(x0, x1, seed=rng, n_pairs=10)[0] for _ in range(2))
        assert not np.array_equal(first, second)

    def test_without_a_seed_calls_differ(self):
        x0, x1 = cloud(30, 0), cloud(30, 1)
        assert len({tuple(sp.couple(x0, x1, n_pairs=10)[0]) for _ in range(4)}) == 4

    def test_global_state_is_neither_read_nor_changed(self):
        drawn = []
        for state in (1, 2):
            np.random.seed(state)  # noqa: NPY002
            before = np.random.get_state()  # noqa: NPY002
            drawn.append(np.array(sp.couple(cloud(9, 0), cloud(12, 1), sp.Balanced(0.5), seed=0)))
            sampler = sp.CouplingSampler(sp.Balanced(0.5), seed=0)
            drawn[-1] = np.concatenate([drawn[-1].ravel(), sampler.sample_plan(cloud(9, 0), cloud(12, 1))[1].ravel()])
            after = np.random.get_state()  # noqa: NPY002
            assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
        assert np.array_equal(*drawn)

    @pytest.mark.parametrize("bad", [-1, 1.5, "0", True, np.random])
    def test_bad_seeds_are_refused(self, bad):
        with pytest.raises(ValueError, match="seed must be a whole number of at least 0"):
            sp.couple(cloud(3, 0), cloud(3, 1), seed=bad)


class TestPoints:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
    def test_types_and_images(self, dtype):
        x0, x1 = ((10 * cloud(16, seed, 64)).reshape(16, 1, 8, 8).astype(dtype) for seed in (0, 1))
        i, j = sp.couple(x0, x1)
        flat0, flat1 = (x.reshape(16, -1).astype(float) for x in (x0, x1))
        cost = cdist(flat0, flat1, "sqeuclidean")
        assert cost[i, j].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), rel=1e-6)

    def test_points_on_a_line_are_sorted(self):
        x0, x1 = np.random.default_rng(0).random((2, 30))
        i, j = sp.couple(x0, x1)
        assert np.array_equal(np.argsort(x0[i]), np.argsort(x1[j]))

    def test_lists_and_views(self):
        assert sp.couple([[0.0], [3.0]], [[4.0], [1.0]])[1].tolist() == [1, 0]
        x0, x1 = cloud(20, 0, 6), cloud(20, 1, 6)
        expected = sp.couple(x0[:, ::2].copy(), x1[:, ::2].copy())[1]
        assert np.array_equal(sp.couple(x0[:, ::2], np.asfortranarray(x1)[:, ::2])[1], expected)

    def test_a_function_must_return_a_plain_matrix(self):
        x = cloud(5, 0, 3)
        for wrap in (np.ma.masked_array, csr_array):
            with pytest.raises(TypeError, match="cost must"):
                sp.couple(x, x, cost=lambda a, b, wrap=wrap: wrap(cdist(a, b)))

    def test_a_function_gets_flat_points_and_may_forbid_pairs(self):
        def cost(x, y):
            assert x.shape == y.shape == (5, 12)
            return np.where(np.eye(5, dtype=bool), np.inf, cdist(x, y))

        x = cloud(5, 0, 12).reshape(5, 3, 4)
        i, j = sp.couple(x, x, cost=cost)
        assert (i != j).all()

    @pytest.mark.parametrize(
        ("x0", "x1", "message"),
        [
            (np.zeros((3, 2)), np.zeros((3, 4)), r"one shape\. Got \(2,\) and \(4,\)"),
            (np.zeros((3, 2, 2)), np.zeros((3, 4)), r"one shape\. Got \(2, 2\) and \(4,\)"),
            (np.zeros((0, 2)), np.zeros((3, 2)), r"x0 must hold at least one point.*\(0, 2\)"),
            (np.zeros((3, 2)), np.zeros((3, 0)), r"x1 must hold at least one point.*\(3, 0\)"),
            (np.float64(1), np.zeros((3, 2)), r"x0 must hold at least one point.*Got the shape \(\)"),
            (np.array([[0.0], [np.nan]]), np.zeros((2, 1)), r"x0 must hold finite.*nan.*at x0\[1\]"),
            (np.zeros((2, 1)), np.array([[np.inf], [0.0]]), r"x1 must hold finite.*inf.*at x1\[0\]"),
        ],
    )
    def test_bad_points_are_named(self, x0, x1, message):
        with pytest.raises(ValueError, match=message):
            sp.couple(x0, x1)
        with pytest.raises(ValueError, match=message):
            sp.couple(x0, x1, cost=cdist)

    def test_complex_points_are_refused(self):
        with pytest.raises(TypeError, match="x1 must hold real numbers"):
            sp.couple(np.zeros((2, 1)), np.zeros((2, 1), dtype=complex))


class TestRefusals:
    def test_problems_and_costs(self):
        x = np.zeros((2, 1))
        for make in (lambda *args, **kw: sp.couple(x, x, *args, **kw), sp.CouplingSampler):
            with pytest.raises(TypeError, match=r"problem must be Balanced\(\).*Got 0.9"):
                make(0.9)
            with pytest.raises(ValueError, match="cost must be one of"):
                make(cost="l2")

    @pytest.mark.parametrize(("n", "reg"), [(10, 0.0), (12, 0.0), (10, 0.5)])
    def test_less_mass_than_a_point(self, n, reg):
        with pytest.raises(ValueError, match="mass must be at least 1/10"):
            sp.couple(cloud(10, 0), cloud(n, 1), sp.Partial(0.05, reg))

    @pytest.mark.parametrize("problem", [sp.Unbalanced(0.01, divergence="tv"), sp.Unbalanced(0.01, reg=0.01)])
    def test_a_plan_without_mass_is_an_error(self, problem):
        with pytest.raises(ValueError, match="must carry the mass of at least one of the 5 points"):
            sp.couple(cloud(5, 0), cloud(5, 1, shift=100.0), problem)

    def test_costs_of_a_wrong_shape(self):
        with pytest.raises(ValueError, match=r"cost must return the shape \(2, 3\)\. Got \(3, 2\)"):
            sp.couple(np.zeros((2, 1)), np.zeros((3, 1)), cost=lambda x, y: cdist(y, x))

    def test_costs_that_are_not_numbers(self):
        with pytest.raises(ValueError, match="cost must hold no NaN"):
            sp.couple(np.zeros((2, 1)), np.zeros((2, 1)), cost=lambda x, y: np.full((2, 2), np.nan))


class TestSampler:
    def test_it_draws_what_couple_draws(self):
        x0, x1 = cloud(12, 0), cloud(12, 1)
        for problem in PROBLEMS:
            i, j = sp.couple(x0, x1, problem, seed=3)
            drawn = sp.CouplingSampler(problem, seed=3).sample_plan(x0, x1)
            assert np.array_equal(drawn[0], x0[i])
            assert np.array_equal(drawn[1], x1[j])

    def test_labels_stay_with_their_points(self):
        x0, x1 = cloud(12, 0), cloud(12, 1)
        sampler = sp.CouplingSampler(sp.Partial(0.7), seed=0)
        for replace in (False, True):
            p0, p1, y0, y1 = sampler.sample_plan_with_labels(x0, x1, x0[:, 0], 10 * x1[:, 1], replace)
            assert np.array_equal(y0, p0[:, 0])
            assert np.array_equal(y1, 10 * p1[:, 1])
        assert sampler.sample_plan_with_labels(x0, x1)[2:] == (None, None)
        with pytest.raises(ValueError, match=r"y1 must hold a label a point of x1, 12\. Got 11"):
            sampler.sample_plan_with_labels(x0, x1, None, np.zeros(11))

    def test_fewer_pairs_than_points(self):
        sampler = sp.CouplingSampler(seed=0, n_pairs=5)
        for replace in (False, True):
            assert sampler.sample_plan(cloud(40, 0), cloud(40, 1), replace)[0].shape == (5, 2)

    def test_the_map_is_the_plan(self):
        x0, x1 = cloud(7, 0).reshape(7, 2, 1), cloud(9, 1).reshape(9, 2, 1)
        cost = cdist(x0[..., 0], x1[..., 0], "sqeuclidean")
        for problem in PROBLEMS:
            found = sp.CouplingSampler(problem).get_map(x0, x1)
            np.testing.assert_allclose(found, sp.solve(cost, problem).matrix, atol=1e-9)

    @pytest.mark.parametrize("replace", [False, True])
    def test_pairs_of_a_map_come_as_often_as_it_says(self, replace):
        pi = np.random.default_rng(0).random((3, 4)) ** 3
        sampler = sp.CouplingSampler(seed=0)
        times = 1500
        found = frequencies(lambda _: sampler.sample_map(pi, 5, replace), pi.shape, times)
        expected = 5 * pi / pi.sum()
        assert (abs(found - expected) < 5 * np.sqrt(expected / times)).all()

    def test_replacing_or_not(self):
        """As many pairs as are asked either way; a matching is drawn whole only without replacement."""
        pi = np.eye(30) / 30
        sampler = sp.CouplingSampler(seed=0)
        i, j = sampler.sample_map(pi, 30)
        assert np.array_equal(np.sort(i), np.arange(30))
        assert np.array_equal(i, j)
        i, j = sampler.sample_map(pi, 30, replace=True)
        assert len(i) == 30
        assert len(np.unique(i)) < 30

    def test_bad_maps_are_refused(self):
        sampler = sp.CouplingSampler()
        with pytest.raises(ValueError, match="carries no mass"):
            sampler.sample_map(np.zeros((2, 2)), 2)
        for bad in (np.nan, np.inf, -1.0):
            with pytest.raises(ValueError, match="pi must hold finite masses of at least 0"):
                sampler.sample_map(np.array([[bad, 2.0]]), 2)
        with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
            sampler.sample_map(np.eye(2), 0)

    def test_trajectories_follow_the_matchings(self):
        """Populations that are one cloud, shuffled and moved a little: every path is one point's."""
        rng, cluster = np.random.default_rng(0), 10.0 * np.arange(20)[:, None, None]
        X = np.stack([rng.permutation(cluster + 0.1 * t) for t in range(4)], axis=1)  # noqa: N806
        paths = sp.CouplingSampler(seed=0).sample_trajectory(X)
        assert paths.shape == X.shape
        np.testing.assert_allclose(paths, paths[:, :1] + 0.1 * np.arange(4)[:, None, None], atol=1e-9)
        some = sp.CouplingSampler(sp.Partial(0.9), seed=0).sample_trajectory(X)
        assert 14 <= len(some) <= 18
        assert len(np.unique(some[:, 0])) == len(some)
        spread = sp.CouplingSampler(sp.Balanced(reg=100.0), seed=0).sample_trajectory(X)
        assert np.array_equal(np.sort(spread[:, 0], axis=0), np.sort(X[:, 0], axis=0))

    def test_trajectories_that_end_are_an_error(self):
        # The first step pairs one point, at 0; the second pairs the other.
        X = np.array([[0.0, 0.0, 50.0], [9.0, 70.0, 70.0]])  # noqa: N806
        with pytest.raises(ValueError, match="No path goes on from time 1"):
            sp.CouplingSampler(sp.Partial(0.5)).sample_trajectory(X)
        with pytest.raises(ValueError, match=r"X must have the shape \(points, times, \.\.\.\)"):
            sp.CouplingSampler().sample_trajectory(X[0])


@pytest.mark.torch
class TestTorch:
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    @pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.55), sp.Balanced(0.5)], ids=repr)
    def test_tensors_in_tensors_out(self, torch, dtype, problem):
        x0, x1 = (torch.tensor(cloud(16, s, 64)).reshape(16, 1, 8, 8).to(getattr(torch, dtype)) for s in (0, 1))
        i, j = sp.couple(x0.requires_grad_(), x1, problem, seed=0)
        assert i.dtype == j.dtype == torch.int64
        assert i.device == x0.device
        expected = sp.couple(*(x.detach().double().numpy() for x in (x0, x1)), problem, seed=0)
        assert np.array_equal(np.array([i.numpy(), j.numpy()]), np.array(expected))

    def test_a_function_gets_tensors(self, torch):
        x0, x1 = (torch.tensor(cloud(12, seed, 6)).reshape(12, 2, 3).requires_grad_() for seed in (0, 1))
        found = sp.couple(x0, x1, cost=lambda x, y: torch.cdist(x, y) ** 2)
        assert torch.equal(found[1], sp.couple(x0, x1)[1])

    def test_the_sampler_returns_tensors_and_their_gradients(self, torch):
        x0, x1 = (torch.tensor(cloud(12, seed), dtype=torch.float32) for seed in (0, 1))
        p0, p1, y0, y1 = sp.CouplingSampler(sp.Partial(0.5), seed=0).sample_plan_with_labels(
            x0.requires_grad_(), x1, torch.arange(12), None
        )
        assert p0.shape == p1.shape == (6, 2)
        assert p0.dtype == torch.float32
        assert torch.equal(x0[y0], p0)
        assert y1 is None
        p0.sum().backward()
        assert x0.grad.sum() == 12

    def test_trajectories(self, torch):
        X = torch.tensor(cloud(10, 0, 8)).reshape(10, 4, 2)  # noqa: N806
        paths = sp.CouplingSampler(seed=0).sample_trajectory(X)
        assert isinstance(paths, torch.Tensor)
        for t in range(4):
            assert torch.equal(paths[:, t].sort(0).values, X[:, t].sort(0).values)

    def test_nan_is_named(self, torch):
        with pytest.raises(ValueError, match=r"nan.*at x1\[2\]"):
            sp.couple(torch.zeros(3, 1), torch.tensor([[0.0], [1.0], [torch.nan]]))


@pytest.mark.torch
class TestTorchcfm:
    """In the place of torchcfm's own sampler, in its flow matchers."""

    @pytest.fixture
    def batch(self, torch):
        """Noise, and eight separate modes with their numbers as labels."""
        state = torch.Generator().manual_seed(0)

        def draw(size):
            label = torch.randint(8, (size,), generator=state)
            angle = label * torch.pi / 4
            data = 4 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(size, 2, generator=state)
            return torch.randn(size, 2, generator=state), data, label

        return draw

    def test_it_has_what_torchcfms_sampler_has(self, cfm):
        theirs = cfm.conditional_flow_matching.OTPlanSampler
        public = {name for name in vars(theirs) if not name.startswith("_")}
        assert public <= set(dir(sp.CouplingSampler))

    def test_no_point_is_repeated_where_torchcfm_repeats(self, torch, cfm, batch):
        """torchcfm #142: it draws from the plan with replacement."""
        x0, x1, _ = batch(64)
        theirs = cfm.conditional_flow_matching.OTPlanSampler("exact").sample_plan(x0, x1)
        ours = sp.CouplingSampler().sample_plan(x0, x1)
        for side, points in enumerate((x0, x1)):
            assert len(theirs[side].unique(dim=0)) < 64
            assert torch.equal(ours[side].unique(dim=0), points.unique(dim=0))
        pi = cfm.conditional_flow_matching.OTPlanSampler("exact").get_map(x0, x1)
        np.testing.assert_allclose(sp.CouplingSampler().get_map(x0, x1), pi, atol=1e-12)

    @pytest.mark.parametrize("guided", [False, True])
    def test_training(self, torch, cfm, batch, guided):
        """The loss falls, to less than that of independent pairs: the flow is a function of the place."""
        independent = train(torch, cfm.ConditionalFlowMatcher(sigma=0.0), batch, guided)
        for problem in (sp.Balanced(), sp.Partial(0.9), sp.Balanced(0.5)):
            coupled = cfm.ExactOptimalTransportConditionalFlowMatcher(sigma=0.0)
            coupled.ot_sampler = sp.CouplingSampler(problem, seed=0)
            losses = train(torch, coupled, batch, guided)
            assert np.isfinite(losses).all()
            assert losses[-10:].mean() < 0.6 * losses[:5].mean()
            assert losses[-10:].mean() < (0.9 if guided else 0.6) * independent[-10:].mean()

    def test_the_schrodinger_bridge_takes_it_too(self, torch, cfm, batch):
        matcher = cfm.SchrodingerBridgeConditionalFlowMatcher(sigma=0.5)
        matcher.ot_sampler = sp.CouplingSampler(sp.Balanced(reg=0.5), seed=0)
        x0, x1, label = batch(32)
        t, xt, ut, _, y1, eps = matcher.guided_sample_location_and_conditional_flow(x0, x1, y1=label, return_noise=True)
        assert len(t) == len(xt) == len(ut) == len(y1) == len(eps) == 32
        assert ut.isfinite().all()

    def test_paths_are_straighter_than_of_independent_pairs(self, torch, cfm, batch):
        """Straight paths of a deterministic flow do not cross: fewer of ours do, at the time they meet."""
        x0, x1, _ = batch(128)
        p0, p1 = sp.CouplingSampler().sample_plan(x0, x1)
        assert (p1 - p0).norm(dim=1).mean() < 0.8 * (x1 - x0).norm(dim=1).mean()

        def crossings(start, end):
            """Pairs of paths that pass each other: the lines between them turn by more than a right angle."""
            before, after = (points[:, None] - points for points in (start, end))
            return ((before * after).sum(2) < 0).float().mean()

        assert crossings(p0, p1) < 0.2 * crossings(x0, x1)


def train(torch, matcher, batch, guided, steps=40):
    """The losses of a small network that learns the flow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more would wait for each other longer than they work
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(11, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2)
        )
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        losses = []
        for _ in range(steps):
            x0, x1, label = batch(128)
            if guided and hasattr(matcher, "ot_sampler"):
                t, xt, ut, _, label = matcher.guided_sample_location_and_conditional_flow(x0, x1, y1=label)
            else:
                t, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
            classes = torch.nn.functional.one_hot(label[: len(t)], 8).float() * guided
            loss = ((network(torch.cat([xt, t[:, None], classes], 1)) - ut) ** 2).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.set_num_threads(threads)
    return np.array(losses)
