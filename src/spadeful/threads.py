"""How many threads."""

from __future__ import annotations

import operator
import os


def all_cores() -> int:
    """The cores that this process may use."""
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
