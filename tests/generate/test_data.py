"""Images for generators: the formats they are read from, how they are cut to squares, and what is refused."""

import gzip
import os
import struct
from io import BytesIO

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.torch

from spadeful.generate import data  # noqa: E402
from spadeful.generate.data import Images, read_images  # noqa: E402

DATA = os.environ.get("SPADEFUL_DATA")
rng = np.random.default_rng(0)
PIXELS = rng.integers(0, 256, (10, 32, 32, 3), np.uint8)


def write_cifar(folder, of=lambda rows: rows.tobytes()):
    """The published layout: labels first, colours one after the other."""
    rows = np.concatenate([np.arange(10, dtype=np.uint8)[:, None], np.moveaxis(PIXELS, 3, 1).reshape(10, -1)], axis=1)
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for number in range(5):
        (place / f"data_batch_{number + 1}.bin").write_bytes(of(rows[2 * number : 2 * number + 2]))
    (place / "test_batch.bin").write_bytes(of(rows[:3]))


def jpeg(color, size=(89, 109)):
    file = BytesIO()
    Image.new("RGB", size, color).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_celeba(folder, pictures):
    offsets = np.cumsum([0, *map(len, pictures)])
    np.savez(folder / "celeba10k.npz", blob=np.frombuffer(b"".join(pictures), np.uint8), offsets=offsets)


def write_folder(folder, count=4, size=(30, 20)):
    """Red, with a green square in the middle that the crop leaves."""
    folder.mkdir(parents=True)
    for number in range(count):
        image = Image.new("RGB", size, (255, 0, 0))
        box = [(length + sign * min(size)) // 2 for sign in (-1, 1) for length in size]
        image.paste((0, 255, 0), tuple(box))
        image.save(folder / f"{number + 1:06d}.png")


def test_networks_see_bytes_from_minus_one_to_one():
    pixels = np.array([0, 51, 255, 102], np.uint8).reshape(2, 1, 2, 1)
    seen = Images(pixels, "two").take([1, 0, 1])
    torch.testing.assert_close(seen[1, 0, 0], torch.tensor([-1.0, -0.6]))
    torch.testing.assert_close(seen[0, 0, 0], torch.tensor([1.0, -0.2]))
    assert seen.dtype == torch.float32
    assert torch.equal(seen[0], seen[2])


def test_batches_are_all_images_in_order():
    images = Images(PIXELS, "ten")
    assert [len(batch) for batch in images.batches(4)] == [4, 4, 2]
    assert torch.equal(torch.cat(list(images.batches(4))), images.take(np.arange(10)))


def test_a_fingerprint_is_that_of_the_pixels():
    images = Images(PIXELS, "one")
    assert images.fingerprint == Images(PIXELS.copy(), "other name").fingerprint
    for other in (PIXELS[::-1], PIXELS[:9], PIXELS.reshape(10, 16, 64, 3)):
        assert images.fingerprint != Images(other, "one").fingerprint


def test_cifar_reads_the_binary_version(tmp_path):
    write_cifar(tmp_path)
    assert np.array_equal(read_images("cifar10", tmp_path).x, PIXELS)
    assert np.array_equal(read_images("cifar10", tmp_path, part="test").x, PIXELS[:3])
    assert np.array_equal(data.labelled("cifar10", "train", tmp_path).y, np.arange(10))


def test_cifar_reads_an_archive(tmp_path):
    labels = np.arange(10)
    np.savez(tmp_path / "cifar10.npz", x_train=PIXELS, y_train=labels, x_test=PIXELS[:4], y_test=labels[:4])
    assert np.array_equal(read_images("cifar10", tmp_path).x, PIXELS)
    assert read_images("cifar10", tmp_path, part="test", most=2, size=8).x.shape == (2, 8, 8, 3)


def test_mnist_reads_its_own_format_packed(tmp_path):
    digits = PIXELS[:, :28, :28, 0]
    for what, values in (("images", digits), ("labels", np.arange(10, dtype=np.uint8))):
        head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
        with gzip.open(tmp_path / f"train-{what}-idx{values.ndim}-ubyte.gz", "wb") as file:
            file.write(head + values.tobytes())
    images = read_images("mnist", tmp_path)
    assert images.shape == (1, 28, 28)
    assert np.array_equal(images.x[..., 0], digits)


def test_celeba_is_the_middle_of_every_picture(tmp_path):
    """Bars above and below the square of 89 are left out."""
    image = Image.new("RGB", (89, 109), (255, 255, 255))
    image.paste((0, 0, 200), (0, 10, 89, 99))
    file = BytesIO()
    image.save(file, "JPEG", quality=100, subsampling=0)
    write_celeba(tmp_path, [file.getvalue(), jpeg((10, 20, 30)), jpeg((200, 100, 0))])
    images = read_images("celeba", tmp_path)
    assert images.shape == (3, 64, 64)
    inside = images.x[0, 4:-4, :].astype(int)
    assert np.abs(inside - (0, 0, 200)).max() < 30
    assert np.abs(images.x[1].astype(int) - (10, 20, 30)).max() <= 2
    assert read_images("celeba", tmp_path, size=16, most=2).x.shape == (2, 16, 16, 3)


def test_celeba_reads_the_published_folder_and_its_parts(tmp_path):
    write_folder(tmp_path / "celeba" / "img_align_celeba", 6, (20, 30))
    assert len(read_images("celeba", tmp_path)) == 6
    with pytest.raises(FileNotFoundError, match=r"needs list_eval_partition\.txt"):
        read_images("celeba", tmp_path, part="test")
    lines = (f"{number + 1:06d}.jpg".replace("jpg", "png") + f" {[0, 0, 0, 1, 2, 2][number]}" for number in range(6))
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("\n".join(lines))
    assert len(read_images("celeba", tmp_path)) == 3
    assert len(read_images("celeba", tmp_path, part="test")) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_gives_centres_in_the_order_of_names(tmp_path, workers):
    folder = tmp_path / "pictures"
    write_folder(folder)
    Image.new("L", (7, 7), 50).save(folder / "000000.png")
    (folder / "notes.txt").write_text("no image")
    images = read_images(folder, size=10, workers=workers)
    assert (images.name, images.x.shape) == ("pictures", (5, 10, 10, 3))
    assert (images.x[0] == 50).all()
    assert (images.x[1:] == (0, 255, 0)).all()


def test_an_archive_gives_its_images(tmp_path):
    np.savez(tmp_path / "mine.npz", x=PIXELS[..., 0])
    assert np.array_equal(read_images(tmp_path / "mine.npz").x[..., 0], PIXELS[..., 0])
    np.savez(tmp_path / "points.npz", x=np.zeros((3, 5)))
    with pytest.raises(ValueError, match="must be images"):
        read_images(tmp_path / "points.npz")


def test_corrupt_files_are_named_or_skipped(tmp_path):
    folder = tmp_path / "pictures"
    write_folder(folder)
    (folder / "000003.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"000003\.png must be an image"):
        read_images(folder)
    with pytest.warns(UserWarning, match="1 of 4 images"):
        assert len(read_images(folder, corrupt="skip")) == 3


def test_corrupt_pictures_are_named(tmp_path):
    write_celeba(tmp_path, [jpeg((1, 2, 3)), jpeg((1, 2, 3))[:-300], b"no image"])
    with pytest.raises(ValueError, match="picture 1 of 3 must be a JPEG"):
        read_images("celeba", tmp_path)


def test_damaged_files_are_named(tmp_path):
    write_cifar(tmp_path, of=lambda rows: rows.tobytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_1\.bin must be .* 3073 bytes an image.* holds 6145 bytes"):
        read_images("cifar10", tmp_path)


def test_other_sizes_than_published_are_refused(tmp_path):
    np.savez(tmp_path / "cifar10.npz", x_train=PIXELS[:, :28], y_train=np.arange(10))
    with pytest.raises(ValueError, match=r"cifar10 must be \(3, 32, 32\)\. Got \(3, 28, 32\)"):
        read_images("cifar10", tmp_path)


def test_missing_sets_are_told_where_they_go(tmp_path):
    for name, expected in (
        ("cifar10", "cifar-10-batches-bin"),
        ("celeba", "img_align_celeba"),
        ("mnist", "idx3-ubyte"),
    ):
        with pytest.raises(FileNotFoundError, match=f"is not in .*{expected}.*--data"):
            read_images(name, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"which": "imagenet"}, "There is no imagenet"),
        ({"part": "validation"}, "part must be"),
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"most": -1}, "most must be"),
        ({"corrupt": "keep"}, "corrupt must be"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, settings, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_images(**({"which": "mnist", "data": tmp_path} | settings))


def test_too_few_images_are_refused(tmp_path):
    write_folder(tmp_path / "one", 1)
    with pytest.raises(ValueError, match=r"at least two images .*Got 1"):
        read_images(tmp_path / "one")
    with pytest.raises(ValueError, match=r"at least two images\. Got 1"):
        Images(PIXELS[:1], "one")
    with pytest.raises(ValueError, match="Only mnist, cifar10, celeba have a part for testing"):
        read_images(tmp_path / "one", part="test")


def test_more_than_fits_the_memory_is_refused_before_reading(tmp_path):
    write_folder(tmp_path / "few", 2)
    with pytest.raises(ValueError, match="must fit in 8 GB"):
        read_images(tmp_path / "few", size=40_000)


@pytest.mark.skipif(not DATA, reason="the data are where SPADEFUL_DATA says, which is not set")
@pytest.mark.parametrize(("name", "shape"), [("mnist", (1, 28, 28)), ("cifar10", (3, 32, 32)), ("celeba", (3, 64, 64))])
def test_the_published_sets(name, shape):
    images = read_images(name, most=100)
    assert (len(images), images.shape) == (100, shape)
    assert 20 < images.x.mean() < 200
