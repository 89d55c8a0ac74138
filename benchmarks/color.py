"""Measure colour transfer between photos: speed against a loop over POT, memory, quality. Writes color.json.

The photos are those of the folder that --data or SPADEFUL_DATA names. Time is measured twice: on the wall, of calls as
users make them, ours on all cores and POT's loop on the one that it uses; and as processor time on one core, in which
others on the machine do not count.
"""

from __future__ import annotations

import run  # isort: skip  (first: it sets one thread before NumPy is imported)
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ot
from rich.console import Console
from rich.table import Table

import entropic
import spadeful as sp
import tables
from goals import goal
from measure import exponent, thread_clock, wall_clock
from rivals import pot_partial
from spadeful import figures
from spadeful.batches import sampled
from spadeful.coloring import small
from spadeful.images import Photo, read_photo

MASS, MASSES = 0.9, (0.7, 0.8, 0.9, 0.99, 1.0)
M, K = 100, 10_000
LARGE = {"lake": ("imageA.jpg", "imageB.jpg"), "tower": ("s6.jpg", "t6.jpg")}
PAIRS = {f"{at}": (f"s{at}.{ending}", f"t{at}.{ending}") for at, ending in enumerate(4 * ["png"] + 2 * ["jpg"], 1)}
GIB = 2**30


def load(photos: Path, names: tuple[str, str], quick: bool = False) -> list[Any]:
    step = 8 if quick else 1
    return [read_photo(photos / name).pixels[::step, ::step] for name in names]


def use_cores(cores: Iterable[int]) -> None:
    """The number of threads follows the cores that a process may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def own_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def transfer(images: list[Any], k: int, mass: float = MASS, **options: Any) -> Callable[[], Any]:
    return lambda: sp.transfer_colors(*images, sp.Partial(mass), batch_size=M, n_batches=k, **options)


def spent(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def loop(source: Any, target: Any, k: int, pairs: int, clock: Callable[[], float]) -> float:
    """Seconds a pair of Algorithm 4 as one writes it without us, over the first batches of the same run."""
    x, y = (image.reshape(-1, 3) / 255 for image in (source, target))
    draws = [sampled(len(p), M, k, False, 0, side, None, "").draw(np.arange(pairs)) for side, p in enumerate((x, y))]
    moved, masses = np.zeros_like(x), np.zeros(len(x))
    start = clock()
    for rows, cols in zip(*draws, strict=True):
        plan = pot_partial(ot.dist(x[rows], y[cols]), MASS)
        moved[rows] += plan @ y[cols]
        masses[rows] += plan.sum(axis=1)
    return (clock() - start) / pairs


def race(images: list[Any], k: int, pairs: int, repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """The best times of one mass, of five at once and one by one, and of the loop over POT, which take turns."""

    def lap() -> dict[str, float]:
        alone = [spent(transfer(images, k, mass), clock) for mass in MASSES]
        return {
            "seconds": spent(transfer(images, k), clock),
            "smooth": spent(transfer(images, k, smooth=True), clock),
            "several masses": spent(
                lambda: sum(1 for _ in sp.transfer_masses(*images, MASSES, batch_size=M, n_batches=k)), clock
            ),
            "largest mass": alone[-1],
            "one by one": sum(alone),
            "POT a pair": loop(*images, k, pairs, clock),
        }

    laps = [lap() for _ in range(repeats)]
    best = {name: min(lap[name] for lap in laps) for name in laps[0]}
    to_one, to_largest = (best["several masses"] / best[alone] for alone in ("seconds", "largest mass"))
    return best | {"to one mass": to_one, "to largest": to_largest, "to loop": best["POT a pair"] * k / best["seconds"]}


def measure_command(files: list[Path], k: int, repeats: int) -> dict[str, float]:
    """Seconds on the wall of the command, from its start to the last file, with one mass, the largest, and all."""
    found = {}
    with TemporaryDirectory() as folder:
        for name, masses in (("one mass", (MASS,)), ("largest mass", MASSES[-1:]), ("five masses", MASSES)):
            asked = ["--masses", ",".join(map(str, masses)), "--n-batches", str(k), "--force"]
            command = [sys.executable, "-m", "spadeful", "color", *map(str, files), "-o", f"{folder}/out.jpg", *asked]
            call = partial(subprocess.run, command, check=True, capture_output=True)
            found[name] = min(spent(call, wall_clock) for _ in range(repeats))
    return found | {"to one mass": found["five masses"] / found["one mass"]}


def measure_speed(images: list[Any], k: int, pairs: int, repeats: int) -> dict[str, Any]:
    cores, ks = own_cores(), [k // 8, k // 4, k // 2, k]
    wall = race(images, k, pairs, repeats, wall_clock)
    use_cores(cores[-1:])
    fewer = {size: min(spent(transfer(images, size), thread_clock) for _ in range(repeats)) for size in ks[:-1]}
    one = race(images, k, pairs, repeats, thread_clock)
    use_cores(cores)
    whole = fewer | {k: one["seconds"]}
    return {
        "pixels": [int(image.shape[0] * image.shape[1]) for image in images],
        "wall": wall | {"cores": len(cores)},
        **one,
        "by k": [{"k": size, "seconds": seconds} for size, seconds in whole.items()],
        "exponent": exponent(ks, whole.values()),
        "a pair more": (whole[k] - whole[k // 4]) / (k - k // 4),
    }


def peak(photos: Path, several: bool, quick: bool) -> int:
    """The most memory of a process that transfers the colours of 12 megapixels, in bytes."""
    from PIL import Image

    size = (400, 300) if quick else (4000, 3000)
    images = [np.asarray(Image.fromarray(image).resize(size)) for image in load(photos, LARGE["lake"])]
    if several:
        for _ in sp.transfer_masses(*images, MASSES, n_batches=100 if quick else K):
            pass
    else:
        sp.transfer_colors(*images, sp.Partial(MASS), n_batches=100 if quick else K, smooth=True)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_memory(photos: Path, quick: bool) -> dict[str, int]:
    found = {}
    for name, several in (("one mass", False), ("five masses", True)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found[name] = pool.submit(peak, photos, several, quick).result()
    return found


def sliced(image: Any, other: Any) -> float:
    """The sliced Wasserstein distance between the colours of two images, in levels of 255."""
    directions = np.random.default_rng(0).normal(size=(3, 64))
    directions /= np.linalg.norm(directions, axis=0)
    shares = (np.arange(2000) + 0.5) / 2000
    one, two = (np.quantile(each.reshape(-1, 3)[::7] @ directions, shares, axis=0) for each in (image, other))
    return float(np.sqrt(np.mean((one - two) ** 2)))


def measure_quality(name: str, photos: Path, sheets: Path | None, quick: bool) -> dict[str, Any]:
    source, target = load(photos, PAIRS[name], quick)
    k = 100 if quick else K
    count = source.shape[0] * source.shape[1]
    drawn = np.unique(sampled(count, M, k, False, 0, 0, None, "").draw(np.arange(k)))
    cases, pictures = [], {"source": small(Photo(source))}
    for mass, result in zip(MASSES, sp.transfer_masses(source, target, MASSES, n_batches=k), strict=True):
        smooth = result.transfer.apply(source)  # what smooth=True gives
        left = float((result.masses.ravel()[drawn] == 0).mean())
        distances = {"distance": sliced(result.image, target), "distance, smooth": sliced(smooth, target)}
        cases.append({"mass": mass, **distances, "unmatched": result.unmatched, "unmatched of drawn": left})
        pictures["m-OT" if mass == 1 else f"m-POT, s = {mass:g}"] = small(Photo(smooth))
        if mass == MASS:
            pictures[f"pixel by pixel, s = {mass:g}"] = small(Photo(result.image))
    if sheets:
        pictures["target"] = small(Photo(target))
        figure = figures.new_figure(8, 3)
        figures.draw_recolored(figure, pictures)
        figures.save(figure, sheets / f"color-{name}.png", force=True)
    return {"pair": name, "distance": sliced(source, target), "drawn": len(drawn) / count, "masses": cases}


def measure(photos: Path, sheets: Path | None, quick: bool) -> dict[str, Any]:
    k, pairs, repeats = (80, 5, 1) if quick else (K, 200, 2)
    sp.transfer_colors(*np.zeros((2, 30, 30, 3), np.uint8), sp.Partial(MASS), n_batches=5)  # loads what is used
    results: dict[str, Any] = {
        "speed": {name: measure_speed(load(photos, names, quick), k, pairs, repeats) for name, names in LARGE.items()},
        "command": {
            name: measure_command([photos / each for each in names], k, repeats) for name, names in LARGE.items()
        },
        "memory": measure_memory(photos, quick),
        "quality": [measure_quality(name, photos, sheets, quick) for name in (["1"] if quick else PAIRS)],
    }
    return results | {"goals": judge(results)}


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    speed, command = results["speed"], results["command"]
    wall = {name: case["wall"] for name, case in speed.items()}
    slowest = min(wall, key=lambda name: wall[name]["to loop"])
    dearest, longest = (max(each, key=lambda name: each[name]["to one mass"]) for each in (wall, command))
    steepest = max(speed, key=lambda name: speed[name]["exponent"])
    most = max(results["memory"].values()) / GIB
    return [
        goal("15 times faster than a loop over POT", 15, wall[slowest]["to loop"], slowest),
        goal("time grows at most as k^1.05", 1.05, speed[steepest]["exponent"], steepest, False),
        goal("five masses at most 1.5 times the time of one", 1.5, wall[dearest]["to one mass"], dearest, False),
        goal(
            "the command with five masses at most 1.5 times that with one",
            1.5,
            command[longest]["to one mass"],
            longest,
            False,
        ),
        goal("12 megapixels in at most 2 GiB", 2.0, most, "GiB", False),
    ]


def speed_table(results: dict[str, Any]) -> Table:
    heads = "photos", "seconds", "s = 0.9", "smooth", "s = 1", "five masses", "one by one", "POT loop", "times faster"
    shown = Table(*heads, title=f"m = {M}, on the wall with all cores, and of one core's time")
    for name, case in results["speed"].items():
        for clock, times in (("wall", case["wall"]), ("processor", case)):
            loop_seconds = times["POT a pair"] * case["by k"][-1]["k"]
            numbers = [times[name] for name in ("seconds", "smooth", "largest mass", "several masses", "one by one")]
            numbers += [loop_seconds, times["to loop"]]
            size = f"{name}, {case['pixels'][0] / 1e6:.2f} megapixels"
            shown.add_row(size, clock, *(f"{number:.2f}" for number in numbers))
    return shown


def quality_table(results: dict[str, Any]) -> Table:
    title = "Sliced Wasserstein distance to the target, in levels: smooth (pixel by pixel); unmatched of drawn pixels"
    shown = Table("pair", "source", *(f"s = {mass:g}" for mass in MASSES), title=title)
    for case in results["quality"]:
        cells = [
            f"{c['distance, smooth']:.1f} ({c['distance']:.1f}); {c['unmatched of drawn']:.1%}" for c in case["masses"]
        ]
        shown.add_row(case["pair"], f"{case['distance']:.1f}", *cells)
    return shown


def main() -> None:
    asked = entropic.options(__doc__, "color.json", "--data", "--sheets")
    if not asked.data:
        raise SystemExit("The photos must be found. Pass --data, or set SPADEFUL_DATA to the folder of the data.")
    results = measure(asked.data / "photos", asked.sheets, asked.quick)
    console = Console(width=150)
    console.print(speed_table(results), quality_table(results), tables.goals_table(results))
    entropic.save({"machine": run.machine(), "quick": asked.quick, **results}, asked.target)


if __name__ == "__main__":
    main()
