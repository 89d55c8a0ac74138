"""Mini-batch transport between two clouds of any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spadeful.aggregate import MiniBatchPlan
from spadeful.batches import Subsets, check_count, check_flag, sampled
from spadeful.costs import Cost, check_cost, read_both
from spadeful.engine import Engine
from spadeful.entropic import quietly
from spadeful.problems import Balanced, Partial, Problem, Unbalanced, check_masses
from spadeful.solve import check_limits, solve

#: Pairs of batches beyond which all of them are not enumerated.
MOST_PAIRS = 1_000_000
#: Batches beyond which all pairs of them are not solved: 100 million.
MOST_BATCHES = 10_000


def minibatch(
    x: Any,
    y: Any,
    problem: Problem,
    batch_size: int | tuple[int, int],
    n_batches: int,
    *,
    cost: Cost = "sqeuclidean",
    replace: bool = False,
    pairing: Literal["paired", "all", "bomb"] | Problem = "paired",
    labels: Any = None,
    seed: int = 0,
    n_jobs: int | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    keep_plan: bool = True,
    checkpoint: str | Path | None = None,
    progress: bool = False,
) -> MiniBatchPlan:
    r"""Transport between two clouds of any size through mini-batches: m-OT, m-UOT or m-POT (sections 2 and 3).

    .. math:: \frac1k \sum_{i=1}^k \mathrm{POT}_s(P_{X_i^m}, P_{Y_i^m}), \qquad
              \frac1k \sum_{i=1}^k \pi^{\mathrm{POT}_s}_{P_{X_i^m}, P_{Y_i^m}}

    Parameters
    ----------
    x, y : array (n_x, d), array (n_y, d)
        The points. Memory-mapped arrays are read batch by batch.
    problem : Balanced, Partial or Unbalanced
        What is solved between two batches, of uniform weights.
    batch_size, n_batches : int or pair of ints, int
        m (of x and of y, if they differ) and k.
    cost : str or function
        "sqeuclidean", "euclidean", "cosine", or a function of two batches (m, d), (n, d) returning (m, n).
    replace : bool
        Whether a batch may hold a point twice. Batches are drawn independently of each other either way.
    pairing : "paired", "all", "bomb" or a problem
        The i-th batch of x with the i-th of y (the paper's definition); all k*k pairs, each weighted 1/k^2; or
        weights between them from transport between the batches themselves (BoMb-OT, Nguyen et al., 2022), exact
        ("bomb") or as the given problem says.
    labels : array (n_x,) or pair of arrays, optional
        Classes of x (and y): every batch then holds as many points of each class as can be.
    seed : int
        Decides every batch. The result is the same for any number of jobs, threads and machines.
    n_jobs : int, optional
        Processes, through joblib; what `joblib.parallel_config` says if absent, and threads of this process
        without it.
    tol, max_iter : float, int
        For regularised problems, as in `solve`.
    keep_plan : bool
        Whether to add up the plans. Without it only values are kept, and there is no mass, map or sample.
    checkpoint : path, optional
        A folder for finished parts: the same call goes on from there after an interruption. A cost given as a
        function is known by its name only: change it, and the folder has to be another.
    progress : bool
        Show a bar, on a terminal.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(1000, 2)), rng.normal(size=(800, 2)) + 3
    >>> result = sp.minibatch(x, y, sp.Partial(mass=0.75), batch_size=50, n_batches=100)
    >>> result.plan.shape, round(result.mass, 9)
    ((1000, 800), 0.75)
    >>> moved = result.map(y, missing=x)
    >>> moved.shape
    (1000, 2)
    """
    x, y = read_both(x, y)
    check_cost(cost)
    named = isinstance(pairing, str)
    if not isinstance(pairing, (Balanced, Partial, Unbalanced)) and not (
        named and pairing in ("paired", "all", "bomb")
    ):
        raise ValueError(f"pairing must be 'paired', 'all', 'bomb' or a problem. Got {pairing!r} instead.")
    check_flag(replace, "replace")
    k, sizes = check_count(n_batches, "n_batches"), check_sizes(batch_size)
    seed = check_count(seed, "seed", least=0)
    tol, max_iter = check_limits(tol, max_iter)
    pair = labels if is_pair(labels) else (labels, None)
    sides = [
        sampled(len(points), size, k, bool(replace), seed, side, its, name)
        for side, (points, size, its, name) in enumerate(zip((x, y), sizes, pair, "xy", strict=True))
    ]
    settings = describe(problem, cost, sizes, pairing=str(pairing))
    settings |= {"n_batches": k, "seed": seed, "replace": bool(replace), "labels": labels is not None}
    settings |= {} if keep_plan else {"keep_plan": False}
    engine = Engine(x, y, problem, cost, (sides[0], sides[1]), n_jobs, tol, max_iter, checkpoint, progress, settings)
    numbers = np.arange(k)
    if named and pairing == "paired":
        return engine.run(numbers, numbers, np.full(k, 1 / k), keep_plan)
    if k > MOST_BATCHES:
        raise ValueError(
            f"n_batches must be at most {MOST_BATCHES} where all n_batches**2 pairs are solved. Got {k} instead; "
            "take fewer, or pairing='paired'."
        )
    i, j = (grid.ravel() for grid in np.meshgrid(numbers, numbers, indexing="ij"))
    if named and pairing == "all":
        return engine.run(i, j, np.full((k, k), 1 / k**2), keep_plan)
    costs = engine.run(i, j, np.full((k, k), 1 / k**2), keep_plan=False)
    outer = Balanced() if isinstance(pairing, str) else pairing
    weights = solve(costs.objectives, outer, tol=tol, max_iter=max_iter).matrix
    used, plan = weights.ravel() > 0, costs.plan
    if keep_plan and used.any():
        with quietly():  # said before
            plan = engine.run(i[used], j[used], weights.ravel()[used], keep_plan).plan
    return MiniBatchPlan(plan, costs.values, costs.objectives, weights, settings)


def minibatch_masses(
    x: Any,
    y: Any,
    masses: Sequence[float],
    batch_size: int | tuple[int, int],
    n_batches: int,
    *,
    cost: Cost = "sqeuclidean",
    replace: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
) -> list[MiniBatchPlan]:
    """m-POT of several masses over the same batches, a result for each: one mass path of a pair gives them all.

    The values are those of `minibatch` with `Partial(mass)`; where several plans are optimal, the plan may be another.

    >>> import numpy as np, spadeful as sp
    >>> x, y = np.random.default_rng(0).normal(size=(2, 300, 2))
    >>> [round(result.mass, 9) for result in sp.minibatch_masses(x, y, [0.7, 1.0], batch_size=20, n_batches=50)]
    [0.7, 1.0]
    """
    x, y = read_both(x, y)
    check_cost(cost)
    wanted = check_masses(masses, "minibatch_masses")
    k, sizes = check_count(n_batches, "n_batches"), check_sizes(batch_size)
    seed = check_count(seed, "seed", least=0)
    check_flag(replace, "replace")
    of_x, of_y = (
        sampled(len(points), size, k, bool(replace), seed, side, None, "xy"[side])
        for side, (points, size) in enumerate(zip((x, y), sizes, strict=True))
    )
    settings = describe(Partial(wanted[0]), cost, sizes, pairing="paired")
    settings |= {"n_batches": k, "seed": seed, "replace": bool(replace), "labels": False}
    engine = Engine(x, y, wanted, cost, (of_x, of_y), n_jobs, 0.0, 0, None, progress, settings)
    numbers = np.arange(k)
    return engine.run_masses(numbers, numbers, np.full(k, 1 / k), keep_plan=True)


def full_minibatch(
    x: Any,
    y: Any,
    problem: Problem,
    batch_size: int | tuple[int, int],
    *,
    cost: Cost = "sqeuclidean",
    n_jobs: int | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    keep_plan: bool = True,
) -> MiniBatchPlan:
    """The mean over every pair of batches that there is, which `minibatch` estimates (appendix A of the paper).

    >>> import numpy as np, spadeful as sp
    >>> x = np.arange(4.0)[:, None]
    >>> sp.full_minibatch(x, x, sp.Partial(mass=0.5), batch_size=2).values.shape
    (6, 6)
    """
    x, y = read_both(x, y)
    check_cost(cost)
    tol, max_iter = check_limits(tol, max_iter)
    sizes = check_sizes(batch_size)
    for points, size, name in zip((x, y), sizes, "xy", strict=True):
        if size > len(points):
            raise ValueError(f"batch_size must be at most the points of {name}, {len(points)}. Got {size} instead.")
    of_x, of_y = (Subsets(len(points), size) for points, size in zip((x, y), sizes, strict=True))
    pairs = of_x.count * of_y.count
    if pairs > MOST_PAIRS:
        raise ValueError(
            f"There must be at most {MOST_PAIRS} pairs of batches to enumerate. Got {pairs} instead; "
            "take fewer points or smaller batches, or estimate the mean with minibatch()."
        )
    settings = describe(problem, cost, sizes, pairing="full") | ({} if keep_plan else {"keep_plan": False})
    engine = Engine(x, y, problem, cost, (of_x, of_y), n_jobs, tol, max_iter, None, False, settings)
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(of_x.count), np.arange(of_y.count), indexing="ij"))
    return engine.run(i, j, np.full((of_x.count, of_y.count), 1 / pairs), keep_plan)


def is_pair(labels: Any) -> bool:
    """Whether labels are of both sides: two arrays or None, not two labels."""
    return isinstance(labels, (tuple, list)) and len(labels) == 2 and all(x is None or np.ndim(x) for x in labels)


def check_sizes(batch_size: int | tuple[int, int]) -> tuple[int, int]:
    pair = batch_size if isinstance(batch_size, (tuple, list)) else (batch_size, batch_size)
    if len(pair) != 2:
        raise ValueError(f"batch_size must be a whole number or a pair of them. Got {batch_size!r} instead.")
    m, n = (check_count(size, "batch_size") for size in pair)
    return m, n


def describe(problem: Problem, cost: Cost, sizes: tuple[int, int], pairing: str) -> dict[str, Any]:
    """What a result says about how it was made, as JSON can hold it."""
    if not isinstance(problem, (Balanced, Partial, Unbalanced)):
        raise TypeError(f"problem must be Balanced(), Partial(mass) or Unbalanced(tau). Got {problem!r} instead.")
    named = cost if isinstance(cost, str) else getattr(cost, "__name__", "function")
    made = {"problem": type(problem).__name__, **asdict(problem)}
    return json.loads(json.dumps({**made, "cost": named, "batch_size": list(sizes), "pairing": pairing}))  # type: ignore[no-any-return]
