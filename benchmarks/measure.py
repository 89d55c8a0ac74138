"""Timing that a busy machine disturbs little, and what is computed from times."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

#: A contestant runs for at least this long before the next has its turn, so that caches are warm for each.
TURN = 0.005
#: Best of at least so many, unless they take longer than PATIENCE seconds.
RUNS = 3
PATIENCE = 6.0

#: What one thread takes. Unlike the time on the wall, it does not count when others use the processor.
thread_clock = time.process_time
wall_clock = time.perf_counter


def race(
    contestants: Mapping[str, Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = thread_clock,
    first: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The best time of each contestant. They take turns, so that a slow phase of the machine hits all alike.

    `first` holds times that were already measured: a run of many seconds need not be repeated.
    """
    times = {name: [first[name]] if first and name in first else [] for name in contestants}

    def done(name: str) -> bool:
        spent = sum(times[name])
        return (spent >= seconds and len(times[name]) >= RUNS) or spent >= PATIENCE

    gc.collect()
    gc.disable()
    try:
        while waiting := [name for name in contestants if not done(name)]:
            for name in waiting:
                end = clock() + TURN
                while (start := clock()) < end:
                    contestants[name]()
                    times[name].append(clock() - start)
    finally:
        gc.enable()
    return {name: min(spent) for name, spent in times.items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(np.mean(np.log(list(ratios))))


def exponent(sizes: Iterable[int], seconds: Iterable[float]) -> float:
    """The p of the power law seconds = c * size^p that fits best, by least squares in logarithms."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(seconds)), 1)[0])
