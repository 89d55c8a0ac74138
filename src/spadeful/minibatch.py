"""Mini-batch transport: the only loop over pairs of batches, and the sparse plan that they add up to."""

from __future__ import annotations

import json
import math
import operator
import warnings
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spadeful.arrays import Floats
from spadeful.batches import Batches, Indices, Subsets, sampled
from spadeful.checkpoint import Checkpoint
from spadeful.costs import Cost, batch_costs, check_cost, read_points
from spadeful.entropic import NotConverged
from spadeful.files import replacing
from spadeful.problems import Balanced, Partial, Problem, Unbalanced
from spadeful.progress import progress_bar
from spadeful.solve import solve
from spadeful.threads import all_cores
from spadeful.transport import barycentric_map, column_masses, row_masses, sample_pairs

#: Entries of the costs that are solved in one go: 16 MB of them.
CHUNK = 1 << 21
#: Chunks that a worker gets in one go: long enough to be worth sending, short enough to be lost.
CHUNKS_PER_TASK = 8
#: Entries of plans that are collected before they are added up.
FOLD = 1 << 22
#: Pairs of batches beyond which all of them are not enumerated.
MOST_PAIRS = 1_000_000
#: How often workers that died are replaced.
ATTEMPTS = 3


class Part(NamedTuple):
    """The plans of some pairs of batches, in their order."""

    values: Floats
    objectives: Floats
    converged: NDArray[np.bool_]
    sizes: Indices  # entries of each plan
    rows: NDArray[Any]
    cols: NDArray[Any]
    masses: Floats


@dataclass(frozen=True, eq=False)
class Job:
    """What solves pairs of batches, wherever it is sent; the points travel beside it."""

    batches_x: Batches
    batches_y: Batches
    problem: Problem
    cost: Cost
    tol: float
    max_iter: int
    threads: int
    keep_plan: bool

    @property
    def chunk(self) -> int:
        """Pairs that are solved in one go."""
        size = self.batches_x.batch_size * self.batches_y.batch_size
        return max(8, min(1024, CHUNK // size))

    def run(self, x: NDArray[Any], y: NDArray[Any], i: Indices, j: Indices) -> Part:
        """Solve the pairs of batches i of x and j of y."""
        step = self.chunk
        parts = [self._solve(x, y, i[at : at + step], j[at : at + step]) for at in range(0, len(i), step)]
        return Part(*map(np.concatenate, zip(*parts, strict=True)))

    def _solve(self, x: NDArray[Any], y: NDArray[Any], i: Indices, j: Indices) -> Part:
        rows, cols = self.batches_x.draw(i), self.batches_y.draw(j)
        costs = batch_costs(x, y, rows, cols, self.cost, self.threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # said once, of all of them
            plan = solve(costs, self.problem, tol=self.tol, max_iter=self.max_iter, threads=self.threads)
        if self.keep_plan:
            which, row, col, masses = plan.triplets
        else:
            which, row, col, masses = (np.empty(0, dtype=np.int64),) * 3 + (np.empty(0),)
        narrow = np.int32 if max(len(x), len(y)) < 2**31 else np.int64
        return Part(
            plan.value,
            plan.objective,
            np.asarray(plan.converged),
            np.bincount(which, minlength=len(i)),
            rows[which, row].astype(narrow),
            cols[which, col].astype(narrow),
            masses,
        )


class PlanSum:
    """Adds up plans in the order of their pairs, so that the sum does not depend on how they arrive."""

    def __init__(self, shape: tuple[int, int], per_pair: int):
        self.total = sparse.csr_array(shape)
        self.fold = max(1, FOLD // per_pair)  # after so many pairs
        self._waiting: list[tuple[NDArray[Any], NDArray[Any], Floats]] = []
        self._pairs = 0

    def add(self, part: Part, weights: Floats) -> None:
        """Add the plans of some pairs, which must not go beyond the next fold."""
        self._waiting.append((part.rows, part.cols, part.masses * np.repeat(weights, part.sizes)))
        self._pairs += len(weights)
        if self._pairs % self.fold == 0:
            self._add_up()

    def _add_up(self) -> None:
        rows, cols, masses = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting.clear()
        self.total = self.total + sparse.coo_array((masses, (rows, cols)), shape=self.total.shape).tocsr()

    def finish(self) -> Any:
        if self._waiting:
            self._add_up()
        self.total.sum_duplicates()
        return self.total


@dataclass(frozen=True, eq=False)
class MiniBatchPlan:
    r"""The mini-batch plan between two clouds, and what it costs.

    With weights :math:`w` of the pairs of batches (1/k each, if paired), `value` is :math:`\sum_p w_p
    \langle C_p, \pi_p\rangle`, `objective` the same of what each problem minimised (penalties and entropy
    included), and `plan` is :math:`\sum_p w_p \pi_p`, each padded with zeros to all points.
    """

    plan: Any  # scipy.sparse CSR (n_x, n_y)
    values: Floats
    objectives: Floats
    weights: Floats
    settings: dict[str, Any]

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.plan.shape))
        return f"MiniBatchPlan({shape}, value={self.value:.6g} ± {self.standard_error:.2g}, mass={self.mass:.6g})"

    @property
    def value(self) -> float:
        return float((self.weights * self.values).sum())

    @property
    def objective(self) -> float:
        return float((self.weights * self.objectives).sum())

    @property
    def standard_error(self) -> float:
        """Of `value` as an estimate of the mean over all batches; infinite where one cannot tell.

        Pairs that share a batch are not independent: with all k*k pairs it is the spread of the rows' and
        columns' means that counts.
        """
        if min(self.values.shape) < 2 or self.settings["pairing"] not in ("paired", "all"):
            return 0.0 if self.settings["pairing"] == "full" else math.inf
        means = [self.values] if self.values.ndim == 1 else [self.values.mean(axis=0), self.values.mean(axis=1)]
        return float(math.sqrt(sum(m.var(ddof=1) / len(m) for m in means)))

    @property
    def mass(self) -> float:
        return float(self.plan.sum())

    @property
    def row_mass(self) -> Floats:
        """The mass that each x sends."""
        return row_masses(self.plan)

    @property
    def col_mass(self) -> Floats:
        """The mass that each y receives."""
        return column_masses(self.plan)

    def map(self, y: Any, missing: Any = None) -> Any:
        """The barycentric image of every x; those without mass are masked, or get `missing`. See `barycentric_map`."""
        return barycentric_map(self.plan, y, missing)

    def sample(self, size: int, seed: int | None = 0) -> tuple[Indices, Indices]:
        """Pairs of a row and a column, drawn with their mass as probability."""
        return sample_pairs(self.plan, size, seed)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write everything to a `.npz` file."""
        with replacing(path, force) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                data=self.plan.data,
                indices=self.plan.indices,
                indptr=self.plan.indptr,
                shape=np.array(self.plan.shape),
                values=self.values,
                objectives=self.objectives,
                weights=self.weights,
                settings=np.array(json.dumps(self.settings)),
            )

    @staticmethod
    def load(path: str | Path) -> MiniBatchPlan:
        """Read what `save` wrote. Nothing in the file can run code."""
        try:
            with np.load(path, allow_pickle=False) as file:
                plan = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
                settings = json.loads(str(file["settings"]))
                return MiniBatchPlan(plan, file["values"], file["objectives"], file["weights"], settings)
        except (KeyError, ValueError, EOFError) as error:
            raise ValueError(f"{path} must be a plan that spadeful saved. It cannot be read: {error}") from None


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
        Whether to add up the plans. Without it only values are kept.
    checkpoint : path, optional
        A folder for finished parts: the same call goes on from there after an interruption.
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
    outer = Balanced() if pairing == "bomb" else pairing
    if not isinstance(outer, (Balanced, Partial, Unbalanced)) and outer not in ("paired", "all"):
        raise ValueError(f"pairing must be 'paired', 'all', 'bomb' or a problem. Got {pairing!r} instead.")
    k, sizes = check_count(n_batches, "n_batches"), check_sizes(batch_size)
    seed = check_count(seed, "seed", least=0)
    pair = labels if isinstance(labels, tuple) and len(labels) == 2 else (labels, None)
    sides = [
        sampled(len(points), size, k, bool(replace), seed, side, its, name)
        for side, (points, size, its, name) in enumerate(zip((x, y), sizes, pair, "xy", strict=True))
    ]
    settings = describe(problem, cost, sizes, pairing=pairing if isinstance(pairing, str) else repr(pairing))
    settings |= {"n_batches": k, "seed": seed, "replace": bool(replace), "labels": labels is not None}
    engine = Engine(x, y, problem, cost, (sides[0], sides[1]), n_jobs, tol, max_iter, checkpoint, progress, settings)
    numbers = np.arange(k)
    if outer == "paired":
        return engine.run(numbers, numbers, np.full(k, 1 / k), keep_plan)
    i, j = (grid.ravel() for grid in np.meshgrid(numbers, numbers, indexing="ij"))
    if outer == "all":
        return engine.run(i, j, np.full((k, k), 1 / k**2), keep_plan)
    costs = engine.run(i, j, np.full((k, k), 1 / k**2), keep_plan=False)
    weights = solve(costs.objectives, outer).matrix
    if not keep_plan:
        return MiniBatchPlan(costs.plan, costs.values, costs.objectives, weights, settings)
    used = weights.ravel() > 0
    plan = engine.run(i[used], j[used], weights.ravel()[used], keep_plan).plan
    return MiniBatchPlan(plan, costs.values, costs.objectives, weights, settings)


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
    settings = describe(problem, cost, sizes, pairing="full")
    engine = Engine(x, y, problem, cost, (of_x, of_y), n_jobs, tol, max_iter, None, False, settings)
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(of_x.count), np.arange(of_y.count), indexing="ij"))
    return engine.run(i, j, np.full((of_x.count, of_y.count), 1 / pairs), keep_plan)


class Engine(NamedTuple):
    """One run over pairs of batches: in this process, in others, or from what an earlier run has left."""

    x: NDArray[Any]
    y: NDArray[Any]
    problem: Problem
    cost: Cost
    batches: tuple[Batches, Batches]
    n_jobs: int | None
    tol: float
    max_iter: int
    checkpoint: str | Path | None
    progress: bool
    settings: dict[str, Any]

    def run(self, i: Indices, j: Indices, weights: Floats, keep_plan: bool) -> MiniBatchPlan:
        """Solve the pairs of batches i of x and j of y, and add their plans up with these weights."""
        jobs = effective_jobs(self.n_jobs)
        threads = all_cores() if jobs == 1 else 1
        m, n = (batches.batch_size for batches in self.batches)
        job = Job(*self.batches, self.problem, self.cost, self.tol, self.max_iter, threads, keep_plan)
        dense = self.problem.reg > 0 or (isinstance(self.problem, Unbalanced) and self.problem.divergence == "kl")
        total = PlanSum((len(self.x), len(self.y)), m * n if dense else m + n)
        step = job.chunk * CHUNKS_PER_TASK
        folds = [*range(0, len(i), total.fold), len(i)]
        tasks = [slice(at, min(at + step, end)) for start, end in pairwise(folds) for at in range(start, end, step)]
        store = None
        if self.checkpoint is not None:
            marks = {"points": [fingerprint(self.x), fingerprint(self.y)], "task": step, "tol": self.tol}
            kind = "plans" if keep_plan else "values"
            store = Checkpoint(Path(self.checkpoint) / kind, self.settings | marks | {"max_iter": self.max_iter})
        finished = store.finished() if store else set()
        calls = [(job, self.x, self.y, i[task], j[task]) for task in tasks]
        results = in_order([call for t, call in enumerate(calls) if t not in finished], jobs, self.n_jobs)
        flat, kept = weights.ravel(), []
        with progress_bar("pairs of batches", len(i), self.progress) as advance:
            for t, task in enumerate(tasks):
                if store and t in finished:
                    part = Part(**store.load(t))
                else:
                    part = next(results)
                    if store:
                        store.save(t, part._asdict())
                total.add(part, flat[task])
                kept.append(part[:3])
                advance(task.stop - task.start)
        values, objectives, converged = map(np.concatenate, zip(*kept, strict=True))
        if not converged.all():
            warnings.warn(
                f"{int((~converged).sum())} of {len(i)} pairs of batches did not reach the marginal error {self.tol:g} "
                f"within {self.max_iter} sweeps. Raise max_iter, tol or reg.",
                NotConverged,
                stacklevel=3,
            )
        shape = weights.shape
        return MiniBatchPlan(total.finish(), values.reshape(shape), objectives.reshape(shape), weights, self.settings)


def run_job(job: Job, x: NDArray[Any], y: NDArray[Any], i: Indices, j: Indices) -> Part:
    return job.run(x, y, i, j)


def effective_jobs(n_jobs: int | None) -> int:
    if n_jobs is not None and (operator.index(n_jobs) == 0):
        raise ValueError("n_jobs must not be 0. Pass a number of processes, -1 for all cores, or None.")
    import joblib

    return int(joblib.effective_n_jobs(n_jobs))


def in_order(calls: Sequence[tuple[Any, ...]], jobs: int, n_jobs: int | None) -> Iterator[Part]:
    """The results of some calls, in their order; those of workers that died are called for again."""
    if jobs == 1:
        yield from (run_job(*call) for call in calls)
        return
    import joblib

    backend, _ = joblib.parallel.get_active_backend()
    lazily = {"return_as": "generator"} if getattr(backend, "supports_return_generator", False) else {}
    done, attempts = 0, 0
    while done < len(calls):
        try:
            parallel = joblib.Parallel(n_jobs=n_jobs, **lazily)
            for part in parallel(joblib.delayed(run_job)(*call) for call in calls[done:]):
                yield part
                done += 1
        except BrokenProcessPool:  # noqa: PERF203
            attempts += 1
            if attempts > ATTEMPTS:
                raise


def read_both(x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = read_points(x, "x"), read_points(y, "y")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x and y must have the same number of dimensions. Got {x.shape[1]} and {y.shape[1]} instead.")
    return x, y


def check_count(value: Any, name: str, least: int = 1) -> int:
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = -1
    if count < least:
        raise ValueError(f"{name} must be a whole number of at least {least}. Got {value!r} instead.")
    return count


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


def fingerprint(points: NDArray[Any]) -> list[Any]:
    """Enough of the points to tell them from others."""
    some = np.ascontiguousarray(points[np.linspace(0, len(points) - 1, 64).astype(int)])
    return [list(points.shape), str(points.dtype), zlib.crc32(some.tobytes())]
