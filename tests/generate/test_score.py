"""The score of generated images: closed forms, two other implementations, and what is kept and refused."""

import importlib.util
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

from spadeful.cli import app  # noqa: E402
from spadeful.generate.data import Images, read_images  # noqa: E402
from spadeful.generate.features import Features, train_features  # noqa: E402
from spadeful.generate.score import Score, Statistics, fitted, frechet, reference  # noqa: E402


def gaussian(width, seed, count=1000):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(width, width))
    return Statistics(rng.normal(size=width), root @ root.T, count)


def digits(count, seed=0, noise=20):
    """Ten patterns of stripes, one a class, with noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 10
    stripes = 100 * (1 + np.sin(np.arange(28) * (y[:, None] + 1) / 4))[:, :, None]
    x = stripes + noise * rng.normal(size=(count, 28, 28))
    return x.clip(0, 255).astype(np.uint8), y


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (x_train, y_train), (x_test, y_test) = digits(200), digits(100, seed=1)
    np.savez(folder / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return folder


@pytest.fixture(scope="module")
def weights(data):
    path = data / "features.safetensors"
    assert train_features("mnist", path, data, iterations=40, batch_size=50) > 50
    return path


@pytest.fixture(scope="module")
def features(weights):
    return Features.load(weights)


def test_gaussians_that_differ_along_their_axes():
    """Between N(m, diag a) and N(n, diag b) it is |m - n|^2 + |sqrt a - sqrt b|^2, in any rotation of both."""
    rng = np.random.default_rng(0)
    (m, n), (a, b) = rng.normal(size=(2, 7)), rng.uniform(0, 3, size=(2, 7))
    turn, _ = np.linalg.qr(rng.normal(size=(7, 7)))
    one, other = (Statistics(turn @ mean, turn @ np.diag(v) @ turn.T, 9) for mean, v in ((m, a), (n, b)))
    assert frechet(one, other) == pytest.approx(((m - n) ** 2).sum() + ((a**0.5 - b**0.5) ** 2).sum(), abs=1e-12)


@given(st.integers(0, 1000))
def test_gaussians_in_the_plane(seed):
    """There tr (AB)^1/2 = (tr AB + 2 (det A det B)^1/2)^1/2."""
    one, other = gaussian(2, seed), gaussian(2, seed + 1)
    a, b = one.covariance, other.covariance
    root = np.sqrt(np.trace(a @ b) + 2 * np.sqrt(np.linalg.det(a) * np.linalg.det(b)))
    expected = ((one.mean - other.mean) ** 2).sum() + np.trace(a) + np.trace(b) - 2 * root
    assert frechet(one, other) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert frechet(one, other) == pytest.approx(frechet(other, one), rel=1e-9)


def test_the_distance_of_gaussians_that_another_library_finds():
    ot = pytest.importorskip("ot")
    one, other = gaussian(20, 0), gaussian(20, 1)
    distance = ot.gaussian.bures_wasserstein_distance(one.mean, other.mean, one.covariance, other.covariance)
    assert frechet(one, other) == pytest.approx(distance**2, rel=1e-9)


def test_the_score_that_torchmetrics_finds_in_the_same_features():
    fid = pytest.importorskip("torchmetrics.image.fid")

    class Doubles(torch.nn.Module):
        num_features = 12

        def forward(self, x):
            return torch.tanh(x.flatten(1)[:, :12].double())

    torch.manual_seed(0)
    real, fake = torch.randn(400, 1, 4, 4), 0.5 + 0.8 * torch.randn(300, 1, 4, 4)
    metric = fid.FrechetInceptionDistance(feature=Doubles())
    metric.update(real, real=True)
    metric.update(fake, real=False)
    ours = frechet(*(fitted([Doubles()(x)]) for x in (real, fake)))
    assert ours == pytest.approx(float(metric.compute()), rel=1e-8)


@pytest.mark.parametrize("count", [5, 50, 500])
def test_a_set_is_at_no_distance_from_itself(count):
    """Also where it has fewer points than features, and in any order."""
    x = 100 + np.random.default_rng(0).normal(size=(count, 64)) * np.geomspace(1e-6, 1e3, 64)
    here, there = fitted([x]), fitted([x[::-1][: count // 2], x[::-1][count // 2 :]])
    assert frechet(here, here) <= 1e-12 * np.trace(here.covariance)
    assert frechet(here, there) <= 1e-9 * np.trace(here.covariance)


def test_a_moved_set_is_as_far_as_it_was_moved():
    x, move = np.random.default_rng(0).normal(size=(100, 8)), np.arange(8)
    assert frechet(fitted([x]), fitted([x + move])) == pytest.approx((move**2).sum(), rel=1e-9)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("mean", [0.0, 1e7])
def test_statistics_do_not_depend_on_the_batches(size, mean):
    x = mean + np.random.default_rng(0).normal(size=(100, 5))
    found = fitted(x[start : start + size] for start in range(0, 100, size))
    np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.covariance, np.cov(x.T), atol=1e-8 if mean else 1e-14)
    assert found.count == 100


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "at least two points. Got 0"),
        ([np.zeros((1, 3))], "at least two points. Got 1"),
        ([np.zeros(3)], r"batches \(b, d\)"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"Got \(2, 4\)"),
        ([np.array([[0.0], [np.nan]])], "must be finite"),
    ],
)
def test_wrong_features_are_refused(batches, message):
    with pytest.raises(ValueError, match=message):
        fitted(batches)


def test_statistics_of_other_features_are_refused():
    with pytest.raises(ValueError, match=r"same features\. Got 2 and 3"):
        frechet(gaussian(2, 0), gaussian(3, 0))


def test_the_score_grows_with_the_noise(features):
    score = Score(features, reference(features, Images(digits(300)[0], "stripes")))
    found = [score(Images(digits(300, 1, noise)[0], "noisy").batches(64)) for noise in (20, 40, 80)]
    assert found == sorted(found)
    assert found[1] > 2 * found[0]
    assert score(Images(digits(300)[0], "stripes").batches(17)) == pytest.approx(0, abs=1e-6)


def test_images_are_looked_at_as_files_would_hold_them(features):
    x = Images(digits(4)[0], "stripes").take([0, 1, 2, 3])
    assert torch.equal(features(x), features(x + 0.4 / 127.5))
    assert torch.equal(features(x.clamp(-1, 1)), features(torch.where(x == 1, 5.0, x)))


def test_images_of_any_size_and_colour_are_looked_at(features):
    assert features(torch.zeros(2, 3, 64, 64)).shape == (2, 128)
    grey = torch.rand(2, 1, 28, 28).mul(255).round() / 127.5 - 1
    torch.testing.assert_close(features(grey), features(grey.expand(2, 3, 28, 28)))
    for wrong, message in (
        (torch.zeros(2, 28, 28), r"\(b, 1 or 3, H, W\)"),
        (torch.full((1, 1, 9, 9), torch.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            features(wrong)


def test_the_score_is_named_after_its_features(features):
    assert Score(features, gaussian(128, 0)).name == "Frechet distance in the features of a mnist classifier"


def test_statistics_are_kept_by_images_and_weights(features, data, tmp_path):
    images = read_images("mnist", data)
    first = reference(features, images, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert np.array_equal(reference(features, images, tmp_path).covariance, first.covariance)
    np.savez(kept, mean=first.mean + 1, covariance=first.covariance, count=first.count)
    assert np.array_equal(reference(features, images, tmp_path).mean, first.mean + 1)  # they are read, not computed
    reference(features, read_images("mnist", data, part="test"), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "other shapes", "no archive"])
def test_damaged_statistics_are_computed_again_and_replaced(features, data, tmp_path, damage):
    images = read_images("mnist", data)
    first = reference(features, images, tmp_path)
    (kept,) = tmp_path.iterdir()
    if damage == "other shapes":
        np.savez(kept, mean=first.mean, covariance=first.covariance[1:], count=first.count)
    else:
        kept.write_bytes(kept.read_bytes()[:1000] if damage == "cut" else b"nothing")
    with pytest.warns(UserWarning, match=r"statistics-.*must be statistics of spadeful.*They are computed again"):
        again = reference(features, images, tmp_path)
    assert np.array_equal(again.covariance, first.covariance)
    assert np.array_equal(reference(features, images, tmp_path).mean, first.mean)  # without a warning: it is whole


def test_a_cache_that_cannot_be_written_does_not_stop_the_score(features, data, tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"The statistics of mnist are not kept.*must be a folder"):
        found = reference(features, read_images("mnist", data), tmp_path / "file")
    assert found.count == 200


def test_features_of_a_vision_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1])
    transformers.ResNetModel(config).save_pretrained(tmp_path / "tiny")
    features = Features.load(tmp_path / "tiny")
    assert features.score_name == "Frechet distance in the features of tiny"
    assert features(torch.zeros(3, 1, 28, 28)).shape == (3, 6)
    assert features.digest == Features.load(tmp_path / "tiny").digest


@pytest.mark.skipif(importlib.util.find_spec("torch_fidelity") is not None, reason="torch-fidelity is installed")
def test_inception_says_what_it_needs():
    with pytest.raises(ImportError, match=r"torch-fidelity, which needs torchvision: pip install 'spadeful\[fid\]'"):
        Features.load("inception")


def test_inception_refuses_other_weights_and_files_that_could_run_code(tmp_path):
    pytest.importorskip("torch_fidelity", exc_type=ImportError)
    torch.save({"fc.bias": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="must hold the weights of torch-fidelity's Inception"):
        Features.load(tmp_path / "other.pth")
    torch.save(pytest.approx, tmp_path / "code.pth")
    with pytest.raises(ValueError, match="and nothing else"):
        Features.load(tmp_path / "code.pth")


def test_files_that_hold_no_features_are_refused(tmp_path, weights):
    from safetensors.torch import save_file

    with pytest.raises(FileNotFoundError, match="generate features --data mnist"):
        Features.load(tmp_path / "none.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read"):
        Features.load(tmp_path / "damaged.safetensors")
    save_file({"x": torch.zeros(2)}, tmp_path / "other.safetensors", metadata={"state": '{"shape": [1, 28, 28]}'})
    with pytest.raises(ValueError, match="It holds something else"):
        Features.load(tmp_path / "other.safetensors")


def test_training_of_features_refuses_before_it_starts(tmp_path, data, weights):
    with pytest.raises(FileExistsError):
        train_features("mnist", weights, data)
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        train_features("mnist", tmp_path / "features.npz", data)
    with pytest.raises(ValueError, match="Only mnist and cifar10 have classes"):
        train_features("celeba", tmp_path / "features.safetensors", data)
    with pytest.raises(FileNotFoundError, match="cifar10 is not in"):
        train_features("cifar10", tmp_path / "features.safetensors", data)
    with pytest.raises(ValueError, match=r"batch_size must be at most the number of images of mnist, 200\. Got 201"):
        train_features("mnist", tmp_path / "features.safetensors", data, batch_size=201)
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match=f"seed must be .* Got {seed} instead"):
            train_features("mnist", tmp_path / "features.safetensors", data, seed=seed)


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *words: CliRunner().invoke(app, ["generate", *map(str, words)])


def test_the_command_scores_an_archive_and_a_folder(command, data, weights, tmp_path):
    from PIL import Image

    made = digits(50, 1)[0]
    np.savez(tmp_path / "made.npz", x=made)
    for number, image in enumerate(made):
        (tmp_path / "made").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "made" / f"{number:03d}.png")
    said = [
        command("score", tmp_path / name, "--data", "mnist", "--features", weights, "--data-dir", data, "--workers", 1)
        for name in ("made.npz", "made")
    ]
    assert [result.exit_code for result in said] == [0, 0], said[0].output
    assert said[0].stdout == said[1].stdout
    assert said[0].stdout.startswith("Frechet distance in the features of a mnist classifier: ")
    assert "(50 samples, 200 of mnist)" in said[0].stdout
    assert len(list((tmp_path / "cache" / "spadeful").iterdir())) == 1


def test_the_command_finds_the_training_part_at_no_distance_from_itself(command, data, weights):
    result = command("score", "mnist", "--data", "mnist", "--features", weights, "--data-dir", data)
    assert float(result.stdout.split(": ")[1].split()[0]) == pytest.approx(0, abs=1e-6)


def test_the_command_trains_features(command, data, tmp_path):
    output = tmp_path / "new.safetensors"
    words = ("features", "--data", "mnist", "-o", output, "--data-dir", data, "--iterations", 2, "--batch-size", 20)
    result = command(*words)
    assert result.exit_code == 0, result.output
    assert "the features of a mnist classifier, right for" in result.stdout
    assert Features.load(output).shape == (1, 28, 28)
    assert "exists" in command(*words).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mnist", "--data", "mnist"), "must be named by --data and --features"),
        (("mnist", "--data", "nothing", "--features", "weights"), "There is no nothing"),
        (("mnist", "--data", "mnist", "--features", "none.safetensors"), "There is no file none.safetensors"),
        (("small.npz", "--data", "mnist", "--features", "weights"), "The samples must be as large"),
        (("mnist", "--data", "mnist", "--features", "weights", "--device", "tpu9"), "device must be"),
    ],
)
def test_the_command_refuses(command, data, weights, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    np.savez("small.npz", x=np.zeros((3, 8, 8), np.uint8))
    result = command("score", *(weights if word == "weights" else word for word in words), "--data-dir", data)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("before", [(), ("score", "mnist", "--features", "f"), ("features", "-o", "f.safetensors")])
def test_a_folder_of_data_that_is_not_there_is_told_by_its_option(command, tmp_path, before):
    folder = () if before else ("-o", tmp_path / "run")
    result = command(*before, "--data", "mnist", "--data-dir", tmp_path / "nowhere", *folder)
    assert result.exit_code == 2
    assert result.stderr.startswith("spadeful: --data-dir must name the folder with the data. There is no folder")


@pytest.mark.parametrize("name", ["score", "features", "sample"])
def test_the_lines_of_help_are_filled(name):
    """But for the last of a paragraph, a line of text has no room for the first word of the next."""
    shown = CliRunner().invoke(app, ["generate", name, "--help"], env={"COLUMNS": "80"}).stdout
    lines = [line.strip() for line in shown.split("╭")[0].splitlines()]
    for line, after in pairwise(lines):
        assert not (line and after) or len(line) + 1 + len(after.split()[0]) > 78, line


def test_a_run_is_scored_as_it_scored_itself(command, data, weights, tmp_path):
    words = ("--data", "mnist", "--score", weights, "--data-dir", data, "--iterations", 2, "--batch-size", 20)
    sizes = ("--set", "score_images=50", "--set", "width=4", "--evaluate-every", 1)
    result = command(*words, *sizes, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    best = json.loads((tmp_path / "run" / "result.json").read_text())["best"]["score"]
    scored = command("score", tmp_path / "run", "--data-dir", data)
    assert scored.stdout.split(": ")[1].startswith(f"{best:.4g} (50 samples, 200 of mnist)"), scored.output
