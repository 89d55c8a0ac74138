"""Exact transport: calls the compiled core."""

from __future__ import annotations

import operator
import os
from typing import Any

from spadeful import _core
from spadeful.arrays import read_cost, read_weights
from spadeful.plan import Plan


def all_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int | None) -> int:
    """How many threads to use: all cores unless said."""
    if threads is None:
        return all_cores()
    try:
        count = operator.index(threads)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or None. Got {threads!r} instead.")
    return count


def solve_exact(cost: Any, mass: float, a: Any = None, b: Any = None, threads: int | None = None) -> Plan:
    """The optimal plan of a mass, for one cost (m, n) or each of a batch (k, m, n)."""
    values = read_cost(cost, (2, 3))
    weights = read_weights(a, "a", values.shape[-2]), read_weights(b, "b", values.shape[-1])
    answer = _core.solve(
        values, mass, *weights, 1 if values.ndim == 2 and threads is None else check_threads(threads)
    )
    return Plan(cost if hasattr(cost, "ndim") else values, mass, weights, answer)
