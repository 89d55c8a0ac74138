"""The picture of the grid: how many times faster, over the size, for each mass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from costs import TITLES
from goals import bounds
from measure import geometric_mean

# Okabe and Ito's colours, which the colour-blind tell apart; markers for print without colours.
STYLES = {
    "clouds2": ("#0072B2", "o"),
    "clouds128": ("#56B4E9", "s"),
    "uniform": ("#E69F00", "^"),
    "clustered": ("#009E73", "D"),
    "integer": ("#CC79A7", "v"),
}


def draw_mass(axes: Any, cells: list[dict[str, Any]], mass: float, sizes: list[int]) -> None:
    wanted = bounds(mass)
    for family in dict.fromkeys(c["family"] for c in cells):
        points = [(c["m"], c["ratio"]) for c in cells if c["family"] == family]
        colour, marker = STYLES[family]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, ms=5, lw=1.6, label=TITLES[family])
    axes.axhline(wanted["each"], color="#333333", lw=1.3, zorder=1.5, label="goal for every cell")
    axes.axhline(wanted["mean"], color="#333333", lw=1.3, ls="--", zorder=1.5, label="goal for the geometric mean")
    rival = "POT partial_wasserstein" if mass < 1 else "the fastest rival"
    ratios = [c["ratio"] for c in cells]
    reached = f"mean {geometric_mean(ratios):.1f} (goal {wanted['mean']:g})"
    lowest = f"lowest {min(ratios):.1f} (goal {wanted['each']:g})"
    axes.set_title(f"s = {mass:g}, against {rival}\n{reached}, {lowest}", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(m) for m in sizes], fontsize=8)
    axes.xaxis.minorticks_off()
    axes.set_xlabel("points m")
    axes.grid(which="major", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw(results: dict[str, Any], file: Path) -> None:
    cells = [c for c in results["grid"] if c["ratio"] is not None]
    masses = [s for s in results["masses"] if any(c["mass"] == s for c in cells)]
    if not masses:
        return
    # Without pyplot: it would look for a display.
    figure = Figure(figsize=(3.5 * len(masses), 4.6), layout="constrained")
    panels = figure.subplots(1, len(masses), sharey=True, squeeze=False)
    for axes, mass in zip(panels[0], masses, strict=True):
        draw_mass(axes, [c for c in cells if c["mass"] == mass], mass, results["sizes"])
    first = panels[0][0]
    first.set_ylabel("times faster")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if first.get_ylim()[0] <= t]
    first.set_yticks([t for t in ticks if t <= first.get_ylim()[1]])
    first.yaxis.set_major_formatter("{x:g}")
    first.yaxis.minorticks_off()
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)
