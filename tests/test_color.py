"""Colour transfer: maps that are known, an independent solver, and what an option says."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import spadeful as sp
from spadeful.color.cells import distinct
from spadeful.color.lattice import Lattice
from spadeful.color.received import Received, weighted_means
from spadeful.color.spaces import from_lab, to_lab, to_levels, to_points

PHOTOS = Path(os.environ.get("SPADEFUL_DATA", "/nowhere"), "photos")


def noise(seed, shape=(8, 9), dtype=np.uint8):
    """An image without two pixels of one colour, nearly surely."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, (*shape, 3), dtype=dtype)


def whole(image, other, problem, **options):
    """One batch that holds all pixels."""
    count = image.shape[0] * image.shape[1]
    return sp.transfer_colors(image, other, problem, batch_size=count, n_batches=1, **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_one_batch_of_all_pixels_is_the_optimal_assignment(dtype):
    source, target = noise(0, dtype=dtype), noise(1, dtype=dtype)
    x, y = source.reshape(-1, 3), target.reshape(-1, 3)
    _, best = linear_sum_assignment(cdist(x.astype(float), y.astype(float), "sqeuclidean"))
    np.testing.assert_array_equal(whole(source, target, sp.Balanced()).image, y[best].reshape(source.shape))


def test_partial_transport_moves_the_pixels_that_pot_moves():
    ot = pytest.importorskip("ot", reason="POT is the independent solver")
    source, target = noise(2, dtype=np.uint16), noise(3, dtype=np.uint16)  # in 8 bits several plans are optimal
    n = source.shape[0] * source.shape[1]
    x, y = (image.reshape(-1, 3) / 65535 for image in (source, target))
    plan = ot.partial.partial_wasserstein(np.ones(n) / n, np.ones(n) / n, cdist(x, y, "sqeuclidean"), m=54 / n)
    moved = plan.sum(axis=1) > 1e-9
    result = whole(source, target, sp.Partial(54 / n), unmatched="keep")
    assert moved.sum() == 54
    np.testing.assert_array_equal((result.masses > 0).ravel(), moved)
    expected = source.reshape(-1, 3).copy()
    expected[moved] = np.rint(plan[moved] @ y / plan[moved].sum(axis=1, keepdims=True) * 65535)
    np.testing.assert_array_equal(result.image.reshape(-1, 3), expected)


@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Partial(0.6), sp.Unbalanced(1.0, divergence="tv")])
def test_an_image_moved_to_itself_stays(problem):
    source = noise(4)
    np.testing.assert_array_equal(whole(source, source, problem).image, source)


@pytest.mark.parametrize("options", [{}, {"smooth": True}, {"palette": 2}, {"space": "lab"}, {"unmatched": "keep"}])
@pytest.mark.parametrize(
    "problem", [sp.Balanced(), sp.Partial(0.5), sp.Unbalanced(1.0, reg=0.05), sp.Balanced(reg=0.05)]
)
def test_one_colour_becomes_the_only_other_one(problem, options):
    """Whatever the batches: there is nothing else to be matched with."""
    source = np.full((20, 15, 3), (10, 200, 90), dtype=np.uint8)
    target = np.full((11, 30, 3), (240, 30, 120), dtype=np.uint8)
    result = sp.transfer_colors(source, target, problem, batch_size=30, n_batches=100, **options)
    if options == {"unmatched": "keep"}:
        kept = result.masses == 0
        np.testing.assert_array_equal(result.image[kept], source[kept])
        np.testing.assert_array_equal(result.image[~kept], target[0, 0] + 0 * source[~kept])
    else:
        np.testing.assert_array_equal(result.image, np.broadcast_to(target[0, 0], source.shape))


@pytest.mark.parametrize("options", [{}, {"smooth": True}, {"palette": 2}])
@pytest.mark.parametrize("mass", [1 / 3, 0.7])
def test_two_colours_go_to_the_two_nearest(mass, options):
    """Half of either side is dark, half bright. Up to seven tenths of a batch, like can go with like.

    Of a third, bright pixels get one match in all, in a batch that has few dark ones: that is enough.
    """
    left = np.arange(40) < 20
    source = np.where(left[None, :, None], (20, 30, 40), (200, 190, 180)) * np.ones((30, 1, 1))
    target = np.where(left[None, :, None], (60, 10, 10), (250, 250, 210)) * np.ones((25, 1, 1))
    source, target = source.astype(np.uint8), target.astype(np.uint8)
    result = sp.transfer_colors(source, target, sp.Partial(mass), batch_size=100, n_batches=300, **options)
    np.testing.assert_array_equal(result.image[:, left], target[0, 0] + 0 * source[:, left])
    np.testing.assert_array_equal(result.image[:, ~left], target[0, -1] + 0 * source[:, ~left])


def test_each_pixel_is_divided_by_the_mass_it_received():
    """Algorithm 4 written out, over the same batches."""
    source, target = noise(5, (6, 7)), noise(6, (9, 5))
    x, y = (image.reshape(-1, 3) / 255 for image in (source, target))
    plan = sp.minibatch(x, y, sp.Partial(0.7), batch_size=10, n_batches=25, seed=8).plan.toarray()
    mass = plan.sum(axis=1)
    result = sp.transfer_colors(source, target, sp.Partial(0.7), batch_size=10, n_batches=25, seed=8)
    np.testing.assert_allclose(result.masses.ravel(), mass, atol=1e-15)
    moved = mass > 0
    assert moved.any()
    expected = np.rint(plan[moved] @ y / mass[moved, None] * 255)
    assert np.abs(result.image.reshape(-1, 3)[moved] - expected).max() <= 1  # a half may be rounded either way


def test_unmatched_pixels_follow_their_nearest_colours():
    """Two clusters move by two vectors; what is near to one moves as it does."""
    rng = np.random.default_rng(0)
    dark, bright = rng.integers(20, 40, (200, 3)), rng.integers(180, 200, (200, 3))
    source = np.concatenate([dark, bright]).astype(np.uint8).reshape(20, 20, 3)
    more = np.array([[30, 0, 0], [0, 0, 30]])
    target = np.concatenate([dark + more[0], bright + more[1]]).astype(np.uint8).reshape(20, 20, 3)
    result = whole(source, target, sp.Partial(0.99))
    transfer = result.transfer
    probe = np.array([[[30, 30, 30], [190, 190, 190], [60, 60, 60]]], dtype=np.uint8)
    moved = transfer.apply(probe).astype(int)
    assert np.abs(moved - (probe + more[[0, 1, 0]])).max() <= 3


def test_the_palette_is_drawn_as_often_as_its_pixels():
    """Three quarters of the source are dark, one half of the target: a third of the dark goes to what is bright."""
    source, target = np.full((2, 4, 8, 3), 10, dtype=np.uint8)
    source[:, 6:] = 240
    target[:, :4], target[:, 4:] = 30, 210
    source[0], target[0] = source[0] + 1, target[0] - 1  # a palette of two puts them together again
    image = whole(source, target, sp.Balanced(), palette=2).image
    assert abs(image[1, 0, 0] - (2 * 30 + 210) / 3) <= 1
    assert abs(image[1, 7, 0] - 210) <= 1


def test_a_palette_of_all_colours_changes_nothing_but_sharing():
    source, target = noise(7), noise(8)
    one = whole(source, target, sp.Balanced()).image
    np.testing.assert_array_equal(one, whole(source, target, sp.Balanced(), palette=1000).image)


def test_images_of_8_and_16_bits_go_together():
    """Colours of 8 bits are compared as whole numbers if both images have them; of tied plans, another may win."""
    source, target = noise(9, (20, 20)), noise(10, (15, 30)) // 2
    options = {"problem": sp.Partial(0.9), "batch_size": 40, "n_batches": 100}
    wide = [image.astype(np.uint16) * 257 for image in (source, target)]
    expected = sp.transfer_colors(source, target, **options).image.astype(float)
    for one, other in ((source, wide[1]), (wide[0], target), wide):
        image = sp.transfer_colors(one, other, **options).image
        assert image.dtype == one.dtype
        assert abs(image / (257 if one.dtype == np.uint16 else 1) - expected).mean() < 1


@pytest.mark.parametrize("step", [1, 50])  # of the levels: with few of them, many plans are optimal
def test_several_masses_are_those_of_one_at_a_time(step):
    source, target = (image // step * step for image in (noise(9, (20, 20)), noise(10, (15, 30))))
    masses = [0.5, 0.9, 1.0]
    options = {"batch_size": 40, "n_batches": 30, "seed": 2}
    several = list(sp.transfer_masses(source, target, masses, **options))
    for mass, result in zip(masses, several, strict=True):
        alone = sp.transfer_colors(source, target, sp.Partial(mass), **options)
        np.testing.assert_array_equal(result.image, alone.image)
        assert result.transfer.settings == alone.transfer.settings
    shares = [result.unmatched for result in several]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("problem", [sp.Partial(0.8), sp.Unbalanced(0.5, reg=0.02)])
def test_the_result_does_not_depend_on_the_number_of_jobs(problem, monkeypatch):
    monkeypatch.setattr("spadeful.color.received.ENTRIES", 20_000)  # several rounds
    source, target = noise(11, (20, 30)), noise(12, (25, 20))
    results = [
        sp.transfer_colors(source, target, problem, batch_size=20, n_batches=150, smooth=True, n_jobs=jobs)
        for jobs in (None, 2)
    ]
    assert results[0].image.tobytes() == results[1].image.tobytes()
    for name in ("colors", "moves", "masses"):
        assert getattr(results[0].transfer, name).tobytes() == getattr(results[1].transfer, name).tobytes()


def test_rounds_add_up_to_the_same(monkeypatch):
    source, target = noise(13, (20, 30)), noise(14, (25, 20))
    options = {"batch_size": 20, "n_batches": 150}
    once = sp.transfer_colors(source, target, sp.Partial(0.8), **options)
    monkeypatch.setattr("spadeful.color.received.ENTRIES", 1000)
    often = sp.transfer_colors(source, target, sp.Partial(0.8), **options)
    np.testing.assert_allclose(once.masses, often.masses, rtol=1e-12)
    assert np.abs(once.image.astype(int) - often.image).max() <= 1


def test_sums_of_parts():
    one = Received(np.array([1, 4]), np.array([0.5, 1.0]), np.array([[1, 0, 0], [2, 0, 0]], dtype=np.float32))
    two = Received(np.array([0, 4]), np.array([0.25, 3.0]), np.array([[0, 3, 0], [0, 4, 0]], dtype=np.float32))
    both = one.plus(two, 6)
    np.testing.assert_array_equal(both.pixels, [0, 1, 4])
    np.testing.assert_array_equal(both.masses, [0.25, 0.5, 4.0])
    np.testing.assert_array_equal(both.means, [[0, 3, 0], [1, 0, 0], [0.5, 3, 0]])


def test_alpha_is_kept_and_what_cannot_be_seen_does_not_count():
    source = np.full((10, 10, 4), (50, 60, 70, 255), dtype=np.uint8)
    source[:, 5:] = (200, 0, 0, 0)
    source[0, 0, 3] = 128
    target = np.full((10, 10, 4), (90, 100, 110, 255), dtype=np.uint8)
    target[5:] = (0, 255, 0, 0)
    result = sp.transfer_colors(source, target, sp.Balanced(), batch_size=50, n_batches=3)
    image = result.image
    assert result.unmatched == 0
    np.testing.assert_array_equal(image[:, :, 3], source[:, :, 3])
    np.testing.assert_array_equal(image[:, :5, :3], np.broadcast_to((90, 100, 110), (10, 5, 3)))
    np.testing.assert_array_equal(image[:, 5:], source[:, 5:])
    with pytest.raises(ValueError, match="visible pixels of source, 50"):
        sp.transfer_colors(source, target, sp.Balanced(), batch_size=51, n_batches=3)


def test_floats_and_grey_images():
    source, target = np.full((5, 5), 0.25, dtype=np.float32), np.full((6, 4, 3), (1.0, 0.5, 0.0))
    result = sp.transfer_colors(source, target, sp.Balanced(), batch_size=20, n_batches=10)
    assert result.image.dtype == np.float32
    np.testing.assert_allclose(result.image, np.broadcast_to((1.0, 0.5, 0.0), (5, 5, 3)), atol=1e-5)


def test_lab_is_cielab():
    """Against published values of sRGB's primaries under D65; and back again."""
    rgb = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [1.0, 1.0, 1.0], [0, 0, 0], [0.5, 0.5, 0.5]])
    lab = [
        [53.24, 80.09, 67.20],
        [87.73, -86.18, 83.18],
        [32.30, 79.19, -107.86],
        [100, 0, 0],
        [0, 0, 0],
        [53.39, 0, 0],
    ]
    np.testing.assert_allclose(100 * to_lab(rgb), lab, atol=0.03)
    colors = np.random.default_rng(0).random((500, 3))
    np.testing.assert_allclose(from_lab(to_lab(colors)), colors, atol=1e-4)


def test_a_saved_transfer_is_the_same(tmp_path):
    source, target = noise(15, (20, 20)), noise(16, (20, 20))
    result = sp.transfer_colors(source, target, sp.Partial(0.9), batch_size=50, n_batches=50, smooth=True, space="lab")
    result.transfer.save(tmp_path / "transfer.npz")
    again = sp.ColorTransfer.load(tmp_path / "transfer.npz")
    assert again.settings == result.transfer.settings
    np.testing.assert_array_equal(again.apply(source), result.image)
    frame = noise(17, (7, 5), np.uint16)
    np.testing.assert_array_equal(again.apply(frame), result.transfer.apply(frame))
    with pytest.raises(FileExistsError):
        again.save(tmp_path / "transfer.npz")


def test_a_transfer_is_a_function_of_the_colour_alone():
    """What is around a pixel does not matter: frames do not flicker."""
    source, target = noise(18, (20, 20)), noise(19, (20, 20))
    transfer = sp.transfer_colors(source, target, sp.Partial(0.9), batch_size=50, n_batches=50).transfer
    frame = noise(20, (9, 11))
    alone = np.stack([transfer.apply(pixel[None, None]) for pixel in frame.reshape(-1, 3)])
    np.testing.assert_array_equal(transfer.apply(frame).reshape(-1, 3), alone.reshape(-1, 3))


def test_what_cannot_be_seen_stays_as_it_is():
    source, target = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    transfer = sp.transfer_colors(source, target, sp.Partial(0.9), batch_size=20, n_batches=20).transfer
    blank = np.dstack([source, np.zeros((8, 8), np.uint8)])
    np.testing.assert_array_equal(transfer.apply(blank), blank)


@pytest.mark.parametrize("damage", ["words", "short", "shape", "masses", "space", "pickle"])
def test_damaged_transfers_are_refused(tmp_path, damage):
    path = tmp_path / "transfer.npz"
    parts = {"colors": np.zeros((2, 3)), "moves": np.zeros((2, 3)), "masses": np.ones(2), "space": np.array("rgb")}
    parts |= {"neighbors": np.array(4), "settings": np.array("{}")}
    changes = {"shape": {"moves": np.zeros((3, 3))}, "masses": {"masses": np.array([1.0, np.nan])}}
    changes |= {"space": {"space": np.array("xyz")}, "pickle": {"colors": np.array([{}], dtype=object)}}
    np.savez(path, **(parts | changes.get(damage, {})))
    if damage == "words":
        path.write_text("no transfer")
    if damage == "short":
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="must be a transfer that spadeful saved"):
        sp.ColorTransfer.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": np.zeros((4, 4, 5), np.uint8)}, "must have the shape"),
        ({"source": np.zeros(1, np.uint8)}, "must have the shape"),
        ({"source": np.zeros((2, 3, 4, 1), np.uint8)}, "must have the shape"),
        ({"source": np.zeros((4, 4, 3), np.int64)}, "must be of the type uint8"),
        ({"target": np.full((4, 4, 3), 1.5)}, "Got numbers from 1.5 to 1.5 instead"),
        ({"target": np.zeros((0, 4, 3), np.uint8)}, "at least one pixel"),
        ({"source": np.zeros((4, 4, 4), np.uint8)}, "at least one pixel"),
        ({"batch_size": 17}, "visible pixels of source, 16"),
        ({"n_batches": 0}, "n_batches must be"),
        ({"unmatched": "black"}, "unmatched must be 'nearest' or 'keep'"),
        ({"space": "hsv"}, "space must be 'rgb' or 'lab'"),
        ({"neighbors": 0}, "neighbors must be"),
        ({"palette": 0}, "palette must be"),
        ({"problem": 0.9}, "problem must be"),
        ({"problem": sp.Unbalanced(1e-9, divergence="tv")}, "must move some mass"),
    ],
)
def test_wrong_inputs_are_refused(change, words):
    given = {"source": noise(0, (4, 4)), "target": noise(1, (4, 4)), "problem": sp.Partial(0.9), "batch_size": 4}
    with pytest.raises((ValueError, TypeError), match=words):
        sp.transfer_colors(**(given | {"n_batches": 3} | change))


def test_masses_are_refused_before_the_work():
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        sp.transfer_masses(noise(0), noise(1), [0.5, 1.5])
    with pytest.raises(ValueError, match="at least one"):
        sp.transfer_masses(noise(0), noise(1), [])


@pytest.mark.parametrize("space", ["rgb", "lab"])
def test_the_table_is_exact_for_what_is_linear(space):
    """Trilinear interpolation is, at every colour that an image can hold."""
    turn, shift = np.random.default_rng(0).normal(size=(2, 3, 3))
    corners = np.stack(np.meshgrid(*[[0, 255]] * 3), axis=-1).reshape(-1, 3)
    points = to_points(np.concatenate([noise(21, (30, 30)).reshape(-1, 3), corners]).astype(np.uint8), space)
    table = Lattice(lambda nodes: nodes @ turn + shift[0], space)
    np.testing.assert_allclose(table(points), points @ turn + shift[0], atol=2e-6)


def test_the_table_asks_for_each_node_once():
    asked = []
    table = Lattice(lambda nodes: asked.append(nodes) or nodes, "rgb")
    points = to_points(noise(22, (40, 40)).reshape(-1, 3), "rgb")
    np.testing.assert_array_equal(table(points), table(points))
    nodes = np.concatenate(asked)
    assert len(np.unique(nodes, axis=0)) == len(nodes)


@pytest.mark.parametrize("space", ["rgb", "lab"])
@pytest.mark.skipif(not PHOTOS.is_dir(), reason="needs the photos in the folder that SPADEFUL_DATA names")
def test_the_table_is_within_a_level_of_the_nearest_colours(space):
    """In the mean over a photo, and nearly everywhere within three."""
    read_photo = pytest.importorskip("spadeful.images", reason="images need Pillow").read_photo
    source, target = (read_photo(PHOTOS / name).pixels[::2, ::2] for name in ("s1.png", "t1.png"))
    transfer = sp.transfer_colors(source, target, sp.Partial(0.9), n_batches=1000, space=space).transfer
    points = to_points(source.reshape(-1, 3), space)
    directly = to_levels(points + transfer.mean_moves(points), space, source.dtype)
    away = np.abs(transfer.apply(source).reshape(-1, 3).astype(int) - directly)
    assert away.mean() < 1
    assert (away > 3).mean() < 0.02


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("count", [50, 300_000])
def test_distinct_colours_are_those_of_numpy(dtype, count):
    """Sorted or marked, they are the same."""
    levels = np.random.default_rng(0).integers(0, 60, (count, 3)).astype(dtype) * dtype(np.iinfo(dtype).max // 60)
    colors, where = distinct(levels)
    np.testing.assert_array_equal(colors, np.unique(levels, axis=0))
    np.testing.assert_array_equal(colors[where], levels)


def test_few_colours_of_sixteen_bits_take_little_memory():
    levels = np.repeat(np.random.default_rng(0).integers(0, 1000, (300_000, 1)).astype(np.uint16) * 64, 3, axis=1)
    tracemalloc.start()
    each, where = distinct(levels)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(each[where], levels)
    assert most < 60e6


def test_means_of_groups_are_weighted_sums():
    rng = np.random.default_rng(0)
    groups, which = rng.integers(0, 40, 500).astype(np.int32), rng.integers(0, 90, 500).astype(np.int32)
    weights, colors = rng.random(500), rng.random((90, 3)).astype(np.float32)
    groups[groups == 7] = 8
    totals, means = weighted_means(groups, which, weights, colors, 40)
    np.testing.assert_allclose(totals, np.bincount(groups, weights, 40), rtol=1e-12)
    for channel in range(3):
        sums = np.bincount(groups, weights * colors[which, channel], 40)
        np.testing.assert_allclose(means[:, channel] * totals, sums, rtol=1e-6)
    assert totals[7] == 0
    assert (means[7] == 0).all()
    for wrong in (np.full(500, 40), np.full(500, -1)):
        with pytest.raises(IndexError, match="not there"):
            weighted_means(wrong.astype(np.int32), which, weights, colors, 40)
