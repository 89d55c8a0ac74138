"""Partial domain adaptation: weights of classes and points by hand, targets with some, all and one of the classes."""

import dataclasses
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp
from spadeful.cli import app

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from torch import nn, tensor  # noqa: E402

from spadeful import adapt as ad  # noqa: E402
from spadeful import adapting  # noqa: E402
from spadeful.adapt.classes import class_numbers, of_classes  # noqa: E402
from spadeful.adapt.config import METHODS, Config  # noqa: E402
from spadeful.adapt.data import source_and_target  # noqa: E402
from spadeful.adapt.methods import BA3US, DANN, ETN, PADA, Batch, Step  # noqa: E402
from spadeful.adapt.methods.adversarial import rising  # noqa: E402
from spadeful.adapt.methods.ba3us import complement_entropies, complement_loss, shares  # noqa: E402
from spadeful.adapt.methods.class_weights import Weighing  # noqa: E402
from spadeful.adapt.methods.etn import leaky, one_against_all, source_logits, transferability  # noqa: E402
from spadeful.training import states  # noqa: E402

WEIGHTED = [PADA(window=7, hidden=16), ETN(hidden=16), BA3US(window=7, hidden=16)]


class Given(nn.Module):
    """Features as they are; the logits are in the columns after the first."""

    def forward(self, x):
        return x[:, :1], x[:, 1:]


def points(*rows):
    return tensor(rows, dtype=torch.float32)


def plain(own):
    """Let the discriminator give the feature itself."""
    own.discriminator = nn.Linear(1, 1)
    nn.init.ones_(own.discriminator.weight)
    nn.init.zeros_(own.discriminator.bias)
    return own


def loss_of(method, batch, own, iteration=0, progress=1.0):
    (loss,) = method.losses(Given(), lambda: batch, Step(iteration, progress, own))
    return loss


def softplus(x):
    return math.log1p(math.exp(x))


def binary(share):
    """The entropy of a choice between two."""
    return -share * math.log(share) - (1 - share) * math.log(1 - share)


def logs(*shares):
    return [math.log(share) for share in shares]


def test_class_weights_are_mean_predictions_over_a_window():
    own = Weighing(1, 2, 4, window=2)
    assert own.weigh(tensor([logs(0.9, 0.1), logs(0.5, 0.5)]), 0).tolist() == [1, 1]
    assert own.weigh(tensor([logs(0.7, 0.3), logs(0.7, 0.3)]), 1).tolist() == [1, 1]
    assert own.weigh(tensor([logs(0.1, 0.9), logs(0.1, 0.9)]), 2).tolist() == pytest.approx([0.7, 0.3])
    assert own.weigh(tensor([logs(0.1, 0.9), logs(0.1, 0.9)]), 3).tolist() == pytest.approx([0.7, 0.3])
    assert own.weigh(tensor([logs(0.5, 0.5), logs(0.5, 0.5)]), 4).tolist() == pytest.approx([0.1, 0.9])


def test_pada_by_hand():
    """Weights (.8, .2) make gamma (1, 1/4): on the cross-entropies and on the errors of D(f) = f of the source."""
    own = plain(Weighing(1, 2, 4, window=500))
    own.weights.copy_(tensor([0.8, 0.2]))
    source = points([2, *logs(0.6, 0.4)], [1, *logs(0.7, 0.3)])
    target = points([-1, 0, 0], [3, 0, 0])
    loss = loss_of(PADA(), Batch(source, tensor([0, 1]), target), own)
    classified = (-math.log(0.6) - math.log(0.3) / 4) / 2
    told_apart = (softplus(-2) + softplus(-1) / 4 + softplus(-1) + softplus(3)) / 4
    assert float(loss.detach()) == pytest.approx(classified + told_apart, rel=1e-6)


def test_pada_is_dann_while_all_classes_weigh_alike():
    torch.manual_seed(0)
    batch = Batch(torch.randn(6, 4), tensor([0, 1, 2, 0, 1, 2]), torch.randn(6, 4))
    own = plain(Weighing(1, 3, 4, window=500))
    dann = loss_of(DANN(), batch, own.discriminator)
    assert float(loss_of(PADA(), batch, own).detach()) == pytest.approx(float(dann.detach()), rel=1e-6)


def test_the_leaky_softmax_and_its_sum():
    found = leaky(tensor([logs(3.0, 1.0), logs(1.0, 1.0)]))  # 3 / (2 + 4), 1 / (2 + 4); 1 / (2 + 2)
    assert found.exp().tolist() == [pytest.approx([1 / 2, 1 / 6]), pytest.approx([1 / 4, 1 / 4])]
    assert source_logits(tensor([logs(3.0, 1.0), logs(1.0, 1.0)])).sigmoid().tolist() == pytest.approx([2 / 3, 1 / 2])
    assert leaky(tensor([[1000.0, 0.0], [-1000.0, -1000.0]])).exp().tolist() == [[1, 0], [0, 0]]


def test_transferability_by_hand():
    """Probabilities of the source 2/3 and 1/2 make the weights 1/3 and 1/2, divided by their mean 5/12."""
    assert transferability(tensor([logs(3.0, 1.0), logs(1.0, 1.0)])).tolist() == pytest.approx([0.8, 1.2])
    assert transferability(tensor([[90.0, 0.0], [90.0, 0.0]])).tolist() == pytest.approx([0, 0], abs=1e-20)


def test_one_class_against_all_others():
    found = one_against_all(tensor([logs(3.0, 1.0)]), tensor([0]))
    assert float(found) == pytest.approx(-math.log(1 / 2) - math.log(5 / 6))
    scores = tensor([[100.0, 0.0]], requires_grad=True)
    one_against_all(scores, tensor([1])).backward()
    assert bool(scores.grad.isfinite().all())


def test_etn_by_hand():
    class Own(nn.Module):
        def forward(self, features, strength):
            assert strength == rising(1)
            return features[:, 0], tensor([logs(3.0, 1.0), logs(1.0, 1.0), logs(1.0, 1.0)])

    source = points([2, *logs(0.6, 0.4)], [1, *logs(0.7, 0.3)])
    target = points([-1, *logs(0.9, 0.1)])
    loss = loss_of(ETN(), Batch(source, tensor([0, 1]), target), Own())
    classified = (-0.8 * math.log(0.6) - 1.2 * math.log(0.3)) / 2
    told_apart = (0.8 * softplus(-2) + 1.2 * softplus(-1)) / 2 + softplus(-1)
    classes = (-math.log(1 / 2) - math.log(5 / 6) - math.log(1 / 4) - math.log(3 / 4)) / 2
    domains = (-math.log(2 / 3) - math.log(1 / 2)) / 2 - math.log(1 / 2)
    expected = classified + told_apart + 0.2 * binary(0.9) + classes + 10 * domains
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)


def test_the_auxiliary_classifier_does_not_train_the_features():
    torch.manual_seed(0)
    own = ETN(hidden=8).modules(1, 2)
    features = torch.randn(4, 1, requires_grad=True)
    own(features, 1.0)[1].sum().backward()
    assert features.grad is None
    assert float(own.classifier[0].weight.grad.abs().sum()) > 0


def test_complement_entropy_by_hand():
    """Of (.5, .3, .2) with the label 0 the wrong classes have .6 and .4; of (.2, .4, .4) one half each."""
    logits = tensor([logs(0.5, 0.3, 0.2), logs(0.2, 0.4, 0.4)])
    found = complement_entropies(logits, tensor([0, 0]))
    assert found.tolist() == pytest.approx([binary(0.6) / math.log(2), 1])
    weights = tensor([1.0, 0.25])  # times the probabilities of being wrong, .5 and .8
    loss = complement_loss(logits, tensor([0, 0]), weights)
    assert float(loss) == pytest.approx(-(0.5 * binary(0.6) / math.log(2) + 0.2) / 0.7)
    assert complement_entropies(tensor([logs(0.5, 0.5)]), tensor([0])).tolist() == [0]


def test_source_and_added_points_share_what_the_target_has_once():
    found = shares(tensor([3.0, 1.0]), tensor([5.0, 5.0]), tensor([2.0]))
    # source and added: 1 + 1/2 of 3 + 1 + 2 parts; target: 1 of 10 parts; all of 2 + 1/2
    assert found.tolist() == pytest.approx([0.3, 0.1, 0.2, 0.2, 0.2])


@pytest.mark.parametrize(("iteration", "count"), [(0, 16), (499, 16), (500, 14), (1250, 12), (2500, 8), (4999, 0)])
def test_fewer_and_fewer_source_points_are_added(iteration, count):
    assert BA3US().added(65, Step(iteration, iteration / 5000)) == count


def test_ba3us_by_hand():
    """Eight points of one kind on each side, two of the source added: weights of classes (.8, .2)."""
    own = plain(Weighing(1, 2, 4, window=500))
    own.weights.copy_(tensor([0.8, 0.2]))
    row = [2, *logs(0.6, 0.4)]
    batch = Batch(points(*[row] * 8), tensor([0, 1] * 4), points(*[[-1, *logs(0.9, 0.1)]] * 8))
    found = float(loss_of(BA3US(), batch, own, progress=0.0).detach())
    classified = -0.8 * math.log(0.6) - 0.2 * math.log(0.4)
    # Complement entropies of two classes are 0. The source has 1.25 of 2.25 together with what is added, by class.
    errors = []
    for chosen in ([0.8, 0.8], [0.8, 0.2], [0.2, 0.2]):
        each = 1.25 / (4 + sum(chosen))
        lent = each * (4 * softplus(-2) + sum(chosen) * softplus(2))
        errors.append((lent + softplus(-1)) / 2.25)
    rest = found - classified - 0.1 * binary(0.9)
    assert min(abs(rest - error) for error in errors) < 1e-6


def test_ba3us_weights_certain_points_more():
    """At the end of training, when nothing is added: 1 + exp(-H) of each, a half of all for either side."""
    own = plain(Weighing(1, 2, 4, window=500))
    source = points([2, *logs(0.6, 0.4)], [1, *logs(0.9, 0.1)])
    target = points([-1, *logs(0.9, 0.1)], [3, *logs(0.5, 0.5)])
    found = float(loss_of(BA3US(complement=0.0), Batch(source, tensor([0, 0]), target), own).detach())
    certain = [[1 + math.exp(-binary(share)) for share in pair] for pair in ((0.6, 0.9), (0.9, 0.5))]
    errors = [[softplus(-2), softplus(-1)], [softplus(-1), softplus(3)]]
    told_apart = sum(np.average(e, weights=c) / 2 for e, c in zip(errors, certain, strict=True))
    classified = (-math.log(0.6) - math.log(0.9)) / 2
    assert found == pytest.approx(classified + told_apart + 0.1 * (binary(0.9) + binary(0.5)) / 2, rel=1e-6)


def test_windows_that_make_no_sense_are_refused():
    for kind in (PADA, BA3US):
        with pytest.raises(ValueError, match=r"window must be at least 1\. Got 0 instead"):
            kind(window=0)
    with pytest.raises(ValueError, match="mu must be at least 1"):
        BA3US(mu=0)


CENTRES = np.array([[0, 0], [6, 0], [0, 6], [6, 6]])


def clouds(chosen=(0, 1), size=60):
    """A source of four classes and a target, moved, of some of them."""
    rng = np.random.default_rng(0)
    y, some = np.arange(size) % 4, np.asarray(chosen)[np.arange(size) % len(chosen)]
    source, target = CENTRES[y] + rng.normal(size=(size, 2)), CENTRES[some] + rng.normal(size=(size, 2)) + 1
    names = ("u", "v", "w", "x")
    return ad.Domain(source.astype(np.float32), y, "a", names), ad.Domain(target.astype(np.float32), some, "b", names)


def train(method, folder=None, iterations=40, data=None, **more):
    torch.manual_seed(0)
    network = ad.Network(nn.Sequential(nn.Linear(2, 8), nn.ReLU()), nn.Linear(8, 4))
    training = ad.Training(iterations, lr=0.02, evaluate_every=10)
    record = ad.adapt(network, *(data or clouds()), method, training, batch_size=24, folder=folder, **more)
    return network, record


@pytest.mark.parametrize("method", WEIGHTED, ids=lambda method: method.name)
def test_they_resume_to_the_same_bits_within_a_window(method, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Interrupted(type(method)):
        def losses(self, network, draw, step):
            if step.iteration == 25:
                raise KeyboardInterrupt
            yield from super().losses(network, draw, step)

    whole, record = train(method, tmp_path / "whole")
    assert record.rows[-1]["target_accuracy"] > 60
    with pytest.raises(KeyboardInterrupt):
        train(Interrupted(**dataclasses.asdict(method)), tmp_path / "parts")
    parts, _ = train(method, tmp_path / "parts", resume=True)
    ours, theirs = (states.read(tmp_path / name / states.LAST)[0] for name in ("whole", "parts"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))


@pytest.mark.parametrize("kind", [PADA, BA3US])
def test_classes_that_the_target_lacks_come_to_weigh_little(kind, tmp_path):
    train(kind(window=10, hidden=16), tmp_path / "run", iterations=60)
    weights = states.read(tmp_path / "run" / states.LAST)[0]["method.weights"]
    assert float(weights.sum()) == pytest.approx(1, rel=1e-5)
    assert float(weights[:2].sum()) > 0.8


@pytest.mark.parametrize("name", METHODS)
def test_every_method_adapts_to_a_target_of_one_class(name):
    config = Config("a", "b", method=name, mass=0.3, reg=0.0, window=2, hidden=16)
    _, record = train(config.build_method(), iterations=6, data=clouds(chosen=(2,)))
    assert np.isfinite(record.rows[-1]["loss"])


@pytest.mark.parametrize("name", ["dann", "cdan-e", "alda", "pada", "etn", "ba3us"])
def test_discriminators_have_as_many_units_as_a_config_says(name):
    own = Config("a", "b", method=name, hidden=5).build_method().modules(3, 4)
    assert 5 in {layer.out_features for layer in own.modules() if isinstance(layer, nn.Linear)}
    with pytest.raises(ValueError, match=r"hidden must be at least 1\. Got 0 instead"):
        Config("a", "b", method=name, hidden=0)


@pytest.mark.parametrize("method", ["m-pot", "ts-pot"])
def test_the_ramp_of_the_paper(method):
    config = Config("a", "b", method=method, mass_from=0.01, mass=0.325, mass_iterations=2500, iterations=5000)
    schedule = config.build_method().schedule
    assert [schedule(iteration) for iteration in (0, 1250, 2500, 5000)] == [0.01, 0.1675, 0.325, 0.325]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-2", (0, 1, 2)),
        ("0,3,1", (0, 1, 3)),
        ("u, x", (0, 3)),
        ("0-1,w", (0, 1, 2)),
        ("3", (3,)),
        ("0-3", (0, 1, 2, 3)),
    ],
)
def test_lists_of_classes(text, numbers):
    assert class_numbers(text, ("u", "v", "w", "x")) == numbers


REFUSED = [
    ("0-24", r"must be from 0 to 3, .*Got '0-24' instead"),
    ("4", r"must be from 0 to 3, .*Got '4' instead"),
    ("2-1", r"ranges must go upwards\. Got '2-1' instead"),
    ("dog", r"names of the source's classes: u, v, w, x\. Got 'dog' among 'dog' instead"),
    ("0,,1", r"Got '' among '0,,1' instead"),
    (" ", r"Got '' among ' ' instead"),
    ("-1", r"Got '-1' among '-1' instead"),
    ("0-2,1", r"must name a class once\. Got '0-2,1', which has v twice"),
    ("u,0", r"which has u twice"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_lists_that_do_not_fit_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        class_numbers(text, ("u", "v", "w", "x"))


def test_classes_are_chosen_by_labels_that_must_be_there():
    _, target = clouds(chosen=(0, 1))
    assert set(of_classes(target, (1,)).y) == {1}
    assert len(of_classes(target, (1,))) == 30
    with pytest.raises(ValueError, match=r"must be classes that the target has\. b has no w"):
        of_classes(target, (1, 2))
    with pytest.raises(ValueError, match=r"needs the labels of the target.*b has none: leave target_classes out"):
        of_classes(target.without_labels(), (1,))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the features of four classes in two domains, in which commands run."""
    monkeypatch.chdir(tmp_path)
    source, target = clouds(chosen=(0, 1, 2, 3))
    x, y = np.concatenate([source.x, target.x]), np.concatenate([source.y, target.y])
    names = {"domain_names": np.array(["a", "b"]), "class_names": np.array(source.classes)}
    np.savez("features.npz", x=x, y=y, domain=np.repeat([0, 1], 60), **names)
    return tmp_path


def command(*options, output="run"):
    data = ["--source", "features.npz:a", "--target", "features.npz:b", "--batch-size", "12", "--warmup", "2"]
    few = ["--iterations", "4", "--set", "bottleneck=4", "--set", "evaluate_every=2", "--set", "lr=0.05"]
    return CliRunner().invoke(app, ["adapt", *data, *few, *options, "-o", output])


def test_both_parts_of_the_target_have_the_chosen_classes(folder):
    pair = source_and_target("features.npz:a", "features.npz:b", target_classes="u,2")
    assert set(pair.target_test.y) == {0, 2}
    assert pair.target.y is None
    assert len(pair.target) == len(pair.target_test) == 30
    assert pair.target.classes == pair.source.classes
    assert set(pair.source.y) == {0, 1, 2, 3}


def run(output, **settings):
    small = {"batch_size": 12, "warmup": 2, "iterations": 4, "bottleneck": 4, "evaluate_every": 2, "lr": 0.05}
    config = Config("features.npz:a", "features.npz:b", **(small | settings))
    return adapting.run(config, output, picture=False)


def test_a_target_that_in_truth_has_all_classes_is_as_without_a_list(folder):
    run("listed", target_classes="0-3")
    run("all")
    ours, theirs = (states.read(folder / name / states.LAST)[0] for name in ("listed", "all"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("method", ["m-pot", "ba3us"])
def test_runs_and_evaluations_of_a_target_of_one_class(folder, method):
    run("run", target_classes="w", method=method)
    said = CliRunner().invoke(app, ["evaluate", "run"])
    assert "target, class w" in said.output
    assert "target, class u" not in said.output


@pytest.mark.parametrize("text", ["0-24", "dog", "0-2,1"])
def test_the_command_refuses_lists_that_do_not_fit_before_it_leaves_anything(folder, text):
    result = command("--target-classes", text)
    assert result.exit_code == 2
    assert result.stderr.startswith("spadeful: target_classes must")
    assert result.stderr.count("\n") == 1
    assert not (folder / "run").exists()


class Plane(nn.Module):
    """Points in the plane as they are, and how near they are to the centres."""

    def forward(self, x):
        return x, -torch.cdist(x, torch.tensor(CENTRES, dtype=torch.float32)).square()


def at_centres(*counts):
    """So many points on each centre."""
    y = np.repeat(np.arange(4), counts)
    return ad.Domain(CENTRES[y].astype(np.float32), y, "centres", ("u", "v", "w", "x"))


@pytest.mark.parametrize("kind", [ad.Transport, ad.TwoStage])
def test_absent_classes_send_nothing_where_partial_transport_may_leave_them(kind):
    """Half of the source has its place in the target: that is what a mass of up to a half takes, and OT takes all."""
    source, target = at_centres(5, 5, 5, 5), at_centres(9, 9, 0, 0)
    masses = ad.class_masses(Plane(), source, target, kind(sp.Partial(0.3)), batch_size=40, n_problems=3)
    assert masses.sent.sum() == pytest.approx(0.3)
    assert np.count_nonzero(masses.matrix[[0, 1], [0, 1]]) == 2
    assert masses.matrix[[0, 1], [0, 1]].sum() == pytest.approx(0.3)
    assert masses.absent == pytest.approx(0, abs=1e-12)
    assert masses.present.tolist() == [True, True, False, False]
    whole = ad.class_masses(Plane(), source, target, kind(sp.Balanced()), batch_size=40, n_problems=3)
    assert whole.sent.tolist() == pytest.approx([0.25] * 4)
    assert whole.absent == pytest.approx(0.5)
    assert not whole.matrix[:, 2:].any()


def test_unbalanced_transport_sends_little_from_absent_classes():
    method = ad.Transport(sp.Unbalanced(0.5, 0.1), sp.JointCost(0.1, 0.1))
    masses = ad.class_masses(
        Plane(), at_centres(5, 5, 5, 5), at_centres(9, 9, 0, 0), method, batch_size=20, n_problems=2
    )
    assert masses.sent[:2].min() > 10 * masses.sent[2:].max()


def test_masses_without_labels_go_to_predicted_classes():
    source, target = at_centres(5, 5, 5, 5), at_centres(9, 9, 0, 0)
    options = {"batch_size": 20, "n_problems": 2}
    method = ad.Transport(sp.Partial(0.9), schedule=sp.Ramp(0.1, 0.4, 10))
    known, unknown = (
        ad.class_masses(Plane(), source, domain, method, iteration=10, **options)
        for domain in (target, target.without_labels())
    )
    assert known.sent.sum() == pytest.approx(0.4)
    np.testing.assert_array_equal(known.matrix, unknown.matrix)
    np.testing.assert_array_equal(known.present, unknown.present)
    assert (known.predicted, unknown.predicted) == (False, True)


def test_masses_are_of_methods_that_transport():
    with pytest.raises(TypeError, match=r"Transport or TwoStage\. Got DANN"):
        ad.class_masses(Plane(), at_centres(5, 5, 5, 5), at_centres(9, 9, 0, 0), DANN())


@pytest.mark.parametrize("predicted", [False, True])
def test_masses_as_a_file(tmp_path, predicted):
    masses = ad.ClassMasses(
        np.array([[0.125, 0.25], [0.0, 1 / 3]]), ("plain", 'a "comma", say'), np.array([True, False]), predicted
    )
    masses.write(tmp_path / "masses.csv")
    again = ad.ClassMasses.read(tmp_path / "masses.csv")
    np.testing.assert_array_equal(again.matrix, masses.matrix)
    np.testing.assert_array_equal(again.present, masses.present)
    assert (again.classes, again.predicted) == (masses.classes, predicted)
    assert (tmp_path / "masses.csv").read_text().splitlines()[1] == "plain,yes,0.375,0.125,0.25"


def test_the_command_leaves_masses_and_says_what_classes_send(folder):
    pytest.importorskip("sklearn")
    imread = pytest.importorskip("matplotlib.image").imread
    result = command("--target-classes", "0-1", "--mass", "0.3")
    assert result.exit_code == 0, result.output
    masses = ad.ClassMasses.read("run/masses.csv")
    assert masses.sent.sum() == pytest.approx(0.3)
    assert not masses.matrix[:, 2:].any()
    said = result.stdout
    assert f"Classes that the target lacks send {100 * masses.absent:.1f} %" in " ".join(said.split())
    for name, mass in zip(masses.classes, masses.sent, strict=True):
        assert any(name in line.split() and f"{mass:.4f}" in line for line in said.splitlines())
    picture = imread("run/masses.png")
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20


def test_other_methods_leave_no_masses(folder):
    run("run", method="pada")
    assert not list((folder / "run").glob("masses.*"))
    assert adapting.sent(folder / "run") == []


OFFICE_HOME = """
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork
"""


def test_office_home_partial_has_the_first_classes_in_alphabetic_order(tmp_path):
    """The published lists are derived from the names of the folders: Alarm_Clock is 0, Fork is 24."""
    image = pytest.importorskip("PIL.Image")
    for domain in ("Art", "Real World"):
        for name in ("Glasses", "Hammer", "TV", "ToothBrush", *reversed(OFFICE_HOME.split())):
            folder = tmp_path / "OfficeHomeDataset_10072016" / domain / name
            folder.mkdir(parents=True)
            image.new("RGB", (8, 8)).save(folder / "00001.png")
    pair = source_and_target("office-home:art", "office-home:real", tmp_path, target_classes="0-24")
    assert [pair.source.classes[number] for number in np.unique(pair.target_test.y)] == OFFICE_HOME.split()
    assert (len(pair.source), len(pair.target)) == (29, 25)
    assert pair.target.y is None
