"""The compiled core: the same bits at every width and thread count, two algorithms that agree, and Ctrl-C."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import spadeful as sp
from spadeful import _core
from truths import clouds


@pytest.fixture
def choose_level():
    """Choose an instruction set for one test."""
    yield _core.choose_simd_level
    _core.choose_simd_level("best")


LEVELS = [level for level in ("avx2", "avx512") if _core.choose_simd_level(level)]
_core.choose_simd_level("best")


def some_costs():
    """Sizes around the registers' and the blocks' widths; ties, signs and forbidden pairs."""
    rng = np.random.default_rng(0)
    for n in [*range(1, 20), 31, 33, 63, 64, 65, 67, 127, 129, 150]:
        yield clouds(n, n, seed=n)
        yield rng.normal(size=(n, n + 3))
        yield rng.integers(-2, 3, (n + 5, n)).astype(float)
        yield rng.integers(0, 3, (n, n)).astype(float)
        yield np.where(rng.random((n, n)) < 0.2, np.inf, rng.random((n, n)))


def bits(cost):
    """Everything the core says about a cost: with and without weights, for one mass and for all, and unbalanced."""
    m, n = cost.shape
    a, b = np.arange(1.0, m + 1), np.arange(n, 0.0, -1)
    parts = []
    for weights in ((None, None), (a / a.sum(), b / b.sum())):
        path = _core.path(cost, *weights)
        parts += [path.masses, path.values, path.prices]
        for mass in (0.41, 0.9, 1.0):
            if mass <= path.masses[-1]:
                answer = _core.solve(cost, mass, *weights, 1)
                rows = _core.certify(cost, answer.prices, answer.column_prices)
                parts += [*answer.triplets, *path.triplets(mass), answer.values, answer.prices]
                parts += [answer.column_prices, rows]
    if m == n:
        several = _core.solve_masses(cost[None], [0.3, 0.41, 0.415, 1.0], 1, True) if np.isfinite(cost).all() else None
        parts += [*several.triplets, several.values, several.prices, several.column_prices] if several else []
    (_, *entries), *potentials = _core.solve_unbalanced(cost, a / a.sum(), b / b.sum(), 0.5, 2.0, 1)
    parts += [*entries, *potentials]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def test_levels():
    assert _core.simd_level() in {"scalar", "avx2", "avx512"}


def test_an_unknown_level_is_no_level(choose_level):
    before = _core.simd_level()
    assert not choose_level("mmx")
    assert _core.simd_level() == before


def test_every_level_gives_the_same_bits(choose_level):
    if not LEVELS:
        pytest.skip("this machine has the scalar level only")
    for cost in some_costs():
        answers = []
        for level in ("scalar", *LEVELS):
            assert choose_level(level)
            assert _core.simd_level() == level
            answers.append(bits(cost))
        assert len(set(answers)) == 1, cost.shape


@pytest.mark.parametrize("n", [5, 64, 65, 130, 250])
@pytest.mark.parametrize("mass", [0.3, 0.7501, 0.93, 0.977, 1.0])
@pytest.mark.parametrize("kind", ["cloud", "integer", "negative", "fought over"])
def test_the_two_algorithms_agree(n, mass, kind):
    """One follows the mass path, the other matches at a price, from those of half the problem or of an auction where
    that is quicker. Both carry a certificate of their own; here their values and, where there is one price only,
    their prices."""
    rng = np.random.default_rng(n)
    colours = rng.integers(0, 12, (n, 1, 3)) / 40, rng.random((1, n, 3)) + 0.3  # few columns are near any row
    cost = {
        "cloud": clouds(n, n),
        "integer": rng.integers(0, 20, (n, n)),
        "negative": -rng.random((n, n)),
        "fought over": ((colours[0] - colours[1]) ** 2).sum(-1),
    }[kind]
    quick, along = (_core.solve(cost.astype(float), mass, None, None, 1, along_path=path) for path in (False, True))
    assert quick.values[0] == pytest.approx(along.values[0], rel=1e-11)
    if abs(mass * n - round(mass * n)) > 1e-6:
        assert quick.prices[0] == pytest.approx(along.prices[0], rel=1e-9, abs=1e-12)


def whole_cost(kind, n):
    rng = np.random.default_rng(n)
    x, y = rng.integers(0, 256, (n, 1, 3)), rng.integers(60, 200, (1, n, 3))
    widest = 1 << 21  # as far as whole costs may be apart for 32 bits to hold their sums
    return {
        "colours": ((x - y) ** 2).sum(axis=2),
        "few": rng.integers(0, 3, (n, n)),
        "equal": np.full((n, n), 7),
        "negative": -(x - y)[:, :, 0],
        "wide": rng.integers(-5, widest - 5 + 1, (n, n)) * (rng.random((n, n)) < 0.9),
        "too wide": 2 * widest * (rng.random((n, n)) > 1 / n),
        "not whole": ((x - y) ** 2).sum(axis=2) + 0.25 * (np.arange(n) == n - 1),
        "large": rng.integers(0, 1000, (n, n)) + 2.0**40,
    }[kind].astype(float)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 48, 63, 64, 65, 100, 112, 113, 127, 128, 129])
@pytest.mark.parametrize("kind", ["colours", "few", "equal", "negative", "wide", "too wide", "not whole", "large"])
def test_several_masses_of_whole_costs_are_those_of_the_mass_path(kind, n):
    """Costs that are whole and not far apart have their own path in narrow registers; others beside them do not."""
    cost = whole_cost(kind, n)
    masses = np.unique([0.4 / n, 1 / n, 0.3, 0.5, 0.9, 0.951, 0.953, 1.0])
    solved, path = _core.solve_masses(cost[None], masses, 1, crowded=True), _core.path(cost, None, None)
    expected = np.interp(masses, path.masses, path.values)
    scale = abs(cost).max()
    np.testing.assert_allclose(solved.values, expected, rtol=1e-12, atol=1e-12 * scale)
    rows = _core.certify(np.repeat(cost[None], len(masses), axis=0), solved.prices, solved.column_prices)
    assert (solved.column_prices >= 0).all()
    proved = solved.prices * masses - rows.mean(axis=1) - solved.column_prices.mean(axis=1)
    np.testing.assert_allclose(proved, expected, rtol=1e-12, atol=1e-12 * scale)
    for which, mass in enumerate(masses):
        plan = solved.dense[which]
        assert plan.sum() == pytest.approx(mass, rel=1e-12)
        assert max(plan.sum(axis=0).max(), plan.sum(axis=1).max()) <= 1 / n * (1 + 1e-12)


@pytest.mark.parametrize("n", [32, 60, 100])
def test_the_plan_of_a_mass_of_whole_costs_is_the_same_beside_any_others(n):
    """A path is followed from its beginning, and does not depend on where it is looked at; with ties other ways do."""
    cost = whole_cost("few", n)[None]
    lists = [0.75], [0.1, 0.75], [0.5, 0.7, 0.75]
    plans = [_core.solve_masses(cost, masses, 1, crowded=True).dense[-1] for masses in lists]
    assert all(np.array_equal(plan, plans[0]) for plan in plans)


@pytest.mark.parametrize("mass", [0.6, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_number_of_threads_changes_nothing(mass, dtype):
    rng = np.random.default_rng(1)
    batch = rng.random((40, 30, 30)).astype(dtype)
    batch[::3] = rng.integers(0, 3, (14, 30, 30))

    def answer(threads):
        plan = sp.solve(batch, sp.Partial(mass), threads=threads)
        return [part.tobytes() for part in (*plan.triplets, plan.value, plan.price, plan.row_prices, plan.col_prices)]

    one = answer(1)
    assert all(answer(threads) == one for threads in (2, 3, 7, 64, None))


def test_python_threads_may_solve_at_the_same_time():
    costs = [clouds(n, n + n % 3, seed=n) for n in range(20, 60)]

    def answer(cost):
        return (
            sp.solve(cost, sp.Partial(0.83)).matrix,
            sp.mass_path(cost).values,
            sp.solve(cost, sp.Balanced()).value,
        )

    alone = [answer(cost) for cost in costs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answer, costs * 3))
    for k, found in enumerate(together):
        for here, there in zip(found, alone[k % len(costs)], strict=True):
            assert np.array_equal(here, there)


def test_one_array_may_be_read_by_many_threads():
    cost = clouds(100, 100)
    cost.flags.writeable = False
    with ThreadPoolExecutor(4) as pool:
        values = set(pool.map(lambda _: sp.solve(cost, sp.Partial(0.9)).value, range(16)))
    assert len(values) == 1


def test_other_threads_run_during_a_solve():
    """The interpreter's lock is released: a counter goes on while another thread solves."""
    done, counted = threading.Event(), 0

    def work():
        sp.mass_path(clouds(700, 700))
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not done.is_set():
        counted += 1
        time.sleep(1e-4)
    worker.join()
    assert counted > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_a_signal_handler_may_solve_too():
    """It runs in the middle of the solve that it interrupts, which must not notice."""
    cost, small = clouds(350, 350), clouds(40, 40)
    weights = np.arange(1.0, 351) / np.arange(1.0, 351).sum()
    outer, inner = sp.solve(cost, sp.Balanced(), weights), sp.solve(small, sp.Partial(0.9))
    found = []
    before = signal.signal(signal.SIGALRM, lambda *_: found.append(sp.solve(small, sp.Partial(0.9)).value))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        value = sp.solve(cost, sp.Balanced(), weights).value
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert value == outer.value
    assert set(found) == {inner.value}


# Each runs for a long time if it is not stopped, and needs little memory.
LONG = {
    "solve": "sp.solve(products, sp.Balanced(), weights, weights)",
    "path": "sp.mass_path(np.outer(*2 * [np.arange(3000.0)]))",
    "batch": "sp.solve(np.broadcast_to(products, (10**6, 800, 800)), sp.Balanced(), threads=2)",
    "batch of long ones": "sp.solve(np.stack([products] * 3), sp.Balanced(), weights, weights, threads=2)",
    "batch of easy ones": "sp.solve(np.broadcast_to(0.0, (10**6, 50, 50)), sp.Balanced(), threads=1)",
}
SCRIPT = """
import numpy as np, spadeful as sp
numbers = np.arange(1.0, 801)
products, weights = np.outer(numbers, numbers), numbers / numbers.sum()
print("begin", flush=True)
{}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("job", LONG)
def test_ctrl_c_stops(job):
    command = [sys.executable, "-c", SCRIPT.format(LONG[job])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "begin\n"
            time.sleep(0.5)
            assert child.poll() is None, "ended before it could be stopped"
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=5)
        finally:
            child.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT
