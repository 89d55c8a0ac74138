"""`spadeful color` and the files it reads and writes: formats kept, and what cannot be used refused in a line."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp
from spadeful.cli import app

Image = pytest.importorskip("PIL.Image", reason="images need Pillow")
from PIL import ImageCms  # noqa: E402

from spadeful.coloring import small  # noqa: E402
from spadeful.images import Photo, opened, read_photo, write_photo  # noqa: E402

SMALL = ["--batch-size", "20", "--n-batches", "30"]
PHOTOS = Path(os.environ.get("SPADEFUL_DATA", "/nowhere"), "photos")


def noise(seed, shape=(16, 24, 3), dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape, dtype=dtype)


def look(path):
    """An image file as it is."""
    with Image.open(path) as image:
        image.load()
        return image


def pixels_of(path):
    return np.asarray(look(path))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two images in it, in which commands run."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(noise(0)).save("source.png")
    Image.fromarray(noise(1, (20, 15, 3)) // 2).save("target.png")
    return tmp_path


def color(*arguments):
    return CliRunner().invoke(app, ["color", *map(str, arguments)])


def done(*arguments):
    result = color(*arguments, *SMALL)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """The one line with which a command is refused; nothing is written."""
    before = sorted(Path().rglob("*"))
    result = color(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert sorted(Path().rglob("*")) == before
    return result.stderr


def test_the_command_does_what_the_function_does(folder):
    options = ["--mass", 0.8, "--seed", 3, "--smooth", "--space", "lab", "--neighbors", 4]
    shown = done("source.png", "target.png", "-o", "out.png", *options)
    assert "of the pixels, by colour" in shown.stdout
    assert shown.stderr == ""
    source, target = pixels_of("source.png"), pixels_of("target.png")
    expected = sp.transfer_colors(
        source, target, sp.Partial(0.8), batch_size=20, n_batches=30, seed=3, smooth=True, space="lab", neighbors=4
    )
    np.testing.assert_array_equal(pixels_of("out.png"), expected.image)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), sp.Partial(0.9)),
        (("--problem", "balanced"), sp.Balanced()),
        (("--problem", "unbalanced", "--tau", "0.5", "--reg", "0.05"), sp.Unbalanced(0.5, reg=0.05)),
        (("--mass", "0.5", "--reg", "0.05"), sp.Partial(0.5, reg=0.05)),
    ],
)
def test_every_problem_can_be_chosen(folder, options, problem):
    done("source.png", "target.png", "-o", "out.png", "--palette", 50, "--unmatched", "keep", *options)
    source, target = pixels_of("source.png"), pixels_of("target.png")
    settings = {"batch_size": 20, "n_batches": 30, "palette": 50, "unmatched": "keep"}
    expected = sp.transfer_colors(source, target, problem, **settings)
    np.testing.assert_array_equal(pixels_of("out.png"), expected.image)


def test_several_masses_and_a_sheet(folder):
    pytest.importorskip("matplotlib", reason="a sheet is drawn")
    done("source.png", "target.png", "-o", "out.png", "--masses", "0.7,0.9,1", "--compare", "sheet.png")
    done("source.png", "target.png", "-o", "one.png", "--mass", 0.7)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["one.png", "out-0.7.png", "out-0.9.png", "out-1.png", "sheet.png", "source.png", "target.png"]
    assert look("sheet.png").size[0] > 1000
    assert Path("one.png").read_bytes() == Path("out-0.7.png").read_bytes()


def test_a_sheet_alone_shows_a_few_masses(folder):
    pytest.importorskip("matplotlib", reason="a sheet is drawn")
    shown = done("source.png", "target.png", "--compare", "sheet.png")
    for mass in ("s = 1", "s = 0.99", "s = 0.9", "s = 0.8"):
        assert mass in shown.stdout
    assert not Path("out.png").exists()


def test_further_images_get_the_same_colours(folder):
    Path("frames").mkdir()
    for at in range(3):
        Image.fromarray(noise(at + 5, (9, 7 + at, 3))).save(f"frames/{at}.png")
    Path("frames/notes.txt").write_text("no image")
    done("source.png", "target.png", "--save", "t.npz", "--apply-to", "frames", "--into", "colored")
    loaded = color("--load", "t.npz", "--apply-to", "frames/2.png", "--apply-to", "frames/0.png", "--into", "again")
    assert loaded.exit_code == 0, loaded.output
    assert sorted(os.listdir("colored")) == ["0.png", "1.png", "2.png"]
    assert sorted(os.listdir("again")) == ["0.png", "2.png"]
    transfer = sp.ColorTransfer.load("t.npz")
    for name in ("0.png", "2.png"):
        pixels = pixels_of(f"colored/{name}")
        np.testing.assert_array_equal(pixels, transfer.apply(pixels_of(f"frames/{name}")))
        assert Path("colored", name).read_bytes() == Path("again", name).read_bytes()


@pytest.mark.parametrize("channels", [3, 4])
def test_pixels_in_no_batch_are_told_from_those_without_a_match(folder, channels):
    """One batch of 96 of 384 pixels, of which it moves half: 75% were in no batch, 87.5% are without a match."""
    hidden = 8 * (channels - 3)
    pixels = np.pad(noise(0, (16, 24, channels)) | 1, ((0, 0), (0, hidden), (0, 0)))
    Image.fromarray(pixels).save("source.png")
    options = ["--batch-size", 96, "--n-batches", 1, "--mass", 0.5]
    shown = color("source.png", "target.png", "-o", "out.png", *options).stdout
    assert "about 75.0% of the pixels" in shown
    assert "87.5% of the pixels, in a batch or not" in shown


def test_files_that_systems_hide_in_folders_are_none_of_the_images(folder):
    Path("frames").mkdir()
    Image.fromarray(noise(2)).save("frames/a.png")
    Path("frames/._a.png").write_bytes(b"what macOS leaves behind")
    shown = done("source.png", "target.png", "--apply-to", "frames", "--into", "colored")
    assert shown.stderr == ""
    assert [path.name for path in Path("colored").iterdir()] == ["a.png"]


def test_frames_that_cannot_be_seen_do_not_stop_the_others(folder):
    Path("frames").mkdir()
    blank = noise(2, (16, 24, 4))
    blank[:, :, 3] = 0
    for name, pixels in (("a", noise(2)), ("b", blank), ("c", noise(3))):
        Image.fromarray(pixels).save(f"frames/{name}.png")
    done("source.png", "target.png", "--apply-to", "frames", "--into", "colored")
    assert len([*Path("colored").iterdir()]) == 3
    np.testing.assert_array_equal(pixels_of("colored/b.png"), blank)


def test_a_broken_profile_is_that_of_its_own_file(folder):
    look("source.png").save("broken.png", icc_profile=40 * b"garbage")
    for arguments in (("broken.png", "target.png"), ("source.png", "broken.png")):
        assert "broken.png must be in a profile that can be used" in refused(*arguments, "-o", "out.png")


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_an_interrupt_stops_further_images(folder):
    Path("frames").mkdir()
    for number in range(60):
        Image.fromarray(noise(number, (300, 300, 3))).save(f"frames/{number}.png")
    command = [sys.executable, "-m", "spadeful", "color", "source.png", "target.png", *SMALL]
    child = subprocess.Popen([*command, "--apply-to", "frames", "--into", "colored"], stderr=subprocess.PIPE, text=True)
    while child.poll() is None and len([*Path("colored").glob("[!.]*")]) < 2:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, words = child.communicate(timeout=60)
    assert child.returncode == 130, words
    left = {path.name for path in Path("colored").iterdir()}
    assert len(left) < 60
    assert not [name for name in left if name.startswith(".")]


@pytest.mark.filterwarnings("default")
def test_images_of_a_folder_that_are_left_out_are_named(folder):
    Path("frames").mkdir()
    for name in ("a.png", "b.gif", "c.GIF", "d.bmp"):
        Image.fromarray(noise(5)).save(f"frames/{name}")
    Path("frames/notes.txt").write_text("no image")
    shown = done("source.png", "target.png", "--apply-to", "frames", "--into", "colored")
    assert shown.stderr.startswith("spadeful: 3 images of frames are left out, as they end in .bmp, .gif.")
    assert shown.stderr.count("\n") == 1
    assert os.listdir("colored") == ["a.png"]


@pytest.mark.parametrize("name", ["b.png", "b.jpg", "b.webp", "b.tif", "alpha.jpg", "deep.png", "damaged.png"])
def test_further_images_that_cannot_be_used_are_refused_before_any_is_written(folder, name):
    Path("frames").mkdir()
    Image.fromarray(noise(5)).save("frames/a.png")
    if name == "alpha.jpg":
        Image.fromarray(noise(6, (16, 24, 4))).save(f"frames/{name}", format="PNG")
    elif name == "deep.png":
        write_photo(Photo(noise(6, dtype=np.uint16), exchanged()), Path("frames", name))
    elif name == "damaged.png":
        Image.fromarray(noise(6)).save(f"frames/{name}", icc_profile=b"damaged")
    else:
        Image.fromarray(noise(6, (64, 64, 3))).save(name)
        Path("frames", name).write_bytes(Path(name).read_bytes()[:-300])
    assert f"frames/{name}" in refused("source.png", "target.png", "-o", "o.png", "--apply-to", "frames", "--into", "x")
    done("source.png", "target.png", "--save", "t.npz")
    assert f"frames/{name}" in refused("--load", "t.npz", "--apply-to", "frames", "--into", "x")


@pytest.mark.filterwarnings("default")
def test_slow_problems_are_said_to_be(folder):
    """Those of Kullback-Leibler alone, without regularisation, and only if there are many."""
    slow = ["source.png", "target.png", "--problem", "unbalanced", "--tau", 0.5, "--batch-size", 3]
    shown = color(*slow, "--n-batches", 101, "-o", "1.png")
    assert shown.stderr.startswith("spadeful: 101 unbalanced problems are solved exactly")
    assert "--reg" in shown.stderr
    for at, quick in enumerate((["--n-batches", 100], ["--reg", 0.1], ["--divergence", "tv"])):
        shown = color(*slow, "--n-batches", 101, "-o", f"{at}.jpg", *quick)
        assert shown.exit_code == 0, shown.output
        assert shown.stderr == ""


def test_the_help_says_what_lab_takes_images_for():
    shown = color("--help").stdout.replace("\u2502", " ")
    assert "lab takes every image as sRGB" in " ".join(shown.split())


def test_nothing_is_replaced_unasked(folder):
    Path("out.png").write_text("kept")
    assert "--force" in refused("source.png", "target.png", "-o", "out.png")
    assert Path("out.png").read_text() == "kept"
    done("source.png", "target.png", "-o", "out.png", "--force")
    assert look("out.png").size == (24, 16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("source.png", "-o", "o.png"), "SOURCE and TARGET"),
        (("source.png", "none.png", "-o", "o.png"), "There is none"),
        (("source.png", "target.png"), "Something must be written"),
        (("source.png", "target.png", "-o", "o.xyz"), "must end in .png"),
        (("source.png", "target.png", "-o", "source.png", "--force"), "none of them an input"),
        (("source.png", "target.png", "-o", "o.png", "--mass", "1.2"), "--mass must be in (0, 1]. Got 1.2"),
        (("source.png", "target.png", "-o", "o.png", "--masses", "0.5,x"), "divided by commas"),
        (("source.png", "target.png", "-o", "o.png", "--masses", "0.5,0.5"), "must differ"),
        (("source.png", "target.png", "-o", "o.png", "--masses", "0.5,2"), "--masses must be in (0, 1]. Got 2"),
        (("source.png", "target.png", "-o", "o.png", "--masses", "2,0.5"), "--masses must be in (0, 1]. Got 2"),
        (("source.png", "target.png", "-o", "o.png", "--reg", "1e-300"), "pass --reg 0"),
        (("source.png", "target.png", "-o", "o.png", "--masses", "0.5", "--mass", "0.5"), "Pass one of them"),
        (("source.png", "target.png", "-o", "o.png", "--problem", "balanced", "--masses", "0.5"), "--problem partial"),
        (("source.png", "target.png", "-o", "o.png", "--problem", "unbalanced"), "needs --tau"),
        (("source.png", "target.png", "--compare", "o.png", "--reg", "0.1"), "without --reg"),
        (("source.png", "target.png", "--compare", "o.txt"), "must end in"),
        (("source.png", "target.png", "-o", "o.png", "--save", "t.txt"), "must end in .npz"),
        (("source.png", "target.png", "-o", "o.png", "--batch-size", "400"), "visible pixels of source, 384"),
        (("source.png", "target.png", "-o", "o.png", "--space", "hsv"), "space must be"),
        (("source.png", "target.png", "-o", "o.png", "--apply-to", "source.png"), "go together"),
        (("source.png", "target.png", "--apply-to", "empty", "--into", "x"), "It holds none"),
        (("source.png", "target.png", "--apply-to", "broken.png", "--into", "x"), "must be an image"),
        (("source.png", "target.png", "--apply-to", "target.png", "--into", "."), "Got target.png twice"),
        (("source.png", "target.png", "--apply-to", "frames/a.gif", "--into", "x"), "must end in .png"),
        (
            ("source.png", "target.png", "--apply-to", "frames", "--into", "x"),
            "It holds none. 1 end in .gif. Save them",
        ),
        (("source.png", "target.png", "--apply-to", "nowhere", "--into", "x"), "There is no file or folder nowhere"),
        (("source.png", "target.png", "--compare", "o.png", "--mass", "0.9000001"), "Got 0.9000001 and 0.9 instead"),
        (("--load", "broken.png", "--apply-to", "source.png", "--into", "x"), "must be a transfer"),
        (("--load", "broken.png", "source.png", "target.png"), "Pass either"),
        (("--load", "broken.png", "-o", "o.png"), "--apply-to with --into"),
        (("--load", "t.npz", "--mass", "0.1", "--smooth", "--apply-to", "x.png"), "Leave out --mass, --smooth."),
        (("source.png", "target.png", "-o", "o.png", "--max-pixels", "300"), "at most 300 pixels. Got 384"),
        (("source.png", "target.png", "-o", "o.png", "--max-pixels", "0"), "at least 1 pixel. Got 0"),
        (("empty", "target.png", "-o", "o.png"), "empty must be an image file. It is a folder"),
    ],
)
def test_refusals(folder, arguments, words):
    Path("empty").mkdir()
    Path("broken.png").write_text("words")
    Path("frames").mkdir()
    Path("frames", "a.gif").write_text("words")
    assert words in refused(*arguments)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(width, height):
    """A small PNG file that claims to be large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("text.png", "must be an image"),
        ("short.png", "read whole"),
        ("short.jpg", "read whole"),
        ("bomb.png", "pixels"),
        ("large.png", "must have at most 100,000,000 pixels. Got 110,000,000"),
        ("moving.gif", "several pictures"),
        ("cmyk.jpg", "CMYK"),
        ("float.tif", "its colours are F"),
        ("deep.tif", "16 bits a channel cannot be read"),
        ("empty.png", "must be an image"),
    ],
)
def test_files_that_cannot_be_used(folder, name, words):
    if name == "text.png":
        Path(name).write_text("not an image")
    elif name == "empty.png":
        Path(name).touch()
    elif name.startswith("short"):
        Image.fromarray(noise(2, (64, 64, 3))).save("whole" + Path(name).suffix)
        Path(name).write_bytes(Path("whole" + Path(name).suffix).read_bytes()[:2000])
    elif name == "bomb.png":
        Path(name).write_bytes(bomb(60_000, 60_000))
    elif name == "large.png":
        Path(name).write_bytes(bomb(11_000, 10_000))
    elif name == "moving.gif":
        frames = [Image.fromarray(noise(at)) for at in range(3)]
        frames[0].save(name, save_all=True, append_images=frames[1:])
    elif name == "cmyk.jpg":
        Image.fromarray(noise(3)).convert("CMYK").save(name)
    elif name == "float.tif":
        Image.fromarray(np.ones((30, 30), dtype=np.float32)).save(name)
    else:
        Path(name).write_bytes(deep_tiff())
    for arguments in ((name, "target.png"), ("source.png", name)):
        assert words in refused(*arguments, "-o", "out.png")


def test_our_limit_is_the_only_one(folder):
    """Pillow has its own, of 179 million pixels."""
    own = Image.MAX_IMAGE_PIXELS
    Path("large.png").write_bytes(bomb(14_000, 13_500))
    with opened("large.png", 200_000_000) as image:
        assert image.size == (14_000, 13_500)
        assert own == Image.MAX_IMAGE_PIXELS
    for most in (180_000_000, 80_000_000):
        with pytest.raises(ValueError, match=rf"must have at most {most:,} pixels. Got .* instead; allow more"):
            read_photo("large.png", most)
    assert own == Image.MAX_IMAGE_PIXELS


def test_reading_in_threads_leaves_the_warnings_of_others_alone(folder):
    filters = [*warnings.filters]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(read_photo, 50 * ["source.png"]))
    assert [*warnings.filters] == filters


def test_damage_that_pillow_stumbles_over_is_told_in_a_line(folder, monkeypatch):
    def stumble(*_):
        raise IndexError("index out of range")  # what Pillow does with an animation that is cut short

    monkeypatch.setattr(Image, "open", stumble)
    assert "source.png must be an image that can be read whole: index out of range." in refused(
        "source.png", "target.png", "-o", "out.png"
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_of_sixteen_bits(folder, channels):
    pixels = noise(4, (16, 24, channels), np.uint16)
    pixels[:8] = clear = 0x12FF
    pixels[8] = 0x1200  # the same in 8 bits
    if channels == 3:
        write_photo(Photo(pixels), Path("deep.png"))
    else:
        Image.fromarray(pixels[:, :, 0]).save("deep.png")
    key = b"tRNS" + channels * struct.pack(">H", clear)
    chunk = struct.pack(">I", len(key) - 4) + key + struct.pack(">I", zlib.crc32(key))
    whole = Path("deep.png").read_bytes()
    Path("deep.png").write_bytes(whole[:33] + chunk + whole[33:])  # after the header
    read = read_photo("deep.png").pixels
    np.testing.assert_array_equal(read[:, :, :3], np.broadcast_to(pixels, (16, 24, 3)))
    np.testing.assert_array_equal(read[:, :, 3], np.where(np.arange(16) < 8, 0, 65535)[:, None].repeat(24, axis=1))


def test_an_alpha_that_hides_nothing_does_not_matter(folder):
    Image.fromarray(noise(3)).convert("RGBA").save("alpha.png")
    done("alpha.png", "target.png", "-o", "out.jpg")
    assert look("out.jpg").mode == "RGB"


def deep_tiff():
    """A TIFF file of 2 x 1 pixels, 16 bits a channel, which Pillow reads as 8."""
    entries = [(256, 3, 1, 2), (257, 3, 1, 1), (258, 3, 3, 134), (259, 3, 1, 1), (262, 3, 1, 2)]
    entries += [(273, 4, 1, 140), (277, 3, 1, 3), (278, 3, 1, 1), (279, 4, 1, 12)]
    table = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    head = b"II*\0" + struct.pack("<I", 8) + table + struct.pack("<I", 0)
    return head.ljust(134, b"\0") + struct.pack("<3H", 16, 16, 16) + bytes(range(12))


@pytest.mark.parametrize("channels", [3, 4])
def test_sixteen_bits_are_kept(folder, channels):
    pixels = noise(4, (16, 24, channels), np.uint16)
    if channels == 4:
        pixels[:, :, 3] |= 1
    write_photo(Photo(pixels), Path("deep.png"))
    np.testing.assert_array_equal(read_photo(Path("deep.png")).pixels, pixels)
    assert look("deep.png").size == (24, 16)  # Pillow takes it for whole too
    done("deep.png", "target.png", "-o", "out.png")
    target = pixels_of("target.png")
    expected = sp.transfer_colors(pixels, target, sp.Partial(0.9), batch_size=20, n_batches=30).image
    np.testing.assert_array_equal(read_photo(Path("out.png")).pixels, expected)


def test_grey_of_sixteen_bits_is_kept(folder):
    grey = noise(5, (16, 24), np.uint16)
    Image.fromarray(grey).save("grey.png")
    np.testing.assert_array_equal(read_photo("grey.png").pixels, np.repeat(grey[:, :, None], 3, axis=2))


@pytest.mark.parametrize("mode", ["L", "LA", "1", "P", "RGBA", "PA"])
def test_modes_become_colours(folder, mode):
    image = Image.fromarray(noise(6, (16, 24, 4))).convert({"P": "RGB", "PA": "LA"}.get(mode, "RGBA"))
    name = "mode.tif" if mode == "PA" else "mode.png"
    image.convert(mode).save(name)
    done(name, "target.png", "-o", "out.png")
    assert look("out.png").mode == ("RGBA" if "A" in mode else "RGB")
    done("source.png", name, "-o", "other.png")


def test_alpha_is_kept_and_not_written_where_it_cannot_be(folder):
    pixels = noise(7, (16, 24, 4))
    Image.fromarray(pixels).save("alpha.png")
    done("alpha.png", "target.png", "-o", "out.webp")
    assert look("out.webp").mode == "RGBA"
    done("alpha.png", "target.png", "-o", "out.png")
    np.testing.assert_array_equal(pixels_of("out.png")[:, :, 3], pixels[:, :, 3])
    assert "transparent" in refused("alpha.png", "target.png", "-o", "out.jpg", *SMALL)


def test_the_image_is_upright(folder):
    """Orientation 6: the camera was turned; rows of the file are columns of the picture."""
    image = Image.fromarray(noise(8))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save("turned.png", exif=exif)
    np.testing.assert_array_equal(read_photo(Path("turned.png")).pixels, np.rot90(noise(8), -1))
    done("turned.png", "target.png", "-o", "out.png")
    out = look("out.png")
    assert out.size == (16, 24)
    assert 0x0112 not in out.getexif()


def profile(name):
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()


@pytest.mark.parametrize("ending", [".png", ".jpg", ".webp", ".tif"])
def test_the_profile_is_kept(folder, ending):
    own = profile("sRGB")
    Image.fromarray(noise(9)).save("profile.png", icc_profile=own)
    done("profile.png", "target.png", "-o", "out" + ending)
    assert look("out" + ending).info["icc_profile"] == own
    write_photo(Photo(noise(9, dtype=np.uint16), own), Path("deep.png"))
    assert look("deep.png").info["icc_profile"] == own


def exchanged():
    """sRGB with its red and green exchanged: the same colours have exchanged numbers."""
    own = bytearray(profile("sRGB"))
    count = struct.unpack(">I", own[128:132])[0]
    at = {bytes(own[place : place + 4]): place for place in range(132, 132 + 12 * count, 12)}
    own[at[b"rXYZ"] : at[b"rXYZ"] + 4], own[at[b"gXYZ"] : at[b"gXYZ"] + 4] = b"gXYZ", b"rXYZ"
    return bytes(own)


@pytest.mark.parametrize("saved", [False, True])
def test_further_images_are_read_in_the_profile_of_the_source(folder, saved):
    own, pixels = exchanged(), np.clip(noise(10), 30, 220)
    Image.fromarray(pixels).save("source.png", icc_profile=own)
    Path("more").mkdir()
    Image.fromarray(pixels).save("more/same.png", icc_profile=own)
    Image.fromarray(Photo(pixels, own).in_profile(None).pixels).save("more/other.png")
    further = ["--apply-to", "more", "--into", "new"]
    if saved:
        done("source.png", "target.png", "--save", "transfer.npz")
        assert color("--load", "transfer.npz", *further).exit_code == 0
    else:
        done("source.png", "target.png", "-o", "out.png", *further)
    same, other = (look(f"new/{name}.png") for name in ("same", "other"))
    assert same.info["icc_profile"] == other.info["icc_profile"] == own
    assert np.abs(np.asarray(same).astype(int) - np.asarray(other)).mean() < 2


def test_the_target_is_read_in_the_profile_of_the_source():
    own, pixels = exchanged(), np.clip(noise(10), 30, 220)
    converted = Photo(pixels, own).in_profile(None).pixels
    assert np.abs(converted.astype(int) - pixels[:, :, [1, 0, 2]]).max() <= 2
    with pytest.raises(ValueError, match="profile must be whole"):
        Photo(pixels, b"damaged").in_profile(None)


def test_sixteen_bits_are_not_converted():
    """They are refused, unless the profiles are the same but for their names."""
    pixels = noise(13, dtype=np.uint16)
    with pytest.raises(ValueError, match="must be in the profile of the source, 'sRGB built-in': only 8 bits"):
        Photo(pixels, exchanged()).in_profile(None)
    same = Photo(pixels, profile("sRGB")).in_profile(None)
    assert same.profile is None
    np.testing.assert_array_equal(same.pixels, pixels)


def test_sixteen_bits_in_another_profile_are_refused(folder):
    write_photo(Photo(noise(13, dtype=np.uint16), exchanged()), Path("deep.png"))
    assert "deep.png must be in a profile that can be used. Colours of 16 bits" in refused(
        "source.png", "deep.png", "-o", "out.png"
    )
    done("deep.png", "target.png", "-o", "out.png")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_sheets_are_in_the_profile_that_files_without_one_have(folder, monkeypatch, dtype):
    """What is green to the profile of the source is green in the sheet, whatever its numbers are."""
    pytest.importorskip("matplotlib", reason="a sheet is drawn")
    pixels = noise(14, dtype=dtype) // 8 + np.array([4, 2, 1], dtype=dtype) * (np.iinfo(dtype).max // 8)
    green = small(Photo(pixels, exchanged()))
    assert np.abs(green.astype(int) - Photo(pixels[:, :, [1, 0, 2]]).pillow).max() <= 2
    write_photo(Photo(pixels, exchanged()), Path("green.png"))
    shown = {}
    monkeypatch.setattr("spadeful.figures.draw_recolored", lambda _, pictures: shown.update(pictures))
    Path("copy.png").write_bytes(Path("green.png").read_bytes())
    done("green.png", "copy.png", "--compare", "sheet.png")
    assert [*shown] == ["source", "m-OT", "m-POT, s = 0.99", "m-POT, s = 0.9", "m-POT, s = 0.8", "target"]
    for picture in shown.values():
        red, other, _ = picture.mean(axis=(0, 1))
        assert other > red + 40


def test_a_photo_of_a_phone_is_one_picture(folder):
    """Though the file holds a second one."""
    first, second = Image.fromarray(noise(11)), Image.fromarray(noise(12))
    first.save("phone.jpg", format="MPO", save_all=True, append_images=[second])
    np.testing.assert_array_equal(read_photo(Path("phone.jpg")).pixels, pixels_of("phone.jpg"))


@pytest.mark.skipif(not PHOTOS.is_dir(), reason="needs the photos in the folder that SPADEFUL_DATA names")
def test_a_photo_comes_closer_to_the_colours_of_another(tmp_path):
    """And partial transport leaves more as it is than full transport does."""
    source, target = (pixels_of(PHOTOS / name)[::4, ::4] for name in ("s1.png", "t1.png"))
    results = sp.transfer_masses(source, target, [0.5, 1.0], n_batches=500, smooth=True)

    def away(image, other):
        one, two = (np.quantile(each.reshape(-1, 3), np.linspace(0, 1, 99), axis=0) for each in (image, other))
        return np.abs(one - two).mean()

    half, full = (result.image for result in results)
    assert away(full, target) < away(half, target) < away(source, target)
    assert away(half, source) < away(full, source)


@pytest.mark.slow
@pytest.mark.skipif(not PHOTOS.is_dir(), reason="needs the photos in the folder that SPADEFUL_DATA names")
def test_colour_transfer_is_measured_and_documented(tmp_path):
    pytest.importorskip("ot", reason="POT is the rival")
    pytest.importorskip("matplotlib", reason="sheets are drawn")
    root = Path(__file__).parents[1]

    def call(script, *options):
        command = [sys.executable, root / "benchmarks" / script, *options]
        finished = subprocess.run(command, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr

    call("color.py", "--quick", "--output", tmp_path, "--sheets", tmp_path)
    results = json.loads((tmp_path / "color.json").read_text())
    assert len(results["goals"]) == 5
    distances = [case["distance"] for case in results["quality"][0]["masses"]]
    assert distances == sorted(distances, reverse=True), "more mass comes closer to the target"
    assert look(tmp_path / "color-1.png").size[0] > 1000
    page = (root / "docs" / "color.md").read_text(encoding="utf-8")
    (tmp_path / "color.md").write_text(page, encoding="utf-8")
    for _ in range(2):
        call("color_page.py", "--results", tmp_path, "--docs", tmp_path)
        again = (tmp_path / "color.md").read_text(encoding="utf-8")
        assert again.splitlines()[:9] == page.splitlines()[:9]
        assert again.count("| pair 1 |") == 3
