"""Pictures and animations of gradient flows (appendix C.7)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spadeful.arrays import Floats
from spadeful.figures import flatten, new_figure, plane_of, title_of
from spadeful.files import check_free, replacing
from spadeful.flow import Flow, gradient_flow
from spadeful.problems import Balanced, Partial, Problem, Ramp, Unbalanced
from spadeful.shapes import disc, s_shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What the paper compares. The first m-UOT ends nearest of the paper's grid, with plans of the mass 14 whose steps
#: scatter the points, the second nearest of those of about the mass 1: see benchmarks/flow.py. Of the last method, the
#: mass falls from all.
METHODS: dict[str, Problem] = {
    "m-OT": Balanced(),
    "m-UOT, τ = 0.001, ε = 1": Unbalanced(0.001, 1.0),
    "m-UOT, τ = 1, ε = 0.1": Unbalanced(1.0, 0.1),
    "m-POT, s = 0.9": Partial(0.9),
    "m-POT, s = 0.8": Partial(0.8),
    "m-POT, 1 to 0.5": Partial(0.5),
}
ANIMATIONS = (".gif", ".mp4")


def paper_flows(steps: int = 5000, n: int = 1000) -> tuple[Floats, dict[str, Flow]]:
    """The target, an S, and the flows of a disc to it by the methods of the paper: (k, m) = (4, 4), lr 0.001."""
    x, y = disc(n, seed=0), s_shape(n, seed=1)
    schedules = {"m-POT, 1 to 0.5": Ramp(1.0, 0.5, steps)}
    return y, {
        name: gradient_flow(x, y, problem, steps=steps, every=steps // 5, schedule=schedules.get(name))
        for name, problem in METHODS.items()
    }


def draw_flows(data: tuple[Floats, dict[str, Flow]]) -> Figure:
    """A row of frames for each method, with the exact W2 above each; all show the same part of the plane."""
    y, flows = data
    start = next(iter(flows.values())).points[0]
    view = view_of(start, y, [points for flow in flows.values() for points in flow.points])
    most = max(len(flow.steps) for flow in flows.values())
    figure = new_figure(1, 1)  # as high as its frames are in the end
    rows = figure.subplots(len(flows), most, squeeze=False)
    for axes_row, (name, flow) in zip(rows, flows.items(), strict=True):
        for axes, step, points, distance in zip(axes_row, flow.steps, flow.points, flow.distances, strict=True):
            draw_frame(axes, points, flow.points[0], y, view)
            axes.set_title(f"step {step:,}{w2(distance)}", fontsize=8.5)
        axes_row[0].set_ylabel(title_of(name).replace(", ", "\n", 1), fontsize=10)
    shape = float(np.clip(rows[0, 0].get_data_ratio(), 0.5, 1.6))
    figure.set_size_inches(1.75 * most, (1.65 * shape + 0.2) * len(flows))
    return figure


def view_of(start: Floats, y: Floats, clouds: list[Floats]) -> tuple[Floats, Floats]:
    """The corners of what is shown: where points begin, where they are to go, and nearly all that they come to.

    A few that were thrown far out would make everything else small.
    """
    ends = [np.quantile(place(points, start, y), [0.005, 0.995], axis=0) for points in clouds]
    shown = np.concatenate([*flatten(start, y), *ends])
    low, high = shown.min(axis=0), shown.max(axis=0)
    margin = 0.08 * ((high - low).max() or abs(high).max() or 1.0)
    return low - margin, high + margin


def draw_frame(
    axes: Axes, points: Floats, start: Floats, y: Floats, view: tuple[Floats, Floats], scale: float = 1.0
) -> Any:
    """The points, in the colours of where they started, over the target; returns what is drawn of the points."""
    from_here, target = flatten(start, y)
    size = scale * float(np.clip(3000 / len(y), 1, 12))
    axes.scatter(target[:, 0], target[:, 1], s=size, color="0.78", lw=0, zorder=1)
    here = place(points, start, y)
    shown = axes.scatter(here[:, 0], here[:, 1], s=size, c=from_here[:, 1 % y.shape[1]], lw=0, zorder=2)
    (left, bottom), (right, top) = view
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
    axes.set_aspect("equal" if y.shape[1] > 1 else "auto")
    axes.spines[:].set_color("0.8")
    return shown


def place(points: Floats, start: Floats, y: Floats) -> Floats:
    """Points in the plane that start and y are shown in."""
    if y.shape[1] == 1:
        return np.column_stack([points, np.zeros(len(points))])
    centre, directions = plane_of(start, y)
    return np.asarray((points - centre) @ directions)


def check_animation(path: str | Path, force: bool = False) -> Path:
    """The path, if an animation can be written there."""
    path = check_free(path, force)
    if path.suffix.lower() not in ANIMATIONS:
        raise ValueError(f"{path} must end in {' or '.join(ANIMATIONS)}. Got {path.suffix!r} instead.")
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError("An .mp4 needs the program ffmpeg, which is not there. Install it, or name a .gif.")
    return path


def animate_flow(flow: Flow, y: Floats, path: str | Path, force: bool = False) -> Path:
    """Write a flow as a .gif, or as an .mp4 where ffmpeg is; it stays at the last frame for a while."""
    path = check_animation(path, force)
    figure = new_figure(4, 4)
    from matplotlib.animation import FFMpegWriter, PillowWriter

    axes = figure.subplots()
    start = flow.points[0]
    shown = draw_frame(axes, start, start, y, view_of(start, y, list(flow.points)), scale=3)
    title = axes.set_title(" ")
    writer = (PillowWriter if path.suffix.lower() == ".gif" else FFMpegWriter)(fps=12)
    with replacing(path, force) as temporary, writer.saving(figure, str(temporary), dpi=100):
        for at in [*range(len(flow.steps)), *[-1] * 12]:
            shown.set_offsets(place(flow.points[at], start, y))
            title.set_text(f"step {flow.steps[at]:,}{w2(flow.distances[at])}")
            writer.grab_frame()
    return path


def w2(distance: float) -> str:
    return f", $W_2$ = {f'{distance:#.3g}'.rstrip('.')}" if np.isfinite(distance) else ""
