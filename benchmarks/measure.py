"""Timing that a busy machine disturbs little, and what is computed from times."""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

#: A contestant runs for at least this long before the next has its turn, so that caches are warm for each.
TURN = 0.005
#: A lap is at least so many ticks of the clock, which some systems move by milliseconds at a time.
TICKS = 20
#: Best of at least so many, unless they take longer than PATIENCE seconds.
RUNS = 3
PATIENCE = 6.0

#: What one thread takes. Unlike the time on the wall, it does not count when others use the processor.
thread_clock = time.process_time
wall_clock = time.perf_counter


def tick(clock: Callable[[], float]) -> float:
    """The step in which the clock moves, or what asking it takes if that is longer."""
    start = clock()
    while (edge := clock()) == start:
        pass
    while (now := clock()) == edge:
        pass
    return now - edge


def race(
    contestants: Mapping[str, Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = thread_clock,
    first: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The best time of each contestant. They take turns, so that a slow phase of the machine hits all alike.

    `first` holds times that were already measured: a run of many seconds need not be repeated.
    """
    shortest = TICKS * tick(clock)
    known = {name: spent for name, spent in (first or {}).items() if spent >= shortest}
    times = {name: [known[name]] if name in known else [] for name in contestants}
    spent = {name: sum(already) for name, already in times.items()}

    def done(name: str) -> bool:
        return (spent[name] >= seconds and len(times[name]) >= RUNS) or spent[name] >= PATIENCE

    def lap(run: Callable[[], object]) -> tuple[float, int]:
        """A call, or as many as the clock can tell."""
        start, calls, elapsed = clock(), 0, 0.0
        while elapsed < shortest:
            run()
            calls += 1
            elapsed = clock() - start
        return elapsed, calls

    gc.collect()
    gc.disable()
    try:
        while waiting := [name for name in contestants if not done(name)]:
            for name in waiting:
                end = spent[name] + TURN
                while spent[name] < end:
                    elapsed, calls = lap(contestants[name])
                    spent[name] += elapsed
                    times[name].append(elapsed / calls)
    finally:
        gc.enable()
    return {name: min(each) for name, each in times.items()}


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(np.mean(np.log(list(ratios))))


def exponent(sizes: Iterable[int], seconds: Iterable[float]) -> float:
    """The p of the power law seconds = c * size^p that fits best, by least squares in logarithms."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(seconds)), 1)[0])


def apart(script: str, case: dict[str, Any], **environment: str) -> dict[str, Any]:
    """What a script measures of a case in a process of its own; the script answers by `answered`."""
    command = [sys.executable, script, "--case", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def answered(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Whether the script was called for a case, which it has then measured and printed."""
    if sys.argv[1:2] != ["--case"]:
        return False
    print(json.dumps(measure(json.loads(sys.argv[2]))))
    return True
