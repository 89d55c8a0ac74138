"""The demonstration: Example 1 of the paper, every mass between two clouds at once, and domain adaptation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from spadeful import figures
from spadeful.arrays import Floats
from spadeful.batches import check_seed
from spadeful.files import check_free
from spadeful.masspath import MassPath, mass_path
from spadeful.progress import terminal
from spadeful.simulations.example import Example, example_one

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The pictures, the first of transport and the others of adaptation; and what adaptation needs beside matplotlib.
PICTURES = "transport.png", "digits.png", "features.png"
ADAPTATION = "torch", "lightning_fabric", "safetensors", "sklearn"
INSTALL = "pip install 'spadeful[demo]'"


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


def missing(*packages: str) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in packages if find_spec(name) is None]


def run(
    folder: str | Path,
    force: bool = False,
    *,
    quick: bool = False,
    data: str | Path | None = None,
    seed: int = 0,
    iterations: int | None = None,
) -> None:
    """Transport first, which takes a second, then domain adaptation; pictures go to the folder, all at the end."""
    console = terminal()
    lacking = missing("matplotlib", *ADAPTATION)
    adapts = not quick and not lacking
    if data is not None and lacking:
        raise ImportError(f"--data needs {', '.join(lacking)}: {INSTALL}")
    check_seed(seed)
    paths = [check_free(Path(folder, name), force) for name in (PICTURES if adapts else PICTURES[:1])]
    if adapts:
        from spadeful import demo_digits

        setting = demo_digits.setting_of(data, iterations)
    try:
        found = show_transport(console)
        pictures = [] if "matplotlib" in lacking else [draw(*found)]
        if adapts:
            pictures += demo_digits.run(setting, seed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("No picture was written.") from None
    for path, picture in zip(paths, pictures, strict=False):
        console.print(f"Picture: {figures.save(picture, path, force)}", soft_wrap=True)
    if lacking and not quick:
        skipped = "Domain adaptation" + (" and pictures are" if "matplotlib" in lacking else " is")
        console.print(f"{skipped} left out, for want of {', '.join(lacking)}: {INSTALL}", soft_wrap=True, markup=False)


def show_transport(console: Console) -> tuple[Example, MassPath]:
    """Print two small tables; returns what is to be drawn."""
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
    return example, path
