"""Measure the problems of two-stage training: prints a table, writes two_stages.json.

Each is between 4,096 points of features that a network has learnt to tell apart, random ones and those of PACS where
SPADEFUL_DATA names the folder of its data. Time is processor time.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from rich.table import Table

import cloud
import entropic
import spadeful as sp
from goals import goal
from measure import answered, apart, thread_clock
from spadeful.adapt import Domain, SourceOnly, Training, TwoStage, feature_network
from spadeful.adapt.data import source_and_target
from spadeful.adapt.methods import two_stage
from spadeful.adapt.streams import DomainStream
from spadeful.adapt.train import Phase, train

ALIGNED = TwoStage(sp.Partial(0.65), sp.JointCost(0.01, 0.5))
SECONDS, MEGABYTES = 2.0, 300.0
#: Pairs in which each style is once.
STYLES = ("photo", "sketch", "art_painting", "cartoon")
PACS = [(f"pacs:{source}", f"pacs:{target}") for source, target in zip(STYLES, STYLES[1:] + STYLES[:1], strict=True)]
RANDOM = "random"


def random_domains(size: int) -> tuple[Domain, Domain]:
    """Seven classes in 2048 dimensions, and the same moved, with noise on every point."""
    rng = np.random.default_rng(0)
    y = np.arange(size) % 7
    centres = rng.normal(size=(7, 2048))
    x, moved = (centres[y] + rng.normal(size=(size, 2048)) + shift for shift in (0.0, 0.2))
    names = tuple("abcdefg")
    return Domain(x.astype(np.float32), y, RANDOM, names), Domain(moved.astype(np.float32), None, RANDOM, names)


def align(case: dict[str, Any]) -> dict[str, Any]:
    """Problems between k*m points of a network for features: how long, how much memory, and where the time goes."""
    torch.set_num_threads(1)
    m, k = case["m"], case["k"]
    if case["source"] == RANDOM:
        source, target = random_domains(m * k)
    else:
        source, target = source_and_target(case["source"], case["target"])[:2]
    stream = DomainStream(source, target, m, 0)
    torch.manual_seed(0)
    network = feature_network(2048, 7, bottleneck=256)
    training = Training(100, lr=1e-3, optimizer="sgd")
    train(network, [Phase(SourceOnly(), training)], stream, lambda _: {}, sizes=(256, 7))
    batches = [stream.batch(i) for i in range(k)]
    ALIGNED.align(network, batches[:2], ALIGNED.problem)  # loading code takes time and memory too, but once
    spent: dict[str, float] = {}
    network.forward = cloud.timed(network.forward, spent, "network", thread_clock)
    two_stage.solve = cloud.timed(two_stage.solve, spent, "solver", thread_clock)
    sp.JointCost.whole = cloud.timed(sp.JointCost.whole, spent, "cost", thread_clock)
    runs = []
    for _ in range(case["repeats"]):
        spent.clear()
        before = cloud.anonymous()
        watch = cloud.Stopwatch()
        with cloud.peak_memory() as most:
            ALIGNED.align(network, batches, ALIGNED.problem)
        passed = watch.read()
        runs.append({**passed, "problem": passed["cpu"] - spent["network"], **spent, "bytes": most[0] - before})
    fastest = min(runs, key=lambda r: r["problem"])
    return {**case, **fastest, "bytes": max(r["bytes"] for r in runs)}


def measure(quick: bool) -> dict[str, Any]:
    size = {"m": 16, "k": 4, "repeats": 1} if quick else {"m": 64, "k": 64, "repeats": 2}
    pairs = [(RANDOM, RANDOM), *(PACS if os.environ.get("SPADEFUL_DATA") and not quick else [])]
    results = {"problems": [apart(__file__, {"source": source, "target": target, **size}) for source, target in pairs]}
    return results | {"goals": judge(results)}


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    problems = results["problems"]
    longest, largest = (max(problems, key=lambda r, what=what: r[what]) for what in ("problem", "bytes"))
    points = f"{longest['m'] * longest['k']:,} points"
    return [
        goal(f"{points}: below 2 s a problem", SECONDS, longest["problem"], pair_name(longest), False),
        goal(f"{points}: below 300 MB", MEGABYTES, largest["bytes"] / 1e6, pair_name(largest), False),
    ]


def pair_name(problem: dict[str, Any]) -> str:
    source, target = (problem[side].removeprefix("pacs:").replace("_", " ") for side in ("source", "target"))
    return RANDOM if source == RANDOM else f"{source} to {target}"


def problems_table(results: dict[str, Any]) -> Table:
    shown = Table("two stages", "problem, s", "cost, s", "solver, s", "network, s", "MB")
    for r in results["problems"]:
        times = [f"{r[part]:.2f}" for part in ("problem", "cost", "solver", "network")]
        shown.add_row(pair_name(r), *times, f"{r['bytes'] / 1e6:.0f}")
    return shown


if __name__ == "__main__":
    if not answered(align):
        entropic.report(__doc__, "two_stages.json", measure, problems_table, "torch")
