"""The concentration theorems: by hand, solved back for k, and held against mini-batches whose expectation is exact."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import spadeful as sp
from spadeful import bounds

DELTA = 0.1
REPEATS = 2000
# Probabilities whose logarithms in the theorems are whole numbers: log(4/delta) = 2, log(2/delta) = 1.
LOG_4_IS_2 = 4 / math.exp(2)
LOG_2_IS_1 = 2 / math.e

masses = st.floats(0.01, 1)
deltas = st.floats(1e-12, 0.999)
sizes = st.floats(1e-3, 1e3)
counts = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("v", "gamma", "farthest"),
    [
        (1.0, 1.0, 8.0),  # 2 gamma (log 2n + log 8/delta), twice what the theorem prints
        (0.0, 0.5, 4.0),
        (3.0, 1.0, 9.0),  # v^2 / gamma
        (1.0, 0.0625, 16.0),
    ],
)
def test_largest_value_by_hand(v, gamma, farthest):
    answer = bounds.largest_value(
        mass=0.5, distance=3.0, spread=2.0, v=v, gamma=gamma, n_points=1, delta=16 / math.exp(4)
    )
    assert answer == pytest.approx(0.5 * (3 + 2 + 2 * farthest), rel=1e-14)


def test_value_error_by_hand():
    known = {"largest": 3.0, "n_batches": 100, "delta": LOG_4_IS_2}
    assert bounds.value_error(**known) == pytest.approx(0.6, rel=1e-14)
    # 17 points make four batches of four: the one left over does not count.
    assert bounds.value_error(**known, n_points=17, batch_size=4) == pytest.approx(6.6, rel=1e-14)


def test_marginal_error_by_hand():
    assert bounds.marginal_error(mass=0.75, n_batches=9, delta=LOG_2_IS_1) == pytest.approx(0.5, rel=1e-14)


def test_fewest_batches_by_hand():
    assert bounds.value_batches(error=0.61, largest=3.0, delta=LOG_4_IS_2) == 97
    assert bounds.value_batches(error=6.61, largest=3.0, delta=LOG_4_IS_2, n_points=16, batch_size=4) == 97
    assert bounds.marginal_batches(error=0.51, mass=0.75, delta=LOG_2_IS_1) == 9


@given(masses, sizes, counts, deltas, st.integers(1, 1000), st.integers(1, 10**6))
def test_errors_halve_with_four_times_as_much(mass, largest, k, delta, m, blocks):
    def value(k, blocks):
        return bounds.value_error(largest=largest, n_batches=k, delta=delta, n_points=m * blocks, batch_size=m)

    one = bounds.marginal_error(mass=mass, n_batches=k, delta=delta)
    assert bounds.marginal_error(mass=mass, n_batches=4 * k, delta=delta) == pytest.approx(one / 2)
    assert value(4 * k, 4 * blocks) == pytest.approx(value(k, blocks) / 2)
    # Of the value, more batches lessen their own term only.
    of_batches = bounds.value_error(largest=largest, n_batches=k, delta=delta)
    assert bounds.value_error(largest=largest, n_batches=4 * k, delta=delta) == pytest.approx(of_batches / 2)
    assert value(4 * k, blocks) == pytest.approx(value(k, blocks) - of_batches / 2)
    # It takes points for 4k batches to be as good as k batches: 8 / 4k = 2 / k.
    assert value(k, 4 * k) == pytest.approx(2 * of_batches)


@given(masses, sizes, sizes, sizes, sizes, st.integers(1, 10**9), deltas)
def test_largest_value_is_in_the_units_of_the_distance_and_proportional_to_the_mass(mass, d, r, v, gamma, n, delta):
    def largest(mass, unit, n=n, delta=delta):
        return bounds.largest_value(
            mass=mass, distance=unit * d, spread=unit * r, v=unit * v, gamma=unit * gamma, n_points=n, delta=delta
        )

    assert largest(mass, 8.0) == pytest.approx(8 * largest(mass, 1.0))
    assert largest(mass, 1.0) == pytest.approx(mass * largest(1.0, 1.0))
    assert largest(mass, 1.0, n=2 * n) >= largest(mass, 1.0)
    assert largest(mass, 1.0, delta=delta / 2) == pytest.approx(largest(mass, 1.0, n=2 * n))


@given(sizes, st.integers(1, 10**6), deltas, st.floats(0.1, 10))
def test_the_named_gamma_makes_the_largest_value_of_bounded_distances_smallest(v, n, delta, factor):
    best = v / math.sqrt(2 * math.log(16 * n / delta))
    largest, other = (
        bounds.largest_value(mass=1.0, distance=0.0, spread=0.0, v=v, gamma=gamma, n_points=n, delta=delta)
        for gamma in (best, factor * best)
    )
    assert largest == pytest.approx(2 * v * math.sqrt(2 * math.log(16 * n / delta)))
    assert other >= largest * (1 - 1e-12)


def check_fewest(error_of, k, error):
    assert error_of(k) <= error
    assert k == 1 or error_of(k - 1) > error


@given(sizes, sizes, masses, deltas)
def test_no_fewer_batches_reach_the_error(error, largest, mass, delta):
    k = bounds.value_batches(error=error, largest=largest, delta=delta)
    check_fewest(lambda k: bounds.value_error(largest=largest, n_batches=k, delta=delta), k, error)
    k = bounds.marginal_batches(error=error, mass=mass, delta=delta)
    check_fewest(lambda k: bounds.marginal_error(mass=mass, n_batches=k, delta=delta), k, error)


@given(sizes, deltas, st.integers(1, 100), st.integers(1, 10**6), st.floats(1e-4, 1e4))
def test_no_fewer_batches_reach_the_error_beyond_that_of_the_points(largest, delta, m, n, beyond):
    known = {"largest": largest, "delta": delta, "n_points": m + n, "batch_size": m}
    without_batches = bounds.value_error(**known, n_batches=1) - bounds.value_error(
        largest=largest, delta=delta, n_batches=1
    )
    error = without_batches * (1 + beyond)
    check_fewest(lambda k: bounds.value_error(**known, n_batches=k), bounds.value_batches(**known, error=error), error)
    with pytest.raises(ValueError, match="however many batches are drawn"):
        bounds.value_batches(**known, error=without_batches * (1 - 1e-9))


@given(st.integers(1, 10**6), masses, deltas)
def test_an_error_is_reached_by_the_batches_that_have_it(k, mass, delta):
    error = bounds.marginal_error(mass=mass, n_batches=k, delta=delta)
    assert bounds.marginal_batches(error=error, mass=mass, delta=delta) == k
    error = bounds.value_error(largest=mass, n_batches=k, delta=delta)
    assert bounds.value_batches(error=error, largest=mass, delta=delta) == k


def test_points_in_one_place_need_one_batch():
    assert bounds.value_error(largest=0.0, n_batches=1, delta=0.5, n_points=9, batch_size=3) == 0
    assert bounds.value_batches(error=1e-300, largest=0.0, delta=0.5, n_points=9, batch_size=3) == 1


LARGEST = {"mass": 0.5, "distance": 1.0, "spread": 1.0, "v": 1.0, "gamma": 1.0, "n_points": 10, "delta": 0.1}
VALUE = {"largest": 1.0, "n_batches": 10, "delta": 0.1, "n_points": 10, "batch_size": 2}
VALUE_BATCHES = {"error": 9.0, "largest": 1.0, "delta": 0.1, "n_points": 10, "batch_size": 2}
MARGINAL = {"mass": 0.5, "n_batches": 10, "delta": 0.1}
MARGINAL_BATCHES = {"error": 0.1, "mass": 0.5, "delta": 0.1}

FUNCTIONS = [
    (bounds.largest_value, LARGEST),
    (bounds.value_error, VALUE),
    (bounds.value_batches, VALUE_BATCHES),
    (bounds.marginal_error, MARGINAL),
    (bounds.marginal_batches, MARGINAL_BATCHES),
]
REFUSED = {
    "mass": [0.0, -1.0, 1.1, math.nan, math.inf],
    "delta": [0.0, 1.0, -0.1, 2.0, math.nan],
    "error": [0.0, -1.0, math.inf, math.nan],
    "gamma": [0.0, -1.0, math.inf, math.nan],
    **{name: [-1.0, math.inf, math.nan] for name in ("v", "distance", "spread", "largest")},
    **{name: [0, -1] for name in ("n_points", "n_batches", "batch_size")},
}
OPTIONAL = {"n_points", "batch_size"}
WHOLE = {"n_points", "n_batches", "batch_size"}


@pytest.mark.parametrize(
    ("function", "known", "name"),
    [(function, known, name) for function, known in FUNCTIONS for name in known],
    ids=lambda x: getattr(x, "__name__", x) if not isinstance(x, dict) else "",
)
def test_bad_parameters_are_named(function, known, name):
    function(**known)
    says = f"The '{name}' parameter of {function.__name__} must be"
    for value in REFUSED[name]:
        with pytest.raises(ValueError, match=rf"^{says}.*\. Got {value} instead\."):
            function(**known | {name: value})
    wrong = ["1", True, [1]] + [None] * (name not in OPTIONAL) + [1.0] * (name in WHOLE)
    for value in wrong:
        with pytest.raises(TypeError, match=rf"^{says}.*\. Got .* instead\."):
            function(**known | {name: value})


@pytest.mark.parametrize("left_out", ["n_points", "batch_size"])
def test_points_and_batch_size_come_together(left_out):
    for function, known in [(bounds.value_error, VALUE), (bounds.value_batches, VALUE_BATCHES)]:
        with pytest.raises(TypeError, match=r"must be given together or not at all. Got .*None.* instead\."):
            function(**known | {left_out: None})


def test_a_batch_is_no_larger_than_the_points():
    with pytest.raises(ValueError, match=r"'batch_size'.* must be at most n_points = 10\. Got 11 instead\."):
        bounds.value_error(**VALUE | {"batch_size": 11})


def test_an_error_out_of_reach_is_refused_with_what_can_be_reached():
    # 3 sqrt(8 * 2 / 4) = 6
    with pytest.raises(ValueError, match=r"above (6\.0|5\.9999).*16 points in batches of 4 leave.* Got 5\.99 instead"):
        bounds.value_batches(error=5.99, largest=3.0, delta=LOG_4_IS_2, n_points=16, batch_size=4)
    with pytest.raises(ValueError, match=r"must be such that fewer than \d+ batches reach it\. Got 1e-300 instead"):
        bounds.marginal_batches(error=1e-300, mass=1.0, delta=0.1)


def test_numpy_numbers_and_tiny_probabilities_are_welcome():
    plain = bounds.value_error(**VALUE)
    assert bounds.value_error(**{name: np.asarray(value)[()] for name, value in VALUE.items()}) == plain
    tiny = bounds.marginal_error(mass=1.0, n_batches=1, delta=5e-324)
    assert tiny == pytest.approx(2 * math.sqrt(math.log(2) + 1074 * math.log(2)))


def distances(x, y):
    return np.linalg.norm(x[:, None] - y, axis=-1)


def two_clouds(n, seed):
    x, y = np.random.default_rng(seed).normal(size=(2, n, 2))
    return x, y + 1


def solve_all_pairs(x, y, batches, mass):
    """The plans between every batch of x and every batch of y, given as rows of indices."""
    pairs = distances(x, y)[batches[:, None, :, None], batches[None, :, None, :]]
    return sp.solve(pairs.reshape(-1, *pairs.shape[2:]), sp.Partial(mass))


def drawn_means(values, k, seed):
    """Means over k of the pairs, drawn anew for every repeat."""
    return values[np.random.default_rng(seed).integers(len(values), size=(REPEATS, k))].mean(1)


def looseness(bound, errors):
    """How many times the error is, that is exceeded as often as the bound may be; the bound has to hold for that."""
    assert (errors > bound).mean() <= DELTA
    return bound / np.quantile(errors, 1 - DELTA)


@pytest.mark.parametrize(
    ("n", "m", "low", "high"),
    [(6, 1, 6, 8), (7, 3, 11, 23), (6, 5, 26, 58)],
)
@pytest.mark.parametrize("mass", [0.4, 0.75, 1.0])
@pytest.mark.parametrize("k", [8, 32])
def test_the_value_of_drawn_batches_is_near_that_of_all(n, m, mass, k, low, high):
    """Hoeffding's inequality knows the largest value only: values of larger batches differ less, and it is looser."""
    x, y = two_clouds(n, seed=0)
    values = solve_all_pairs(x, y, np.array(list(combinations(range(n), m))), mass).value
    bound = bounds.value_error(largest=mass * distances(x, y).max(), n_batches=k, delta=DELTA)
    assert low < looseness(bound, abs(drawn_means(values, k, seed=k) - values.mean())) < high


@pytest.mark.parametrize(("n", "m"), [(6, 1), (7, 3), (6, 5)])
@pytest.mark.parametrize("mass", [0.4, 0.75, 1.0])
@pytest.mark.parametrize("k", [8, 32])
def test_the_marginals_of_drawn_batches_are_near_those_of_all(n, m, mass, k):
    """The bound is for sums of up to s where they are at most 1/m: it is looser by as much."""
    x, y = two_clouds(n, seed=0)
    batches = np.array(list(combinations(range(n), m)))
    plans = solve_all_pairs(x, y, batches, mass).matrix
    bound = bounds.marginal_error(mass=mass, n_batches=k, delta=DELTA)
    rows, columns = np.repeat(batches, len(batches), axis=0), np.tile(batches, (len(batches), 1))
    for points, sums in [(rows, plans.sum(2)), (columns, plans.sum(1))]:
        marginals = np.zeros((len(plans), n))
        np.put_along_axis(marginals, points, sums, axis=1)
        assert marginals.mean(0).sum() == pytest.approx(mass)
        errors = abs(drawn_means(marginals, k, seed=k) - marginals.mean(0))
        # Of the point where it is tightest; points that mass hardly ever reaches have hardly any error.
        tightest = min(looseness(bound, e) for e in errors.T if np.quantile(e, 1 - DELTA) > 0)
        assert 3.5 < tightest / max(1, mass * m) < 6.5


def test_the_bounds_of_batches_are_three_to_four_times_the_error_at_their_tightest():
    """Nothing in [0, 1] varies more than a coin: one point a batch, and two places a unit apart."""
    x = np.array([[0.0], [1.0]])
    plans = solve_all_pairs(x, x, np.array([[0], [1]]), 1.0)
    assert plans.value.tolist() == [0, 1, 1, 0]
    k, limit = 1000, norm.isf(DELTA / 2) / 2
    bound = bounds.value_error(largest=1.0, n_batches=k, delta=DELTA)
    ratio = looseness(bound, abs(drawn_means(plans.value, k, seed=0) - 0.5))
    assert ratio == pytest.approx(math.sqrt(2 * math.log(4 / DELTA)) / limit, rel=0.1)
    assert 3 < ratio < 3.7
    bound = bounds.marginal_error(mass=1.0, n_batches=k, delta=DELTA)
    ratio = looseness(bound, abs(drawn_means(np.array([1.0, 1.0, 0.0, 0.0]), k, seed=1) - 0.5))
    assert ratio == pytest.approx(2 * math.sqrt(math.log(2 / DELTA)) / limit, rel=0.1)
    assert 3.8 < ratio < 4.7


def population_values(x, y, m, mass):
    """The value for every m draws from x and every m from y, equally likely: their mean is the expectation itself."""
    draws = np.array(list(product(range(len(x)), repeat=m)))
    return solve_all_pairs(x, y, draws, mass).value.reshape(len(draws), len(draws))


def sampled_values(values, places, n, m, k, seed):
    """The mini-batch value of n points drawn from each population, drawn anew for every repeat."""
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        points = np.repeat(rng.integers(places, size=(REPEATS, 1, n)), k, axis=1)
        distinct = rng.random(points.shape).argsort(-1)[..., :m]
        sides.append(np.take_along_axis(points, distinct, -1) @ places ** np.arange(m)[::-1])
    return values[tuple(sides)].mean(1)


@pytest.mark.parametrize(("m", "low", "high"), [(2, 50, 92), (3, 65, 135)])
@pytest.mark.parametrize("mass", [0.4, 0.75, 1.0])
@pytest.mark.parametrize(("n", "k"), [(12, 16), (48, 16), (12, 64)])
def test_the_value_is_near_its_expectation(m, mass, n, k, low, high):
    """Theorem 1 from end to end, for points whose distances to their mean are bounded."""
    x, y = two_clouds(5, seed=0)
    values = population_values(x, y, m, mass)
    to_mean = [np.linalg.norm(points - points.mean(0), axis=1) for points in (x, y)]
    v = max(map(np.ptp, to_mean)) / 2
    largest = bounds.largest_value(
        mass=mass,
        distance=np.linalg.norm(x.mean(0) - y.mean(0)),
        spread=sum(map(np.mean, to_mean)),
        v=v,
        gamma=v / math.sqrt(2 * math.log(16 * n / DELTA)),
        n_points=n,
        delta=DELTA,
    )
    assert 1.2 < largest / values.max() < 3
    bound = bounds.value_error(largest=largest, n_batches=k, delta=DELTA, n_points=n, batch_size=m)
    assert low < looseness(bound, abs(sampled_values(values, 5, n, m, k, seed=n + k) - values.mean())) < high


def test_without_the_spread_the_theorem_fails():
    """On a circle all distances to the centre are the same, so that v = 0 with any gamma."""
    angles = np.arange(4) * np.pi / 2
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    values = population_values(circle, circle, 2, 1.0)
    errors = abs(sampled_values(values, 4, 20, 2, 4, seed=0) - values.mean())

    def violations(spread):
        known = {"n_points": 20, "delta": DELTA}
        largest = bounds.largest_value(mass=1.0, distance=0.0, spread=spread, v=0.0, gamma=1e-6, **known)
        return (errors > bounds.value_error(largest=largest, n_batches=4, batch_size=2, **known)).mean()

    assert violations(spread=0.0) > 0.9
    assert violations(spread=2.0) == 0


@pytest.mark.parametrize(("n", "low", "high"), [(10, 5, 8), (100, 4.5, 6.5), (1000, 4.5, 6)])
def test_the_largest_value_is_not_exceeded_by_heavy_tails(n, low, high):
    """The distances of Laplace's distribution to its mean are exponential: expectation 1, v = gamma = 2."""
    x, y = np.random.default_rng(n).laplace(size=(2, REPEATS, n))
    farthest = np.maximum(x.max(1) - y.min(1), y.max(1) - x.min(1))
    largest = bounds.largest_value(mass=1.0, distance=0.0, spread=2.0, v=2.0, gamma=2.0, n_points=n, delta=DELTA)
    assert (farthest > largest).mean() <= DELTA / 4
    assert low < largest / np.quantile(farthest, 1 - DELTA / 4) < high


@pytest.mark.parametrize("n", [100, 10**4, 10**6])
def test_the_printed_gamma_is_too_small_by_half(n):
    """Normal distances, far from 0, have any gamma; in the worst, delta/8 is kept with 2 gamma [...] only."""
    v, gamma = math.sqrt(math.log(16 * n / DELTA)), 1.0
    farthest = bounds.largest_value(mass=1.0, distance=0.0, spread=0.0, v=v, gamma=gamma, n_points=n, delta=DELTA) / 2
    exceeded, exceeded_half = (-math.expm1(n * math.log1p(-norm.sf(t / v))) for t in (farthest, farthest / 2))
    assert exceeded <= DELTA / 8 < exceeded_half
