"""The only loop over pairs of batches: in this process, in others, or from what an earlier run has left."""

from __future__ import annotations

import mmap
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful.aggregate import MiniBatchPlan, Part, PlanSum
from spadeful.arrays import Floats
from spadeful.batches import Batches, Indices
from spadeful.checkpoint import Checkpoint
from spadeful.costs import Cost, batch_costs, is_read_in_place
from spadeful.entropic import quietly, warn_of
from spadeful.pairs import Masses, exact_masses, solve_pairs
from spadeful.problems import Problem
from spadeful.progress import progress_bar
from spadeful.solve import solve
from spadeful.threads import all_cores

#: Entries of the costs that are solved in one go, 16 MB of them, or eight problems if these are more.
CHUNK = 1 << 21
#: Chunks that a worker gets in one go: long enough to be worth sending, short enough to be lost.
CHUNKS_PER_TASK = 8
#: Bytes of the points that are read to tell them from others: all, of most clouds.
READ = 1 << 26
#: How often in a row, with nothing done in between, workers that died are replaced.
ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class Job:
    """What solves pairs of batches, wherever it is sent; the points travel beside it."""

    batches_x: Batches
    batches_y: Batches
    problem: Problem | Masses
    cost: Cost
    tol: float
    max_iter: int
    threads: int
    keep_plan: bool

    def __sizeof__(self) -> int:
        """The classes of all points may be part of it: Dask then sends it once, and not with every task."""
        groups = [getattr(batches, "groups", ()) for batches in (self.batches_x, self.batches_y)]
        return object.__sizeof__(self) + sum(int(group.nbytes) for side in groups for group in side)

    @property
    def masses(self) -> Masses | None:
        return exact_masses(self.problem)

    @property
    def chunk(self) -> int:
        """Pairs whose costs are in memory at once."""
        size = self.batches_x.batch_size * self.batches_y.batch_size
        return max(8, min(1024, CHUNK // size))

    def run(self, x: NDArray[Any], y: NDArray[Any], i: Indices, j: Indices) -> Part:
        """Solve the pairs of batches i of x and j of y."""
        stored = self.masses is None or callable(self.cost) or not (is_read_in_place(x) and is_read_in_place(y))
        step = self.chunk if stored else len(i)
        # Exact plans are solved as their costs are measured, and need no place for those.
        pairs = min(self.chunk, len(i)) if self.masses is None else 0
        memory = np.empty((pairs, self.batches_x.batch_size, self.batches_y.batch_size))
        parts = [self._solve(x, y, i[at : at + step], j[at : at + step], memory) for at in range(0, len(i), step)]
        return Part.join(parts, len(self.masses or (1,)))

    def _solve(self, x: NDArray[Any], y: NDArray[Any], i: Indices, j: Indices, memory: Floats) -> Part:
        rows, cols = self.batches_x.draw(i), self.batches_y.draw(j)
        if self.masses is not None:
            found = solve_pairs(x, y, rows, cols, self.cost, self.masses, self.threads, self.keep_plan)
            return Part(found.value, found.value, np.ones(len(found.value), dtype=np.bool_), *found[1:])
        assert not isinstance(self.problem, tuple)
        costs = batch_costs(x, y, rows, cols, self.cost, self.threads, memory[: len(i)])
        with quietly():  # said once, of all of them
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
            rows.astype(narrow).take(which * rows.shape[1] + row),
            cols.astype(narrow).take(which * cols.shape[1] + col),
            masses,
        )


class Mapped(NamedTuple):
    """Where memory-mapped points lie: workers open the file, instead of being sent what it holds."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]

    def open(self) -> NDArray[Any]:
        now = os.stat(self.path)
        file = mapped_file(self.path, now.st_ino, now.st_mtime_ns)
        return np.ndarray(self.shape, self.dtype, file, self.offset, self.strides)


@lru_cache(maxsize=2)
def mapped_file(path: str, *_: int) -> NDArray[np.uint8]:
    """A file as bytes, mapped once by a worker and not for every task: pages are slow when first touched."""
    return np.memmap(path, np.uint8, "r")


def to_send(points: NDArray[Any]) -> NDArray[Any] | Mapped:
    """What workers get in the place of points: themselves, unless they lie in a file."""
    whole: Any = points
    while isinstance(whole, np.ndarray) and not isinstance(whole.base, mmap.mmap):
        whole = whole.base
    if not isinstance(whole, np.memmap):
        return points
    # One that was changed in memory, the file does not know; and a file may be gone, or never have had a name.
    if whole.mode == "c" or whole.filename is None or not Path(whole.filename).exists():
        return np.array(points)
    whole.flush()
    offset = whole.offset + points.ctypes.data - whole.ctypes.data
    return Mapped(str(whole.filename), points.shape, points.dtype, offset, points.strides)


class Engine(NamedTuple):
    """One run over pairs of batches: in this process, in others, or from what an earlier run has left."""

    x: NDArray[Any]
    y: NDArray[Any]
    problem: Problem | Masses
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
        (result,) = self.run_masses(i, j, weights, keep_plan)
        return result

    def run_masses(self, i: Indices, j: Indices, weights: Floats, keep_plan: bool) -> list[MiniBatchPlan]:
        """The same for each of several masses, if the problem is that."""
        m, n = (batches.batch_size for batches in self.batches)
        each = len(self.each_settings)
        totals = [PlanSum((len(self.x), len(self.y)), m * n if self.dense else (m + n) * each) for _ in range(each)]
        flat, kept = weights.ravel(), []
        for task, part in self.parts(i, j, keep_plan, totals[0].fold):
            for first, total in enumerate(totals):
                total.add(part.of_mass(first, each), flat[task])
            kept.append([numbers.reshape(each, -1).T for numbers in part[:2]])
        shape = (*weights.shape, each)
        values, objectives = (np.concatenate(numbers).reshape(shape) for numbers in zip(*kept, strict=True))
        return [
            MiniBatchPlan(total.finish(), values[..., at], objectives[..., at], weights, its)
            for at, (total, its) in enumerate(zip(totals, self.each_settings, strict=True))
        ]

    def parts(self, i: Indices, j: Indices, keep_plan: bool, fold: int) -> Iterator[tuple[slice, Part]]:
        """Solve the pairs task by task, in their order; no task goes beyond a multiple of `fold` pairs."""
        jobs = effective_jobs(self.n_jobs)
        threads = all_cores() if jobs == 1 else 1
        job = Job(*self.batches, self.problem, self.cost, self.tol, self.max_iter, threads, keep_plan)
        step = job.chunk * CHUNKS_PER_TASK
        folds = [*range(0, len(i), fold), len(i)]
        tasks = [slice(at, min(at + step, end)) for start, end in pairwise(folds) for at in range(start, end, step)]
        store = None
        if self.checkpoint is not None:
            marks = {"points": [fingerprint(self.x), fingerprint(self.y)], "task": step, "tol": self.tol}
            classes = [[fingerprint(g) for g in getattr(batches, "groups", ())] for batches in self.batches]
            marks["classes"] = [zlib.crc32(repr(prints).encode()) for prints in classes]
            kind = "plans" if keep_plan else "values"
            store = Checkpoint(Path(self.checkpoint) / kind, self.settings | marks | {"max_iter": self.max_iter})
        finished = store.finished() if store else set()
        points = (self.x, self.y) if jobs == 1 else (to_send(self.x), to_send(self.y))
        calls = [(job, *points, (i[task], j[task])) for task in tasks]
        results = in_order([call for t, call in enumerate(calls) if t not in finished], jobs, self.n_jobs)
        failed = 0
        with progress_bar("pairs of batches", len(i), self.progress) as advance:
            for t, task in enumerate(tasks):
                if store and t in finished:
                    part = Part(**store.load(t))
                else:
                    part = next(results)
                    if store:
                        store.save(t, part._asdict())
                failed += int((~part.converged).sum())
                yield task, part
                advance(task.stop - task.start)
        if failed:
            limits = f"the marginal error {self.tol:g} within {self.max_iter} sweeps"
            lacking = f"did not reach {limits}. Raise max_iter (of MiniBatchTransport: max_sweeps), tol or reg"
            if not isinstance(self.problem, tuple) and not self.problem.reg:
                lacking = "have no certified plan: tau and costs are of very different sizes. Set reg > 0"
            warn_of(f"{failed} of {len(i)} pairs of batches {lacking}.", stacklevel=5)

    @property
    def each_settings(self) -> list[dict[str, Any]]:
        """What the results say about how they were made: one, or one for each of several masses."""
        several = self.problem if isinstance(self.problem, tuple) else ()
        return [self.settings | {"mass": mass} for mass in several] or [self.settings]

    @property
    def dense(self) -> bool:
        """Whether plans have all entries."""
        return not isinstance(self.problem, tuple) and self.problem.reg > 0


def run_job(job: Job, x: NDArray[Any] | Mapped, y: NDArray[Any] | Mapped, pairs: tuple[Indices, Indices]) -> Part:
    """A task. The pairs are a tuple because Dask would put arrays on one worker, and lose them with it."""
    x, y = (points.open() if isinstance(points, Mapped) else points for points in (x, y))
    return job.run(x, y, *pairs)


def effective_jobs(n_jobs: int | None) -> int:
    if n_jobs is not None and (not hasattr(n_jobs, "__index__") or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(f"n_jobs must be a number of processes, -1 for all cores, or None. Got {n_jobs!r} instead.")
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
                done, attempts = done + 1, 0
        except deaths():  # noqa: PERF203
            attempts += 1
            if attempts > ATTEMPTS:
                raise


def deaths() -> tuple[type[BaseException], ...]:
    """What is raised when a worker has died: by joblib's processes, by Dask (it lost what it was sent), by Ray."""
    ray: Any = sys.modules.get("ray")
    return (BrokenProcessPool, CancelledError, *((ray.exceptions.RayActorError,) if ray else ()))


def fingerprint(points: NDArray[Any]) -> list[Any]:
    """Enough of the points to tell them from others."""
    count = min(len(points), max(64, READ // (points.nbytes // len(points))))
    some = np.ascontiguousarray(points[np.linspace(0, len(points) - 1, count).astype(int)])
    return [list(points.shape), str(points.dtype), zlib.crc32(some.tobytes())]
