"""Every picture. Functions draw on the axes they are given; `save` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spadeful.arrays import Floats
from spadeful.files import replacing
from spadeful.masspath import MassPath
from spadeful.plan import Indices, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Clouds = tuple[Floats, Floats]
Batch = tuple[Indices, Indices]

SOURCE, TARGET, RIGHT, WRONG = "#2a9d4b", "#2f6fdf", "#222222", "#d62839"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError("Pictures need matplotlib: pip install 'spadeful[plot]'") from missing
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str | Path, force: bool = False) -> Path:
    """Write a figure, in the format that the path's ending names."""
    with replacing(path, force) as temporary:
        figure.savefig(temporary, dpi=150)
    return Path(path)


def draw_batch_plan(axes: Axes, points: Clouds, batch: Batch, plan: Plan) -> None:
    """Two clouds whose full plan is the identity, and the plan of one pair of batches as arrows.

    Arrows are black where the full plan has them too, and red where they are misspecified.
    """
    for cloud, part, colour in zip(points, batch, (SOURCE, TARGET), strict=True):
        axes.scatter(cloud[:, 0], cloud[:, 1], s=90, facecolors="white", edgecolors=colour, zorder=3)
        axes.scatter(cloud[part, 0], cloud[part, 1], s=90, color=colour, zorder=4)
    rows, cols, masses = plan.triplets
    for i, j, mass in zip(batch[0][rows], batch[1][cols], masses, strict=True):
        colour = RIGHT if i == j else WRONG
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 6 * mass, "shrinkA": 7, "shrinkB": 7}
        axes.annotate("", xy=tuple(points[1][j]), xytext=tuple(points[0][i]), arrowprops=arrow)
    axes.set(xlim=(-0.4, 1.4), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def draw_mass_path(axes: Axes, path: MassPath) -> None:
    """Value and price of every mass."""
    axes.plot(path.masses, path.values, color=SOURCE, lw=2)
    axes.set(xlabel="mass $s$", xlim=(0, 1))
    axes.set_ylabel("value of the optimal plan", color=SOURCE)
    axes.set_ylim(bottom=min(0.0, float(np.min(path.values))))
    prices = axes.twinx()
    prices.step(path.masses[1:], path.prices, color=WRONG, lw=1.2)
    prices.set_ylabel("price of one more unit", color=WRONG)
    prices.set_ylim(bottom=min(0.0, float(np.min(path.prices))))
