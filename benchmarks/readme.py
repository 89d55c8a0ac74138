"""Write the measured figures into the README, between its two marks."""

from __future__ import annotations

import json
from typing import Any

import pages
from costs import TITLES
from measure import geometric_mean
from pages import HERE


def cell(results: dict[str, Any], family: str, mass: float) -> str:
    ratios = [c["ratio"] for c in results["grid"] if c["family"] == family and c["mass"] == mass and c["ratio"]]
    return f"{geometric_mean(ratios):.1f} ({min(ratios):.1f})" if ratios else "-"


def beside(others: dict[str, Any]) -> list[str]:
    """OTT-JAX and GeomLoss on the same problems: times, and how far from the optimal plan each was spent."""
    names = [
        "spadeful",
        *dict.fromkeys(name for case in others["cases"] for name in case["seconds"] if name != "spadeful"),
    ]
    lines = ["| entropic, ms (distance from the optimal plan, as a share of the mass) | " + " | ".join(names) + " |"]
    lines.append("| --- |" + " ---: |" * len(names))
    for case in others["cases"]:
        if len(case["seconds"]) == 1:
            continue
        cells = [
            f"{1000 * case['seconds'][name]:.2f} ({case['errors'][name]['plan']:.0e})"
            if name in case["seconds"]
            else "-"
            for name in names
        ]
        lines.append(f"| {case['case']} | " + " | ".join(cells) + " |")
    return [
        "",
        "Beside OTT-JAX (jitted, its compilation left out) and GeomLoss (whose `scaling` trades time for accuracy), by "
        "`make rivals`, in processor time on one thread. Neither transports a prescribed mass.",
        "",
        *lines,
    ]


def clouds(minibatch: dict[str, Any]) -> list[str]:
    """Mini-batches between large clouds."""
    large, colours = minibatch["large"], minibatch["colours"]
    return [
        "",
        f"Mini-batches: {large['k']:,} pairs of {large['m']} + {large['m']} points out of {large['n']:,} in 64 "
        f"dimensions, s = 0.75, take {large['two threads']['wall']:.1f} s on two cores and "
        f"{large['two threads']['peak'] / 2**20:.0f} MiB beyond the memory-mapped points; on one core "
        f"{large['to loop']:.0f} times faster than a loop over NumPy and POT. With {colours['m']} + {colours['m']} "
        f"colours out of {colours['n']:,} it is {colours['to loop']:.0f} times.",
    ]


def section(
    results: dict[str, Any], entropic: dict[str, Any], others: dict[str, Any], minibatch: dict[str, Any]
) -> list[str]:
    masses, machine = results["masses"], results["machine"]
    sizes = f"{results['sizes'][0]} to {results['sizes'][-1]}"
    lines = [
        f"Times faster than POT's `partial_wasserstein` (s < 1) and than the fastest of POT `emd`, SciPy and lapx "
        f"(s = 1): the geometric mean over {sizes} points a side, and in brackets the smallest. One thread each, "
        f"in the same run, by `make bench` on {machine['cores']} cores of an {machine['processor']} "
        f"({machine['instructions']}); every answer is checked against the others'.",
        "",
        "| costs | " + " | ".join(f"s = {s:g}" for s in masses) + " |",
        "| --- |" + " ---: |" * len(masses),
        *(f"| {TITLES[f]} | " + " | ".join(cell(results, f, s) for s in masses) + " |" for f in results["families"]),
        "",
    ]
    loops = [b["to_loop"] for b in results["batch"] if b["to_loop"]]
    threads = [b["to_thread"] for b in results["batch"]]
    lines += [
        f"A batch of 256 problems of 100 points at s = 0.75 on two cores is {min(loops):.0f} to {max(loops):.0f} times "
        f"faster than a loop over POT, and {min(threads):.2f} to {max(threads):.2f} times faster than on one core. "
        "On integer costs at s = 0.9, lapx with dummy points comes close to or ahead of us.",
        "",
        "| entropic, to a marginal error of 1e-6 | ms | times faster than |",
        "| --- | ---: | --- |",
    ]
    for case in entropic["cases"]:
        ratios = ", ".join(f"{name} {ratio:.1f}" for name, ratio in case["ratios"].items() if "thread" not in name)
        lines.append(f"| {case['case']} | {1000 * case['seconds']['spadeful']:.2f} | {ratios} |")
    return lines + beside(others) + clouds(minibatch)


def main() -> None:
    names = "exact", "entropic", "others", "minibatch"
    found = [json.loads((HERE / "results" / f"{name}.json").read_text()) for name in names]
    pages.write(HERE.parent / "README.md", section(*found))


if __name__ == "__main__":
    main()
