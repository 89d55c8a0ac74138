"""The goals, and what was measured of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from costs import TITLES
from measure import exponent, geometric_mean
from rivals import OURS

#: How many times faster, in every cell and in the geometric mean: than POT's partial_wasserstein for s < 1,
#: and for s = 1 than the fastest rival whose answer is right.
PARTIAL = {"each": 4.0, "mean": 10.0}
BALANCED = {"each": 2.0, "mean": 3.0}
PATH = 1.3
BATCH = {"loop": 20.0, "thread": 1.8}
EXPONENT = 2.4
EXPONENT_SIZES = (256, 2000)
#: Of the duality gap, relative to 1 + |value|.
GAP = 1e-9
COPIES = 1.0
#: What grows with m and not with m^2 comes on top of a copy of the cost.
COPIES_SLACK = 0.1


def bounds(mass: float) -> dict[str, float]:
    return PARTIAL if mass < 1 else BALANCED


def fit(cells: Iterable[dict[str, Any]]) -> float | None:
    """The exponent of our time in m, where the sizes allow one."""
    low, high = EXPONENT_SIZES
    points = [(c["m"], c["seconds"][OURS]) for c in cells if low <= c["m"] <= high and OURS in c["seconds"]]
    return exponent(*zip(*points, strict=True)) if len({m for m, _ in points}) > 1 else None


def exponents(results: dict[str, Any]) -> dict[str, float]:
    """The exponents on the clouds in the plane, by mass."""
    clouds = [c for c in results["grid"] if c["family"] == "clouds2"]
    fitted = {f"{s:g}": fit(c for c in clouds if c["mass"] == s) for s in results["masses"]}
    return {mass: p for mass, p in fitted.items() if p is not None}


def goal(text: str, bound: float, figure: float | None, at: str = "", at_least: bool = True) -> dict[str, Any]:
    """One goal: the figure must be at least the bound, or at most."""
    reached = None if figure is None else bool(figure >= bound if at_least else figure <= bound)
    return {"goal": text, "bound": bound, "figure": figure, "at": at, "reached": reached}


def most(cases: list[dict[str, Any]], figure: str, sign: int = 1) -> tuple[float | None, str]:
    """The largest figure of those there are, and where it is; the smallest for a negative sign."""
    cases = [c for c in cases if c[figure] is not None]
    if not cases:
        return None, ""
    case = max(cases, key=lambda c: sign * c[figure])
    mass = f", s = {case['mass']:g}" if case.get("mass") else ""
    return case[figure], f"{TITLES[case['family']]}, m = {case['m']}{mass}"


def least(cases: list[dict[str, Any]], figure: str) -> tuple[float | None, str]:
    return most(cases, figure, -1)


def speed(cells: list[dict[str, Any]], rival: str, wanted: dict[str, float]) -> list[dict[str, Any]]:
    ratios = [c["ratio"] for c in cells if c["ratio"] is not None]
    mean = geometric_mean(ratios) if ratios else None
    return [
        goal(f"{rival}: {wanted['mean']:g} times faster in the geometric mean", wanted["mean"], mean),
        goal(f"{rival}: {wanted['each']:g} times faster in every cell", wanted["each"], *least(cells, "ratio")),
    ]


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    grid, path, batch, memory = (results[part] for part in ("grid", "path", "batch", "memory"))
    masses, powers = results["exponents"].keys(), results["exponents"].values()
    steepest = max(zip(powers, (f"s = {s}" for s in masses), strict=True), default=(None, ""))
    wrong = [c for c in grid if OURS in c["notes"]] + [c for c in path if c["notes"]]
    goals = [
        goal("no wrong answer", 0, len(wrong), "", False),
        goal("duality gap at most 1e-9 (1 + |value|)", GAP, *most(grid, "relative_gap"), False),
        *speed([c for c in grid if c["mass"] < 1], "s < 1 against POT partial_wasserstein", PARTIAL),
        *speed([c for c in grid if c["mass"] == 1], "s = 1 against the fastest rival", BALANCED),
        goal(f"path at most {PATH:g} times the solve that follows it", PATH, *most(path, "to_follow"), False),
        goal(
            f"batch {BATCH['loop']:g} times faster than a loop over POT",
            BATCH["loop"],
            *least(batch, "to_loop"),
        ),
        goal(
            f"batch {BATCH['thread']:g} times faster than one thread",
            BATCH["thread"],
            *least(batch, "to_thread"),
        ),
        goal(f"time grows at most as m^{EXPONENT:g} on the 2-D clouds", EXPONENT, *steepest, False),
    ]
    for kind in dict.fromkeys(map(memory_kind, memory)):
        cases = [c for c in memory if memory_kind(c) == kind]
        text = f"extra memory of a {kind} at most one copy of one cost a thread"
        goals.append(goal(text, COPIES + COPIES_SLACK, *most(cases, "copies"), False))
    return goals


def memory_kind(case: dict[str, Any]) -> str:
    if case["batch"]:
        return f"{case['form']} batch"
    return "solve" if case["mass"] else "path"
