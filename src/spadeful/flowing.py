"""From two files, images or shapes to a folder with the flow between them: what `spadeful flow` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from spadeful import figures
from spadeful.arrays import Floats
from spadeful.batches import check_count
from spadeful.checkpoint import SETTINGS
from spadeful.files import check_apart, check_free, replacing
from spadeful.flow import Flow, Frame, flow_frames, gather
from spadeful.images import ENDINGS, MOST_PIXELS, read_photo
from spadeful.points import AS_FOUND, Text, load_points, locate
from spadeful.problems import Problem, Schedule
from spadeful.progress import terminal
from spadeful.shapes import disc, image_points, s_shape
from spadeful.simulations.flows import animate_flow, check_animation, draw_flows

SHAPES: dict[str, Callable[[int, int], Floats]] = {"disc": disc, "s": s_shape}
#: What the folder gets beside the frames.
ENDS = ("flow.csv", "points.npy", "flow.png")
#: Frames in the picture.
SHOWN = 6


def read_points(source: str, n: int, seed: int, most: int, text: Text = AS_FOUND) -> NDArray[Any]:
    """The points of a file, or so many of a shape or an image, which may have at most so many pixels."""
    if source in SHAPES:
        return SHAPES[source](n, seed)
    if is_image(source):
        return image_points(read_photo(source, most).pixels, n, seed, source)
    if not Path(source).suffix:
        raise ValueError(
            f"{source} must be a file of points (.npy, .npz, .csv, .parquet), an image ({', '.join(ENDINGS)}) or one "
            f"of the shapes {' and '.join(SHAPES)}."
        )
    return load_points(source, text)


def is_image(source: str) -> bool:
    return source not in SHAPES and Path(source).suffix.lower() in ENDINGS


def file_of(source: str) -> Path | None:
    """The file that points are read from; of a shape there is none."""
    if source in SHAPES:
        return None
    return Path(source) if is_image(source) else locate(source)[0]


def run(
    x: str,
    y: str,
    problem: Problem,
    folder: Path,
    *,
    n: int = 1000,
    seed: int = 0,
    most: int = MOST_PIXELS,
    animation: Path | None = None,
    text: Text = AS_FOUND,
    resume: bool = False,
    force: bool = False,
    **options: Any,
) -> Flow:
    """Let x flow to y, write frames and distances as they come and pictures at the end, and print a summary."""
    check_folder(folder, resume, force)
    if animation is not None:
        check_animation(animation, force)
    figures.new_figure(1, 1)  # says what is missing before there is work to lose
    if n < 1:
        raise ValueError(f"There must be at least 1 point. Got {n} instead.")
    check_count(seed, "seed", least=0)
    points = read_points(x, n, 2 * seed, most, text), read_points(y, n, 2 * seed + 1, most, text)
    parts = folder / "frames"
    ends = [folder / name for name in ENDS]
    kept = [parts / SETTINGS, *parts.glob("part-*.npz")]
    check_apart([*ends, *kept, *([animation] if animation else [])], filter(None, map(file_of, (x, y))))
    coming = flow_frames(*points, problem, seed=seed, checkpoint=parts, progress=True, **options)
    if force and not resume:
        for path in (*kept, *ends):  # and nothing else that may be there
            path.unlink(missing_ok=True)
    start, frames = perf_counter(), []
    try:
        for frame in coming:
            frames.append(frame)
            write_distances(frames, folder / "flow.csv")
    except KeyboardInterrupt:
        hint = f"{len(frames)} frames are kept in {folder}. Run the same command with --resume to go on from there."
        raise KeyboardInterrupt(hint) from None
    seconds = perf_counter() - start
    flow, target = gather(frames), np.asarray(points[1], dtype=np.float64)
    with replacing(folder / "points.npy", force=True) as temporary, temporary.open("wb") as file:
        np.save(file, flow.points[-1], allow_pickle=False)
    figures.save(draw_flows((target, {"": some(flow)})), folder / "flow.png", force=True)
    if animation is not None:
        animate_flow(flow, target, animation, force)
    terminal().print(summary(points, problem, options.get("schedule"), flow, seconds, folder, animation))
    return flow


def check_folder(folder: Path, resume: bool, force: bool) -> None:
    """Refuse a folder with something in it, unless it is to be gone on with or replaced."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"The output must be a folder. Got the file {folder} instead.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        if not resume:
            raise FileExistsError(
                f"{folder} is not empty. Pass --resume to go on with the flow in it, --force to start afresh, "
                "or choose another folder."
            )
        if not (folder / "frames" / SETTINGS).exists():
            raise FileExistsError(f"{folder} is not empty, and there is no flow in it to go on with. Choose another.")
    check_free(folder / "flow.csv", force=True)


def write_distances(frames: list[Frame], path: Path) -> None:
    with replacing(path, force=True) as temporary:
        lines = [f"{frame.step},{frame.distance:.17g}\n" for frame in frames]
        temporary.write_text("step,w2\n" + "".join(lines))


def some(flow: Flow) -> Flow:
    """A few frames, evenly spread from the first to the last."""
    at = np.unique(np.linspace(0, len(flow.steps) - 1, SHOWN).round().astype(int))
    return Flow(flow.steps[at], flow.points[at], flow.distances[at])


def summary(
    points: tuple[NDArray[Any], NDArray[Any]],
    problem: Problem,
    schedule: Schedule | None,
    flow: Flow,
    seconds: float,
    folder: Path,
    animation: Path | None,
) -> Table:
    table = Table(show_header=False, title="Gradient flow", title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    rows = {"points": f"{len(points[0]):,} to {len(points[1]):,}", "problem": f"{problem}"}
    if schedule is not None:
        rows["its mass"] = f"{schedule}"
    rows["steps"] = f"{flow.steps[-1]:,}"
    if np.isfinite(flow.distances).all():
        rows["W2"] = f"{flow.distances[0]:.4g} at the start, {flow.distances[-1]:.4g} at the end"
    rows |= {"time": f"{seconds:.1f} s", "folder": str(folder)}
    if animation is not None:
        rows["animation"] = str(animation)
    for name, text in rows.items():
        table.add_row(name, text)
    return table
