"""Adaptation of any data by any network: loaders, names of classes, precisions, odd numbers."""

import math

import numpy as np
import pytest

import spadeful as sp

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
fabric = pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")

from spadeful import adapt as ad  # noqa: E402
from spadeful.adapt.methods import Step  # noqa: E402
from spadeful.adapt.methods.base import Batch  # noqa: E402
from spadeful.adapt.streams import LoaderStream  # noqa: E402
from spadeful.generate.train import Training as GenerateTraining  # noqa: E402
from spadeful.training.record import Rule, chosen  # noqa: E402

NAMES = ("a", "b", "c")
TRANSPORT = [ad.Transport(sp.Partial(0.8)), ad.TwoStage(sp.Partial(0.8), n_batches=2)]
ADVERSARIAL = [ad.DANN(hidden=8), ad.CDAN(hidden=8), ad.ALDA(hidden=8), ad.BA3US(hidden=8)]


def domains(size=60, names=NAMES, shift=2.0):
    rng = np.random.default_rng(0)
    y = np.arange(size) % len(names)
    x = (6 * np.eye(len(names), 2)[y] + rng.normal(size=(size, 2))).astype(np.float32)
    return ad.Domain(x, y, "source", names), ad.Domain(x + np.float32(shift), y, "target", names)


def small(classes=3, norm=False, dropout=0.0):
    torch.manual_seed(0)
    extra = [torch.nn.BatchNorm1d(8)] if norm else []
    body = torch.nn.Sequential(torch.nn.Linear(2, 8), *extra, torch.nn.Tanh(), torch.nn.Dropout(dropout))
    return ad.Network(body, torch.nn.Linear(8, classes))


def weights(network):
    return torch.cat([value.flatten().double() for value in network.state_dict().values()])


@pytest.mark.parametrize("method", [ad.SourceOnly(), ad.DANN(hidden=8), ad.BA3US(hidden=8)], ids=lambda m: m.name)
def test_plain_loaders_repeat_and_go_on_to_the_same_bits(method, tmp_path):
    source, target = domains()
    data = torch.utils.data.TensorDataset(torch.tensor(np.array(source.x)), torch.tensor(source.y))

    class Stopping(type(method)):
        def losses(self, network, draw, step):
            if step.iteration == 8:
                raise KeyboardInterrupt
            yield from super().losses(network, draw, step)

    def run(method, **options):
        loaders = (torch.utils.data.DataLoader(each, 20) for each in (data, torch.tensor(np.array(target.x))))
        network = small(dropout=0.3)
        ad.adapt(network, *loaders, method, ad.Training(12, evaluate_every=5), **options)
        return weights(network)

    whole = run(method)
    for _ in range(3):
        assert torch.equal(run(method), whole)
    with pytest.raises(KeyboardInterrupt):
        run(Stopping(**vars(method)), folder=tmp_path)
    assert torch.equal(run(method, folder=tmp_path, resume=True), whole)


class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(3), index % 2


def test_workers_of_two_loaders_draw_apart_and_by_the_seed():
    def first(seed):
        return LoaderStream(*(torch.utils.data.DataLoader(Noise(), 4, num_workers=1) for _ in range(2)), seed).batch(0)

    one, again, other = first(0), first(0), first(1)
    assert torch.equal(one.source, again.source)
    assert not torch.equal(one.source, one.target)
    assert not torch.equal(one.source, other.source)


def test_labels_may_be_shares_of_the_classes():
    source, target = domains()
    shares = torch.nn.functional.one_hot(torch.tensor(source.y)).float()
    loaders = [(torch.tensor(np.array(source.x)), shares)], [torch.tensor(np.array(target.x))]
    record = ad.adapt(small(), *loaders, ad.SourceOnly(), ad.Training(2))
    assert math.isfinite(record.rows[-1]["loss"])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_the_optimiser_remembers_follows_the_weights(optimizer, tmp_path):
    """Here to another precision, elsewhere to another device."""
    source, target = domains()

    def run(iterations, **options):
        network, wide = small(), fabric.Fabric(accelerator="cpu", devices=1, precision="64-true")
        training = ad.Training(iterations, optimizer=optimizer, evaluate_every=4)
        ad.adapt(network, source, target, ad.SourceOnly(), training, batch_size=12, fabric=wide, **options)
        return weights(network)

    whole = run(8)
    run(4, folder=tmp_path)
    assert torch.equal(run(8, folder=tmp_path, resume=True), whole)


@pytest.mark.parametrize("method", [*TRANSPORT, *ADVERSARIAL], ids=lambda m: m.name)
def test_networks_of_double_precision_and_of_feature_maps(method):
    source, target = domains()
    maps = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Unflatten(1, (2, 2, 2)))
    head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
    for network in (small().double(), ad.Network(maps, head)):
        record = ad.adapt(network, source, target, method, ad.Training(2), batch_size=np.int64(12))
        assert math.isfinite(record.rows[-1]["loss"])


def test_a_default_of_double_precision_is_met():
    source, target = domains()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        adapted = ad.DeepAdapter(iterations=3, batch_size=20).fit(source.x, source.y, target.x)
    finally:
        torch.set_default_dtype(before)
    assert adapted.predict(target.x).shape == (60,)


@pytest.mark.parametrize("constant", [0.1, 1 / 3, 0.7, 0.0])
def test_a_constant_feature_says_nothing_in_any_precision(constant):
    source, target = domains(300)
    x, xt = (np.column_stack([d.x.astype(np.float64), np.full(300, constant)]) for d in (source, target))
    adapted = ad.DeepAdapter(iterations=100, batch_size=60).fit(x, source.y, xt)
    assert adapted.target_scale_[1][2] == 1
    for seen in (xt.astype(np.float32), xt * [1, 1, 1 + 1e-12]):
        assert (adapted.predict(seen) == adapted.predict(xt)).mean() > 0.99


def test_classes_are_told_by_their_names():
    source, target = domains(shift=0.0)
    turned = ad.Domain(target.x, 2 - target.y, "target", NAMES[::-1])
    found = []
    for given in (target, turned):
        network = small()
        method = ad.Transport(sp.Partial(0.9))
        training = ad.Training(60, lr=0.05)
        row = ad.adapt(
            network, source, given, method, training, batch_size=30, test={"source": source, "target": given}
        )
        masses = ad.class_masses(network, source, given, method, batch_size=30, n_problems=2)
        found.append((row.rows[-1]["target_accuracy"], masses.matrix))
    assert found[0][0] == found[1][0] > 90
    np.testing.assert_array_equal(found[0][1], found[1][1])
    stranger = ad.Domain(target.x, target.y, "target", ("a", "b", "z"))
    with pytest.raises(ValueError, match=r"among those of the source, a, b, c\. Got z of target"):
        ad.adapt(small(), source, stranger, ad.SourceOnly(), ad.Training(1), batch_size=12)


def test_ba3us_keeps_the_statistics_of_the_target():
    source, target = domains(shift=-100.0)
    network = small(norm=True)
    network.statistics = "target"
    norm = next(layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm1d))
    ad.adapt(network, source, target, ad.BA3US(hidden=8), ad.Training(3), batch_size=30)
    assert int(norm.num_batches_tracked) == 3


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_two_stages_transport_a_single_point_too(pairs):
    source, target = domains(24)
    network = small()
    batches = [
        Batch(*(torch.tensor(np.array(part[some])) for part in (source.x, source.y, target.x)))
        for some in (slice(0, 12), slice(12, 24))
    ]
    method, waiting = ad.TwoStage(sp.Partial(pairs / 24), sp.JointCost(0.3, 0.7), n_batches=2), iter(batches)
    total = sum(float(loss.detach()) for loss in method.losses(network, lambda: next(waiting), Step()))
    whole = [torch.cat(parts) for parts in zip(*batches, strict=True)]
    (gs, fs), (gt, ft) = network(whole[0]), network(whole[2])
    cost = torch.cdist(gs, gt).square() * 0.3 - 0.7 * ft.log_softmax(1)[:, whole[1]].T
    expected = torch.nn.functional.cross_entropy(fs, whole[1]) + sp.solve(cost.detach(), method.problem).value
    assert total == pytest.approx(float(expected.detach()), rel=1e-5)


def test_every_adversarial_method_takes_a_single_class():
    source, target = domains(names=("a",))
    for method in ADVERSARIAL:
        record = ad.adapt(small(1), source, target, method, ad.Training(2), batch_size=12)
        assert math.isfinite(record.rows[-1]["loss"]), method.name


def test_numbers_may_be_numpy_s():
    training = ad.Training(np.int64(3), evaluate_every=np.int32(2), seed=np.uint8(1))
    assert (training, type(training.iterations)) == (ad.Training(3, evaluate_every=2, seed=1), int)
    assert GenerateTraining(np.int64(3)) == GenerateTraining(3)
    for change in ({"iterations": 2.5}, {"iterations": 3, "evaluate_every": 0}):
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            GenerateTraining(**change)


def test_a_measure_that_is_no_number_is_never_the_best():
    rows = [{"at": 1, "score": math.nan}, {"at": 2, "score": 5.0}, {"at": 3, "score": 3.0}]
    assert chosen(rows, Rule("score", -1, ""))["at"] == chosen(rows[::-1], Rule("score", -1, ""))["at"] == 3
    assert chosen(rows[:1], Rule("score", -1, "")) == {}


def test_labels_without_a_logit_are_refused():
    source, target = domains()
    with pytest.raises(ValueError, match=r"a logit for each class, numbered from 0: at least 3\. Got 2"):
        ad.adapt(small(2), source, target, ad.SourceOnly(), ad.Training(1), batch_size=12)
    loader = [(torch.tensor(np.array(source.x)), torch.tensor(source.y, dtype=torch.int32))]
    ad.adapt(small(), loader, [torch.tensor(np.array(target.x))], ad.SourceOnly(), ad.Training(1))


def test_a_network_that_fails_is_left_as_it_was():
    source, target = domains()
    network = small()
    network.classifier = torch.nn.Linear(7, 3)
    with pytest.raises(RuntimeError):
        ad.adapt(network, source, target, ad.SourceOnly(), ad.Training(1), batch_size=12)
    assert network.training
