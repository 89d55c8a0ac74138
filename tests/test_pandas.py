"""Tables of pandas: read by place, never by the index that a shuffle or a split has left them with."""

import numpy as np
import pytest

import spadeful as sp

pd = pytest.importorskip("pandas")


def tables(n=8, seed=0):
    x, y = np.random.default_rng(seed).normal(size=(2, n, 2))
    return x, y, *(pd.DataFrame(points, columns=["u", "v"], index=range(n)[::-1]) for points in (x, y))


def test_pairs_of_tables_are_those_of_their_arrays():
    x, y, of_x, of_y = tables()
    labels = np.array(list("abcdefgh"))
    series = pd.Series(labels, index=of_x.index)
    plain = sp.CouplingSampler(seed=0).sample_plan_with_labels(x, y, labels, labels)
    for given in (series, list(labels)):
        drawn = sp.CouplingSampler(seed=0).sample_plan_with_labels(of_x, of_y, given, given)
        for ours, theirs in zip(plain, drawn, strict=True):
            np.testing.assert_array_equal(theirs, ours)
    assert (sp.CouplingSampler(seed=0).sample_plan(of_x, of_y)[1] == plain[1]).all()


def test_a_target_with_other_columns_is_refused():
    *_, of_x, of_y = tables()
    adapted = sp.MiniBatchTransport(batch_size=8).fit(of_x, Xt=of_y)
    assert adapted.transform(of_x).shape == (8, 2)
    with pytest.raises(ValueError, match=r"columns of X, in their order: u, v\. Got v, u instead"):
        sp.MiniBatchTransport(batch_size=8).fit(of_x, Xt=of_y[["v", "u"]])


@pytest.mark.parametrize("dtype", ["string", "Int64", "category"])
def test_classes_that_are_missing_are_unknown(dtype):
    x, y, *_ = tables()
    known = np.repeat([0, 1], 4).astype(str if dtype == "string" else int)
    some = pd.array([*known[:4], *[None] * 4], dtype=dtype)
    adapted = sp.MiniBatchTransport(batch_size=8).fit(x, known, y, pd.Series(some))
    assert adapted.plan_.toarray()[4:, :4].sum() == 0
