"""Gradient flow: points that follow the gradient of a mini-batch loss to others (appendix B.4 of the paper)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from spadeful.arrays import Floats
from spadeful.batches import Indices, Sampled, check_count, sampled
from spadeful.checkpoint import Checkpoint
from spadeful.costs import batch_costs, read_both
from spadeful.engine import fingerprint
from spadeful.entropic import quietly, warn_of
from spadeful.minibatch import check_sizes, describe
from spadeful.problems import (
    Balanced,
    Partial,
    Problem,
    Ramp,
    Schedule,
    Unbalanced,
    at_iteration,
    check_schedule,
    is_number,
)
from spadeful.progress import progress_bar
from spadeful.solve import check_limits, solve
from spadeful.threads import all_cores

#: Steps whose batches are drawn in one go.
STRIDE = 128
#: Points this many times as far out as any was at the start have run away.
AWAY = 1e6
#: Entries of the costs of a step from which threads are worth starting.
WORTH_THREADS = 1 << 16


class Frame(NamedTuple):
    """The points after some steps, and their exact Wasserstein-2 distance to the target (NaN if not asked for)."""

    step: int
    points: Floats
    distance: float


@dataclass(frozen=True, eq=False)
class Flow:
    """Frames of a gradient flow: steps (f,), points (f, n, d) and exact W2 (f,)."""

    steps: Indices
    points: Floats
    distances: Floats

    def __repr__(self) -> str:
        return f"Flow({self.points.shape[1]} points, {self.steps[-1]} steps, W2={self.distances[-1]:.4g})"


def gradient_flow(x: Any, y: Any, problem: Problem, batch_size: int = 4, n_batches: int = 4, **options: Any) -> Flow:
    r"""Let the points x flow to y along the gradient of a mini-batch loss, by Euler's scheme (appendix B.4).

    .. math:: x \leftarrow x - \mathrm{lr} \cdot n \, \nabla_x \frac1k \sum_{i=1}^k
              \mathrm{POT}_s(P_{X_i^m}, P_{Y_i^m})

    with fresh batches in every step and the squared Euclidean cost. Plans are held fixed in the gradient.

    Parameters
    ----------
    x, y : array (n_x, d), array (n_y, d)
        Where the points start, and where they shall go.
    problem : Balanced, Partial or Unbalanced
        What is solved between two batches: m-OT, m-POT or m-UOT.
    batch_size, n_batches : int
        m and k; 4 and 4 in the paper.
    **options
        Those of `flow_frames`: steps, lr, every, pairing, debiased and others.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.random((100, 2)), rng.random((100, 2)) + 2
    >>> flow = sp.gradient_flow(x, y, sp.Partial(mass=0.8), steps=500, lr=0.01, every=250)
    >>> flow.steps, flow.points.shape
    (array([  0, 250, 500]), (3, 100, 2))
    >>> bool(flow.distances[-1] < 0.2 * flow.distances[0])
    True
    """
    return gather(flow_frames(x, y, problem, batch_size, n_batches, **options))


def gather(frames: Iterable[Frame]) -> Flow:
    """Frames as one flow."""
    steps, points, distances = zip(*frames, strict=True)
    return Flow(np.array(steps), np.stack(points), np.array(distances))


def flow_frames(
    x: Any,
    y: Any,
    problem: Problem,
    batch_size: int = 4,
    n_batches: int = 4,
    *,
    steps: int = 5000,
    lr: float = 0.001,
    every: int = 1000,
    pairing: Literal["paired", "all"] = "paired",
    debiased: bool = False,
    schedule: Schedule | None = None,
    replace: bool = False,
    measure: bool = True,
    seed: int = 0,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    checkpoint: str | Path | None = None,
    progress: bool = False,
) -> Iterator[Frame]:
    r"""The frames of `gradient_flow`, one at a time as they are reached: the start, every so many steps, the end.

    Parameters
    ----------
    x, y, problem, batch_size, n_batches
        As in `gradient_flow`.
    steps, lr : int, float
        How many steps, and how long they are.
    every : int
        Steps between two frames.
    pairing : "paired" or "all"
        The i-th batch of x with the i-th of y (the paper's definition), or all k*k pairs (the authors' programs).
    debiased : bool
        Follow the mini-batch energy of Salimans et al. (2018), here
        :math:`\mathrm{m}(x, y) - \frac12 \mathrm{m}(x, x') - \frac12 \mathrm{m}(y, y')` with independent batches of x:
        the mini-batch loss alone is least where points have drawn together.
    schedule : function of the step, optional
        The mass of a partial problem in each step, such as `Ramp(1.0, 0.5, steps)`: all mass learns fast, a part of it
        ends nearer.
    replace : bool
        Whether a batch may hold a point twice.
    measure : bool
        Whether to find the exact W2 of every frame, the root of the optimal mean squared distance. It takes a matrix
        of all costs.
    seed : int
        Decides every batch.
    tol, max_iter : float, int
        For regularised problems, as in `solve`.
    checkpoint : path, optional
        A folder for the frames: the same call goes on from the last one after an interruption.
    progress : bool
        Show a bar, on a terminal.
    """
    x, y = (points.astype(np.float64) for points in read_both(x, y))
    m, _ = check_sizes((batch_size, batch_size))
    k, steps, every = check_count(n_batches, "n_batches"), check_count(steps, "steps"), check_count(every, "every")
    seed = check_count(seed, "seed", least=0)
    tol, max_iter = check_limits(tol, max_iter)
    check_schedule(problem, schedule)
    masses = [Partial(schedule(step)).mass for step in range(steps)] if schedule else []
    if not is_number(lr) or not 0 < lr < np.inf:
        raise ValueError(f"lr must be a number above 0. Got {lr!r} instead.")
    if pairing not in ("paired", "all"):
        raise ValueError(f"pairing must be 'paired' or 'all'. Got {pairing!r} instead.")
    for points, name in ((x, "x"), (y, "y")):
        if len(bad := np.flatnonzero(~(abs(points) <= 1e100).all(axis=1))):
            at = bad[0]
            raise ValueError(
                f"{name} must hold finite numbers of at most 1e100. Got {points[at]} at {name}[{at}] instead."
            )
    sides = [
        sampled(len(points), m, steps * k, bool(replace), seed, side, None, name)
        for side, (points, name) in enumerate(((x, "x"), (y, "y"), (x, "x")))
    ]
    limit = AWAY * max(1e-100, float(abs(x).max()), float(abs(y).max()))
    others = sides[2] if debiased else None
    euler = Euler(y, problem, sides[0], sides[1], others, k, lr, pairing, tol, max_iter, limit, schedule)
    settings = describe(problem, "sqeuclidean", (m, m), pairing)
    settings |= {"n_batches": k, "steps": steps, "lr": float(lr), "every": every, "debiased": bool(debiased)}
    settings |= {"replace": bool(replace), "measure": bool(measure), "seed": seed, "tol": tol, "max_iter": max_iter}
    # What a function is called tells nothing about it; what it gives does.
    settings |= (
        {"schedule": repr(schedule) if isinstance(schedule, Ramp) else fingerprint(np.array([masses]))}
        if schedule
        else {}
    )
    settings["points"] = [fingerprint(x), fingerprint(y)]
    # Checks are done when this is called, the work when frames are asked for.
    return run(x, euler, [*range(0, steps, every), steps], checkpoint, settings, measure, progress)


def run(
    x: Floats,
    euler: Euler,
    marks: list[int],
    checkpoint: str | Path | None,
    settings: dict[str, Any],
    measure: bool,
    progress: bool,
) -> Iterator[Frame]:
    """The frames at some steps, from a checkpoint as far as it has them."""
    store = Checkpoint(checkpoint, settings) if checkpoint is not None else None
    finished = store.finished() if store else set()
    failed = 0
    with progress_bar("steps", marks[-1], progress) as advance:
        before = 0
        for number, step in enumerate(marks):
            if store and number in finished:
                part = store.load(number)
                x, distance = part["points"], float(part["distance"])
            else:
                x, unsettled = euler.advance(x, before, step)
                failed += unsettled
                distance = wasserstein(x, euler.y) if measure else np.nan
                if store:
                    store.save(number, {"points": x, "distance": np.array(distance), "step": np.array(step)})
            yield Frame(step, x.copy(), distance)  # what is done to it is not done to the flow
            advance(step - before)
            before = step
    if failed:
        warn_of(
            f"{failed:,} problems of the flow did not reach the marginal error {euler.tol:g} within {euler.max_iter} "
            "sweeps. Raise max_iter, tol or reg.",
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class Euler:
    """Steps of one flow. What they do depends on the points and on their number alone."""

    y: Floats
    problem: Problem
    batches_x: Sampled
    batches_y: Sampled
    others: Sampled | None  # independent batches of x, for the debiased energy
    k: int
    lr: float
    pairing: Literal["paired", "all"]
    tol: float
    max_iter: int
    limit: float = np.inf  # points beyond it have run away
    schedule: Schedule | None = None

    def advance(self, x: Floats, start: int, stop: int) -> tuple[Floats, int]:
        """The points after the steps from start to stop, and how many problems on the way did not converge."""
        x, failed = x.copy(), 0
        for at in range(start, stop, STRIDE):
            end = min(at + STRIDE, stop)
            try:
                with quietly():  # said once, of all of them
                    failed += self.stride(x, at, end)
            except ValueError:  # what is wrong with the costs of points on their way out
                self.refuse_runaways(x, end, 10 / AWAY * self.limit)
                raise
            self.refuse_runaways(x, end, self.limit)
        return x, failed

    def stride(self, x: Floats, start: int, stop: int) -> int:
        """Move the points by some steps, whose batches are drawn in one go."""
        size, failed = len(x) * self.lr, 0
        i, j = self.pairs
        which = np.arange(start * self.k, stop * self.k)
        rows, cols, others = (
            None if batches is None else batches.draw(which).reshape(-1, self.k, batches.batch_size)
            for batches in (self.batches_x, self.batches_y, self.others)
        )
        assert rows is not None
        assert cols is not None
        for t in range(len(rows)):
            row, col = rows[t, i], cols[t, j]
            problem = at_iteration(self.problem, self.schedule, start + t)
            moves, _, unsettled = self.gradients(problem, x, self.y, row, col)
            failed += unsettled
            if others is None:
                np.subtract.at(x, row, size * moves)
                continue
            other = others[t, j]
            back, forth, unsettled = self.gradients(problem, x, x, row, other, both=True)
            failed += unsettled
            np.subtract.at(x, row, size * (moves - back / 2))
            np.add.at(x, other, size * forth / 2)
        return failed

    def refuse_runaways(self, x: Floats, step: int, limit: float) -> None:
        if not abs(x).max() <= limit:
            raise ValueError(
                f"The flow must not run away. Within {step} steps a point is at {abs(x).max():.1g}; "
                f"take a smaller lr than {self.lr:g}, or a problem that moves less mass."
            ) from None

    @property
    def pairs(self) -> tuple[Any, Any]:
        """The numbers of the batches that are paired."""
        if self.pairing == "paired":
            return slice(None), slice(None)
        return np.divmod(np.arange(self.k**2), self.k)

    def gradients(
        self, problem: Problem, x: Floats, y: Floats, rows: Indices, cols: Indices, both: bool = False
    ) -> Any:
        """The gradient of the mean cost of some pairs of batches in their points of x, and in those of y if asked; how
        many of the problems did not converge.
        """
        threads = 1 if rows.size * cols.shape[1] < WORTH_THREADS else all_cores()
        costs = batch_costs(x, y, rows, cols, "sqeuclidean", threads)
        solved = solve(costs, problem, tol=self.tol, max_iter=self.max_iter, threads=threads)
        certain = problem.reg == 0 and not isinstance(problem, Unbalanced)  # to ask takes a while, for such small ones
        plans, failed = solved.matrix, 0 if certain else np.count_nonzero(~np.asarray(solved.converged))
        plans *= 2 / len(rows)
        at_x, at_y = x[rows], y[cols]
        of_x = plans.sum(axis=2)[..., None] * at_x - plans @ at_y
        if not both:
            return of_x, None, failed
        return of_x, plans.sum(axis=1)[..., None] * at_y - plans.transpose(0, 2, 1) @ at_x, failed


def wasserstein(x: Floats, y: Floats) -> float:
    """The exact Wasserstein-2 distance of two clouds: the root of the least mean squared distance.

    >>> wasserstein(np.array([[0.0], [1.0]]), np.array([[4.0], [3.0]]))
    3.0
    """
    rows, cols = np.arange(len(x))[None], np.arange(len(y))[None]
    try:
        return float(np.sqrt(solve(batch_costs(x, y, rows, cols, "sqeuclidean", 1)[0], Balanced()).value))
    except MemoryError:
        raise MemoryError(
            f"The exact W2 of {len(x):,} and {len(y):,} points needs a matrix of all costs, which does not fit the "
            "memory. Pass measure=False (--no-distance), or fewer points."
        ) from None
