import os
import subprocess
import sys

import numpy as np
import pytest

import spadeful as sp
from spadeful import _core
from spadeful.costs import NAMES, batch_costs
from spadeful.pairs import solve_pairs

MASSES = (0.9, 0.31, 1.0, 0.33)  # in any order, also two within one point


def pairs_of(m, n, k=20, size=200, dimension=3, levels=None):
    rng = np.random.default_rng(m + n)
    points = [rng.random((size, dimension)) for _ in range(2)]
    if levels:
        points = [np.round(p * levels) / levels for p in points]
    which = [np.stack([rng.choice(size, c, replace=False) for _ in range(k)]) for c in (m, n)]
    return (*points, *which)


@pytest.mark.parametrize("cost", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (30, 30), (20, 33)])
def test_a_pair_is_measured_and_solved_as_in_two_steps(cost, dtype, m, n):
    x, y, rows, cols = pairs_of(m, n)
    x, y = x.astype(dtype), y.astype(dtype)
    costs = batch_costs(x, y, rows, cols, cost, 1)
    for mass in (1.0, 0.75, 1 / 3, 0.01):
        expected = sp.solve(costs, sp.Partial(mass), threads=1)
        for threads in (1, 3):
            found = solve_pairs(x, y, rows, cols, cost, (mass,), threads)
            assert found.value.tobytes() == expected.value.tobytes()
            which, row, col, moved = expected.triplets
            wanted = np.bincount(which), rows[which, row], cols[which, col], moved
            for one, other in zip(found[1:], wanted, strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("levels", [None, 4])  # colours that repeat take another algorithm
@pytest.mark.parametrize(("m", "n"), [(1, 1), (40, 40), (20, 33)])
def test_several_masses_are_each_optimal(m, n, levels):
    x, y, rows, cols = pairs_of(m, n, levels=levels)
    costs = batch_costs(x, y, rows, cols, "sqeuclidean", 1)
    k = len(rows)
    for cost in ("sqeuclidean", lambda a, b: ((a[:, None] - b) ** 2).sum(axis=2)):
        found = solve_pairs(x, y, rows, cols, cost, MASSES, 2)
        plans = np.zeros((len(MASSES) * k, m, n))
        for entry, which in enumerate(np.repeat(np.arange(len(plans)), found.sizes)):
            pair = which % k
            row, col = (
                np.flatnonzero(rows[pair] == found.rows[entry]),
                np.flatnonzero(cols[pair] == found.cols[entry]),
            )
            plans[which, row[0], col[0]] += found.masses[entry]
        plans = plans.reshape(len(MASSES), k, m, n)
        for at, mass in enumerate(MASSES):
            expected = sp.solve(costs, sp.Partial(mass)).value
            np.testing.assert_allclose(found.value.reshape(-1, k)[at], expected, rtol=1e-9, atol=1e-15)
            np.testing.assert_allclose(plans[at].sum((1, 2)), mass, rtol=1e-11)
            np.testing.assert_allclose((plans[at] * costs).sum((1, 2)), expected, rtol=1e-9, atol=1e-15)
            assert (plans[at].sum(2) <= 1 / m + 1e-15).all()
            assert (plans[at].sum(1) <= 1 / n + 1e-15).all()


@pytest.mark.parametrize("dimension", [1, 3, 4])  # of few dimensions one mass takes the path of several
@pytest.mark.parametrize("mass", [0.5, 0.905, 1.0])
def test_one_mass_between_whole_points_is_that_of_several(mass, dimension):
    x, y, rows, cols = pairs_of(40, 40, dimension=dimension)
    x, y = np.round(255 * x), np.round(255 * y)
    alone = solve_pairs(x, y, rows, cols, "sqeuclidean", (mass,), 1)
    beside = solve_pairs(x, y, rows, cols, "sqeuclidean", (0.3, mass), 2)
    costs = batch_costs(x, y, rows, cols, "sqeuclidean", 1)
    np.testing.assert_allclose(alone.value, sp.solve(costs, sp.Partial(mass)).value, rtol=1e-12)
    np.testing.assert_allclose(alone.value, beside.value[len(rows) :], rtol=1e-12)
    if dimension <= 3:
        assert np.array_equal(alone.cols, beside.cols[-len(alone.cols) :])


@pytest.mark.parametrize("masses", [(0.951, 0.953), (0.503, 0.505, 0.951, 0.953), (0.953, 0.953)])
def test_masses_within_one_point_where_many_points_want_the_same_few(masses):
    """A pair that was added for the share of a point is taken away again, also after prices from half the problem."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 130, 2)), 0.1 * rng.random((40, 130, 2))
    costs = ((x[:, :, None] - y[:, None]) ** 2).sum(axis=3)
    values = _core.solve_masses(costs, masses, 1).values.reshape(-1, 40)
    for at, mass in enumerate(masses):
        np.testing.assert_allclose(values[at], sp.solve(costs, sp.Partial(mass)).value, rtol=1e-9)


def test_the_answers_of_several_masses_have_prices_that_prove_them():
    x, y, rows, cols = pairs_of(40, 40)
    costs = batch_costs(x, y, rows, cols, "sqeuclidean", 1)
    solved = _core.solve_masses(costs, MASSES, 1)
    repeated = np.tile(costs, (len(MASSES), 1, 1))
    row_prices = _core.certify(repeated, solved.prices, solved.column_prices)
    bound = solved.prices * np.repeat(MASSES, len(costs)) - row_prices.mean(axis=1) - solved.column_prices.mean(axis=1)
    np.testing.assert_allclose(bound, solved.values, rtol=1e-9)


@pytest.mark.parametrize("spread", ["x", "y"])  # the side that is spread out decides which side has the prices
@pytest.mark.parametrize("mass", [1.0, 0.9, 0.75])
def test_many_pairs_that_begin_with_the_prices_of_others_are_optimal(mass, spread):
    """Points of one side want the same few of the other: where the costs alone are known, the problem is halved."""
    rng = np.random.default_rng(2)
    x, y = rng.random((900, 2)), 0.1 * rng.random((900, 2))
    x, y = (x, y) if spread == "x" else (y, x)
    rows, cols = rng.integers(0, 900, (2, 150, 60))
    expected = sp.solve(batch_costs(x, y, rows, cols, "sqeuclidean", 1), sp.Partial(mass)).value
    for threads in (1, 3):
        found = solve_pairs(x, y, rows, cols, "sqeuclidean", (mass,), threads)
        np.testing.assert_allclose(found.value, expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("masses", [(0.3,), (0.9,), (0.5, 0.75, 1.0)])
def test_pairs_that_are_unlike_the_first_two_are_optimal(masses, scale):
    """What a pair costs in the first two is where the others start, however far that is off."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 6000, 3))
    rows, cols = np.arange(6000).reshape(2, 150, 20)
    x[rows[:2]] *= scale
    y[cols[:2]] *= scale
    costs = batch_costs(x, y, rows, cols, "sqeuclidean", 1)
    found = solve_pairs(x, y, rows, cols, "sqeuclidean", masses, 2).value.reshape(len(masses), -1)
    for mass, value in zip(masses, found, strict=True):
        expected = sp.solve(costs, sp.Partial(mass)).value
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12 * expected.max())


def test_a_bad_point_in_the_first_pairs_is_named_as_ever():
    rng = np.random.default_rng(2)
    x, y = rng.random((900, 2)), 0.1 * rng.random((900, 2))
    rows, cols = rng.integers(0, 900, (2, 150, 60))
    x[rows[1, 0]] = np.inf
    first = rows.ravel()[np.flatnonzero(rows.ravel() == rows[1, 0])[0]]
    with pytest.raises(ValueError, match=rf"x must hold finite numbers .* at x\[{first}\]"):
        solve_pairs(x, y, rows, cols, "sqeuclidean", (0.9,), 2)


def test_pairs_may_be_farther_apart_than_any_points_of_one():
    """Between the first two, distances are beyond what is solved; between points that are in one pair they are not."""
    far = np.where(np.arange(130) % 2, 1e150, -1e150)[:, None, None]
    rng, batches = np.random.default_rng(0), np.arange(130 * 2).reshape(130, 2)
    x, y = ((far * (1 - 0.1 * rng.random((130, 2, 1)))).repeat(20_000, axis=2).reshape(-1, 20_000) for _ in range(2))
    values = solve_pairs(x, y, batches, batches, "sqeuclidean", (0.5,), 1).value
    assert np.isfinite(values).all()


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer reserves more than the limit")
@pytest.mark.parametrize("threads", [1, 2])
def test_too_little_memory_is_an_error_and_not_the_end(threads):
    program = f"""
import resource, numpy as np
from spadeful import _core
x, both = np.zeros((30_000, 1)), np.broadcast_to(np.arange(30_000), (2, 30_000)).copy()
pairs = _core.Pairs(x, x, both, both, "sqeuclidean")
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    pairs.solve([0.5], {threads})
except MemoryError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


def test_the_first_pair_with_a_bad_point_is_named():
    x, y, rows, cols = pairs_of(5, 5)
    for threads in (1, 2):
        for points, which, name in ((x, rows, "x"), (y, cols, "y")):
            first = which[7, 2]
            bad = points.copy()
            bad[first, 1] = np.nan
            both = (bad, y) if name == "x" else (x, bad)
            with pytest.raises(ValueError, match=rf"{name} must hold finite numbers .* at {name}\[{first}\]"):
                solve_pairs(*both, rows, cols, "sqeuclidean", (0.5,), threads)


def test_batches_that_do_not_fit_are_refused():
    points, one, two = np.zeros((3, 2)), np.zeros((1, 2), int), np.zeros((2, 2), int)
    with pytest.raises(ValueError, match="shapes that fit"):
        _core.Pairs(points, points, one, two, "euclidean")
    with pytest.raises(ValueError, match="at least one mass"):
        _core.Pairs(points, points, one, one, "euclidean").solve([], 1)
    with pytest.raises(ValueError, match="the shape"):
        _core.Pairs(points, points, one, one, "euclidean").measure(np.zeros((1, 2, 3)), 1)
