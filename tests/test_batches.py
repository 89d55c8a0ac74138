"""Mini-batches: every subset as likely, the same for the same seed and number, as many of each class as can be."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from spadeful.batches import BLOCK, Sampled, Subsets, choose, groups_of, sampled

#: A fair draw fails with this probability; the seeds are fixed, so it fails always or never.
UNLIKELY = 1e-4


def draw(size, batch_size, count, replace=False, seed=0, side=0, labels=None):
    batches = sampled(size, batch_size, count, replace, seed, side, labels, "x")
    return batches.draw(np.arange(count))


def tally(drawn, outcomes):
    """How often each outcome came up; none came up that is not among them."""
    seen, counts = np.unique(drawn, axis=0, return_counts=True)
    found = dict(zip(map(tuple, seen.tolist()), counts.tolist(), strict=True))
    assert set(found) <= set(outcomes)
    return [found.get(outcome, 0) for outcome in outcomes]


# From one point of many (drawn until none comes twice), the limit 2m = n, and beyond it (by permutation).
SIZES = [(6, 1), (7, 2), (8, 3), (6, 3), (5, 3), (5, 4), (4, 4), (1, 1)]


@pytest.mark.parametrize(("size", "batch_size"), SIZES)
def test_every_subset_is_as_likely(size, batch_size):
    drawn = np.sort(draw(size, batch_size, 6400), axis=1)
    counts = tally(drawn, list(combinations(range(size), batch_size)))
    assert sum(counts) == 6400
    assert len(counts) == 1 or chisquare(counts).pvalue > UNLIKELY


@pytest.mark.parametrize(("size", "batch_size"), [(5, 2), (4, 3)])
def test_every_order_is_as_likely(size, batch_size):
    """So that any part of a batch is a batch."""
    orders = [t for t in product(range(size), repeat=batch_size) if len(set(t)) == batch_size]
    assert chisquare(tally(draw(size, batch_size, 6400, seed=1), orders)).pvalue > UNLIKELY


def test_with_replacement_every_tuple_is_as_likely():
    assert chisquare(tally(draw(3, 3, 6400, replace=True), list(product(range(3), repeat=3)))).pvalue > UNLIKELY


@pytest.mark.parametrize("size", [1, 2, 9, 20, 41, 1000])
@pytest.mark.parametrize("batch_size", [1, 2, 10, 20])
def test_no_point_comes_twice_unless_put_back(size, batch_size):
    if batch_size <= size:
        drawn = np.sort(draw(size, batch_size, 300), axis=1)
        assert drawn.min() >= 0
        assert drawn.max() < size
        assert (np.diff(drawn, axis=1) > 0).all()
    put_back = draw(size, batch_size, 300, replace=True)
    assert put_back.min() >= 0
    assert put_back.max() < size
    if 1 < batch_size < 20 and size < 10:
        assert (np.diff(np.sort(put_back, axis=1), axis=1) == 0).any()


def test_points_are_drawn_anew_until_none_comes_twice():
    """A generator that repeats itself: the redraws end when it stops to."""

    class Stuck:
        def __init__(self, times):
            self.rng, self.times, self.asked = np.random.default_rng(0), times, 0

        def integers(self, low, high, shape):
            self.asked += 1
            return np.zeros(shape, dtype=np.int64) if self.asked <= self.times else self.rng.integers(low, high, shape)

    rng = Stuck(times=4)
    drawn = np.sort(choose(rng, 50, 3, replace=False), axis=1)
    assert rng.asked > 4
    assert (np.diff(drawn, axis=1) > 0).all()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("labels", [None, np.arange(20) % 3])
def test_a_batch_depends_on_its_number_alone(replace, labels):
    """Not on how many there are, in which order or with which others they are asked for."""
    few, many = (sampled(20, 4, k, replace, 5, 0, labels, "x") for k in (3, 10 * BLOCK))
    every = many.draw(np.arange(10 * BLOCK))
    assert np.array_equal(few.draw(np.arange(3)), every[:3])
    which = np.random.default_rng(0).permutation(10 * BLOCK)[:77]
    assert np.array_equal(many.draw(which), every[which])
    assert np.array_equal(many.draw(np.array([40, 40, 3])), every[[40, 40, 3]])
    assert many.draw(np.arange(0)).shape == (0, 4)


def test_seeds_sides_and_blocks_differ():
    drawn = [draw(1000, 10, 2 * BLOCK, seed=seed, side=side) for seed in (0, 1, 2**70) for side in (0, 1)]
    halves = [half for each in drawn for half in (each[:BLOCK], each[BLOCK:])]
    for one, other in combinations(halves, 2):
        assert (one == other).mean() < 0.02


@pytest.mark.parametrize("other", ["side", "seed", "next"])
def test_batches_are_independent_of_each_other(other):
    """Of the other side's with the same number, of another seed's, and of those before."""
    one = draw(4, 2, 6400, seed=3)
    two = {
        "side": lambda: draw(4, 2, 6400, seed=3, side=1),
        "seed": lambda: draw(4, 2, 6400, seed=4),
        "next": lambda: np.roll(one, 1, axis=0),
    }[other]()
    table = np.zeros((16, 16))
    np.add.at(table, (one @ [4, 1], two @ [4, 1]), 1)
    table = table[table.any(1)][:, table.any(0)]
    assert table.shape == (12, 12)
    assert chi2_contingency(table).pvalue > UNLIKELY


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6, 7, 8])
def test_every_batch_holds_as_many_of_each_class_as_can_be(batch_size, replace):
    labels = np.array(["cat", "dog", "a bird"])[np.random.default_rng(0).permutation(np.repeat(range(3), (3, 5, 40)))]
    drawn = draw(48, batch_size, 1500, replace, labels=labels)
    counts = np.stack([(labels[drawn] == name).sum(1) for name in ("cat", "dog", "a bird")], axis=1)
    assert counts.max() - counts.min() <= 1
    assert set(counts.ravel()) <= {batch_size // 3, -(-batch_size // 3)}
    if batch_size % 3:  # the places left over go to every class as often
        larger = (counts == counts.max()).sum(0)
        assert chisquare(larger).pvalue > UNLIKELY
    if not replace:
        assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all()
    for name in ("cat", "dog", "a bird"):  # and the points of a class come up as often
        chosen = drawn[labels[drawn] == name]
        assert chisquare(np.bincount(chosen, minlength=48)[labels == name]).pvalue > UNLIKELY


def test_more_classes_than_places():
    labels = np.arange(30) // 2
    drawn = draw(30, 4, 500, labels=labels)
    assert all(len(set(labels[batch])) == 4 for batch in drawn)
    assert len(np.unique(drawn)) == 30


@pytest.mark.parametrize("labels", [list("abab"), np.array([1.5, -2, 1.5, -2]), [True, False] * 2, (7, 3, 7, 3)])
def test_labels_of_any_kind(labels):
    assert sorted(group.tolist() for group in groups_of(labels, 4, "labels")) == [[0, 2], [1, 3]]


def test_one_class_is_none():
    drawn = np.sort(draw(5, 2, 3200, labels=[0] * 5), axis=1)
    assert chisquare(tally(drawn, list(combinations(range(5), 2)))).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 7}, r"batch_size must be at most the number of points of x, 6\. Got 7.*replace=True"),
        ({"batch_size": 4, "labels": [0, 0, 0, 0, 0, 1]}, "at least 2 points.*the 2 classes. Got one with 1.*replace"),
        ({"batch_size": 3, "labels": [0, 0, 0, 0, 0, 1]}, "at least 2 points"),
        ({"batch_size": 2, "labels": [0, 1]}, r"labels of x must hold one label a point, 6 of them.*\(2,\)"),
        ({"batch_size": 2, "labels": 3}, r"labels of x must hold one label a point.*\(\)"),
        ({"batch_size": 2, "labels": np.zeros((6, 1))}, r"labels of x must hold one label a point.*\(6, 1\)"),
        ({"batch_size": 2, "labels": [0, 1, np.nan, 0, 1, 2]}, "labels of x must hold finite labels. Got nan"),
        ({"batch_size": 2, "labels": [0, 1, np.inf, 0, 1, 2]}, "labels of x must hold finite labels. Got inf"),
        ({"batch_size": 2, "labels": np.array([0, 1, np.nan] * 2, dtype=object)}, "must hold finite labels. Got nan"),
    ],
)
def test_batches_that_cannot_be_drawn(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(6, count=1, **arguments)


def test_what_is_put_back_can_always_be_drawn():
    assert draw(6, 50, 3, replace=True).shape == (3, 50)
    assert draw(6, 50, 3, replace=True, labels=[0, 0, 0, 0, 0, 1]).shape == (3, 50)


@pytest.mark.parametrize(("size", "batch_size"), [(1, 1), (5, 2), (6, 6), (7, 4)])
def test_subsets_are_the_combinations(size, batch_size):
    subsets = Subsets(size, batch_size)
    expected = list(combinations(range(size), batch_size))
    assert subsets.count == len(expected)
    assert subsets.draw(np.arange(subsets.count)).tolist() == [list(subset) for subset in expected]
    assert subsets.draw(np.array([subsets.count - 1, 0])).tolist() == [list(expected[-1]), list(expected[0])]


def test_batches_are_indices():
    batches = Sampled(size=9, batch_size=4, count=2, replace=False, seed=0, side=0)
    assert batches.draw(np.arange(2)).dtype == Subsets(9, 4).draw(np.arange(2)).dtype == np.int64
