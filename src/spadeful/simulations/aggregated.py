"""The paper's simulation with 10 + 10 points: aggregated plans beside the full one (appendix C.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from spadeful.arrays import Floats
from spadeful.figures import SOURCE, TARGET, new_figure
from spadeful.minibatch import minibatch
from spadeful.problems import Balanced, Partial, Problem, Unbalanced
from spadeful.solve import solve
from spadeful.transport import MappingCounts, count_mappings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The grids that the paper chooses from.
TAUS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)
MASSES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: m-UOT is solved with a little entropy, as everywhere in the paper: so no entry of a batch's plan is 0.
REG = 1.0
#: A draw with five points in each mode, of which m-OT has 55 misspecified mappings as in the paper.
SEED = 44
MISSPECIFIED = "#a8a8a8"


class Aggregated(NamedTuple):
    """Two clouds, the plan between them, and plans of mini-batches by name, each with its counts."""

    x: Floats
    y: Floats
    full: Floats
    plans: dict[str, Floats]
    counts: dict[str, MappingCounts]

    def right_share(self, name: str) -> float:
        """The share of a plan's mass that is on mappings of the full plan."""
        plan = self.plans[name]
        return float(plan[self.full > 0].sum() / plan.sum()) if plan.any() else 0.0


def bimodal_clouds(seed: int, n: int = 10) -> tuple[Floats, Floats]:
    """Points of each of the paper's two mixtures of two Gaussians."""
    rng = np.random.default_rng(seed)
    above_x, above_y = 20.0 * rng.integers(0, 2, (2, n))
    x = rng.normal(size=(n, 2)) + np.column_stack([np.zeros(n), above_x])
    y = rng.multivariate_normal([10, 0], [[1, -0.8], [-0.8, 1]], n) + np.column_stack([np.zeros(n), above_y])
    return x, y


def aggregate(problems: dict[str, Problem], seed: int = SEED, replace: bool = True) -> Aggregated:
    """Mini-batch plans of some problems, k = 32 and m = 6, counted against the full plan.

    Points are put back between the draws of a batch: the paper leaves it open, and its counts are ordinary then.
    Points of each side are in the order of their height, so that the modes are blocks of the matrices.
    """
    # The order of the points is part of the draw: plans are found first, and sorted then.
    x, y = bimodal_clouds(seed)
    rows, cols = (np.argsort(points[:, 1], kind="stable") for points in (x, y))
    full = solve(cdist(x, y, "sqeuclidean"), Balanced()).matrix[np.ix_(rows, cols)]
    plans = {
        name: minibatch(x, y, problem, 6, 32, replace=replace, seed=seed).plan.toarray()[np.ix_(rows, cols)]
        for name, problem in problems.items()
    }
    counts = {name: count_mappings(plan, full) for name, plan in plans.items()}
    return Aggregated(x[rows], y[cols], full, plans, counts)


def best(make: Callable[[float], Problem], grid: Iterable[float], symbol: str) -> tuple[str, Problem]:
    """The problem of a grid that has the most mappings of the full plan, and its name.

    Among these it has the fewest misspecified ones, and then the largest share of its mass where it should be.
    """
    tried = {f"{symbol} = {value:g}": make(value) for value in grid}
    found = aggregate(tried)

    def merit(name: str) -> tuple[int, int, float]:
        counts = found.counts[name]
        return counts.optimal, -counts.misspecified, found.right_share(name)

    name = max(tried, key=merit)
    return name, tried[name]


def comparison() -> Aggregated:
    """m-OT, and m-UOT and m-POT with the best tau and s of the paper's grids."""
    tau, unbalanced = best(lambda tau: Unbalanced(tau, REG), TAUS, r"\tau")
    mass, partial = best(Partial, MASSES, "s")
    return aggregate({"m-OT": Balanced(), f"m-UOT, ${tau}$": unbalanced, f"m-POT, ${mass}$": partial})


def role_of_mass() -> Aggregated:
    """m-POT with s = 0.2, 0.4, 0.6 and 0.8."""
    return aggregate({f"m-POT, $s = {mass:g}$": Partial(mass) for mass in (0.2, 0.4, 0.6, 0.8)})


def draw_aggregated(data: Aggregated) -> Figure:
    """Mappings above, matrices below: the full plan, then the others with their three counts."""
    panels = [("full OT", data.full)]
    panels += [(f"{name}\n({', '.join(map(str, data.counts[name]))})", plan) for name, plan in data.plans.items()]
    figure = new_figure(2.5 * len(panels), 5.6)
    above, below = figure.subplots(2, len(panels), height_ratios=[1.25, 1])
    for mappings, entries, (title, plan) in zip(above, below, panels, strict=True):
        draw_mappings(mappings, data, plan)
        mappings.set_title(title if "\n" in title else f"{title}\n", fontsize=10)
        image = entries.imshow(plan, cmap="Blues", vmin=0)
        entries.set_xticks([0, 9], ["$y_1$", "$y_{10}$"], fontsize=8)
        entries.set_yticks([0, 9], ["$x_1$", "$x_{10}$"], fontsize=8)
        entries.tick_params(length=0)
        bar = figure.colorbar(image, ax=entries, location="bottom", shrink=0.8, aspect=25, pad=0.03)
        bar.ax.tick_params(labelsize=7)
        bar.ax.locator_params(nbins=3)
    above[0].legend(loc="center", fontsize=7, frameon=False, handlelength=1.5)
    note = "In brackets: mappings, misspecified ones, optimal ones. Blue: optimal; grey and dashed: misspecified."
    figure.supxlabel(note, fontsize=8)
    return figure


def draw_mappings(axes: Axes, data: Aggregated, plan: Floats) -> None:
    """Lines between the points, blue where the full plan has them too, the bolder the more mass they carry."""
    most = plan.max(initial=1e-300)
    right = data.full > 0
    for optimal in (False, True):  # the optimal ones on top
        colour, style = (TARGET, "-") if optimal else (MISSPECIFIED, (0, (2, 1)))
        for i, j in zip(*np.nonzero((plan > 1e-6 * most) & (right == optimal)), strict=True):
            share = plan[i, j] / most
            ends = np.stack([data.x[i], data.y[j]])
            axes.plot(
                *ends.T, color=colour, ls=style, lw=0.4 + 2 * share, alpha=0.25 + 0.75 * share, zorder=1 + optimal
            )
    for points, colour, marker, label in ((data.x, SOURCE, "o", r"$\mu_n$"), (data.y, "#333333", "s", r"$\nu_n$")):
        axes.scatter(points[:, 0], points[:, 1], s=18, color=colour, marker=marker, zorder=3, label=label)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")
