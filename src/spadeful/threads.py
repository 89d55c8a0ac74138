"""How many threads, and work shared out over them."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def share_out(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """The results of some work on each item, in their order; whoever is free takes the next.

    The caller works too: a thread less to start, and the processor is already its own.

    >>> share_out(abs, [-2, 3, -5], threads=2)
    [2, 3, 5]
    """
    results: list[Result | None] = [None] * len(items)
    waiting = iter(range(len(items)))

    def take() -> None:
        for i in waiting:
            results[i] = work(items[i])

    helpers = min(threads, len(items)) - 1
    if helpers < 1:
        take()
    else:
        with ThreadPoolExecutor(helpers) as pool:
            others = [pool.submit(take) for _ in range(helpers)]
            try:
                take()
            finally:
                for _ in waiting:  # what failed or was interrupted ends for all
                    pass
            for other in others:
                other.result()
    return results  # type: ignore[return-value]
