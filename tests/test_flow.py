"""Gradient flow: its steps, its frames, its command."""

import csv
import importlib.util
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

import spadeful as sp
from spadeful.batches import sampled
from spadeful.cli import app
from spadeful.flow import Euler, flow_frames, wasserstein
from spadeful.flowing import read_points
from spadeful.images import ENDINGS
from spadeful.shapes import disc, image_points, s_shape

RNG = np.random.default_rng(0)
X, Y = RNG.random((30, 2)), RNG.random((25, 2)) + 1
SHIFT = np.array([3.0, 4.0])


def batches(points, side, m, count, seed=0):
    return sampled(len(points), m, count, False, seed, side, None, "x")


def euler(problem, k=3, m=4, debiased=False, pairing="paired"):
    others = batches(X, 2, m, 10 * k) if debiased else None
    return Euler(Y, problem, batches(X, 0, m, 10 * k), batches(Y, 1, m, 10 * k), others, k, 0.01, pairing, 1e-9, 10_000)


def test_whole_batches_follow_the_geodesic():
    """With one batch of all points each goes straight to its match: W2 shrinks by 1 - 2 lr in each step."""
    x, y = RNG.normal(size=(2, 40, 3))
    flow = sp.gradient_flow(x, y, sp.Balanced(), 40, 1, steps=30, lr=0.02, every=10)
    _, match = linear_sum_assignment(cdist(x, y, "sqeuclidean"))
    for step, points, distance in zip(flow.steps, flow.points, flow.distances, strict=True):
        left = (1 - 2 * 0.02) ** step
        np.testing.assert_allclose(points, y[match] + left * (x - y[match]), atol=1e-12)
        assert distance == pytest.approx(left * flow.distances[0], rel=1e-9)


def test_a_mass_that_falls_is_that_of_each_step():
    options = {"steps": 6, "lr": 0.01, "every": 3}
    masses, x = sp.Ramp(1.0, 0.4, 6), X
    for step in range(6):
        x = euler(sp.Partial(masses(step))).advance(x, step, step + 1)[0]
    falling = Euler(**vars(euler(sp.Partial(0.4))) | {"schedule": masses})
    np.testing.assert_array_equal(falling.advance(X, 0, 6)[0], x)
    same = sp.gradient_flow(X, Y, sp.Partial(0.4), schedule=sp.Ramp(0.7, 0.7, 6), **options)
    np.testing.assert_array_equal(same.points, sp.gradient_flow(X, Y, sp.Partial(0.7), **options).points)
    with pytest.raises(ValueError, match="schedule is of the mass of a Partial problem"):
        sp.gradient_flow(X, Y, sp.Balanced(), schedule=masses, **options)


@pytest.mark.slow
def test_a_mass_that_falls_ends_nearer():
    """Also nearer than the m-UOT of the paper's grid that ends nearest: docs/flow.md."""
    x, y = disc(1000, 0), s_shape(1000, 1)
    ends = {
        name: sp.gradient_flow(x, y, problem, every=5000, schedule=schedule).distances[-1]
        for name, problem, schedule in (
            ("constant", sp.Partial(0.8), None),
            ("unbalanced", sp.Unbalanced(0.001, 1.0), None),
            ("falling", sp.Partial(0.5), sp.Ramp(1.0, 0.5, 5000)),
        )
    }
    assert ends["falling"] < 0.85 * min(ends["constant"], ends["unbalanced"])


@pytest.mark.parametrize("pairing", ["paired", "all"])
@pytest.mark.parametrize("mass", [0.8, 1.0])
def test_steps_are_those_of_a_loop_over_another_solver(pairing, mass):
    ot = pytest.importorskip("ot")
    flow = sp.gradient_flow(X, Y, sp.Partial(mass), 4, 3, steps=20, lr=0.01, every=20, pairing=pairing, seed=5)
    rows, cols = (
        batches(points, side, 4, 60, seed=5).draw(np.arange(60)).reshape(20, 3, 4) for side, points in enumerate((X, Y))
    )
    x, weights = X.copy(), np.full(4, 1 / 4)
    for of_x, of_y in zip(rows, cols, strict=True):
        pairs = list(zip(of_x, of_y, strict=True)) if pairing == "paired" else [(r, c) for r in of_x for c in of_y]
        gradient = np.zeros_like(x)
        for r, c in pairs:
            cost = cdist(x[r], Y[c], "sqeuclidean")
            plan = ot.emd(weights, weights, cost) if mass == 1 else ot.partial.partial_wasserstein(
                weights, weights, cost, m=mass
            )  # fmt: skip
            gradient[r] += 2 * (plan.sum(axis=1)[:, None] * x[r] - plan @ Y[c]) / len(pairs)
        x -= 0.01 * len(x) * gradient
    np.testing.assert_allclose(flow.points[-1], x, atol=1e-12)


def energy(x, problem, steps, debiased):
    """The loss of a step's batches, up to what does not depend on x."""

    def mean(y, rows, cols):
        costs = np.stack([cdist(x[r], y[c], "sqeuclidean") for r, c in zip(rows, cols, strict=True)])
        return sp.solve(costs, problem, tol=1e-12).objective.mean()

    rows, cols = steps.batches_x.draw(np.arange(3)), steps.batches_y.draw(np.arange(3))
    loss = mean(Y, rows, cols)
    return loss - mean(x, rows, steps.others.draw(np.arange(3))) / 2 if debiased else loss


@pytest.mark.parametrize("debiased", [False, True])
@pytest.mark.parametrize(
    "problem",
    [sp.Balanced(), sp.Partial(0.7), sp.Unbalanced(0.5, divergence="tv"), sp.Unbalanced(1.0, 0.1), sp.Balanced(0.2)],
    ids=str,
)
def test_steps_go_down_the_gradient_of_the_loss(problem, debiased):
    """Against differences of the loss: the plan may be held fixed, by the envelope theorem."""
    steps = euler(problem, debiased=debiased)
    moved, _ = steps.advance(X, 0, 1)
    direction = RNG.normal(size=X.shape)
    h = 1e-6
    slope = energy(X + h * direction, problem, steps, debiased) - energy(X - h * direction, problem, steps, debiased)
    assert ((moved - X) * direction).sum() == pytest.approx(-0.01 * len(X) * slope / (2 * h), rel=1e-4)


def test_energy_of_single_points_moves_means_only():
    """With m = 1 the loss draws all points together; debiased it is the squared distance of the means."""
    options = {"steps": 400, "lr": 0.01, "every": 400, "measure": False}
    drawn = sp.gradient_flow(X, Y, sp.Balanced(), 1, 200, **options).points[-1]
    kept = sp.gradient_flow(X, Y, sp.Balanced(), 1, 200, debiased=True, **options).points[-1]
    for points in (drawn, kept):
        np.testing.assert_allclose(points.mean(axis=0), Y.mean(axis=0), atol=0.05)
    assert drawn.std(axis=0).max() < 0.2 * X.std(axis=0).min()
    assert kept.std(axis=0).min() > 0.7 * X.std(axis=0).max()


def test_partial_transport_ends_nearer():
    """The paper's experiment with our shapes: s = 0.8 ends nearer than 0.9, and that nearer than m-OT."""
    x, y = disc(1000, 0), s_shape(1000, 1)
    ends = [
        sp.gradient_flow(x, y, problem, every=5000).distances[-1]
        for problem in (sp.Partial(0.8), sp.Partial(0.9), sp.Balanced())
    ]
    assert ends[0] < 0.9 * ends[1]
    assert ends[1] < ends[2]


def test_frames_do_not_depend_on_how_many_there_are():
    few, many = (sp.gradient_flow(X, Y, sp.Partial(0.8), steps=250, every=every) for every in (200, 50))
    assert list(few.steps) == [0, 200, 250]
    np.testing.assert_array_equal(few.points[[0, 1, 2]], many.points[[0, 4, 5]])
    other = sp.gradient_flow(X, Y, sp.Partial(0.8), steps=250, every=200, seed=1)
    assert (other.points[-1] != few.points[-1]).any()


def test_inputs_stay_as_they_are():
    x, y = X.copy(), Y.copy()
    sp.gradient_flow(x, y, sp.Balanced(), steps=10)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_what_is_done_to_a_frame_is_not_done_to_the_flow():
    expected = sp.gradient_flow(X, Y, sp.Balanced(), steps=20, every=10).points
    for number, frame in enumerate(flow_frames(X, Y, sp.Balanced(), steps=20, every=10)):
        np.testing.assert_array_equal(frame.points, expected[number])
        frame.points[:] = 0


def test_interrupted_flows_go_on(tmp_path):
    whole = sp.gradient_flow(X, Y, sp.Partial(0.8), steps=300, every=50)
    frames = flow_frames(X, Y, sp.Partial(0.8), steps=300, every=50, checkpoint=tmp_path / "frames")
    assert next(frames).step == 0
    assert next(frames).step == 50
    frames.close()
    again = sp.gradient_flow(X, Y, sp.Partial(0.8), steps=300, every=50, checkpoint=tmp_path / "frames")
    np.testing.assert_array_equal(again.points, whole.points)
    np.testing.assert_array_equal(again.distances, whole.distances)
    with pytest.raises(ValueError, match=r"lr was 0\.001 and is 0\.002"):
        sp.gradient_flow(X, Y, sp.Partial(0.8), steps=300, every=50, lr=0.002, checkpoint=tmp_path / "frames")


def test_distances_are_exact():
    for x, y in ((X, X[::-1] + SHIFT), (X[:25], Y)):
        cost = cdist(x, y, "sqeuclidean")
        assert wasserstein(x, y) == pytest.approx(np.sqrt(cost[linear_sum_assignment(cost)].mean()), rel=1e-12)
    assert wasserstein(X, X + SHIFT) == pytest.approx(5)
    assert wasserstein(X, np.repeat(X, 3, axis=0)) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"every": 0.5}, "every must be"),
        ({"lr": 0.0}, "lr must be a number above 0"),
        ({"lr": float("nan")}, "lr must be"),
        ({"pairing": "bomb"}, "pairing must be 'paired' or 'all'"),
        ({"batch_size": 26}, "at most the number of points of y, 25"),
        ({"seed": -1}, "seed must be"),
        ({"y": Y[:, :1]}, "same number of dimensions"),
        ({"x": np.where(X > 0.9, np.nan, X)}, "x must hold finite numbers"),
        ({"lr": 10.0, "steps": 500, "every": 1}, "must not run away"),
        ({"lr": 10.0, "steps": 500}, "must not run away"),
    ],
    ids=str,
)
def test_wrong_inputs_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        sp.gradient_flow(**{"x": X, "y": Y, "problem": sp.Balanced()} | change)


@pytest.mark.parametrize("lr", [10.0, 1e3, 1e6, 1e200])
@pytest.mark.parametrize("problem", [sp.Balanced(), sp.Balanced(0.1)], ids=str)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_flows_that_run_away_are_said_to(problem, lr):
    with pytest.raises(ValueError, match="must not run away"):
        sp.gradient_flow(X, Y, problem, steps=500, lr=lr, every=500)


def test_any_function_can_be_a_schedule_that_is_gone_on_with(tmp_path):
    options = {"steps": 4, "every": 2, "checkpoint": tmp_path}
    first = sp.gradient_flow(X, Y, sp.Partial(0.5), schedule=lambda step: 1 - 0.1 * step, **options)
    again = sp.gradient_flow(X, Y, sp.Partial(0.5), schedule=lambda step: 1 - step * 0.1, **options)
    np.testing.assert_array_equal(again.points, first.points)
    with pytest.raises(ValueError, match="schedule was"):
        sp.gradient_flow(X, Y, sp.Partial(0.5), schedule=lambda step: 1 - 0.2 * step, **options)
    with pytest.raises(TypeError, match="schedule must be a function"):
        sp.gradient_flow(X, Y, sp.Partial(0.5), schedule=0.5)
    with pytest.raises(ValueError, match="mass"):  # of the last step, before the first
        sp.gradient_flow(X, Y, sp.Partial(0.5), steps=4, schedule=lambda step: 0.9 - 0.4 * step)


def test_problems_that_do_not_converge_are_counted_once():
    with pytest.warns(sp.NotConverged, match=r"20 problems of the flow did not reach") as caught:
        sp.gradient_flow(X, Y, sp.Balanced(0.01), steps=5, every=5, max_iter=1)
    assert len(caught) == 1


def test_problems_are_refused_before_any_work():
    with pytest.raises(TypeError, match="problem must be"):
        flow_frames(X, Y, "partial")


# Shapes.


@pytest.mark.parametrize("stroke", [0.06, 0.02, 0.0])
def test_the_s_turns_onto_itself(stroke):
    """By half a circle around its middle; its stroke is 0.06 wide unless said, and its bows are of radius 0.17."""
    points = s_shape(4000, 3, **({} if stroke == 0.06 else {"stroke": stroke})) - [0.72, 0.5]
    centres = np.array([[0, 0.17], [0, -0.17]])
    away = abs(np.linalg.norm(points[:, None] - centres, axis=-1) - 0.17).min(axis=1)
    assert away.max() <= stroke / 2 + 1e-12
    half, other = points[:1000], points[1000:2000]
    assert wasserstein(half, -other) < 0.05 < wasserstein(half, other * [-1, 1])
    assert not ((points[:, 0] > 0.05) & (points[:, 1] > 0.04) & (points[:, 1] < 0.15)).any(), "open on the upper right"


def test_discs_are_even():
    points = disc(4000, 1) - [0.22, 0.5]
    radius = np.linalg.norm(points, axis=1)
    assert radius.max() <= 0.17
    assert (radius < 0.17 / 2).mean() == pytest.approx(1 / 4, abs=0.03)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_are_densities(dtype):
    """Dark pixels get points in proportion, transparent and white ones none; rows run from top to bottom."""
    most = np.iinfo(dtype).max
    pixels = np.full((2, 4, 4), most, dtype=dtype)
    pixels[0, 0, :3] = 0
    pixels[1, 3, :3] = most // 5 * 3  # two fifths of the ink of black
    pixels[1, 0] = 0
    points = image_points(pixels, 7000)
    top = (points[:, 0] <= 0.25) & (points[:, 1] >= 0.25) & (points[:, 1] <= 0.5)
    bottom = (points[:, 0] >= 0.75) & (points[:, 1] <= 0.25)
    assert (top | bottom).all()
    assert top.mean() == pytest.approx(5 / 7, abs=0.02)
    for white in (pixels[:, 1:3], pixels[:, 1:3, :3], pixels[1:, :1]):
        with pytest.raises(ValueError, match="paper must not be all white"):
            image_points(white, name="paper")


# The command.

drawing = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")


def call(*options):
    return CliRunner().invoke(app, ["flow", *map(str, options)])


@drawing
def test_the_command_writes_frames_distances_and_an_animation(tmp_path):
    from PIL import Image

    np.save(tmp_path / "x.npy", X)
    np.savetxt(tmp_path / "y.csv", Y, delimiter=",")
    folder, gif = tmp_path / "run", tmp_path / "flow.gif"
    options = [tmp_path / "x.npy", tmp_path / "y.csv", "-o", folder, "--steps", 60, "--every", 20, "--mass", 0.75]
    done = call(*options, "--animate", gif)
    assert done.exit_code == 0, done.output
    flow = sp.gradient_flow(X, np.loadtxt(tmp_path / "y.csv", delimiter=","), sp.Partial(0.75), steps=60, every=20)
    np.testing.assert_array_equal(np.load(folder / "points.npy"), flow.points[-1])
    with (folder / "flow.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 20, 40, 60]
    assert [float(row["w2"]) for row in rows] == list(flow.distances)
    assert (folder / "flow.png").read_bytes().startswith(b"\x89PNG")
    with Image.open(gif) as animation:
        assert animation.n_frames >= 4
    again = call(*options)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    assert call(*options, "--animate", gif, "--resume").exit_code == 2, "the animation exists"
    assert call(*options, "--resume").exit_code == 0
    assert call(*options, "--seed", 1, "--resume").exit_code == 2, "another run's frames"
    assert call(*options, "--seed", 1, "--force").exit_code == 0
    assert (np.load(folder / "points.npy") != flow.points[-1]).any()


@drawing
def test_the_command_lets_the_mass_fall(tmp_path):
    options = ["-o", tmp_path / "run", "--points", 50, "--steps", 20, "--every", 20, "--mass", 0.5, "--mass-from", 1]
    done = call(*options)
    assert done.exit_code == 0, done.output
    schedule = sp.Ramp(1.0, 0.5, 20)
    flow = sp.gradient_flow(disc(50, 0), s_shape(50, 1), sp.Partial(0.5), steps=20, every=20, schedule=schedule)
    np.testing.assert_array_equal(np.load(tmp_path / "run" / "points.npy"), flow.points[-1])
    assert call(*options[:-1], 0.9, "--resume").exit_code == 2, "another schedule's frames"
    for wrong in (["--mass-from", 1.5], ["--mass-from", 0.9, "--problem", "balanced"]):
        refused = call("-o", tmp_path / "other", *wrong)
        assert refused.exit_code == 2
        assert "mass" in refused.stderr


@drawing
def test_three_dimensions_and_one_are_drawn(tmp_path):
    for dimension in (1, 3):
        np.save(tmp_path / "x.npy", RNG.random((20, dimension)))
        np.save(tmp_path / "y.npy", RNG.random((20, dimension)))
        folder = tmp_path / f"{dimension}"
        done = call(tmp_path / "x.npy", tmp_path / "y.npy", "-o", folder, "--steps", 10, "--no-distance")
        assert done.exit_code == 0, done.output
        assert (folder / "flow.png").exists()
        assert (folder / "flow.csv").read_text() == "step,w2\n0,nan\n10,nan\n"


@drawing
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--problem", "unbalanced"], "needs --tau"),
        (["--problem", "balanced", "--mass", 0.5], "--mass is for --problem partial"),
        (["--animate", "flow.avi"], "must end in .gif or .mp4"),
        (["nothing.png"], "nothing.png"),
        (["--points", 0], "at least 1 point"),
        (["--mass-from", 2], "--mass-from must be in (0, 1]. Got 2"),
        (["--max-pixels", 100], "Neither of the two is an image. Leave out --max-pixels."),
        (["--lr", 0], "lr must be"),
    ],
    ids=str,
)
def test_the_command_refuses_in_a_line(options, words, tmp_path):
    done = call(*options, "-o", tmp_path / "run", "--steps", 10)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()
    assert call().exit_code == 2, "a folder has to be named"


def spot(dtype=np.uint8):
    """A grey image, dark in its upper left corner alone."""
    grey = np.full((20, 40), np.iinfo(dtype).max, dtype=dtype)
    grey[:10, :10] = 0
    return grey


@pytest.mark.parametrize("kind", ["8 bits", "16 bits", "turned"])
def test_images_are_read_upright_with_all_their_bits(kind, tmp_path):
    image = pytest.importorskip("PIL.Image")
    drawn = image.fromarray(spot(np.uint16 if kind == "16 bits" else np.uint8))
    exif = drawn.getexif()
    exif[0x0112] = 3 if kind == "turned" else 1  # by half a circle
    drawn.save(tmp_path / "spot.png", exif=exif)
    points = read_points(str(tmp_path / "spot.png"), 500, 0, 10_000)
    if kind == "turned":
        points = [1, 0.5] - points
    assert (points[:, 0] <= 0.25).all()
    assert (points[:, 1] >= 0.25).all()


@drawing
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bomb.png", "bomb.png must have at most 100,000,000 pixels. Got 3,600,000,000 instead"),
        ("large.png", "large.png must have at most 100,000,000 pixels. Got 121,000,000 instead"),
        ("short.png", "short.png must be an image that can be read whole"),
        ("words.png", "words.png must be an image"),
        ("none.png", "none.png must be an image file. There is none"),
        ("moving.gif", "it holds several pictures"),
        ("white.png", "white.png must not be all white"),
    ],
)
def test_images_that_cannot_be_used_are_refused_in_a_line(name, words, tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / name
    image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "whole.png")
    image.fromarray(np.full((2, 2), 255, dtype=np.uint8)).save(tmp_path / "white.png")
    (tmp_path / "short.png").write_bytes((tmp_path / "whole.png").read_bytes()[:2000])
    (tmp_path / "words.png").write_text("no image")
    for claimed, side in (("bomb.png", 60_000), ("large.png", 11_000)):
        header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        parts = struct.pack(">I", 13), header, struct.pack(">I", zlib.crc32(header)), b"\0\0\0\0IDAT"
        (tmp_path / claimed).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    frames = [image.fromarray(RNG.integers(0, 256, (8, 8), dtype=np.uint8)) for _ in range(2)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    done = call(path, "-o", tmp_path / "run", "--steps", 10)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_file_that_is_taken_for_an_image_is_a_density(ending, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(spot()).save(tmp_path / f"spot{ending.upper()}")
    points = read_points(str(tmp_path / f"spot{ending.upper()}"), 500, 0, 10_000)
    assert (points[:, 0] <= 0.25).mean() > 0.95  # but for the noise of a lossy format


@drawing
def test_points_that_are_not_finite_are_told_by_their_file(tmp_path):
    np.save(tmp_path / "y.npy", np.where(Y > 0.9, np.nan, Y))
    done = call("disc", tmp_path / "y.npy", "-o", tmp_path / "run")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"spadeful: {tmp_path / 'y.npy'} must hold finite numbers")


@drawing
def test_the_limit_of_pixels_can_be_chosen(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(spot()).save(tmp_path / "spot.png")
    options = [tmp_path / "spot.png", "-o", tmp_path / "run", "--steps", 10, "--max-pixels"]
    assert "must have at most 799 pixels. Got 800 instead" in call(*options, 799).stderr
    assert call(*options, 800).exit_code == 0


@drawing
def test_a_forced_run_that_fails_leaves_nothing_of_the_earlier_one(tmp_path):
    assert call("-o", tmp_path, "--points", 20, "--steps", 4, "--every", 2).exit_code == 0
    assert call("-o", tmp_path, "--points", 20, "--steps", 200, "--lr", 10, "--force").exit_code == 2
    assert not {path.name for path in tmp_path.iterdir()} & {"points.npy", "flow.png"}


@drawing
def test_what_is_read_and_what_is_of_others_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", X)
    before = Path("points.npy").read_bytes()
    short = ("--steps", 4, "--every", 2)
    assert "Got points.npy twice" in call("points.npy", "s", "-o", ".", "--force", *short).stderr
    assert "there is no flow in it" in call("-o", ".", "--resume", *short).stderr
    assert Path("points.npy").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["points.npy"]
    assert "Leave out --points." in call("points.npy", "points.npy", "-o", "run", "--points", 5, *short).stderr


@drawing
def test_an_image_is_not_replaced_by_its_animation(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(spot()).save(tmp_path / "spot.gif")
    before = (tmp_path / "spot.gif").read_bytes()
    shown = call(tmp_path / "spot.gif", "s", "-o", tmp_path / "run", "--animate", tmp_path / "spot.gif", "--force")
    assert "spot.gif twice" in "".join(shown.stderr.splitlines())
    assert (tmp_path / "spot.gif").read_bytes() == before


@drawing
def test_folders_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = call("-o", "run[/b] [red]", "--points", 20, "--steps", 2)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "run[/b] [red]" in shown.stdout


@drawing
def test_text_files_can_be_described(tmp_path):
    (tmp_path / "x.csv").write_text("0,1\n1.5,2\n3,4\n5,6\n7,8\n")
    run = [tmp_path / "x.csv", "s", "-o", tmp_path / "run", "--steps", 2, "--every", 1]
    assert "--header or --no-header" in call(*run).stderr
    shown = call(*run, "--no-header")
    assert shown.exit_code == 0
    assert "5 to 1,000" in shown.stdout
    assert "are for .csv files" in call("-o", tmp_path / "other", "--header").stderr
    assert "one of the shapes disc and s" in call("circle", "-o", tmp_path / "other").stderr


@drawing
def test_clouds_of_one_point_are_drawn(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros((3, 2)))
    one = tmp_path / "one.npy"
    shown = call(one, one, "-o", tmp_path / "run", "--batch-size", 1, "--steps", 2, "--every", 1)
    assert (shown.exit_code, shown.stderr) == (0, "")


@drawing
def test_films_need_ffmpeg(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call("-o", tmp_path / "run", "--animate", tmp_path / "flow.mp4")
    assert done.exit_code == 2
    assert "ffmpeg" in done.stderr


@drawing
@pytest.mark.slow
def test_an_interrupted_command_goes_on(tmp_path):
    """Ctrl-C keeps the frames; --resume ends where an uninterrupted run does."""
    options = ["--steps", "8000", "--every", "400", "--points", "100"]
    command = [sys.executable, "-m", "spadeful", "flow", *options]
    running = subprocess.Popen([*command, "-o", tmp_path / "run"], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "frames" / "part-00000002.npz").exists():
        assert running.poll() is None
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "--resume" in said
    assert not (tmp_path / "run" / "points.npy").exists()
    assert (tmp_path / "run" / "flow.csv").read_text().startswith("step,w2\n0,")
    subprocess.run([*command, "-o", tmp_path / "run", "--resume"], check=True, timeout=120)
    subprocess.run([*command, "-o", tmp_path / "whole"], check=True, timeout=120)
    for name in ("flow.csv", "points.npy"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
