"""From two files of points to a file with the plan between them: what `spadeful plan` does."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from traceback import clear_frames
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from spadeful import figures
from spadeful.aggregate import MiniBatchPlan
from spadeful.files import check_apart, check_free, replacing
from spadeful.minibatch import minibatch
from spadeful.points import Text, load_labels, load_points, locate
from spadeful.problems import Problem
from spadeful.progress import terminal

#: The folders in which a run keeps its parts.
KINDS = ("plans", "values")


@dataclass(frozen=True)
class Outputs:
    """Where the results go: the plan, the images of x and a picture, the last two if asked for."""

    plan: Path
    images: Path | None = None
    picture: Path | None = None
    force: bool = False

    @property
    def parts(self) -> Path:
        """The folder beside the plan for the finished parts of a run."""
        return self.plan.with_name(f"{self.plan.name}.parts")

    def check(self, inputs: Sequence[Path], resume: bool) -> None:
        """Refuse what cannot be written, or would be written over something, before the work is done."""
        given = [path for path in (self.plan, self.images, self.picture) if path is not None]
        check_apart(given, inputs)
        endings = {self.plan: (".npz",), self.images: (".npy",), self.picture: figures.ENDINGS}
        for path in given:
            if path.suffix.lower() not in endings[path]:
                raise ValueError(f"{path} must end in {' or '.join(endings[path])}. Got {path.suffix!r} instead.")
        if self.parts.is_dir() and not (resume or self.force):
            raise FileExistsError(
                f"{self.parts} holds what an interrupted run has finished. Pass --resume to go on from there, "
                "or --force to start afresh."
            )
        # Parts are there until all is written: outputs that exist beside them are this run's own, or given up to it.
        for path in given:
            check_free(path, self.force or (resume and self.parts.is_dir()))


def run(
    x: str,
    y: str,
    problem: Problem,
    outputs: Outputs,
    *,
    text: Text,
    labels: Sequence[str],
    resume: bool,
    **options: Any,
) -> MiniBatchPlan:
    """Read, solve, write, and print a summary; the options are those of `minibatch`."""
    outputs.check([locate(source)[0] for source in (x, y, *labels)], resume)
    figure = figures.new_figure(11, 5.6) if outputs.picture else None
    points = load_points(x, text), load_points(y, text)
    if points[0].shape[1] != points[1].shape[1]:
        had = " and ".join(str(its.shape[1]) for its in points)
        raise ValueError(f"{x} and {y} must have points of the same number of dimensions. Got {had} instead.")
    if len(labels) > 2:
        raise ValueError(f"There must be at most two files of labels, of x and of y. Got {len(labels)} instead.")
    classes = [load_labels(source, len(its), text) for source, its in zip(labels, points, strict=False)]
    options["labels"] = (*classes, None)[:2] if classes else None
    start = perf_counter()
    with parts_kept(outputs.parts, resume), warnings_in_a_line():
        result = minibatch(*points, problem, checkpoint=outputs.parts, progress=True, **options)
        result.save(outputs.plan, force=True)
        if outputs.images:
            save_images(result, points, outputs.images)
        if figure is not None and outputs.picture:
            figures.draw_minibatch(figure, points, result)
            figures.save(figure, outputs.picture, force=True)
    forget(outputs.parts)
    terminal().print(summary(points, problem, result, perf_counter() - start, outputs))
    return result


def save_images(result: MiniBatchPlan, points: tuple[NDArray[Any], NDArray[Any]], path: Path) -> None:
    """Write where each x goes; those without mass stay where they are."""
    x, y = points
    with replacing(path, force=True) as temporary, temporary.open("wb") as file:
        np.save(file, result.map(y, missing=x), allow_pickle=False)


@contextmanager
def parts_kept(folder: Path, resume: bool) -> Iterator[None]:
    """The folder with the parts of this run and no other; kept if it fails, unless nothing is in it."""
    if not resume:
        forget(folder)
    try:
        yield
    except BaseException as failure:
        some = any(folder.glob("*/part-*.npz"))
        if not some:
            forget(folder)
        if isinstance(failure, KeyboardInterrupt):
            hint = f"What is finished is kept in {folder}. Run the same command with --resume to go on from there."
            raise KeyboardInterrupt(hint if some else "Nothing was finished.") from None
        raise


def forget(folder: Path) -> None:
    """Remove the parts of a run, and nothing else that may be in the folder."""
    for kind in KINDS:
        shutil.rmtree(folder / kind, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Warnings of many parts, each once and at the end."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        except KeyboardInterrupt as stop:
            clear_frames(stop.__traceback__)  # ends the workers here, where what joblib says of that is caught
            raise
    for message, category in dict.fromkeys((str(warning.message), warning.category) for warning in caught):
        warnings.warn(message, category, stacklevel=3)


def summary(
    points: tuple[NDArray[Any], NDArray[Any]], problem: Problem, result: MiniBatchPlan, seconds: float, outputs: Outputs
) -> Table:
    x, y = points
    table = Table(show_header=False, title="Mini-batch transport", title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")

    def row(name: str, text: str) -> None:
        table.add_row(name, text)

    def share(masses: NDArray[Any]) -> str:
        matched = int((masses > 0).sum())
        return f"{matched:,} of {len(masses):,} ({matched / len(masses):.1%})"

    batches = " and ".join(str(size) for size in dict.fromkeys(result.settings["batch_size"]))
    count = result.settings["n_batches"]
    row("points", f"{len(x):,} and {len(y):,}")
    row("dimension", str(x.shape[1]))
    row("problem", f"{problem}")
    row("batches", f"{count:,} of {batches} points, {result.settings['pairing']}")
    error = f" ± {result.standard_error:.2g}" if np.isfinite(result.standard_error) else ""
    row("value", f"{result.value:.6g}{error}")
    if not np.isclose(result.objective, result.value, rtol=1e-9, atol=0):
        row("objective", f"{result.objective:.6g}")
    row("mass", f"{result.mass:.6g}")
    row("matched x", share(result.row_mass))
    row("matched y", share(result.col_mass))
    row("entries", f"{result.plan.nnz:,}")
    row("time", f"{seconds:.1f} s")
    for name, path in (("plan", outputs.plan), ("images of x", outputs.images), ("picture", outputs.picture)):
        if path is not None:
            row(name, str(path))
    return table
