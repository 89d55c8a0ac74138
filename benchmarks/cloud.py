"""Mini-batch runs in a process of their own: how long, how much memory, and where the time goes.

As a script: one case, for `apart`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ot

import spadeful as sp
from measure import answered, apart, thread_clock, tick, wall_clock
from rivals import pot_partial
from spadeful import aggregate, engine
from spadeful.batches import sampled

STATUS = Path("/proc/self/status")
#: Seconds between two looks at the memory.
LOOK = 0.005


def anonymous() -> int:
    """The memory of this process that no file backs, in bytes; 0 where the system does not tell."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """What is held at most, in the first place of a list."""
    most, over = [anonymous()], threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            most[0] = max(most[0], anonymous())

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield most
    finally:
        over.set()
        watch.join()


def timed(
    function: Callable[..., Any], spent: dict[str, float], name: str, clock: Callable[[], float] = wall_clock
) -> Callable[..., Any]:
    def call(*args: Any, **settings: Any) -> Any:
        start = clock()
        try:
            return function(*args, **settings)
        finally:
            spent[name] = spent.get(name, 0.0) + clock() - start

    return call


class Stopwatch:
    """What has passed since it was made, on the wall and in this process: a tick of the clock at the least."""

    def __init__(self) -> None:
        self.starts = wall_clock(), thread_clock()

    def read(self) -> dict[str, float]:
        clocks = {"wall": wall_clock, "cpu": thread_clock}
        return {
            name: max(clock() - start, tick(clock))
            for (name, clock), start in zip(clocks.items(), self.starts, strict=True)
        }


def measure_run(x: Any, y: Any, case: dict[str, Any], k: int, spent: dict[str, float]) -> dict[str, Any]:
    spent.clear()
    watch = Stopwatch()
    with peak_memory() as most:
        result = sp.minibatch(x, y, sp.Partial(case["mass"]), case["m"], k, n_jobs=case["jobs"])
    passed = watch.read()
    plan = result.plan
    return {
        "k": k,
        "n": len(x),
        **passed,
        "inside": dict(spent),
        "peak": most[0],
        "plan": plan.data.nbytes + plan.indices.nbytes + plan.indptr.nbytes,
        "value": result.value,
        "spread": float(result.values.std() / result.value),
        "values": result.values[: case["rival"]].tolist(),
    }


def measure_rival(x: Any, y: Any, case: dict[str, Any], values: list[float]) -> dict[str, Any]:
    """The loop that one writes without us, over the first batches of the run."""
    which = np.arange(case["rival"])
    m, k = case["m"], max(case["ks"])
    rows, cols = (sampled(len(p), m, k, False, 0, side, None, "").draw(which) for side, p in enumerate((x, y)))
    found = []
    watch = Stopwatch()
    for r, c in zip(rows, cols, strict=True):
        cost = ot.dist(x[r], y[c])
        found.append(float((pot_partial(cost, case["mass"]) * cost).sum()))
    passed = watch.read()
    np.testing.assert_allclose(found, values, rtol=1e-4, err_msg="POT and spadeful disagree")
    return {clock: seconds / len(which) for clock, seconds in passed.items()}


def run(case: dict[str, Any]) -> dict[str, Any]:
    # The number of threads follows the cores that a process may use.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-case["cores"] :])
    x, y = (np.load(case[name], mmap_mode="r") for name in "xy")
    sp.minibatch(x[:64], y[:64], sp.Partial(0.5), 8, 8)  # loading code takes time too, but once
    spent: dict[str, float] = {}
    engine.solve_pairs = timed(engine.solve_pairs, spent, "costs and solver")
    aggregate.PlanSum._add_up = timed(aggregate.PlanSum._add_up, spent, "add up")
    asked = [(n, k) for n in case["sizes"] or [len(x)] for k in case["ks"]]
    runs, rivals = [], []
    for _ in range(case["repeats"]):  # in turns: a processor that slows down for a while slows both
        runs += [measure_run(x[:n], y[:n], case, k, spent) for n, k in asked]
        rivals += [measure_rival(x, y, case, runs[0]["values"])] if case["rival"] else []
    rival = {clock: min(r[clock] for r in rivals) for clock in ("wall", "cpu")} if rivals else None
    return {"runs": [{key: r[key] for key in r if key != "values"} for r in runs], "rival": rival}


def measure(
    folder: Path,
    m: int,
    ks: list[int],
    *,
    cores: int = 1,
    jobs: int | None = None,
    sizes: list[int] | None = None,
    repeats: int = 1,
    rival: int = 0,
    mass: float = 0.75,
) -> dict[str, Any]:
    """Runs of k pairs of batches between x.npy and y.npy of a folder, or their first points.

    `rival`: over how many of the batches the loop over POT goes; the quickest loop of as many repeats counts.
    """
    case = {"m": m, "ks": ks, "cores": cores, "jobs": jobs, "sizes": sizes, "repeats": repeats, "rival": rival}
    case |= {"x": str(folder / "x.npy"), "y": str(folder / "y.npy"), "mass": mass}
    return apart(__file__, case)


if __name__ == "__main__":
    answered(run)
