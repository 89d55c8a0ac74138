"""Generators: the paper's networks, the signs of both turns, what is learnt, and runs that go on where they stopped."""

import json
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

from torch import nn  # noqa: E402

from spadeful import generating  # noqa: E402
from spadeful.cli import app  # noqa: E402
from spadeful.generate.config import Config, make_config  # noqa: E402
from spadeful.generate.data import Images  # noqa: E402
from spadeful.generate.method import Adversarial, Batch, frozen  # noqa: E402
from spadeful.generate.networks import FeatureNetwork, Generator  # noqa: E402
from spadeful.generate.samples import generated, noise, sheet, ways  # noqa: E402
from spadeful.generate.train import RULES, NoiseStream, Training, train  # noqa: E402
from spadeful.training import states  # noqa: E402
from spadeful.training.record import Record  # noqa: E402


class Cloud:
    """Points as a set that generators learn from."""

    name = "cloud"

    def __init__(self, x):
        self.x = torch.as_tensor(np.asarray(x), dtype=torch.float32)

    def __len__(self):
        return len(self.x)

    def take(self, indices):
        return self.x[torch.as_tensor(indices)]


def layers(network):
    """A network in the words of appendix D.3."""
    words = {nn.ReLU: "ReLU", nn.LeakyReLU: "LeakyReLU", nn.Tanh: "Tanh", nn.BatchNorm2d: "BatchNorm"}
    found = []
    for layer in network:
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            assert layer.kernel_size == (4, 4)
            assert layer.bias is None
            found.append(f"{'Transpose' if isinstance(layer, nn.ConvTranspose2d) else ''}Conv{layer.out_channels}")
        elif not isinstance(layer, nn.Flatten):
            found.append(words[type(layer)])
    return " ".join(found)


class TestNetworks:
    def test_cifar10(self):
        generator, features = Generator((3, 32, 32)), FeatureNetwork((3, 32, 32))
        assert layers(generator) == (
            "TransposeConv256 BatchNorm ReLU TransposeConv128 BatchNorm ReLU TransposeConv64 BatchNorm ReLU "
            "TransposeConv3 Tanh"
        )
        assert layers(features) == "Conv64 LeakyReLU Conv128 BatchNorm LeakyReLU Conv256 Tanh"
        images = generator(torch.randn(2, 32))
        assert images.shape == (2, 3, 32, 32)
        assert features(images).shape == (2, 256 * 4 * 4)

    def test_celeba(self):
        generator, features = Generator((3, 64, 64)), FeatureNetwork((3, 64, 64))
        assert layers(generator) == (
            "TransposeConv512 BatchNorm ReLU TransposeConv256 BatchNorm ReLU TransposeConv128 BatchNorm ReLU "
            "TransposeConv64 BatchNorm ReLU TransposeConv3 Tanh"
        )
        assert layers(features) == (
            "Conv64 LeakyReLU Conv128 BatchNorm LeakyReLU Conv256 BatchNorm LeakyReLU Conv512 BatchNorm Tanh"
        )
        images = generator(torch.randn(2, 32))
        assert images.shape == (2, 3, 64, 64)
        assert features(images).shape == (2, 512 * 4 * 4)

    @pytest.mark.parametrize("size", [8, 14, 28, 96])
    def test_other_sizes(self, size):
        images = Generator((1, size, size), latent=5, width=4)(torch.randn(3, 5))
        assert images.shape == (3, 1, size, size)
        assert abs(images).max() <= 1
        assert FeatureNetwork((1, size, size), width=4)(images).ndim == 2

    @pytest.mark.parametrize("shape", [(1, 30, 30), (3, 32, 28), (1, 4, 4), (3, 1, 1)])
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(ValueError, match=f"must be square.*Got {shape[1]}x{shape[2]}"):
            Generator(shape)

    @pytest.mark.parametrize("shape", [(3, 24, 24), (3, 64, 64), (1, 96, 96)])
    def test_weights_tell_their_generator(self, shape):
        generator = Generator(shape, latent=7, width=2)
        again = Generator.of(dict(sorted(generator.state_dict().items())))  # as a file lists them
        assert (again.shape, again.latent) == (shape, 7)
        assert all(map(torch.equal, generator.state_dict().values(), again.state_dict().values()))


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.by


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * self.by


def gradients(method, batches):
    """Of both turns, without steps in between: the loss of each and the gradient of its parameter."""
    modules = {"generator": Shift(), "features": Scale()}
    drawn, found = iter(batches), {}
    for turn in method.turns(modules, lambda: next(drawn)):
        loss = sum(turn.losses)
        modules[turn.optimizer].by.grad = None
        loss.backward()
        found[turn.optimizer] = loss.item(), modules[turn.optimizer].by.grad.item()
    return found


def batch(real, made):
    return Batch(*(torch.tensor(points, dtype=torch.float32)[:, None] for points in (real, made)))


class TestTurns:
    def test_signs_by_hand(self):
        # (w x - w (z + b))^2 at x = 2, z = 0, w = 1, b = 0 is 4; its slopes are 8 in w and -4 in b.
        found = gradients(Adversarial(sp.Balanced(), 1), [batch([2.0], [0.0])])
        assert found == {"features": (-4.0, -8.0), "generator": (4.0, -4.0)}

    def test_features_rise_and_then_the_generator_descends_on_the_same_batch(self):
        generator, features = Shift(), Scale()
        training = Training(1, lr=0.125, evaluate_every=1)
        points = Cloud([[2.0], [2.0]])
        record = train(generator, features, points, Adversarial(sp.Balanced(), 1), training, batch_size=2, latent=1)
        z = NoiseStream(points, 2, 1, 0).batch(0).noise
        # The first step of Adam is as long as its rate, wherever the slope points down.
        assert features.by.item() == pytest.approx(1.125, abs=1e-6)
        assert generator.by.item() == pytest.approx(0.125, abs=1e-6)
        apart = (2 - z).square().mean().item()
        assert record.rows[0]["features_loss"] == pytest.approx(-apart, rel=1e-5)
        assert record.rows[0]["loss"] == pytest.approx(1.125**2 * apart, rel=1e-5)

    def test_weights_of_the_features_get_no_gradient_from_the_generator_s_turn(self):
        modules = {"generator": Shift(), "features": Scale()}
        for turn in Adversarial(sp.Balanced(), 1).turns(modules, lambda: batch([2.0, 1.0], [0.0, 5.0])):
            if turn.optimizer == "generator":
                modules["features"].by.grad = None
                sum(turn.losses).backward()
                assert modules["features"].by.grad is None
        assert modules["features"].by.requires_grad

    @pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.5), sp.Unbalanced(1.0, 0.1)])
    def test_pairings_and_the_energy(self, problem):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(2, 3, 4, 1)).astype(np.float32)
        batches = [batch(x[i, :, 0], y[i, :, 0]) for i in range(3)]

        def cost(a, b):
            return sp.solve((a - b.T) ** 2, problem).value

        def loss(**options):
            return gradients(Adversarial(problem, 3, **options), batches)["generator"][0]

        cross = np.array([[cost(a, b) for b in y] for a in x])
        within = [np.array([[cost(a, b) for b in z] for a in z]) for z in (x, y)]
        assert loss() == pytest.approx(np.trace(cross) / 3, rel=1e-4)
        assert loss(pairing="all") == pytest.approx(cross.mean(), rel=1e-4)
        upper = np.triu_indices(3, 1)
        energy = cross.mean() - sum(own[upper].mean() for own in within) / 2
        assert loss(pairing="all", debiased=True) == pytest.approx(energy, rel=1e-4, abs=1e-5)
        neighbours = np.trace(cross) / 3 - sum(own[[0, 1], [1, 2]].mean() for own in within) / 2
        assert loss(debiased=True) == pytest.approx(neighbours, rel=1e-4, abs=1e-5)

    def test_of_two_batches_the_energy_is_a_fourth_of_salimans(self):
        x, y = np.random.default_rng(1).normal(size=(2, 2, 5, 1)).astype(np.float32)
        w = [[sp.solve((a - b.T) ** 2, sp.Balanced()).value for b in (*x, *y)] for a in (*x, *y)]
        salimans = w[0][2] + w[0][3] + w[1][2] + w[1][3] - 2 * w[0][1] - 2 * w[2][3]
        method = Adversarial(sp.Balanced(), 2, "all", debiased=True)
        found = gradients(method, [batch(x[i, :, 0], y[i, :, 0]) for i in range(2)])
        assert found["generator"][0] == pytest.approx(salimans / 4, rel=1e-4)


def ring(size=2000, modes=8, seed=0):
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * (np.arange(size) % modes) / modes
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(scale=0.05, size=(size, 2))


def perceptron(inputs, outputs, *end):
    sizes = (inputs, 64, 64, outputs)
    parts = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1], *end)


LINES = sp.Sliced(sp.Partial(0.95), n_projections=20)
RING = [(sp.Balanced(), False), (sp.Partial(0.95), False), (LINES, False), (sp.Partial(0.95), True)]


@pytest.mark.parametrize(("problem", "adversarial"), RING)
def test_a_ring_of_gaussians_is_learnt_with_all_its_modes(problem, adversarial):
    torch.manual_seed(0)
    generator, features = perceptron(8, 2), perceptron(2, 16, nn.Tanh()) if adversarial else None
    training = Training(600, lr=2e-3 if adversarial else 5e-3, evaluate_every=20)
    sizes = {"batch_size": 100 if adversarial else 200, "latent": 8}
    record = train(generator, features, Cloud(ring()), Adversarial(problem, 1), training, **sizes)
    if not adversarial:  # where features learn too, the loss is of another distance each time
        assert record.rows[-1]["loss"] < 0.5 * record.rows[0]["loss"]
    made = torch.cat(list(generated(generator, noise(2000, 8, seed=1)))).numpy()
    angles = 2 * np.pi * np.arange(8) / 8
    distances = np.linalg.norm(made[:, None] - np.stack([np.cos(angles), np.sin(angles)], axis=1), axis=2)
    near = np.bincount(distances.argmin(axis=1)[distances.min(axis=1) < 0.25], minlength=8)
    assert (near > 2000 / 8 / 4).all()


def small_run(folder, iterations, problem, **more):
    torch.manual_seed(0)
    shape = (1, 8, 8)
    generator, features = Generator(shape, 4, 4), FeatureNetwork((1, 8, 8), 4)
    points = Cloud(np.random.default_rng(0).uniform(-1, 1, size=(40, 1, 8, 8)))
    method, training = Adversarial(problem, 2), Training(iterations, evaluate_every=3)
    sizes = {"batch_size": 10, "latent": 4}
    return train(generator, features, points, method, training, **sizes, folder=folder, **more)


@pytest.mark.parametrize("problem", [sp.Partial(0.9), LINES], ids=str)
def test_resumed_runs_end_with_the_same_bits(tmp_path, problem):
    small_run(tmp_path / "whole", 9, problem)
    small_run(tmp_path / "parts", 6, problem)
    record = small_run(tmp_path / "parts", 9, problem, resume=True)
    whole, parts = (states.read(tmp_path / name / states.LAST)[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert any(name.startswith("features optimizer.") for name in whole)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert [row["iteration"] for row in record.rows] == [3, 6, 9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": sp.Partial(0.5)}, "method.problem.mass of phase 1 was 0.9 and is 0.5"),
        ({"problem": sp.Balanced()}, "method of phase 1 was 'm-POT' and is 'm-OT'"),
        ({"shift": 1}, "points was"),
        ({"training": Training(9, lr=1e-3, evaluate_every=3)}, "training.lr of phase 1 was 0.0005 and is 0.001"),
        ({"training": Training(9, evaluate_every=3, seed=1)}, "seed was 0 and is 1"),
        ({"training": Training(3, evaluate_every=3)}, "at iteration 6 of phase 1. Got phases of 3 iterations"),
        ({"batch_size": 9}, "batch_size was 10 and is 9"),
        ({"width": 8}, "must be of this network and method.*was .4, 1, 4, 4. and is .8, 1, 4, 4."),
    ],
    ids=str,
)
def test_a_run_does_not_go_on_as_another(tmp_path, change, message):
    pixels = np.random.default_rng(0).integers(0, 200, (40, 8, 8, 1), dtype=np.uint8)
    begun = {"problem": sp.Partial(0.9), "training": Training(6, evaluate_every=3), "batch_size": 10}

    def run(problem, training, batch_size, shift=0, width=4, resume=False):
        networks = Generator((1, 8, 8), 4, width), FeatureNetwork((1, 8, 8), width)
        images, sizes = Images(pixels + np.uint8(shift), "noise"), {"batch_size": batch_size, "latent": 4}
        train(*networks, images, Adversarial(problem, 2), training, **sizes, folder=tmp_path, resume=resume)

    run(**begun)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=message):
        run(**{**begun, **change}, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_looking_at_samples_does_not_disturb_training():
    generator = Generator((1, 8, 8), 4, 4)
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    random = torch.get_rng_state()
    list(generated(generator, noise(10, 4, seed=0)))
    assert torch.equal(random, torch.get_rng_state())
    assert generator.training
    assert all(torch.equal(before[name], value) for name, value in generator.state_dict().items())


def test_ways_begin_and_end_at_draws():
    z, way = noise(6, 32, seed=3), ways(32, rows=3, steps=5, seed=3).reshape(3, 5, 32)
    torch.testing.assert_close(way[:, 0], z[:3])
    torch.testing.assert_close(way[:, -1], z[3:], atol=1e-6, rtol=0)


def test_sheets_hold_every_image():
    images = np.arange(1, 6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 3, 3), np.uint8)
    found = sheet(images, columns=2)
    assert found.shape == (8, 7, 3)
    assert found[3, 4, 0] == 4
    assert found[6, 0, 0] == 5
    assert (found[2] == 0).all()
    assert (found[6:, 4:] == 0).all()


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"method": "gan"}, "method must be one of m-ot"),
            ({"mass": 0.0}, r"must be in \(0, 1\]"),
            ({"mass": 1.2}, r"must be in \(0, 1\]"),
            ({"pairing": "some"}, "pairing must be"),
            ({"debiased": True, "n_batches": 1}, "at least 2, to be debiased"),
            ({"batch_size": 1}, "batch_size must be at least 2"),
            ({"lr": 0.0}, "lr must be above 0"),
            ({"beta1": 1.0}, "beta1 and beta2"),
            ({"width": 0}, "width must be at least 1"),
            ({"colour": 1}, "Got colour too"),
        ],
    )
    def test_wrong_values(self, settings, message):
        with pytest.raises(ValueError, match=message):
            make_config({"data": "mnist", **settings})

    def test_wrong_types_and_missing_names(self):
        with pytest.raises(TypeError, match="n_batches must be of the type int"):
            make_config({"data": "mnist", "n_batches": 1.5})
        with pytest.raises(ValueError, match="must say data"):
            make_config({})

    def test_defaults_are_the_paper_s(self):
        config = Config("cifar10")
        assert (config.lr, config.beta1, config.beta2, config.latent) == (5e-4, 0.5, 0.999, 32)
        assert config.build_method() == Adversarial(sp.Partial(0.98), 2, "paired", False)

    def test_methods_on_lines(self):
        config = Config("mnist", method="s-pot", mass=0.9, n_projections=30, seed=4)
        assert config.problem() == sp.Sliced(sp.Partial(0.9), n_projections=30, seed=4)
        assert config.build_method().name == "s-POT"
        assert Config("mnist", method="s-ot").problem() == sp.Sliced(sp.Balanced())


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "tiny.npz"
    np.savez(path, x=np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8), y=np.zeros(30, int))
    return path


def command(*words):
    return CliRunner().invoke(app, ["generate", *map(str, words)], env={"COLUMNS": "200"})


TINY = ("--batch-size", 5, "--n-batches", 2, "--iterations", 4, "--evaluate-every", 2, "--set", "latent=3")


class TestCommandLine:
    def test_options_in_front_of_what_is_asked_for_are_refused(self, tmp_path):
        done = command("--device", "cpu", "sample", tmp_path, "-o", tmp_path / "sheet.png")
        assert done.exit_code == 2
        assert "Options go after `generate sample`. Leave out --device." in done.stderr

    def test_images_of_others_are_not_replaced(self, archive, tmp_path):
        (tmp_path / "run" / "samples").mkdir(parents=True)
        done = command("--data", archive, *TINY, "-o", tmp_path / "run")
        assert done.exit_code == 2
        assert "is of no run" in done.stderr

    def test_a_run_its_samples_and_going_on(self, archive, tmp_path):
        run = tmp_path / "run"
        done = command("--data", archive, "--method", "m-pot", "--mass", 0.9, *TINY, "-o", run)
        assert done.exit_code == 0, done.output
        assert "m-POT" in done.output
        for name in ("samples/000002.png", "samples/000004.png", "interpolation.png", "log.csv", "last.safetensors"):
            assert (run / name).stat().st_size
        rows = json.loads((run / "log.json").read_text())["rows"]
        assert [row["iteration"] for row in rows] == [2, 4]
        again = command("--data", archive, "--method", "m-pot", "--mass", 0.9, *TINY, "-o", run)
        assert again.exit_code == 2
        assert "--resume" in again.output
        other = command("--resume", "--mass", 0.5, "-o", run)
        assert other.exit_code == 2
        assert "mass was 0.9 and is 0.5" in other.output
        assert "iterations was 4 and is 8" in command("--resume", "--iterations", 8, "-o", run).output
        assert command("--resume", "-o", run).exit_code == 0
        archived = tmp_path / "made.npz"
        assert command("sample", run, "-o", archived, "-n", 7).exit_code == 0
        with np.load(archived) as found:
            assert found["x"].shape == (7, 8, 8, 1)
            assert found["x"].dtype == np.uint8
        assert command("sample", run, "-o", tmp_path / "sheet.png").exit_code == 0
        assert "exists" in command("sample", run, "-o", archived).output
        assert command("sample", run, "-o", archived, "--force", "--last").exit_code == 0
        assert ".png or .npz" in command("sample", run, "-o", tmp_path / "made.txt").output

    def test_settings_from_a_file(self, archive, tmp_path):
        path = tmp_path / "run.json"
        settings = {"data": str(archive), "method": "m-ot", "batch_size": 5, "iterations": 1, "latent": 2}
        path.write_text(json.dumps(settings))
        done = command("--config", path, "--method", "m-uot", "-o", tmp_path / "run")
        assert done.exit_code == 0, done.output
        assert json.loads((tmp_path / "run" / "config.json").read_text())["method"] == "m-uot"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ((), "must say data"),
            (("--method", "gan"), "method must be one of"),
            (("--mass", "1.5"), "(0, 1]"),
            (("--method", "m-ot", "--mass", "0.5"), "mass is for m-pot, s-pot. Got it with m-ot, which has reg."),
            (("--image-size", "30", "--batch-size", "5"), "must be square"),
            (("--batch-size", "31"), "at most the number of images"),
            (("--device", "tpu9", "--batch-size", "5"), "device and precision must be ones that there are"),
        ],
    )
    def test_what_is_refused_leaves_no_folder(self, archive, tmp_path, words, message):
        data = ("--data", archive) if words else ()
        done = command(*data, *words, "-o", tmp_path / "run")
        assert done.exit_code == 2
        assert message in done.output
        assert not (tmp_path / "run" / "last.safetensors").exists()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--seed", -1), "--seed must be a whole number of at least 0. Got -1 instead."),
            (("--seed", 2**63), "--seed must be below 2**63."),
            (("-n", 0), "-n must be a whole number of at least 1. Got 0 instead."),
            (("-n", 10**12), "The number of images must be at most 31250000, to fit in 8 GB of memory."),
        ],
    )
    def test_samples_that_cannot_be(self, tmp_path, words, message):
        states.write(tmp_path / states.LAST, states.pack({"generator": Generator((1, 8, 8), 3, 2)}, {}), {})
        done = command("sample", tmp_path, "-o", tmp_path / "sheet.png", *words)
        assert done.exit_code == 2
        assert message in done.stderr
        assert not (tmp_path / "sheet.png").exists()

    def test_endings_may_be_in_capitals(self, tmp_path):
        states.write(tmp_path / states.LAST, states.pack({"generator": Generator((1, 8, 8), 3, 2)}, {}), {})
        for name, begins in (("SHEET.PNG", b"\x89PNG"), ("MADE.NPZ", b"PK")):
            assert command("sample", tmp_path, "-o", tmp_path / name, "-n", 2).exit_code == 0
            assert (tmp_path / name).read_bytes().startswith(begins)

    def test_a_small_score_is_told_in_its_digits(self, tmp_path):
        row = {"phase": "m-POT", "iteration": 1, "loss": 1.0, "score": 0.00123456, "seconds": 1.0}
        table = generating.summary(Record([row], "score", RULES), Config("mnist"), tmp_path)
        assert list(table.columns[3].cells) == ["0.001235", "0.001235"]

    def test_samples_of_something_else(self, tmp_path):
        done = command("sample", tmp_path, "-o", tmp_path / "sheet.png")
        assert done.exit_code == 2
        assert "has no checkpoint" in done.output
        states.write(tmp_path / states.LAST, {"network.weight": torch.zeros(2)}, {})
        assert "must hold a generator" in command("sample", tmp_path, "-o", tmp_path / "sheet.png").output

    def test_what_there_is(self):
        done = command("--list")
        assert done.exit_code == 0
        assert "m-pot" in done.output
        assert "celeba" in done.output


def test_the_checkpoint_with_the_least_score_is_kept(tmp_path):
    scores = {3: 3.0, 6: 1.0, 9: 2.0}
    record = small_run(tmp_path, 9, sp.Partial(0.9), evaluate=lambda iteration: {"score": scores[iteration]})
    assert record.best["iteration"] == 6
    best, last = (states.read(tmp_path / name) for name in (states.BEST, states.LAST))
    assert [state["iteration"] for _, state in (best, last)] == [6, 9]
    kept = generating.read_generator(tmp_path).state_dict()
    assert all(torch.equal(value, best[0][f"generator.{name}"]) for name, value in kept.items())
    ended = generating.read_generator(tmp_path, last=True).state_dict()
    assert all(torch.equal(value, last[0][f"generator.{name}"]) for name, value in ended.items())


def test_layers_that_are_frozen_stay_so():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    network[1].requires_grad_(False)
    with frozen(network):
        assert not any(weight.requires_grad for weight in network.parameters())
    assert [weight.requires_grad for weight in network.parameters()] == [True, True, False, False]
