"""Rules of selection: closed forms of the measures, and who is chosen."""

import math

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from spadeful.adapt import selection  # noqa: E402
from spadeful.adapt.selection import RULES, soft_neighbourhood_density  # noqa: E402
from spadeful.adapt.train import Training  # noqa: E402
from spadeful.paper.selection import RULES as TOLD  # noqa: E402
from spadeful.training.record import Record, chosen  # noqa: E402


def one_hot(*labels):
    return torch.eye(4, dtype=torch.float64)[list(labels)]


def test_points_that_are_all_alike_have_all_others_as_neighbours():
    assert soft_neighbourhood_density(one_hot(*[1] * 9)) == pytest.approx(math.log(8))


def test_in_sharp_clusters_only_those_of_one_s_own_are_neighbours():
    labels = [0] * 5 + [1] * 5 + [2] * 5
    assert soft_neighbourhood_density(one_hot(*labels)) == pytest.approx(math.log(4), rel=1e-5)


def test_density_of_three_points_by_hand():
    p = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    share = math.exp(20) / (math.exp(20) + 1)  # the first looks at the second with cosine 1, at the third with 0
    near = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert soft_neighbourhood_density(p) == pytest.approx((2 * near + math.log(2)) / 3)


def test_density_does_not_depend_on_the_blocks(monkeypatch):
    p = torch.rand((2300, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cosines = torch.nn.functional.normalize(p, dim=1)
    logits = (cosines @ cosines.T / 0.05).fill_diagonal_(-torch.inf)
    assert soft_neighbourhood_density(p) == pytest.approx(float(torch.special.entr(logits.softmax(1)).sum(1).mean()))
    monkeypatch.setattr(selection, "MOST", 100)
    assert soft_neighbourhood_density(p) < math.log(99)


@pytest.mark.parametrize("warm_up", [3, 5])
def test_ties_go_to_the_first_and_the_warm_up_does_not_count(warm_up):
    rows = [
        {"phase": "source-only", "iteration": warm_up, "target_accuracy": 99.0},
        {"phase": "m-POT", "iteration": 5, "target_accuracy": 70.0},
        {"phase": "m-POT", "iteration": 10, "target_accuracy": 70.0},
    ]
    record = Record(rows, "oracle", RULES)
    assert record.best == rows[1]
    assert record.chosen("density") == {}
    assert chosen(rows, RULES["oracle"]) == rows[0]


def test_the_report_tells_of_every_rule():
    assert {"oracle", *TOLD} == {*RULES, "last"}


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="select must be one of oracle, density, entropy, source"):
        Training(5, select="best")
