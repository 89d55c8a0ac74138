"""Write the figures of color.json into docs/color.md, between the marks."""

from __future__ import annotations

import json
from typing import Any

import pages


def quality(results: dict[str, Any]) -> list[str]:
    masses = [case["mass"] for case in results["quality"][0]["masses"]]
    lines = []
    for title, key in (
        ("distance, smooth", "distance, smooth"),
        ("distance, pixel by pixel", "distance"),
        ("without a match", "unmatched of drawn"),
    ):
        lines += [f"| {title} | source | " + " | ".join(f"s = {mass:g}" for mass in masses) + " |"]
        lines += ["| --- | ---: |" + " ---: |" * len(masses)]
        for pair in results["quality"]:
            share = key == "unmatched of drawn"
            cells = [f"{c[key]:.1%}" if share else f"{c[key]:.1f}" for c in pair["masses"]]
            lines.append(
                f"| pair {pair['pair']} | {'' if share else format(pair['distance'], '.1f')} | {' | '.join(cells)} |"
            )
        lines.append("")
    return lines[:-1]


def speed(results: dict[str, Any]) -> list[str]:
    heads = "s = 0.9", "smooth", "s = 1", "five masses", "one by one", "a loop over POT", "times faster"
    lines = [f"| seconds of m-POT | {' | '.join(heads)} |", "| --- |" + len(heads) * " ---: |"]
    for name, case in results["speed"].items():
        sizes = " and ".join(f"{pixels / 1e6:.2f}" for pixels in case["pixels"])
        cores = case["wall"]["cores"]
        for clock, timed in ((f"on the wall, {cores} cores", case["wall"]), ("of the processor, one core", case)):
            loop = timed["POT a pair"] * case["by k"][-1]["k"]
            times = [timed[key] for key in ("seconds", "smooth", "largest mass", "several masses", "one by one")]
            times += [loop, timed["to loop"]]
            lines.append(f"| {name}, {sizes} megapixels, {clock} | {' | '.join(f'{t:.2f}' for t in times)} |")
    case = results["speed"]["lake"]
    commands = "; ".join(
        f"{name} {times['one mass']:.2f} s with s = 0.9, {times['largest mass']:.2f} s with s = 1, and "
        f"{times['five masses']:.2f} s with five masses"
        for name, times in results["command"].items()
    )
    memory = " and ".join(f"{peak / 2**30:.1f} GiB ({name})" for name, peak in results["memory"].items())
    return [
        *lines,
        "",
        f"m = 100, k = {case['by k'][-1]['k']:,}, on an {results['machine']['processor']}. The loop over POT has one "
        f"thread. A thousand pairs more take {1000 * case['a pair more']:.2f} s of a core, whatever k is. "
        f"The whole command, which reads and writes files too: {commands}. "
        f"A pair of 12-megapixel photos takes {memory} of memory in all. "
        "Goals that were set and not reached: "
        + ("; ".join(f"{g['goal']} ({g['figure']:.1f})" for g in results["goals"] if not g["reached"]) or "none")
        + ".",
    ]


def main() -> None:
    asked = pages.folders(__doc__)
    results = json.loads((asked.results / "color.json").read_text())
    pages.write(asked.docs / "color.md", quality(results), speed(results))


if __name__ == "__main__":
    main()
