"""How many threads, and work that they share."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


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


def at_once(calls: Iterable[Callable[[], T]], most: int) -> Iterator[T]:
    """What calls return, in their order; as many are made at once as there are cores, and at most `most`.

    >>> list(at_once([lambda: 1, lambda: 2, lambda: 3], most=2))
    [1, 2, 3]
    """
    most = min(most, all_cores())
    ahead: deque[Future[T]] = deque()
    with ThreadPoolExecutor(most) as pool:
        for call in calls:
            ahead.append(pool.submit(call))
            if len(ahead) == most:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
