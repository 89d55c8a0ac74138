"""Adaptation on image files: folders, the published layouts, transforms, backbones, and the commands on them."""

import json
import logging
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from spadeful.cli import app

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
transformers = pytest.importorskip("transformers")

from spadeful import adapt as ad  # noqa: E402
from spadeful.adapt import images  # noqa: E402
from spadeful.adapt.config import make_config  # noqa: E402
from spadeful.adapt.data import source_and_target  # noqa: E402
from spadeful.adapt.streams import DomainStream  # noqa: E402
from spadeful.crops import random_crops  # noqa: E402
from spadeful.images import read_rgb  # noqa: E402
from spadeful.training import states  # noqa: E402
from spadeful.training.loop import Run  # noqa: E402

CLASSES = {
    "bar": (slice(2, 10), slice(12, 20)),
    "block": (slice(12, 28), slice(12, 28)),
    "edge": (slice(0, 32), slice(0, 6)),
}
SMALL = ["--set", "image_size=28", "--set", "bottleneck=4", "--batch-size", "6", "--workers", "1"]
SHORT = [*SMALL, "--iterations", "4", "--set", "evaluate_every=2"]


def draw(rng, name, dark):
    """A patch at the place of the class, light on dark or dark on light."""
    pixels = rng.integers(0, 60, (32, 32, 3))
    pixels[CLASSES[name]] += 150
    return Image.fromarray((255 - pixels if dark else pixels).astype(np.uint8))


def write_domain(folder, dark, ending, count=8):
    rng = np.random.default_rng(int(dark))
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            draw(rng, name, dark).save(folder / name / f"{number:05d}{ending}")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a miniature of Office-Home and of VisDA-2017 as they are published, and two tiny backbones."""
    folder = tmp_path_factory.mktemp("images")
    home = folder / "data" / "OfficeHomeDataset_10072016"
    for number, domain in enumerate(("Art", "Clipart", "Product", "Real World")):
        write_domain(home / domain, number % 2 == 1, ".jpg", 8 if number in (0, 3) else 1)
    (home / "ImageInfo.csv").write_text("not an image\n")
    for part, ending in (("train", ".png"), ("validation", ".jpg")):
        visda = folder / "data" / "visda-2017" / part
        write_domain(visda, part == "validation", ending, 4)
        # The published lists number the classes in an order of their own, and not of the alphabet alone.
        numbers = {"block": 0, "edge": 1, "bar": 2}
        files = sorted(path.relative_to(visda) for path in visda.glob("*/*"))
        (visda / "image_list.txt").write_text("".join(f"{f} {numbers[f.parent.name]}\n" for f in files))
    torch.manual_seed(0)
    resnet = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    transformers.AutoModel.from_config(resnet).save_pretrained(folder / "resnet")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    vit = transformers.ViTConfig(**sizes, image_size=28, patch_size=14)
    transformers.ViTForImageClassification(vit).save_pretrained(
        folder / "vit"
    )  # without a pooler, as they are published
    (folder / "vit" / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    return folder


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPADEFUL_DATA", str(place / "data"))
    return place


def undrawn(monkeypatch):
    monkeypatch.setattr("spadeful.adapting.draw", lambda *_: None)


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def done(*arguments):
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    before = sorted(os.listdir())
    result = command(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert sorted(os.listdir()) == before
    return result.stderr


def home(here, domain):
    return here / "data" / "OfficeHomeDataset_10072016" / domain


def reading(**changes):
    return images.Reading(size=28)._replace(**changes)


def test_class_folders_are_a_domain(here):
    domain = ad.read_folder(home(here, "Art"), reading())
    assert (domain.name, domain.classes, len(domain), domain.shape) == ("Art", tuple(CLASSES), 24, (3, 28, 28))
    assert np.bincount(domain.y).tolist() == [8, 8, 8]
    assert domain.x[8] == "block/00000.jpg"
    assert "24 of 3 classes" in repr(domain)
    assert ad.read_folder(home(here, "Art") / "bar", reading()).y is None
    part = domain.take(np.array([9]))
    assert isinstance(part, ad.ImageFiles)
    assert part.classes[part.y[0]] == "block"


def test_a_test_sees_the_centre_or_ten_crops(here):
    centre, ten = (ad.read_folder(home(here, "Art"), reading(crops=crops)) for crops in (1, 10))
    whole = np.asarray(read_rgb(home(here, "Art") / "bar" / "00003.jpg"), dtype=np.float32)  # it has 32 x 32 pixels
    expected = torch.from_numpy(whole / 127.5 - 1).permute(2, 0, 1)
    x, several = (domain.batch(np.array([3, 0])) for domain in (centre, ten))
    assert (x.shape, several.shape) == ((2, 3, 28, 28), (2, 10, 3, 28, 28))
    torch.testing.assert_close(x[0], expected[:, 2:30, 2:30])
    corners = {(top, left) for top in (0, 4) for left in (0, 4)} | {(2, 2)}
    views = [expected[:, top : top + 28, left : left + 28] for top, left in corners]
    for view in [*views, *(view.flip(2) for view in views)]:
        assert sum(bool((crop - view).abs().max() < 1e-6) for crop in several[0]) == 1


def test_ten_crops_are_the_mean_of_the_softmax(here):
    domain = ad.read_folder(home(here, "Art"), reading(crops=10)).take(np.arange(0, 24, 5))
    torch.manual_seed(0)
    network = ad.backbone_network(here / "resnet", 3, bottleneck=4, size=28).eval()
    features, logits = ad.predict(network, domain)
    with torch.no_grad():
        each = [network(crops) for crops in domain.batch(np.arange(len(domain)))]
    torch.testing.assert_close(features, torch.stack([found.mean(0) for found, _ in each]))
    torch.testing.assert_close(logits.exp(), torch.stack([found.softmax(1).mean(0) for _, found in each]))
    assert torch.allclose(logits.exp().sum(1), torch.ones(len(domain)))


def test_random_crops_have_the_areas_and_ratios_asked_for():
    crops = np.array(random_crops(np.random.default_rng(0), 20_000, 256), dtype=float)
    left, upper, right, lower, mirrored = crops.T
    assert min(left.min(), upper.min()) == 0
    assert max(right.max(), lower.max()) == 256
    share, ratio = (right - left) * (lower - upper) / 256**2, (right - left) / (lower - upper)
    assert 0.075 < share.min() < 0.085
    assert share.max() > 0.95
    assert 0.73 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.37
    # Of small crops, which always fit, the area is uniform and the logarithm of the ratio symmetric.
    small = share < 0.5
    assert share[small].mean() == pytest.approx(0.29, abs=0.005)
    assert np.log(ratio[small]).mean() == pytest.approx(0, abs=0.01)
    assert mirrored.mean() == pytest.approx(0.5, abs=0.02)


def test_batches_are_known_by_their_number_however_they_are_read(here):
    def stream(workers, seed=3):
        pair = source_and_target("office-home:art", "office-home:real", None, "", reading(workers=workers))
        return DomainStream(pair.source, pair.target, 6, seed)

    alone, others = stream(1), stream(2)
    for number in (4, 0):
        for one, other in zip(alone.batch(number), others.batch(number), strict=True):
            assert torch.equal(one, other)
    assert torch.bincount(alone.batch(0).labels).tolist() == [2, 2, 2]
    assert not torch.equal(alone.batch(0).source, alone.batch(1).source)
    assert not torch.equal(alone.batch(0).source, stream(1, seed=4).batch(0).source)
    # One and the same image looks different in each batch.
    one = ad.read_folder(home(here, "Art"), reading())
    rngs = np.random.default_rng(0), np.random.default_rng(1)
    assert not torch.equal(*(one.batch(np.array([0]), rng) for rng in rngs))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_images_of_all_colours_become_rgb(tmp_path, mode):
    grey = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(grey)
    if mode in ("CMYK", "YCbCr"):
        image = image.convert("RGB")
    ending = "tif" if mode in ("CMYK", "YCbCr") else "png"
    (image if mode == "I;16" else image.convert(mode)).save(tmp_path / f"a.{ending}")
    found = np.asarray(read_rgb(tmp_path / f"a.{ending}"), dtype=int)
    assert found.shape == (8, 8, 3)
    if mode != "1":
        assert np.abs(found - grey[:, :, None]).max() <= 3


def test_tiny_and_turned_images_are_read(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (1, 1), (255, 0, 0)).save(tmp_path / "a" / "dot.png")
    wide = Image.new("RGB", (90, 2), (0, 0, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    wide.save(tmp_path / "a" / "turned.jpg", exif=exif)
    assert read_rgb(tmp_path / "a" / "turned.jpg").size == (2, 90)
    batch = ad.read_folder(tmp_path, reading()).batch(np.array([0, 1]))
    assert batch.shape == (2, 3, 28, 28)
    assert torch.equal(batch[0, :, 0, 0], torch.tensor([1.0, -1.0, -1.0]))


def spoil(folder):
    """Files that are no images, in a domain of their own."""
    write_domain(folder, False, ".png", 3)
    whole = (folder / "bar" / "00000.png").read_bytes()
    (folder / "bar" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "edge" / "words.jpg").write_text("not an image")
    (folder / "edge" / "empty.jpg").touch()
    (folder / "edge" / "notes.txt").write_text("left alone")


@pytest.mark.parametrize("workers", [1, 2])
def test_files_that_are_no_images_are_named_and_refused_or_skipped(tmp_path, workers):
    spoil(tmp_path)
    with pytest.raises(ValueError, match=r"cut\.png must be an image") as refusal:
        ad.read_folder(tmp_path, reading(workers=workers))
    for name in ("cut.png", "words.jpg", "empty.jpg", "--corrupt skip"):
        assert name in str(refusal.value)
    with pytest.raises(ValueError, match=r"torn\. Remove what is no image\.$"):  # of commands that cannot skip
        images.whole_ones(tmp_path, ["", "It is torn."], "refuse")
    with pytest.warns(UserWarning, match=r"3 of 12 images .*cut\.png"):
        domain = ad.read_folder(tmp_path, reading(corrupt="skip", workers=workers))
    assert np.bincount(domain.y).tolist() == [3, 3, 3]
    assert domain.batch(np.arange(9)).shape == (9, 3, 28, 28)


def test_a_file_that_goes_bad_later_is_named(tmp_path):
    write_domain(tmp_path, False, ".png", 1)
    domain = ad.read_folder(tmp_path, reading())
    (tmp_path / "bar" / "00000.png").write_bytes(b"gone")
    with pytest.raises(ValueError, match=r"bar.00000\.png must be an image"):
        domain.batch(np.arange(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: (d / "cup").mkdir(), r"a folder of images for each class .*Got none in cup"),
        (lambda d: [p.unlink() for p in d.glob("*/*")], r"Got none in bar, block, edge"),
        (lambda d: (d / "image_list.txt").write_text("bar/00000.png 1\n"), r"number the classes from 0"),
        (lambda d: (d / "image_list.txt").write_text("bar/00000.png 0\nedge/00000.png 0\n"), r"a folder of its own"),
        (lambda d: (d / "image_list.txt").write_text("bar/00000.png 0\nedge/00000.png\n"), r"in each line a path"),
        (lambda d: (d / "image_list.txt").write_text("../secret.png 0\n"), r"must name files in"),
        (lambda d: (d / "image_list.txt").write_text("bar/absent.png 0\n"), r"absent\.png must be an image file"),
    ],
    ids=["an empty class", "no images", "numbers", "one number for two", "some numbers", "elsewhere", "absent"],
)
def test_folders_that_are_no_domain_are_refused(tmp_path, change, message):
    write_domain(tmp_path, False, ".png", 1)
    change(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        ad.read_folder(tmp_path, reading())


def test_a_folder_above_the_domains_is_refused(here):
    with pytest.raises(ValueError, match=r"Got none in Art, Clipart, Product, Real World\. Name the folder one above"):
        ad.read_folder(home(here, ""), reading())


def test_published_layouts_are_found_by_name(here):
    for name, count in (("art", 24), ("clipart", 3), ("product", 3), ("real", 24)):
        pair = source_and_target(f"office-home:{name}", "office-home:art", None, "", reading())
        assert (len(pair.source), pair.source.classes) == (count, tuple(CLASSES))
    pair = source_and_target("visda:train", "visda:validation", None, "", reading())
    assert (pair.source.classes, len(pair.source), len(pair.target)) == (("block", "edge", "bar"), 12, 12)
    assert pair.target.y is None
    for file, label in zip(pair.target_test.x, pair.target_test.y, strict=True):
        assert file.startswith(pair.target_test.classes[label])
    with pytest.raises(FileNotFoundError, match=r"visda:test is not in .*Put there VisDA-2017/test"):
        source_and_target("visda:train", "visda:test", None, "", reading())


def test_a_list_without_numbers_has_no_labels(tmp_path):
    write_domain(tmp_path, False, ".png", 1)
    (tmp_path / "image_list.txt").write_text("bar/00000.png\nedge/00000.png\n")
    domain = ad.read_folder(tmp_path, reading())
    assert (domain.y, len(domain)) == (None, 2)


def test_of_a_large_source_some_images_are_tested(here, monkeypatch):
    monkeypatch.setattr("spadeful.adapt.data.TESTED", 10)
    pair = source_and_target("office-home:art", "office-home:real", None, "", reading())
    assert (len(pair.source), len(pair.source_test), len(pair.target_test)) == (24, 10, 24)


@pytest.mark.parametrize(("name", "width"), [("resnet", 8), ("vit", 8)])
def test_backbones_give_their_pooled_features(here, name, width):
    backbone = ad.load_backbone(here / name).eval()
    x = torch.rand(2, 3, 28, 28) * 2 - 1
    model = transformers.AutoModel.from_pretrained(here / name).eval()
    if name == "resnet":
        mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
        expected = model(((x + 1) / 2 - mean) / deviation).pooler_output[:, :, 0, 0]
    else:
        expected = model(x).last_hidden_state[:, 0]  # a mean and a deviation of .5 undo the scale
    assert torch.allclose(backbone(x), expected, atol=1e-6)
    assert backbone.width(28) == width


def test_a_backbone_that_cannot_be_fetched_is_told_once(monkeypatch, caplog):
    """The hub tells of every attempt; all of them are one failure."""

    def fetch(*_, **__):
        for attempt in range(5):
            logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry %d/5].", attempt)
        raise OSError("We couldn't connect to the hub.")

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", fetch)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [caplog.handler])
    with pytest.raises(ValueError, match=r"some/model cannot be loaded: We couldn't connect to the hub\."):
        ad.load_backbone("some/model")
    assert not caplog.records


def test_new_layers_are_xavier_and_learn_faster(here):
    torch.manual_seed(0)
    network = ad.backbone_network(here / "resnet", 300, bottleneck=200, size=28)
    _, bottleneck = network.features
    assert float(bottleneck.weight.detach().std()) == pytest.approx((2 / 208) ** 0.5, rel=0.1)
    assert float(network.classifier.weight.detach().std()) == pytest.approx((2 / 500) ** 0.5, rel=0.05)
    training = ad.Training(10, lr=1e-3, optimizer="sgd", schedule="decayed", head_lr=10.0, weight_decay=5e-4)
    optimizer = training.build(network, None)
    slow, fast = optimizer.param_groups
    assert (slow["lr"], fast["lr"]) == (1e-3, 1e-2)
    assert {id(p) for p in fast["params"]} == {
        id(p) for p in (*bottleneck.parameters(), *network.classifier.parameters())
    }
    assert len(slow["params"]) + len(fast["params"]) == len(list(network.parameters()))
    assert all(group["nesterov"] and group["momentum"] == 0.9 for group in optimizer.param_groups)


def test_the_decayed_rate_is_that_of_the_annealed_at_ten_thousand_iterations():
    decayed, annealed = (ad.Training(10_000, schedule=name) for name in ("decayed", "annealed"))
    for iteration in (0, 1, 2500, 9999):
        assert decayed.rate(iteration) == pytest.approx(annealed.rate(iteration), rel=1e-12)
    assert ad.Training(50, schedule="decayed").rate(1000) == pytest.approx(2**-0.75)


def test_defaults_with_a_backbone_are_those_of_the_paper():
    config = make_config({"source": "a", "target": "b", "backbone": "c", "method": "m-uot"})
    assert (config.batch_size, config.iterations, config.warmup, config.lr, config.head_lr) == (65, 10_000, 0, 1e-3, 10)
    assert (config.alpha, config.lam, config.tau, config.reg) == (0.01, 0.5, 0.5, 0.01)
    assert make_config({"source": "a", "target": "b", "backbone": "c", "lr": 0.1, "warmup": 3}).warmup == 3
    assert make_config({"source": "a", "target": "b", "backbone": "c"}).reg is None
    assert make_config({"source": "a", "target": "b"}).batch_size == 500


def test_class_scores_are_those_of_scikit_learn():
    from sklearn.metrics import precision_score, recall_score

    from spadeful.adapt.call import class_scores

    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 5, 60), rng.integers(0, 4, 60)  # nothing is taken for the last class
    accuracy, precision = class_scores(predicted, y, 5)
    assert accuracy == pytest.approx(100 * recall_score(y, predicted, average=None))
    assert precision == pytest.approx(100 * precision_score(y, predicted, average=None, zero_division=0))
    assert np.isnan(class_scores(predicted, y, 6)[0][5])


def test_photographs_are_adapted_to_from_the_command_line(here):
    source, target = home(here, "Art"), home(here, "Real World")
    options = ["--source", source, "--target", target, "--backbone", here / "resnet", *SHORT, "--set", "crops=10"]
    said = done("adapt", *options, "-o", "run")
    assert said.stderr == ""
    config = json.loads(Path("run/config.json").read_text())
    assert (config["schedule"], config["crops"], config["head_lr"]) == ("decayed", 10, 10.0)
    classes = json.loads(Path("run/classes.json").read_text())
    assert list(classes) == ["class bar", "class block", "class edge", "mean of classes"]
    assert "precision, %" in said.stdout
    tested = done("evaluate", "run", "--workers", 1).stdout
    for name, scores in classes.items():
        row = next(line for line in tested.splitlines() if f"target, {name}" in line)
        assert [cell.strip() for cell in row.split("│")[2:4]] == [f"{score:.2f}" for score in scores]
    best = json.loads(Path("run/result.json").read_text())["density"]
    assert np.mean([classes[f"class {name}"][0] for name in CLASSES]) == pytest.approx(best["target_accuracy"])


def test_an_interrupted_run_on_images_ends_with_the_same_bits(here, monkeypatch):
    undrawn(monkeypatch)
    options = ["--source", "visda:train", "--target", "visda:validation", "--backbone", here / "vit", *SHORT]
    done("adapt", *options, "-o", "whole")
    keep = Run.keep

    def keep_and_stop(*arguments):
        keep(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "keep", keep_and_stop)
        assert command("adapt", *options, "-o", "broken").exit_code == 130
    assert states.read(Path("broken", states.LAST))[1]["iteration"] == 2
    done("adapt", "-o", "broken", "--resume", "--workers", 2)
    ours, theirs = (states.read(Path(name, states.LAST))[0] for name in ("broken", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_what_images_teach_holds_in_another_domain(here, monkeypatch):
    """From light patches on dark to the same with other noise: a run learns what the classes are."""
    undrawn(monkeypatch)
    write_domain(Path("other"), False, ".png", 6)
    options = [*SMALL, "--set", "lr=0.02", "--iterations", 60, "--set", "evaluate_every=60", "--batch-size", 12]
    done(
        "adapt",
        "--source",
        home(here, "Art"),
        "--target",
        "other",
        "--backbone",
        here / "resnet",
        *options,
        "-o",
        "run",
    )
    assert json.loads(Path("run/result.json").read_text())["last"]["target_accuracy"] > 80


def test_features_are_computed_once_and_adapted_with(here, monkeypatch):
    undrawn(monkeypatch)
    folders = [home(here, "Art"), home(here, "Real World")]
    common = ["--backbone", here / "resnet", "--size", 28, "--workers", 1]
    said = done("features", *folders, *common, "-o", "features.npz")
    assert "48 images as 8 features, of Art, Real World" in " ".join(said.stdout.split())
    with np.load("features.npz", allow_pickle=False) as arrays:
        assert arrays["class_names"].tolist() == list(CLASSES)
        assert arrays["path"][24] == "bar/00000.jpg"
        x = arrays["x"]
    backbone = ad.load_backbone(here / "resnet").eval()
    real = ad.read_folder(folders[1], reading())
    with torch.no_grad():
        assert np.allclose(x[24:], backbone(real.batch(np.arange(24))).numpy(), atol=1e-5)
    assert "features.npz exists" in refused("features", folders[0], *common, "-o", "features.npz")
    done("features", folders[1], *common, "--crops", 10, "--force", "-o", "ten.npz")
    with np.load("ten.npz") as arrays, torch.no_grad():
        ten = ad.read_folder(folders[1], reading(crops=10)).batch(np.array([5]))[0]
        assert np.allclose(arrays["x"][5], backbone(ten).mean(0).numpy(), atol=1e-5)
    files = ["--source-features", "features.npz:Art", "--target-features", "features.npz:Real World"]
    options = ["--batch-size", 6, "--iterations", 4, "--warmup", 2, "--set", "bottleneck=4"]
    assert "class bar" in done("adapt", *files, *options, "-o", "run").stdout


@pytest.mark.parametrize("corrupt", ["refuse", "skip"])
def test_commands_refuse_or_skip_what_is_no_image(here, corrupt):
    spoil(Path("spoilt"))
    arguments = ["features", "spoilt", "--backbone", here / "resnet", "--size", 28, "--workers", 1, "-o", "out.npz"]
    if corrupt == "refuse":
        assert "cut.png" in refused(*arguments)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # warnings are errors in tests, but not to the user
        said = done(*arguments, "--corrupt", "skip")
    assert said.stderr.startswith("spadeful: 3 of 12 images in spoilt are skipped.")
    assert np.load("out.npz")["x"].shape == (9, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "nowhere"], "or a folder of class folders with images. Got 'nowhere' instead"),
        (["--backbone", ""], "Name one by --backbone"),
        (["--backbone", "empty"], "backbone must name a vision model"),
        (["--backbone", "no/such model"], "backbone must name a vision model"),
        (["--backbone", "text"], "backbone must be a vision model. text takes input_ids"),
        (["--backbone", "torn"], "torn cannot be loaded"),
        (["--set", "crops=5"], "crops must be 1"),
        (["--set", "image_size=0"], "image_size and workers must be at least 1"),
        (["--corrupt", "mend"], "corrupt must be 'refuse' or 'skip'"),
        (["--target", "strange"], "Got cup, lamp of strange as well"),
        (["--source", "flat"], "The source must have labels"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_with_images_is_refused_in_a_line(here, options, message):
    os.mkdir("empty")
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    if "text" in options:
        transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained("text")
    if "torn" in options:
        os.mkdir("torn")
        for name in ("config.json", "model.safetensors"):
            found = (here / "resnet" / name).read_bytes()
            Path("torn", name).write_bytes(found if name == "config.json" else found[:100])
    if "strange" in options or "flat" in options:
        for name in ("strange/cup", "strange/lamp", "strange/bar", "flat"):
            os.makedirs(name)
            draw(np.random.default_rng(0), "bar", False).save(f"{name}/a.png")
    given = ["--source", home(here, "Art"), "--target", home(here, "Clipart"), "--backbone", here / "resnet"]
    assert message in " ".join(refused("adapt", *given, *SHORT, "-o", "run", *options).split())


def test_a_backbone_needs_images_and_images_of_its_size(here):
    np.savez("features.npz", x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 0, 1]))
    files = ["--source", "features.npz", "--target", "features.npz", "-o", "run"]
    assert "is none; leave out --backbone" in refused("adapt", *files, "--backbone", here / "resnet")
    mixed = ["--source", home(here, "Art"), "--target", "features.npz", "-o", "run", *SMALL]
    assert "points of one shape" in refused("adapt", *mixed, "--backbone", here / "resnet")
    pair = ["--source", home(here, "Art"), "--target", home(here, "Real World"), "--backbone", here / "vit"]
    assert "must take images of 56x56" in refused("adapt", *pair, *SMALL, "--set", "image_size=56", "-o", "run")


def test_of_a_model_of_images_and_words_the_half_that_sees_is_taken(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    sees, reads = sizes | {"image_size": 28, "patch_size": 14}, sizes | {"vocab_size": 9}
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=reads, vision_config=sees)).eval()
    model.save_pretrained(tmp_path)
    x = torch.rand(2, 3, 28, 28) * 2 - 1
    backbone = ad.Backbone(ad.load_backbone(tmp_path).model, mean=[0.5] * 3, deviation=[0.5] * 3).eval()
    assert torch.allclose(backbone(x), model.vision_model(x).pooler_output, atol=1e-6)
