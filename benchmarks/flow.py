"""Measure gradient flows: the final W2 of the methods of the paper over seeds, and time against a loop over POT.

Prints tables, writes flow.json. Time is processor time on one thread. With --data, or SPADEFUL_DATA, flows go to the
shapes of small images too.
"""

from __future__ import annotations

import run  # isort: skip  (first: it sets one thread before NumPy is imported)
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ot
from rich.console import Console
from rich.table import Table

import entropic
import spadeful as sp
import tables
from goals import goal
from measure import thread_clock
from rivals import pot_partial
from spadeful.flow import flow_frames
from spadeful.images import read_photo
from spadeful.shapes import disc, image_points, s_shape

#: The grid of the paper for m-UOT.
REGS, TAUS = (0.1, 1.0, 2.0, 5.0, 10.0), (0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0)
N = 1000
OT, POT_9, POT_8, FALLING = "m-OT", "m-POT 0.9", "m-POT 0.8", "m-POT, falling from 1 to 0.5"
POT_8_ALL, AUTHORS = "m-POT 0.8, all pairs", "m-UOT as the authors' program names it, all pairs"

METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    OT: (sp.Balanced(), {}),
    POT_9: (sp.Partial(0.9), {}),
    POT_8: (sp.Partial(0.8), {}),
    "m-POT 0.7": (sp.Partial(0.7), {}),
    "m-POT 0.6": (sp.Partial(0.6), {}),
    FALLING: (sp.Partial(0.5), {"mass_from": 1.0}),
    "m-POT, falling from 1 to 0.7": (sp.Partial(0.7), {"mass_from": 1.0}),
    "m-OT, all pairs": (sp.Balanced(), {"pairing": "all"}),
    "m-POT 0.9, all pairs": (sp.Partial(0.9), {"pairing": "all"}),
    POT_8_ALL: (sp.Partial(0.8), {"pairing": "all"}),
    AUTHORS: (sp.Unbalanced(0.01, 1.0), {"pairing": "all"}),
    "m-OT, debiased": (sp.Balanced(), {"debiased": True}),
    "m-POT 0.8, debiased": (sp.Partial(0.8), {"debiased": True}),
}


#: Which cells of the grid are shown: a name, the pairing, the entropy, and the most mass that plans may move.
UNBALANCED = (
    ("m-UOT", "paired", "plain", np.inf),
    ("m-UOT of about the mass 1", "paired", "plain", 1.1),
    ("m-UOT, relative entropy", "paired", "kl", np.inf),
    ("m-UOT without an entropy", "paired", "none", np.inf),
    ("m-UOT, all pairs", "all", "plain", np.inf),
    ("m-UOT without an entropy, all pairs", "all", "none", np.inf),
)


Draw = Callable[[int, int], Any]  # so many points, of a seed

#: Other targets, to see on what the order of the methods depends: an S with other strokes, a letter, and small images.
STROKES = (0.0, 0.02, 0.03, 0.04, 0.05, 0.06, 0.12, 0.2)
IMAGES = ("heart", "star", "cross", "duck", "tooth")
#: A part of the paper's grid, which has the cells that come nearest to our S.
NEAR_REGS, NEAR_TAUS = (0.1, 1.0, 2.0, 5.0), (0.001, 0.01, 0.1)


def shapes(seed: int, target: Draw = s_shape) -> tuple[Any, Any]:
    return disc(N, 2 * seed), target(N, 2 * seed + 1)


def letter(n: int, seed: int) -> Any:
    """Points spread evenly over a bold letter S, as high as our S."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    outline = TextPath((0, 0), "S", size=1, prop=FontProperties(family="DejaVu Sans", weight="bold"))
    low, high = outline.vertices.min(axis=0), outline.vertices.max(axis=0)
    drawn = np.random.default_rng(seed).uniform(low, high, (20 * n, 2))
    inside = drawn[outline.contains_points(drawn)][:n]
    assert len(inside) == n
    return (inside - (low + high) / 2) / (high - low).max() * 0.74 + [0.72, 0.5]


def image(path: Path, n: int, seed: int) -> Any:
    return 0.7 * image_points(read_photo(path).pixels, n, seed, path.name) + [0.28, 0.15]


def targets(photos: Path | None) -> dict[str, Draw]:
    each: dict[str, Draw] = {f"S, stroke {stroke:g}": partial(s_shape, stroke=stroke) for stroke in STROKES}
    each["letter S"] = letter
    return each | ({name: partial(image, photos / f"{name}.png") for name in IMAGES} if photos else {})


def distances(
    problem: Any, seed: int, steps: int, every: int, target: Draw = s_shape, **options: Any
) -> list[float | None]:
    """W2 at the frames; None from where the flow has run away."""
    found: list[float | None] = []
    if "mass_from" in options:
        options["schedule"] = sp.Ramp(options.pop("mass_from"), problem.mass, steps)
    marks = len([*range(0, steps, every), steps])
    try:
        found.extend(
            frame.distance
            for frame in flow_frames(*shapes(seed, target), problem, steps=steps, every=every, seed=seed, **options)
        )
    except ValueError as away:
        if "run away" not in str(away):
            raise
    return found + [None] * (marks - len(found))


def final(problem: Any, seeds: int, steps: int, every: int, first: int = 0, **options: Any) -> dict[str, Any]:
    paths = [distances(problem, seed, steps, every, **options) for seed in range(first, first + seeds)]
    ends = [path[-1] for path in paths]
    good = None not in ends
    mean, spread = (float(np.mean(ends)), float(np.std(ends, ddof=1))) if good else (None, None)
    return {"problem": repr(problem), **options, "distances": paths, "final": ends, "mean": mean, "spread": spread}


def grid(seeds: int, steps: int, regs: tuple[float, ...], taus: tuple[float, ...]) -> list[dict[str, Any]]:
    """m-UOT on the grid of the paper, of the kinds that are shown."""
    kinds = dict.fromkeys((pairing, entropy) for _, pairing, entropy, _ in UNBALANCED)
    cells = [(*kind, reg, tau) for kind in kinds for reg in ((0.0,) if "none" in kind else regs) for tau in taus]
    return [
        {"entropy": entropy, "reg": reg, "tau": tau, "mass": mass_moved(unbalanced(entropy, reg, tau))}
        | final(unbalanced(entropy, reg, tau), seeds, steps, steps, pairing=pairing)
        for pairing, entropy, reg, tau in run.progress(cells, "m-UOT")
    ]


def unbalanced(entropy: str, reg: float, tau: float) -> sp.Unbalanced:
    return sp.Unbalanced(tau, reg, entropy="kl" if entropy == "kl" else "plain")


def best(cells: list[dict[str, Any]], pairing: str, entropy: str, most: float = np.inf) -> dict[str, Any]:
    """The cell that ends nearest, among those that move at most so much mass."""
    same = [c for c in cells if (c["pairing"], c["entropy"]) == (pairing, entropy)]
    return min((c for c in same if c["mean"] is not None and c["mass"] <= most), key=lambda c: c["mean"])


def to_targets(seeds: int, steps: int, photos: Path | None) -> list[dict[str, Any]]:
    """Where the methods of the paper end for other targets; of m-UOT the best cell in the mean over seeds."""
    problems = {name: METHODS[name] for name in (OT, POT_9, POT_8, FALLING)}
    cells = {f"m-UOT,{reg:g},{tau:g}": (sp.Unbalanced(tau, reg), {}) for reg in NEAR_REGS for tau in NEAR_TAUS}
    found = []
    for name, target in run.progress(targets(photos).items(), "targets"):
        ends = {
            method: [distances(problem, seed, steps, steps, target, **options)[-1] for seed in range(seeds)]
            for method, (problem, options) in (problems | cells).items()
        }
        near = [method for method in cells if None not in ends[method]]
        best_cell = min(near, key=lambda method: float(np.mean(ends[method])))
        kept = {method: ends[method] for method in problems} | {"m-UOT": ends[best_cell]}
        found.append({"target": name, "cell": best_cell, "final": kept})
    return found


def mass_moved(problem: Any) -> float:
    """How much mass the plans between batches of the target itself move: with an entropy it may be more than 1."""
    _, y = shapes(0)
    costs = ((y[:500].reshape(-1, 4, 1, 2) - y[500:].reshape(-1, 1, 4, 2)) ** 2).sum(-1)
    return float(sp.solve(costs, problem).mass.mean())


def settled(chosen: dict[str, Any], seeds: int, steps: int) -> dict[str, Any]:
    """A tenth of the step, ten times as often: what is left of a distance that noise has made."""
    problems = {OT: sp.Balanced(), POT_8: sp.Partial(0.8), "m-UOT": sp.Unbalanced(chosen["tau"], chosen["reg"])}
    return {
        name: final(problem, seeds, 10 * steps, 10 * steps, lr=0.0001)
        for name, problem in run.progress(problems.items(), "shorter steps")
    }


def on_other_seeds(cells: list[dict[str, Any]], first: int, seeds: int, steps: int) -> dict[str, Any]:
    """The same with seeds on which nothing was chosen: the best of many cells owes a part to those that it won on."""
    problems = {name: METHODS[name] for name in (OT, POT_9, POT_8, FALLING, POT_8_ALL)}
    for name, pairing, entropy, most in UNBALANCED:
        if most == np.inf and entropy != "kl":
            chosen = best(cells, pairing, entropy)
            problems[name] = unbalanced(entropy, chosen["reg"], chosen["tau"]), {"pairing": pairing}
    return {
        name: final(problem, seeds, steps, steps, first, **options)
        for name, (problem, options) in run.progress(problems.items(), "other seeds")
    }


def loop(problem: Any, pairs: Any, x: Any, y: Any, lr: float = 0.001) -> Any:
    """The flow written as a loop over POT. `pairs`: for every step the pairs of batches, as indices."""
    x = x.copy()
    for step in pairs:
        gradient = np.zeros_like(x)
        for row, col in step:
            plan = pot_partial(ot.dist(x[row], y[col]), problem.mass)
            gradient[row] += 2 * (plan.sum(axis=1)[:, None] * x[row] - plan @ y[col]) / len(step)
        x -= lr * len(x) * gradient
    return x


def race(problem: Any, pairing: str, steps: int, rival_steps: int) -> dict[str, Any]:
    """Our time for all steps, POT's from some of them; the points have to agree."""
    from spadeful.batches import sampled

    x, y = shapes(0)
    spent = []
    for _ in range(3):
        start = thread_clock()
        frames = list(flow_frames(x, y, problem, steps=steps, every=rival_steps, pairing=pairing, measure=False))
        spent.append(thread_clock() - start)
    rows, cols = (
        sampled(N, 4, steps * 4, False, 0, side, None, "x").draw(np.arange(rival_steps * 4)).reshape(-1, 4, 4)
        for side in (0, 1)
    )
    pairs = [
        list(zip(r, c, strict=True)) if pairing == "paired" else [(a, b) for a in r for b in c]
        for r, c in zip(rows, cols, strict=True)
    ]
    start = thread_clock()
    theirs = loop(problem, pairs, x, y)
    rival = (thread_clock() - start) * steps / rival_steps
    away = float(abs(theirs - frames[1].points).max())
    assert away < 1e-9, f"the flows differ by {away}"
    ours = min(spent)
    return {"pairing": pairing, "steps": steps, "ours": ours, "POT": rival, "ratio": rival / ours, "away": away}


def measure(quick: bool, photos: Path | None) -> dict[str, Any]:
    seeds, steps = (2, 300) if quick else (5, 5000)
    regs, taus = ((0.1, 1.0), (0.1, 1.0)) if quick else (REGS, TAUS)
    races = [race(sp.Partial(0.8), pairing, steps, 100 if quick else 500) for pairing in ("paired", "all")]
    every = steps // 5
    methods = {
        name: final(problem, seeds, steps, every, **options)
        for name, (problem, options) in run.progress(METHODS.items(), "methods")
    }
    cells = grid(seeds, steps, regs, taus)
    for name, pairing, entropy, most in UNBALANCED:
        chosen = best(cells, pairing, entropy, most)
        problem = unbalanced(entropy, chosen["reg"], chosen["tau"])
        methods[name] = final(problem, seeds, steps, every, pairing=pairing) | {"mass": chosen["mass"]}
    results = {"seeds": seeds, "steps": steps, "methods": methods, "grid": cells, "races": races}
    results["other seeds"] = on_other_seeds(cells, seeds, 3 if quick else 100, steps)
    results["settled"] = settled(best(cells, "paired", "plain"), seeds, steps)
    results["targets"] = to_targets(seeds, steps, photos)
    results["goals"] = judge(results)
    return results


def wins(methods: dict[str, Any], better: str, worse: str) -> int:
    """In how many seeds one method ends nearer than another."""
    ends = (methods[name]["final"] for name in (better, worse))
    return sum(a is not None and (b is None or a < b) for a, b in zip(*ends, strict=True))


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    seeds, races = results["seeds"], results["races"]
    pairs = [(POT_9, OT), (POT_8, OT), (POT_8, POT_9), (FALLING, POT_8)]
    # Those of the paper have an entropy.
    rivals = {name: pairing for name, pairing, entropy, _ in UNBALANCED if entropy != "none"} | {AUTHORS: "all"}
    ours = {POT_9: "paired", POT_8: "paired", FALLING: "paired", POT_8_ALL: "all"}
    pairs += [(m, u) for m in ours for u in rivals if ours[m] == rivals[u]]

    def nearer(a: str, b: str, methods: dict[str, Any], how: str = "") -> dict[str, Any]:
        return goal(f"{a} ends nearer than {b}{how}", seeds, wins(methods, a, b), f"of {seeds} seeds")

    return [
        *(nearer(a, b, results["methods"]) for a, b in pairs),
        *(nearer(POT_8, b, results["settled"], ", shorter steps") for b in (OT, "m-UOT")),
        goal(f"{results['steps']} steps of m-POT in at most 15 s on one core", 15, races[0]["ours"], "s", False),
        *(goal(f"10 times faster than a loop over POT, {r['pairing']}", 10, r["ratio"]) for r in races),
    ]


def methods_table(results: dict[str, Any]) -> Table:
    shown = Table("method", "W2 at the end", "seeds", title=f"{results['steps']} steps, mean and deviation over seeds")
    for name, m in results["methods"].items():
        mean = "ran away" if m["mean"] is None else f"{m['mean']:.4f} ± {m['spread']:.4f}"
        shown.add_row(f"{name}: {m['problem']}", mean, " ".join("-" if d is None else f"{d:.4f}" for d in m["final"]))
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "flow.json", "--data")
    warnings.simplefilter("ignore")
    results = measure(asked.quick, asked.data / "photos" if asked.data else None)
    console = Console(width=120)
    console.print(methods_table(results))
    console.print(tables.goals_table(results))
    entropic.save({"machine": run.machine(), "quick": asked.quick, **results}, asked.target)


if __name__ == "__main__":
    main()
