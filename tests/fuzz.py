"""Random problems until the time is up, every answer checked: `python tests/fuzz.py --seconds 60 --seed 0`.

A failure prints the seed and number of the problem, which `--only` repeats.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import spadeful as sp
from spadeful import _core
from spadeful.costs import batch_costs
from spadeful.pairs import solve_pairs
from truths import check_plan, uniform

#: One in so many is a hundred pairs of batches.
EACH = 10


def random_size(rng):
    """Mostly small, at times around the widths of registers and blocks, at times large."""
    low, high = [(1, 8), (8, 40), (60, 70), (100, 200)][rng.integers(4)]
    return int(rng.integers(low, high))


def random_cost(rng, m, n):
    """A family, then what may happen to it."""
    points = rng.normal(size=(m, 2)), rng.normal(size=(n, 2)) + 0.5
    cost = [
        lambda: rng.random((m, n)),
        lambda: rng.normal(size=(m, n)),
        lambda: rng.integers(-3, 4, (m, n)).astype(float),
        lambda: ((points[0][:, None] - points[1]) ** 2).sum(-1),
        lambda: np.abs(points[0][:, :1] - points[1][:, 0]),
        lambda: np.outer(np.arange(m), np.arange(n)).astype(float),
        lambda: np.full((m, n), rng.normal()),
        lambda: np.zeros((m, n)),
    ][rng.integers(8)]()
    if rng.random() < 0.2:  # duplicates
        cost = cost[rng.integers(0, m, m)][:, rng.integers(0, n, n)]
    if rng.random() < 0.2:  # all of one size, tiny or huge
        cost = cost * float(rng.choice([1e-320, 1e-310, 1e-300, 1e-30, 1e30, 1e298]))
    elif rng.random() < 0.2:  # some entries, or a row and a column, of another size
        where = rng.random((m, n)) < 0.1 if rng.random() < 0.5 else np.zeros((m, n), dtype=bool)
        where[rng.integers(m)] = where[:, rng.integers(n)] = True
        cost = np.where(where, cost * 10.0 ** rng.integers(-12, 13), cost)
    if rng.random() < 0.3:
        cost = np.where(rng.random((m, n)) < rng.choice([0.1, 0.5, 0.9]), np.inf, cost)
    return np.ascontiguousarray(cost)


def random_layout(rng, cost):
    """The same numbers, stored otherwise; float32 only where it holds them."""
    with np.errstate(over="ignore"):
        single = cost.astype(np.float32)
    return [
        lambda: cost,
        lambda: np.asfortranarray(cost),
        lambda: np.repeat(cost, 2, axis=0)[::2],
        lambda: np.ascontiguousarray(cost[:, ::-1])[:, ::-1],
        lambda: single if (single == cost).all() else cost,
    ][rng.integers(5)]()


def random_weights(rng, size):
    kind = rng.integers(5)
    if kind < 2:
        return None
    weights = rng.dirichlet(np.full(size, rng.choice([0.1, 1.0, 100.0]))) if kind < 4 else uniform(size)
    if kind == 3:
        weights = np.where(rng.random(size) < 0.3, 0, weights) + (np.arange(size) == rng.integers(size))
    return weights / weights.sum()


def random_mass(rng, m):
    """Anywhere, at the ends, at a whole number of points and around it."""
    whole = rng.integers(1, m + 1) / m
    around = [whole, np.nextafter(whole, 0), whole - 1e-12, whole + 1e-12]
    mass = rng.choice([rng.uniform(0.001, 1), 1.0, 1e-12, 1 - 1e-12, *around])
    return float(np.clip(mass, 1e-12, 1))


def check(seed, number):
    """One problem: a plan with a certificate, or an error, and a path that agrees."""
    rng = np.random.default_rng([seed, number])
    m, n = random_size(rng), random_size(rng)
    if rng.random() < 0.6:
        n = m
    cost = random_cost(rng, m, n)
    a, b = random_weights(rng, m), random_weights(rng, n)
    mass = random_mass(rng, m)
    stored = random_layout(rng, cost)
    before = stored.copy()

    path = sp.mass_path(stored, a, b)
    largest = float(path.masses[-1])
    finite = np.abs(cost[np.isfinite(cost)])
    size = max(finite.max(initial=0.0), 5e-324 * 1e9 * (m + n))
    assert (np.diff(path.prices) >= 0).all()
    slopes = np.diff(path.values) - path.prices * np.diff(path.masses)
    assert np.abs(slopes).max(initial=0) <= 1e-9 * size
    try:
        plan = sp.solve(stored, sp.Partial(mass), a, b)
    except ValueError as error:
        assert "cannot be transported" in str(error)  # noqa: PT017
        assert mass > largest
        if largest == 0:
            return
        mass = largest
        plan = sp.solve(stored, sp.Partial(mass), a, b)
    read = path.at(mass)
    # What a plan is precise to: the largest cost on it, whatever lies unused beside it, and the digits of its prices.
    rows, cols, _ = plan.triplets
    unit = max(np.abs(cost[rows, cols]).max(), min(1.0, size), 1e-5 * abs(plan.price), 5e-324 * 1e9 * (m + n))
    check_plan(plan, cost, mass, a, b, unit)
    check_plan(read, cost, mass, a, b, unit)
    assert abs(plan.value - read.value) <= 1e-9 * unit
    assert np.array_equal(stored, before)


def check_pairs(seed, number):
    """Many pairs of batches, which begin with what two of them tell: each as the mass path has it."""
    rng = np.random.default_rng([seed, number, 1])
    m, size, d = (
        int(rng.integers(1, rng.choice([60, 140]))),
        int(rng.integers(140, 250)),
        int(rng.choice([1, 2, 3, 16])),
    )
    clouds = [
        lambda: rng.normal(size=(size, d)),
        lambda: rng.integers(0, 5, (size, d)).astype(float),
        lambda: rng.integers(0, 256, (size, d)).astype(float),
        lambda: rng.normal(size=(size, d)) * 10.0 ** rng.integers(-6, 6),
        lambda: np.repeat(rng.normal(size=(2, d)), size, axis=0)[:size] + 1e-3 * rng.normal(size=(size, d)),
        lambda: np.abs(rng.standard_cauchy((size, d))),
    ]
    x, y = (clouds[rng.integers(len(clouds))]() for _ in range(2))
    rows, cols = (np.stack([rng.permutation(size)[:m] for _ in range(130)]) for _ in range(2))
    masses = (*map(float, rng.uniform(0.02, 1, rng.integers(1, 4))), float(rng.integers(1, m + 1) / m))
    metric = str(rng.choice(["sqeuclidean", "euclidean", "cosine"]))
    values = solve_pairs(x, y, rows, cols, metric, masses, 1).value.reshape(len(masses), -1)
    costs = batch_costs(x, y, rows, cols, metric, 1)
    for mass, found in zip(masses, values, strict=True):
        along = _core.solve(costs, mass, None, None, 1, along_path=True).values
        assert (np.abs(found - along) <= 1e-11 * np.abs(costs).max(axis=(1, 2))).all()


def fuzz(seconds, seed, first=0):
    """How many problems were checked."""
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        try:
            (check if number % EACH else check_pairs)(seed, number)
        except BaseException:
            print(f"failed: --seed {seed} --only {number} (SIMD level {_core.simd_level()})", flush=True)
            raise
        number += 1
    return number - first


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="check this one problem")
    parser.add_argument("--level", default="best", help="scalar, avx2, avx512 or best")
    options = parser.parse_args()
    if not _core.choose_simd_level(options.level):
        parser.error(f"this machine has no level {options.level!r}")
    if options.only is not None:
        (check if options.only % EACH else check_pairs)(options.seed, options.only)
    else:
        print(f"{fuzz(options.seconds, options.seed)} problems checked")
