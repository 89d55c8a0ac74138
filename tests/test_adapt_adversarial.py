"""DANN, CDAN-E, ALDA and ROT: their defining formulas against hand-computed examples, and the loop that trains them."""

import math

import numpy as np
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from torch import nn, tensor  # noqa: E402

from spadeful import adapt as ad  # noqa: E402
from spadeful.adapt.methods import ALDA, CDAN, DANN, ROT, Batch, Step  # noqa: E402
from spadeful.adapt.methods.adversarial import reverse, rising  # noqa: E402
from spadeful.adapt.methods.alda import corrected, opposite  # noqa: E402
from spadeful.adapt.methods.cdan import Conditional, certainty  # noqa: E402
from spadeful.adapt.methods.rot import beyond_the_ball, weights_of  # noqa: E402

METHODS = [DANN(hidden=16), CDAN(hidden=16), CDAN(hidden=16, entropy=False), ALDA(hidden=16), ROT(hidden=16)]


class Identity(nn.Module):
    """Features as they are; the logits are given."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, x):
        return x, self.logits[: len(x)]


def loss_of(method, batch, network, own, progress=1.0):
    (loss,) = method.losses(network, lambda: batch, Step(0, progress, own))
    return loss


def softplus(x):
    return math.log1p(math.exp(x))


def test_reversed_gradients():
    x = tensor([1.0, -2.0], requires_grad=True)
    (reverse(x, 0.5) ** 2).sum().backward()
    assert x.grad.tolist() == [-1.0, 2.0]


def test_the_schedule_of_ganin():
    assert rising(0) == 0
    assert rising(0.1) == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert rising(1) == pytest.approx(1, abs=1e-4)


def test_dann_by_hand():
    """Discriminator D(f) = f: log(1 + e^-2) for the source point at 2, log(1 + e^1) for the target point at 1."""
    x, t = tensor([[2.0]], requires_grad=True), tensor([[1.0]], requires_grad=True)
    own = nn.Linear(1, 1)
    nn.init.ones_(own.weight)
    nn.init.zeros_(own.bias)
    loss = loss_of(DANN(), Batch(x, tensor([0]), t), Identity(torch.zeros(1, 2)), own)
    assert float(loss.detach()) == pytest.approx(math.log(2) + (softplus(-2) + softplus(1)) / 2, rel=1e-6)
    loss.backward()
    # The features climb what the discriminator descends.
    assert x.grad.item() == pytest.approx(rising(1) * 0.5 / (1 + math.exp(2)), rel=1e-5)
    assert t.grad.item() == pytest.approx(-rising(1) * 0.5 / (1 + math.exp(-1)), rel=1e-5)
    assert own.weight.grad.item() == pytest.approx(0.5 * (-2 / (1 + math.exp(2)) + 1 / (1 + math.exp(-1))), rel=1e-5)


def test_products_of_features_and_predictions():
    both = Conditional(2, 3, 4).products(tensor([[1.0, 2.0]]), tensor([[0.5, 0.3, 0.2]]))
    assert both.tolist() == [pytest.approx([0.5, 1.0, 0.3, 0.6, 0.2, 0.4])]


def test_random_products_keep_inner_products_on_average():
    """E <p(f, g), p(f', g')> = <f, f'> <g, g'>, which is why they may stand for all of them."""
    torch.manual_seed(0)
    f, g = torch.randn(2, 500), torch.rand(2, 20)
    found = []
    for _ in range(30):
        random = Conditional(500, 20, 4)
        assert random.random
        one, other = random.products(f, g)
        found.append(float(one @ other))
    exact = float((f[0] @ f[1]) * (g[0] @ g[1]))
    assert np.mean(found) == pytest.approx(exact, abs=4 * np.std(found) / 30**0.5)


def test_certain_points_weigh_more():
    weights = certainty(tensor([[0.0, 0.0], [100.0, 0.0]]), 1.0)
    uncertain = 1 + math.exp(-math.log(2))  # 1.5
    assert weights.tolist() == pytest.approx([uncertain / (uncertain + 2), 2 / (uncertain + 2)])


def test_cdan_with_equal_certainty_is_the_plain_one():
    torch.manual_seed(0)
    own = Conditional(3, 2, 4).eval()
    batch = Batch(torch.randn(4, 3), tensor([0, 1, 0, 1]), torch.randn(4, 3))
    network = Identity(tensor([[1.0, 0.0]]).repeat(4, 1))
    one, other = (float(loss_of(CDAN(entropy=e), batch, network, own).detach()) for e in (True, False))
    assert one == pytest.approx(other, rel=1e-6)


def test_cdan_e_by_hand():
    """A discriminator that adds up all products says the sum of the features; the source is sure, the target is not."""
    own = Conditional(2, 2, 4)
    own.discriminator = nn.Linear(4, 1)
    nn.init.ones_(own.discriminator.weight)
    nn.init.zeros_(own.discriminator.bias)
    sure, unsure = tensor([[200.0, 0.0]]), tensor([[0.0, 0.0]])

    class Network(nn.Module):
        def forward(self, x):
            return x, torch.cat([sure if float(row.sum()) > 0 else unsure for row in x])

    batch = Batch(tensor([[1.0, 2.0]]), tensor([0]), tensor([[-1.0, 0.5]]))
    loss = loss_of(CDAN(), batch, Network(), own)
    # Weights are of sum 1 in each domain: one point in each, so both count alike whatever their entropy.
    assert float(loss.detach()) == pytest.approx((softplus(-3) + softplus(-0.5)) / 2, rel=1e-6)
    two = Batch(tensor([[1.0, 2.0]]), tensor([0]), tensor([[-1.0, 0.5], [1.0, 0.0]]))
    loss = loss_of(CDAN(), two, Network(), own)
    target = (1.5 * softplus(-0.5) + 2 * softplus(1)) / 3.5  # 1 + exp(-log 2), and 1 + exp(0)
    assert float(loss.detach()) == pytest.approx((softplus(-3) + target) / 2, rel=1e-6)


def test_corrected_labels_are_a_column_of_the_confusion_matrix():
    confusion = tensor([[0.9, 0.2, 0.4], [0.9, 0.2, 0.4]])
    found = corrected(confusion, tensor([0, 1]))
    assert found.tolist() == [pytest.approx([0.9, 0.05, 0.05]), pytest.approx([0.4, 0.2, 0.4])]
    assert opposite(tensor([2]), 3).tolist() == [[0.5, 0.5, 0.0]]


def test_alda_by_hand():
    """One sure target point of pseudo-label 0; a discriminator of scores 0 trusts every label by half."""
    logits = tensor([[20.0, 0.0, 0.0]])
    own = nn.Linear(1, 3)
    nn.init.zeros_(own.weight)
    nn.init.zeros_(own.bias)
    loss = loss_of(ALDA(), Batch(torch.ones(1, 1), tensor([0]), torch.ones(1, 1)), Identity(logits), own)
    # corrected: (1/2, 1/4, 1/4) in both domains; the truth is (1, 0, 0) in the source, (0, 1/2, 1/2) in the target
    source = -math.log(0.5) - 2 * math.log(0.75)
    target = -math.log(0.5) - 2 * (0.5 * math.log(0.25) + 0.5 * math.log(0.75))
    unhinged = 0.5 * 0 + 0.25 * 1 + 0.25 * 1
    expected = (source + target) / 2 + math.log(3) + rising(1) * unhinged
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_alda_leaves_unsure_points_out():
    own = nn.Linear(1, 3)
    batch = Batch(torch.ones(1, 1), tensor([0]), torch.ones(1, 1))
    loss = loss_of(ALDA(), batch, Identity(torch.zeros(1, 3)), own)
    other = loss_of(ALDA(), batch._replace(target=-5 * torch.ones(1, 1)), Identity(torch.zeros(1, 3)), own)
    assert float(loss.detach()) == float(other.detach())


def test_the_discriminator_of_alda_learns_classes_without_the_features():
    x = torch.ones(1, 1, requires_grad=True)
    own = nn.Linear(1, 3)
    loss = loss_of(ALDA(), Batch(x, tensor([0]), torch.ones(1, 1)), Identity(torch.zeros(1, 3)), own, progress=0.0)
    loss.backward()
    assert x.grad.item() == 0  # at progress 0 the reversed gradient is 0 too
    assert float(own.weight.grad.abs().sum()) > 0


def test_weights_of_mean_one_within_the_chi_squared_ball():
    weights = weights_of(tensor([-3.0, 1.0, 3.0]))
    assert float(weights.mean()) == pytest.approx(1)
    assert float(weights[0]) < 1e-3
    assert float(weights[2] / weights[1]) == pytest.approx(3, rel=1e-3)
    assert float(beyond_the_ball(tensor([0.0, 2.0]), 0.2)) == pytest.approx(0.3)
    assert float(beyond_the_ball(tensor([0.5, 1.5]), 0.2)) == 0


def test_rot_by_hand():
    """D(s) = 1, D(t) = -1 twice, weights 1 and 1, sure predictions: softplus(-1) twice and nothing else."""

    class Own(nn.Module):
        def forward(self, source, target):
            return torch.ones(2), -torch.ones(2), torch.ones(2)

    logits = tensor([[200.0, 0.0], [0.0, 200.0]])
    loss = loss_of(ROT(), Batch(torch.ones(2, 1), tensor([0, 1]), torch.ones(2, 1)), Identity(logits), Own())
    assert float(loss.detach()) == pytest.approx(2 * softplus(-1), rel=1e-6)


def test_rot_by_hand_with_weights():
    """Weights 0.2 and 1.8: a chi-squared divergence of 0.32, which is 0.12 beyond 0.2; entropies log 2 and 0."""

    class Own(nn.Module):
        def forward(self, source, target):
            return tensor([2.0, 2.0]), tensor([1.0, -1.0]), tensor([0.2, 1.8])

    logits = tensor([[0.0, 0.0], [0.0, 200.0]])
    loss = loss_of(ROT(entropy=0.1), Batch(torch.ones(2, 1), tensor([0, 1]), torch.ones(2, 1)), Identity(logits), Own())
    adversarial = softplus(-2) + (0.2 * softplus(1) + 1.8 * softplus(-1)) / 2
    calm = 0.1 * 0.2 * math.log(2) / 2 + 100 * 0.12
    assert float(loss.detach()) == pytest.approx(math.log(2) / 2 + adversarial + calm, rel=1e-5)


def test_the_weights_of_rot_turn_from_what_the_discriminator_tells_apart():
    """Points of the target that look unlike the source add to the distance, so their weight falls."""
    torch.manual_seed(0)
    own = ROT(hidden=8).modules(1, 2)
    optimizer = torch.optim.Adam(own.weights.parameters(), 0.05)
    target = tensor([[0.0], [0.0], [0.0], [5.0]])
    batch = Batch(torch.zeros(4, 1), tensor([0, 0, 1, 1]), target)
    network = Identity(tensor([[200.0, 0.0]] * 4))

    class Fixed(nn.Module):
        """Calls points near 0 the source and those far away the target."""

        def forward(self, source, t):
            return 3 - source[:, 0], 3 - t[:, 0] * 2, weights_of(own.weights(t.detach())[:, 0])

    for _ in range(100):
        optimizer.zero_grad()
        loss_of(ROT(rho=0.2), batch, network, Fixed()).backward()
        optimizer.step()
    weights = weights_of(own.weights(target)[:, 0]).tolist()
    assert weights[3] < 0.5 < weights[0]
    assert float(beyond_the_ball(tensor(weights), 0.2)) < 0.05


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_they_train_in_the_loop_and_resume_to_the_same_bits(method, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    centres = np.array([[0, 0], [6, 0], [0, 6]])
    x, t = (centres[y] + rng.normal(size=(60, 2)) + shift for shift in (0, 1.5))
    data = (x.astype(np.float32), y), (t.astype(np.float32), y)

    def train(folder, method, **more):
        torch.manual_seed(0)
        network = ad.Network(nn.Sequential(nn.Linear(2, 8), nn.ReLU()), nn.Linear(8, 3))
        training = ad.Training(40, lr=0.01, evaluate_every=10)
        return network, ad.adapt(network, *data, method, training, batch_size=24, folder=folder, **more)

    class Interrupted:
        name, modules = method.name, method.modules

        def losses(self, network, draw, step):
            if step.iteration == 25:
                raise KeyboardInterrupt
            yield from method.losses(network, draw, step)

    whole, record = train(tmp_path / "whole", method)
    assert record.rows[-1]["source_accuracy"] > 80
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", Interrupted())
    parts, _ = train(tmp_path / "parts", method, resume=True)
    for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="threshold"):
        ALDA(threshold=1.0)
    with pytest.raises(ValueError, match="rho"):
        ROT(rho=0.0)
