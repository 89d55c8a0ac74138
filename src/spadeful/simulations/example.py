"""Example 1 of the paper: two batches of points in two columns, and what transport between them does (appendix C.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from spadeful.arrays import Floats
from spadeful.figures import NOTHING, Batch, Clouds, draw_batch_plan, new_figure, number
from spadeful.plan import Plan
from spadeful.problems import Balanced, Partial, Problem, Unbalanced
from spadeful.solve import solve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTIAL = {"1/3": Partial(1 / 3), "2/3": Partial(2 / 3), "1": Partial(1.0)}
UNBALANCED = {f"{tau:g}": Unbalanced(tau) for tau in (0.2, 0.5, 1.0, 10.0)}
QUARTERS = {"1/4": Partial(1 / 4), "1/2": Partial(1 / 2), "3/4": Partial(3 / 4), "1": Partial(1.0)}
#: Batches of the example that share one optimal mapping, and batches that share none.
OVERLAPPING: Batch = np.arange(3), np.arange(2, 5)
APART: Batch = np.arange(2), np.arange(3, 5)


class Example(NamedTuple):
    """Points whose full plan is the identity, a pair of batches of them, and the plans between these by s or tau."""

    points: Clouds
    batch: Batch
    plans: dict[str, Plan]
    symbol: str

    @property
    def matrices(self) -> dict[str, Floats]:
        """The incomplete transportation matrices (5, 5)."""
        return {name: incomplete(plan, self.batch, len(self.points[0])) for name, plan in self.plans.items()}


def example_one(problems: Mapping[str, Problem] = PARTIAL, scale: float = 1.0, batch: Batch = OVERLAPPING) -> Example:
    """Example 1 of the paper: 5 + 5 points whose full plan is the identity, and unlucky batches of them.

    >>> example = example_one()
    >>> example.matrices["1/3"].round(2)[2]
    array([0.  , 0.  , 0.33, 0.  , 0.  ])
    """
    heights = np.arange(1.0, 6.0)
    x, y = (scale * np.column_stack([np.full(5, side), heights]) for side in (0.0, 1.0))
    cost = cdist(x[batch[0]], y[batch[1]], "sqeuclidean")
    plans = {name: solve(cost, problem) for name, problem in problems.items()}
    partial = all(isinstance(problem, Partial) for problem in problems.values())
    return Example((x, y), batch, plans, "s" if partial else r"\tau")


def incomplete(plan: Plan, batch: Batch, n: int) -> Floats:
    """A plan between batches as a matrix of all points, 0 where they are not in the batches."""
    matrix = np.zeros((n, n))
    matrix[np.ix_(*batch)] = plan.matrix
    return matrix


def draw_matrix(axes: Axes, matrix: Floats, batch: Batch) -> None:
    """An incomplete transportation matrix: the darker the more mass, with the optimal mappings framed."""
    n = len(matrix)
    axes.imshow(matrix, cmap="Greys", vmin=0, vmax=1 / min(map(len, batch)) * 1.25)
    for i, j in zip(*np.nonzero(matrix > NOTHING), strict=True):
        shade = "white" if matrix[i, j] > 0.6 / len(batch[0]) else "black"
        axes.text(j, i, number(matrix[i, j]), color=shade, ha="center", va="center", fontsize=6)
    for i in range(n):
        axes.plot(i + np.array([-1, 1, 1, -1, -1]) / 2.3, i + np.array([-1, -1, 1, 1, -1]) / 2.3, color="0.6", lw=0.6)
    axes.set_xticks(range(n), [f"$y_{j + 1}$" for j in range(n)], fontsize=7)
    axes.set_yticks(range(n), [f"$x_{i + 1}$" for i in range(n)], fontsize=7)
    for side, ticks in zip(batch, (axes.get_yticklabels(), axes.get_xticklabels()), strict=True):
        for at, tick in enumerate(ticks):
            tick.set_color("black" if at in side else "0.7")
    axes.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.85", lw=0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_color("0.6")


def draw_examples(*examples: Example) -> Figure:
    """Plans as arrows above their matrices: the full plan, then those of each example, an example in a band."""
    wide = 1 + max(len(example.plans) for example in examples)
    figure = new_figure(1.75 * wide, 4.3 * len(examples))
    bands: Sequence[Sequence[Axes]] = figure.subplots(2 * len(examples), wide, height_ratios=[1.5, 1] * len(examples))
    for number_, example in enumerate(examples):
        everything = np.arange(len(example.points[0]))
        whole = solve(cdist(*example.points, "sqeuclidean"), Balanced())
        panels = [("full OT", (everything, everything), whole)]
        panels += [(f"${example.symbol} = {name}$", example.batch, plan) for name, plan in example.plans.items()]
        for at, (above, below) in enumerate(zip(*bands[2 * number_ : 2 * number_ + 2], strict=True)):
            if at >= len(panels):
                above.set_axis_off()
                below.set_axis_off()
                continue
            title, batch, plan = panels[at]
            draw_batch_plan(above, example.points, batch, plan)
            above.set_title(f"{title}\nmass {plan.mass:.2g}", fontsize=10)
            draw_matrix(below, incomplete(plan, batch, len(everything)), batch)
    return figure


def partial_example() -> Example:
    """Figure 1: partial transport of s = 1/3, 2/3 and 1."""
    return example_one(PARTIAL)


def unbalanced_example() -> Example:
    """Appendix C.1: unbalanced transport with Kullback-Leibler penalties, tau = 0.2, 0.5, 1 and 10."""
    return example_one(UNBALANCED)


def scaled_partial_example() -> Example:
    """Appendix C.1: the supports scaled by 10 leave partial transport as it is."""
    return example_one(PARTIAL, scale=10.0)


def scaled_unbalanced_example() -> Example:
    """Appendix C.1: the supports scaled by 10 leave little of unbalanced transport."""
    return example_one(UNBALANCED, scale=10.0)


def apart_examples() -> tuple[Example, Example]:
    """Appendix C.1: batches that share no optimal mapping, under unbalanced and partial transport.

    The paper does not say which. With 3 of 5 points there are none, so these have 2.
    """
    return example_one(UNBALANCED, batch=APART), example_one(QUARTERS, batch=APART)
