"""Ground costs: SciPy's distances, the same bits however the points lie in memory, and which point is refused."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import spadeful as sp
from spadeful import _core
from spadeful.costs import NAMES, batch_costs, check_cost, read_points

LEVELS = [level for level in ("scalar", "avx2", "avx512") if _core.choose_simd_level(level)]
_core.choose_simd_level("best")


@pytest.fixture
def choose_level():
    """Choose an instruction set for one test."""
    yield _core.choose_simd_level
    _core.choose_simd_level("best")


def batches(m, n, size_x=40, size_y=30, count=3, seed=0):
    """Rows of x and of y for some pairs of batches, with repeated points."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, size_x, (count, m)), rng.integers(0, size_y, (count, n))


def points(d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, d)), rng.normal(size=(30, d)) + 0.5


@pytest.mark.parametrize("cost", NAMES)
@pytest.mark.parametrize("d", [1, 2, 3, 17, 128])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 7), (8, 8), (9, 16), (3, 33)])
def test_named_costs_are_scipys(cost, d, m, n):
    (x, y), (rows, cols) = points(d), batches(m, n)
    costs = batch_costs(x, y, rows, cols, cost, 1)
    assert costs.shape == (3, m, n)
    assert costs.dtype == np.float64
    for mine, r, c in zip(costs, rows, cols, strict=True):
        np.testing.assert_allclose(mine, cdist(x[r], y[c], cost), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cost", NAMES)
def test_every_instruction_set_gives_the_same_bits(cost, choose_level):
    for d, n in [(1, 1), (3, 7), (16, 8), (17, 9), (50, 31), (64, 64), (5, 100)]:
        (x, y), (rows, cols) = points(d), batches(6, n)
        results = []
        for level in LEVELS:
            assert choose_level(level)
            results.append(batch_costs(x, y, rows, cols, cost, 1))
        for other in results[1:]:
            assert np.array_equal(results[0], other)


@pytest.mark.parametrize("cost", NAMES)
def test_threads_change_nothing(cost):
    (x, y), (rows, cols) = points(7), batches(6, 5, count=50)
    one = batch_costs(x, y, rows, cols, cost, 1)
    for threads in (2, 3, 64):
        assert np.array_equal(batch_costs(x, y, rows, cols, cost, threads), one)


def test_a_point_without_direction_is_at_distance_1():
    """From every point under the cosine, itself included."""
    x = np.array([[0.0, 0.0], [1.0, 0.0], [-2.0, 0.0], [0.0, -0.0], [0.0, 3.0]])
    every = np.arange(5)[None]
    expected = [[1, 1, 1, 1, 1], [1, 0, 2, 1, 1], [1, 2, 0, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert batch_costs(x, x, every, every, "cosine", 1)[0].tolist() == expected


def test_close_points_far_from_the_origin_are_close():
    """The squares of the coordinates are not subtracted from each other."""
    x = 1e8 + np.arange(4.0)[:, None] / 1024
    every = np.arange(4)[None]
    assert np.array_equal(batch_costs(x, x, every, every, "sqeuclidean", 1)[0], (x - x.T) ** 2)
    angle = np.array([[np.cos(1e-6 * t), np.sin(1e-6 * t)] for t in range(4)])
    turned = 2 * np.sin(1e-6 * (np.arange(4)[:, None] - np.arange(4)) / 2) ** 2
    np.testing.assert_allclose(batch_costs(angle, angle, every, every, "cosine", 1)[0], turned, rtol=1e-8, atol=1e-26)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e149])
def test_costs_of_tiny_and_huge_points(scale):
    (x, y), (rows, cols) = points(3), batches(5, 4)
    for cost, power in (("sqeuclidean", 2), ("euclidean", 1), ("cosine", 0)):
        plain = batch_costs(x, y, rows, cols, cost, 1)
        scaled = batch_costs(scale * x, scale * y, rows, cols, cost, 1)
        np.testing.assert_allclose(scaled, plain * scale**power, rtol=1e-12)


def layouts(x, folder):
    """The same whole numbers, in every way that they may lie in memory."""
    wide = np.zeros((2 * len(x), 3 * x.shape[1]))
    wide[::2, 1::3] = x
    packed = np.zeros(len(x), dtype=[("tag", "u1"), ("point", "f8", x.shape[1])])
    packed["point"] = x
    np.save(folder / "x.npy", x)
    frozen = x.copy()
    frozen.flags.writeable = False
    yield from {
        "Fortran": np.asfortranarray(x),
        "strided": wide[::2, 1::3],
        "reversed": x[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": packed["point"],
        "real part": (x + 1j).real,
        "big-endian": x.astype(">f8"),
        "memory-mapped": np.load(folder / "x.npy", mmap_mode="r"),
        "read-only": frozen,
        "list": x.tolist(),
        **{name: x.astype(name) for name in ("f4", "f2", "g", "i1", "i2", "i4", "i8")},
        **{f"Fortran {name}": np.asfortranarray(x.astype(name)) for name in ("f4", "i4")},
    }.items()


@pytest.mark.parametrize("cost", NAMES)
def test_any_layout_and_type_gives_the_same_bits(cost, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (40, 5)).astype(float), rng.integers(-9, 9, (30, 5)).astype(float)
    rows, cols = batches(6, 4)
    expected = batch_costs(x, y, rows, cols, cost, 1)
    for name, other in layouts(x, tmp_path):
        assert np.array_equal(batch_costs(read_points(other, "x"), y, rows, cols, cost, 1), expected), name
    for name, other in layouts(y, tmp_path):
        assert np.array_equal(batch_costs(x, read_points(other, "y"), rows, cols, cost, 1), expected), name


def test_unsigned_and_boolean_points_do_not_wrap():
    x, y = np.array([[0], [255]], dtype=np.uint8), np.array([[True], [False]])
    every = np.arange(2)[None]
    assert batch_costs(x, x, every, every, "sqeuclidean", 1)[0].tolist() == [[0, 65025], [65025, 0]]
    assert batch_costs(x, y, every, every, "euclidean", 1)[0].tolist() == [[1, 0], [254, 255]]


def test_one_point_stands_for_many():
    """An array that says the same row again and again."""
    x = np.broadcast_to([1.0, 2.0], (50, 2))
    assert (batch_costs(x, np.zeros((3, 2)), *batches(4, 3, 50, 3), "sqeuclidean", 1) == 5).all()


def test_points_are_read_where_they_lie(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    for x in (np.eye(3), np.eye(3, dtype=np.float32)[:, ::2], np.load(tmp_path / "x.npy", mmap_mode="r")):
        assert np.shares_memory(read_points(x, "x"), x)


@pytest.mark.torch
def test_tensors_are_points():
    torch = pytest.importorskip("torch")
    x, y = points(3)
    rows, cols = batches(4, 5)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64):
        tensors = [torch.tensor(10 * p).to(dtype) for p in (x, y)]
        exact = [t.double().numpy() for t in tensors]
        read = [read_points(t, "x") for t in tensors]
        assert np.array_equal(
            batch_costs(*read, rows, cols, "euclidean", 1), batch_costs(*exact, rows, cols, "euclidean", 1)
        )


@pytest.mark.parametrize("cost", NAMES)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_points_that_are_not_finite_are_named(cost, dtype, bad):
    for side, name in enumerate("xy"):
        both = [p.astype(dtype) for p in points(3)]
        both[side][17, 2] = bad
        good, bad_from = np.array([[1, 2], [3, 4], [5, 6], [7, 0]]), np.array([[1, 2], [3, 4], [5, 17], [17, 0]])
        rows, cols = (bad_from, good) if name == "x" else (good, bad_from)
        with pytest.raises(ValueError, match=rf"{name} must hold finite numbers.* at {name}\[17\]"):
            batch_costs(*both, rows, cols, cost, 2)
        # A point of no batch is never read.
        assert np.isfinite(batch_costs(*both, rows[:2], cols[:2], cost, 1)).all()


def test_points_beyond_the_range_are_named():
    x, y = points(2)
    x[3] = 2e150
    with pytest.raises(
        ValueError, match=r"x must hold finite numbers of at most 1e150. Got \[2.e\+150 2.e\+150\] at x\[3\]"
    ):
        batch_costs(x, y, np.array([[3]]), np.array([[0]]), "euclidean", 1)


def test_a_function_sees_the_points_of_each_pair_of_batches():
    (x, y), (rows, cols) = points(3), batches(5, 4)
    seen = []

    def taxi(one, other):
        seen.append((one, other))
        return cdist(one, other, "cityblock")

    costs = batch_costs(x, y, rows, cols, taxi, 1)
    assert len(seen) == 3
    for p in range(3):
        assert np.array_equal(seen[p][0], x[rows[p]])
        assert np.array_equal(seen[p][1], y[cols[p]])
        assert np.array_equal(costs[p], cdist(x[rows[p]], y[cols[p]], "cityblock"))


@pytest.mark.parametrize("returned", [np.ones((4, 5)), np.ones(20), 1.0, np.ones((1, 5, 4)), np.ones((5, 1))])
def test_functions_must_return_a_cost_a_pair(returned):
    (x, y), (rows, cols) = points(3), batches(5, 4)
    with pytest.raises(ValueError, match=r"cost must return the shape \(5, 4\). Got \("):
        batch_costs(x, y, rows, cols, lambda one, other: returned, 1)


@pytest.mark.parametrize("returned", [None, np.ones((5, 4), complex), np.full((5, 4), "dear")])
def test_functions_must_return_real_numbers(returned):
    (x, y), (rows, cols) = points(3), batches(5, 4)
    with pytest.raises(TypeError, match="cost must hold real numbers"):
        batch_costs(x, y, rows, cols, lambda one, other: returned, 1)


def test_functions_may_forbid_pairs_but_not_return_nan():
    x, y = points(2)

    def costs_with(entry):
        def cost(one, other):
            values = cdist(one, other)
            values[0, 0] = entry
            return values

        return cost

    plan = sp.minibatch(x, y, sp.Balanced(), 3, 5, cost=costs_with(np.inf))
    assert np.isfinite(plan.value)
    assert plan.mass == pytest.approx(1)
    with pytest.raises(ValueError, match="cost must hold no NaN"):
        sp.minibatch(x, y, sp.Balanced(), 3, 5, cost=costs_with(np.nan))


@pytest.mark.parametrize("cost", ["manhattan", "", None, 2, ["sqeuclidean"]])
def test_unknown_costs(cost):
    with pytest.raises(ValueError, match="cost must be one of 'sqeuclidean', 'euclidean', 'cosine', or a function"):
        check_cost(cost)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.arange(4.0), ValueError, r"x must have the shape \(points, dimensions\). Got \(4,\).*pass x\[:, None\]"),
        (np.float64(4.0), ValueError, r"x must have the shape.*Got \(\)"),
        (np.zeros((2, 3, 4)), ValueError, r"Got \(2, 3, 4\)"),
        (np.zeros((0, 3)), ValueError, r"at least one point of one dimension. Got the shape \(0, 3\)"),
        (np.zeros((3, 0)), ValueError, r"at least one point of one dimension. Got the shape \(3, 0\)"),
        ([], ValueError, r"x must have the shape.*Got \(0,\)"),
        (np.ones((2, 2)) * 1j, TypeError, "x must hold real numbers. Got the type complex128"),
        ([["a", "b"]], TypeError, "x must hold real numbers. Got the type <U1"),
        (np.ones((2, 2), dtype=object), TypeError, "x must hold real numbers. Got the type object"),
        (np.zeros((2, 2), dtype="M8[s]"), TypeError, "x must hold real numbers. Got the type datetime64"),
        (None, TypeError, "x must hold real numbers"),
        (np.ma.masked_less(np.eye(2), 1), TypeError, "x must not be masked"),
        (sparse.eye_array(3), TypeError, r"x must be dense. Got .* instead; pass x.toarray\(\)"),
    ],
)
def test_what_are_no_points(x, error, message):
    with pytest.raises(error, match=message):
        read_points(x, "x")
