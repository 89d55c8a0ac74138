"""The demonstration: Example 1 of the paper, and every mass between two clouds at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from spadeful import figures
from spadeful.arrays import Floats
from spadeful.files import check_free
from spadeful.masspath import MassPath, mass_path
from spadeful.simulations.example import Example, example_one

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def squared_distances(x: Floats, y: Floats) -> Floats:
    distances: Floats = ((x[:, None] - y) ** 2).sum(-1)
    return distances


def two_clouds(n: int = 1000, outliers: float = 0.1, seed: int = 0) -> tuple[Floats, Floats]:
    """Two clouds in the plane, one apart, some points of each strewn far from the other."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n, 2))
    y[:, 0] += 1
    far = round(n * outliers)
    x[:far] = rng.normal(loc=(-5, 5), size=(far, 2))
    y[:far] = rng.normal(loc=(6, -5), size=(far, 2))
    return x, y


def draw(example: Example, path: MassPath) -> Figure:
    figure = figures.new_figure(11, 3.6)
    *panels, curve = figure.subplots(1, 4, width_ratios=[1, 1, 1, 2.4])
    for axes, (name, plan) in zip(panels, example.plans.items(), strict=True):
        figures.draw_batch_plan(axes, example.points, example.batch, plan)
        axes.set_title(f"$s = {name}$")
    figures.draw_mass_path(curve, path)
    curve.set_title("1000 + 1000 points, a tenth of them outliers")
    return figure


def table_of(title: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", min_width=60)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def example_rows(example: Example) -> Iterator[tuple[str, ...]]:
    for name, plan in example.plans.items():
        rows, cols, _ = plan.triplets
        wrong = int((example.batch[0][rows] != example.batch[1][cols]).sum())
        yield name, f"{plan.value:.3f}", f"{abs(plan.gap):.0e}", str(len(rows)), str(wrong)


def path_rows(path: MassPath) -> Iterator[tuple[str, ...]]:
    for mass in (0.25, 0.5, 0.75, 0.9, 0.95, 1.0):
        plan = path.at(mass)
        price = path.prices[np.searchsorted(path.masses, mass) - 1]
        yield f"{mass:g}", f"{plan.value:.4f}", f"{price:.3f}", f"{abs(plan.gap):.0e}"


def run(output: str | Path, force: bool = False) -> Path:
    """Solve, print two small tables, write a picture; returns where it is."""
    check_free(output, force)
    console = Console()
    example = example_one()
    title = "Example 1 of the paper: a batch of 3 + 3 of 5 + 5 points"
    headings: tuple[str, ...] = ("mass", "value", "duality gap", "mappings", "misspecified")
    console.print(table_of(title, headings, example_rows(example)))

    cost = squared_distances(*two_clouds())
    start = perf_counter()
    path = mass_path(cost)
    seconds = perf_counter() - start
    headings = "mass", "value", "price", "duality gap"
    console.print(table_of("Every mass between two clouds of 1000 points", headings, path_rows(path)))
    console.print(f"{len(path.prices)} optimal plans in one solve of {seconds * 1000:.0f} ms.")

    written = figures.save(draw(example, path), output, force)
    console.print(f"Picture: {written}")
    return written
