"""Peak memory of one solve, measured in a process of its own.

As a script: reads a case as JSON from its first argument, prints what it took as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import spadeful as sp
from costs import draw

PROCESS = Path("/proc/self")


def reset_peak() -> None:
    """Forget what was held before, where the system can."""
    if (PROCESS / "clear_refs").exists():
        (PROCESS / "clear_refs").write_text("5")


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    if (PROCESS / "status").exists():
        # getrusage would do, but on Linux its figure starts at what the parent process held.
        lines = (PROCESS / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def batch_of(family: str, m: int, count: int, form: str) -> Any:
    """A batch that the core reads in place (float64), or one that it cannot (float32, strided)."""
    batch = np.empty((count, m, m), np.float32 if form == "float32" else np.float64)
    for k in range(count):
        batch[k] = draw(family, m, k)
    return batch.swapaxes(1, 2) if form == "strided" else batch


def task(family: str, m: int, mass: float | None, batch: int, threads: int, form: str) -> Callable[[], object]:
    """A solve with its inputs already made; without a mass, the whole path."""
    if batch:
        costs = batch_of(family, m, batch, form)
        return lambda: sp.solve(costs, sp.Partial(mass), threads=threads)
    cost = draw(family, m)
    return (lambda: sp.solve(cost, sp.Partial(mass))) if mass else (lambda: sp.mass_path(cost))


def answer_size(answer: Any, kept: int) -> int:
    """The bytes of an answer. All that a path keeps is one; a solver also keeps room for the next problem."""
    if isinstance(answer, sp.MassPath):
        return max(kept, 0)
    *_, rows, _, masses = answer.triplets
    return rows.nbytes + masses.nbytes + answer.col_prices.nbytes


def run(case: dict[str, Any]) -> dict[str, int]:
    task(**{**case, "m": 8})()  # loading code and starting threads takes memory too, but once
    solve = task(**case)
    held = psutil.Process().memory_info
    reset_peak()
    before = held().rss
    answer = solve()
    top, after = peak(), held().rss
    size = answer_size(answer, after - before)
    return {"extra": max(top - before - size, 0), "kept": max(after - before, 0)}


def measure(
    family: str, m: int, mass: float | None = None, batch: int = 0, threads: int = 1, form: str = "float64"
) -> dict[str, Any]:
    """Memory beyond inputs and answer, per thread, and what stays held, in float64 copies of one cost."""
    case = {"family": family, "m": m, "mass": mass, "batch": batch, "threads": threads, "form": form}
    # A fixed threshold makes freed arrays go back to the system, so that the solver cannot reuse them unseen.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    command = [sys.executable, __file__, json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    took = json.loads(done.stdout)
    return {**case, "copies": took["extra"] / threads / (8 * m * m), "kept": took["kept"] / (8 * m * m)}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
