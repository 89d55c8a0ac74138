"""Domains: the formats they are read from, the shapes they are brought to, and the digits that are rendered."""

import bz2
import gzip
import os
import struct
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.torch

from spadeful.adapt import data  # noqa: E402
from spadeful.adapt.data import Domain, data_folder, load_digits, load_features, source_and_target  # noqa: E402

DATA = os.environ.get("SPADEFUL_DATA")
PARTS = {"train": 12, "test": 10}
LABELS = {part: np.arange(n) % 10 for part, n in PARTS.items()}


def pictures(part, *shape):
    return np.random.default_rng(len(part)).integers(0, 256, (PARTS[part], *shape), np.uint8)


def write_npz(folder, name, *shape):
    arrays = {
        f"{key}_{part}": value
        for part in PARTS
        for key, value in (("x", pictures(part, *shape)), ("y", LABELS[part].astype(np.uint8)))
    }
    np.savez(folder / f"{name}.npz", **arrays)


def write_idx(folder, opened=open, ending="", dot="-"):
    for part, stem in (("train", "train"), ("test", "t10k")):
        for what, values in (("images", pictures(part, 28, 28)), ("labels", LABELS[part].astype(np.uint8))):
            head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
            with opened(folder / f"{stem}-{what}{dot}idx{values.ndim}-ubyte{ending}", "wb") as file:
                file.write(head + values.tobytes())


def write_libsvm(folder, opened=bz2.open, ending=".bz2"):
    for part, name in (("train", "usps"), ("test", "usps.t")):
        rows = pictures(part, 256) / 255 * 2 - 1
        lines = [
            f"{y + 1} " + " ".join(f"{k}:{v:.6f}" for k, v in enumerate(row, 1)) + " \n"
            for y, row in zip(LABELS[part], rows, strict=True)
        ]
        with opened(folder / f"{name}{ending}", "wb") as file:
            file.write("".join(lines).encode())


def write_h5(folder):
    h5py = pytest.importorskip("h5py", reason="h5py, which reads usps.h5, is not installed")
    with h5py.File(folder / "usps.h5", "w") as file:
        for part in PARTS:
            file[f"{part}/data"] = (pictures(part, 256) / 255).astype(np.float32)
            file[f"{part}/target"] = LABELS[part]


def write_mat(folder):
    from scipy.io import savemat

    for part in PARTS:
        y = np.where(LABELS[part] == 0, 10, LABELS[part]).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": np.moveaxis(pictures(part, 32, 32, 3), 0, 3), "y": y})


def write_jpegs(folder, size=(32, 32)):
    from PIL import Image

    arrays = {}
    for part, n in PARTS.items():
        files = []
        for i in range(n):  # a single colour survives JPEG
            files.append(BytesIO())
            Image.new("RGB", size, (20 * i, 100, 50)).save(files[-1], "JPEG", quality=95)
        blobs = [file.getvalue() for file in files]
        arrays[f"blob_{part}"] = np.frombuffer(b"".join(blobs), np.uint8)
        arrays[f"offsets_{part}"] = np.cumsum([0, *map(len, blobs)])
        arrays[f"y_{part}"] = LABELS[part].astype(np.uint8)
    np.savez(folder / "svhn.npz", **arrays)


FORMATS = {
    "mnist npz": ("mnist", (28, 28), lambda folder: write_npz(folder, "mnist", 28, 28)),
    "mnist idx": ("mnist", (28, 28), write_idx),
    "mnist idx.gz": ("mnist", (28, 28), lambda folder: write_idx(folder, gzip.open, ".gz")),
    "mnist dotted": ("mnist", (28, 28), lambda folder: write_idx(folder, dot=".")),
    "usps npz": ("usps", (16, 16), lambda folder: write_npz(folder, "usps", 16, 16)),
    "usps bz2": ("usps", (16, 16), write_libsvm),
    "usps text": ("usps", (16, 16), lambda folder: write_libsvm(folder, open, "")),
    "usps h5": ("usps", (16, 16), write_h5),
    "svhn npz": ("svhn", (32, 32, 3), lambda folder: write_npz(folder, "svhn", 32, 32, 3)),
    "svhn mat": ("svhn", (32, 32, 3), write_mat),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("case", FORMATS)
def test_every_format_gives_the_images_and_labels_written(tmp_path, case, part):
    name, shape, write = FORMATS[case]
    write(tmp_path)
    domain = load_digits(name, part, tmp_path)
    np.testing.assert_array_equal(domain.x, pictures(part, *shape))
    np.testing.assert_array_equal(domain.y, LABELS[part])
    assert domain.y.dtype == np.int64
    assert domain.classes == tuple("0123456789")


def test_jpeg_pictures_are_decoded_in_their_order(tmp_path):
    write_jpegs(tmp_path)
    x = load_digits("svhn", "train", tmp_path).x
    assert x.shape == (12, 32, 32, 3)
    wanted = np.array([(20 * i, 100, 50) for i in range(12)])[:, None, None]
    assert np.abs(x - wanted).max() <= 4


@pytest.mark.parametrize("name", ["mnist", "usps", "svhn"])
def test_missing_digits_say_what_is_expected_where(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        load_digits(name, "train", tmp_path)
    known = {"mnist": "train-images-idx3-ubyte", "usps": "usps.bz2", "svhn": "train_32x32.mat"}[name]
    for word in (f"{name}.npz", known, str(tmp_path), "SPADEFUL_DATA", "--data"):
        assert word in str(caught.value)


@pytest.mark.parametrize("case", FORMATS)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_files_are_named(tmp_path, case, damage):
    name, _, write = FORMATS[case]
    write(tmp_path)
    for path in tmp_path.iterdir():
        whole = path.read_bytes()
        noise = np.random.default_rng(0).bytes(len(whole))
        path.write_bytes({"cut": whole[: len(whole) * 2 // 5], "empty": b"", "noise": noise}[damage])
    with pytest.raises(ValueError, match="cannot be read") as caught:
        load_digits(name, "train", tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_python_objects_are_not_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    x = np.empty(12, object)
    x[:] = [Trap() for _ in x]
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=LABELS["train"])
    np.savez(tmp_path / "features.npz", x=x, y=LABELS["train"])
    with pytest.raises(ValueError, match="cannot be read"):
        load_digits("mnist", "train", tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        load_features(tmp_path / "features.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": np.zeros((3, 28, 28), np.uint8)}, "y_train missing"),
        ({"x_train": np.zeros((3, 28, 28), np.uint8), "y_train": np.zeros(2, int)}, "one whole number a point"),
        ({"x_train": np.zeros((3, 28, 28), np.uint8), "y_train": np.full(3, 10)}, "from 0 to 9"),
        ({"x_train": np.zeros((3, 28, 28)), "y_train": np.zeros(3, int)}, "uint8"),
        ({"x_train": np.zeros((0, 28, 28), np.uint8), "y_train": np.zeros(0, int)}, "must not be empty"),
        (
            {"blob_train": np.zeros(9, np.uint8), "offsets_train": np.array([0, 5, 3]), "y_train": np.zeros(2, int)},
            "offsets must rise",
        ),
        (
            {"blob_train": np.zeros(9, np.uint8), "offsets_train": np.array([0, 5, 9]), "y_train": np.zeros(2, int)},
            "picture 0 of 2 must be a JPEG",
        ),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load_digits("mnist", "train", tmp_path)
    assert "mnist.npz" in str(caught.value)


def test_only_the_part_asked_for_has_to_be_there(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    assert len(load_digits("mnist", "test", tmp_path)) == 10
    with pytest.raises(FileNotFoundError, match="train part of mnist"):
        load_digits("mnist", "train", tmp_path)


def test_the_folder_is_the_argument_or_the_environment_s(tmp_path, monkeypatch):
    monkeypatch.setenv("SPADEFUL_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    (tmp_path / "other").mkdir()
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(FileNotFoundError, match="no folder"):
        data_folder(tmp_path / "absent")
    monkeypatch.delenv("SPADEFUL_DATA")
    with pytest.raises(ValueError, match="--data"):
        data_folder()


def test_a_batch_is_scaled_and_has_its_channels_first():
    x = pictures("train", 4, 5, 3)
    batch = Domain(x, None, "colours", ()).batch(np.array([3, 1]))
    assert batch.shape == (2, 3, 4, 5)
    assert batch.dtype == torch.float32
    np.testing.assert_allclose(batch.numpy(), np.moveaxis((x[[3, 1]] / 255 - 0.5) / 0.5, 3, 1), atol=1e-6)
    assert Domain(x[..., 0], None, "grey", ()).batch(np.array([0])).shape == (1, 1, 4, 5)


def test_features_are_left_as_they_are():
    x = np.array([[1.5, -2.0], [0.25, 7.0]], np.float16)
    batch = Domain(x, None, "features", ()).batch(np.array([1, 0]))
    assert batch.dtype == torch.float32
    assert batch.tolist() == [[0.25, 7.0], [1.5, -2.0]]


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3), (8, 1)])
@pytest.mark.parametrize("shape", [(16, 16), (20, 20, 3)])
def test_resizing_is_that_of_pillow(shape, size, channels):
    from PIL import Image

    x = pictures("train", *shape)
    domain = Domain(x, None, "pictures", ()).resized(size, channels)
    assert domain.shape == (channels, size, size)
    mode = "L" if channels == 1 else "RGB"
    wanted = [
        np.asarray(Image.fromarray(image).convert(mode).resize((size, size), Image.Resampling.BILINEAR)) for image in x
    ]
    assert np.abs(domain.x.astype(int) - np.stack(wanted)).max() <= 1


def test_splits_are_disjoint_balanced_and_the_same_for_a_seed():
    x = np.arange(100.0)[:, None]
    domain = Domain(x, np.arange(100) % 4, "numbers", tuple("abcd"))
    first, second = domain.split(0.8, seed=3)
    assert sorted(np.concatenate([first.x, second.x]).ravel()) == list(range(100))
    assert np.bincount(first.y).tolist() == [20] * 4
    np.testing.assert_array_equal(first.x, domain.split(0.8, seed=3)[0].x)
    assert (first.x != domain.split(0.8, seed=4)[0].x).any()
    np.testing.assert_array_equal(first.x.ravel() % 4, first.y)
    with pytest.raises(ValueError, match="both sides"):
        domain.take(np.arange(1)).split(0.5)


def test_a_domain_cannot_be_changed():
    y = np.array([0, 1])
    domain = Domain(np.zeros((2, 3)), y, "zeros", ("a", "b"))
    y[0] = 1
    assert domain.y.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        domain.x[0] = 1
    with pytest.raises(ValueError, match="has none"):
        domain.without_labels().labels(np.array([0]))


def write_features(path, classes=("a", "b", "c")):
    arrays = {"x": np.arange(12, dtype=np.float16).reshape(6, 2), "y": np.array([0, 1, 2, 2, 1, 0], np.uint8)}
    np.savez(
        path,
        **arrays,
        domain=np.array([0, 0, 0, 1, 1, 1]),
        domain_names=np.array(["day", "night"]),
        class_names=np.array(classes),
    )


def test_features_of_one_domain(tmp_path):
    write_features(tmp_path / "f.npz")
    night = load_features(tmp_path / "f.npz", "night")
    assert (night.name, night.classes, night.y.tolist()) == ("night", ("a", "b", "c"), [2, 1, 0])
    assert night.x.tolist() == [[6, 7], [8, 9], [10, 11]]
    assert len(load_features(tmp_path / "f.npz")) == 6
    with pytest.raises(ValueError, match="day, night"):
        load_features(tmp_path / "f.npz", "dusk")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(2, int)}, "must hold x"),
        ({"x": np.array([[np.nan], [1]]), "y": np.zeros(2, int)}, "must be finite"),
        ({"x": np.zeros((2, 1)), "y": np.zeros(2)}, "whole number"),
        ({"x": np.zeros((2, 1)), "y": np.array([-1, 0])}, "from 0"),
    ],
)
def test_wrong_features_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_features(tmp_path / "f.npz")


def test_one_s_own_features_make_a_pair(tmp_path):
    write_features(tmp_path / "f.npz")
    pair = source_and_target(f"{tmp_path}/f.npz:day", f"{tmp_path}/f.npz:night")
    assert pair.source.y.tolist() == [0, 1, 2]
    assert pair.target.y is None
    assert pair.target_test.y.tolist() == [2, 1, 0]


def test_labels_of_the_target_are_numbered_as_those_of_the_source(tmp_path):
    write_features(tmp_path / "f.npz")
    write_features(tmp_path / "g.npz", classes=("c", "a", "b"))
    pair = source_and_target(f"{tmp_path}/f.npz", f"{tmp_path}/g.npz")
    assert pair.target_test.y.tolist() == [2, 0, 1, 1, 0, 2]
    write_features(tmp_path / "h.npz", classes=("a", "b", "z"))
    with pytest.raises(ValueError, match="Got z"):
        source_and_target(f"{tmp_path}/f.npz", f"{tmp_path}/h.npz")


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("usps", "mnist", (1, 28, 28)),
        ("mnist", "usps", (1, 28, 28)),
        ("svhn", "mnist", (3, 32, 32)),
    ],
)
def test_digits_of_a_pair_have_one_shape(tmp_path, source, target, shape):
    write_idx(tmp_path)
    write_libsvm(tmp_path)
    write_mat(tmp_path)
    pair = source_and_target(source, target, tmp_path)
    assert [domain.shape for domain in pair] == [shape] * 4
    assert [len(domain) for domain in pair] == [12, 12, 10, 10]
    assert [domain.y is None for domain in pair] == [False, True, False, False]


def test_unknown_names_are_refused_with_the_list(tmp_path):
    for name in ("emnist", "pacs", "pacs:", "office-caltech10:"):
        with pytest.raises(ValueError, match="must be one of mnist, usps, svhn, fonts, handwritten, pacs:art_painting"):
            source_and_target(name, "mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"pacs_resnet50\.npz"):
        source_and_target("pacs:photo", "pacs:sketch", tmp_path)


@pytest.fixture(scope="module")
def rendered():
    pytest.importorskip("matplotlib")
    from spadeful.adapt import rendered

    return rendered


def test_rendered_digits_are_balanced_and_the_same_for_a_seed(rendered):
    one, two, other = (rendered.rendered_digits(500, seed=seed, size=8) for seed in (0, 0, 1))
    assert np.bincount(one.y).tolist() == [50] * 10
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.y, two.y)
    assert (one.x != other.x).any()
    assert rendered.rendered_digits(10).shape == (1, 28, 28)


def test_rendered_digits_have_the_levels_of_the_handwritten_ones(rendered):
    pytest.importorskip("sklearn")
    source, target = rendered.rendered_digits(500, size=8), rendered.handwritten_digits(size=8)
    assert len(target) == 1797
    assert np.unique(source.x).tolist() == np.unique(target.x).tolist()
    assert len(np.unique(target.x)) == 17


def test_every_glyph_of_a_font_differs_from_the_others(rendered):
    flat = rendered.glyphs().reshape(len(rendered.FONTS), 10, -1)
    for font in flat:
        distances = np.abs(font[:, None] - font).mean(-1)
        assert distances[~np.eye(10, dtype=bool)].min() > 0.01


@pytest.mark.slow
def test_the_fonts_are_a_source_that_leaves_room_for_adaptation(rendered):
    linear_model = pytest.importorskip("sklearn.linear_model")
    source, target = rendered.rendered_digits(2000, size=8), rendered.handwritten_digits(size=8)
    held_out = rendered.rendered_digits(1000, seed=1, size=8)
    model = linear_model.LogisticRegression(max_iter=300).fit(source.x.reshape(-1, 64) / 255, source.y)
    accuracy = {d.name + str(len(d)): model.score(d.x.reshape(-1, 64) / 255, d.y) for d in (held_out, target)}
    assert accuracy["fonts1000"] > 0.97
    assert 0.55 < accuracy["handwritten1797"] < 0.85


def test_the_rendered_pair_holds_out_a_third_of_the_target(rendered):
    pytest.importorskip("sklearn")
    pair = source_and_target("fonts", "handwritten")
    assert [domain.shape for domain in pair] == [(1, 28, 28)] * 4
    assert len(pair.source) == 20_000
    assert len(pair.target) + len(pair.target_test) == 1797
    assert abs(len(pair.target_test) - 599) < 5
    assert pair.target.y is None


@pytest.mark.skipif(DATA is None, reason="the real digits and features are in a folder that SPADEFUL_DATA names")
@pytest.mark.parametrize(
    ("file", "source", "target", "sizes"),
    [
        ("usps.npz", "usps", "mnist", (7291, 60_000, 2007, 10_000)),
        ("pacs_resnet50.npz", "pacs:photo", "pacs:sketch", (1670, 3929, 1670, 3929)),
        ("office_caltech10_resnet50.npz", "office-caltech10:amazon", "office-caltech10:dslr", (958, 157, 958, 157)),
    ],
)
def test_the_real_domains(file, source, target, sizes):
    if not Path(DATA, file).is_file():
        pytest.skip(f"{file} is not in the folder that SPADEFUL_DATA names")
    pair = source_and_target(source, target)
    assert tuple(map(len, pair)) == sizes
    assert pair.source.shape == pair.target.shape
    assert len(np.unique(pair.source.y)) == len(pair.source.classes)


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="the real digits are in a folder that SPADEFUL_DATA names")
def test_the_real_photos_of_digits():
    if not Path(DATA, "svhn.npz").is_file():
        pytest.skip("svhn.npz is not in the folder that SPADEFUL_DATA names")
    domain = load_digits("svhn", "test")
    assert domain.x.shape == (10_000, 32, 32, 3)
    assert domain.x.std() > 30
    assert set(data.NAMES) >= {domain.name}
