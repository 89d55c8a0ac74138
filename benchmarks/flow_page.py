"""Write the figures of flow.json into docs/flow.md, between the marks."""

from __future__ import annotations

import json
from typing import Any

import pages


def ends(values: list[float | None]) -> str:
    return ", ".join("-" if value is None else f"{value:.3f}" for value in values)


def methods(results: dict[str, Any]) -> list[str]:
    lines = [
        f"| method | $W_2$ after {results['steps']:,} steps | of each seed |",
        "| --- | ---: | --- |",
    ]
    for name, m in sorted(results["methods"].items(), key=lambda item: item[1]["mean"] or 1e9):
        mean = "ran away" if m["mean"] is None else f"{m['mean']:.4f} ± {m['spread']:.4f}"
        lines.append(f"| {name}{settings(m)} | {mean} | {ends(m['final'])} |")
    return lines


def settings(method: dict[str, Any]) -> str:
    """What was chosen for m-UOT."""
    if not method["problem"].startswith("Unbalanced"):
        return ""
    tau, reg = (method["problem"].split(f"{name}=")[1].split(",")[0] for name in ("tau", "reg"))
    moves = f"; moves a mass of {method['mass']:.2g}" if "mass" in method else ""
    return f" (τ = {float(tau):g}, ε = {float(reg):g}{moves})"


def others(results: dict[str, Any]) -> list[str]:
    """The seeds on which nothing was chosen, and in how many m-POT 0.8 of the same pairing ends nearer."""
    found = results["other seeds"]
    seeds = len(found["m-POT 0.8"]["final"])
    lines = [f"| method | $W_2$, mean over {seeds} other seeds | m-POT 0.8 nearer |", "| --- | ---: | ---: |"]
    for name, m in sorted(found.items(), key=lambda item: item[1]["mean"]):
        ours = found["m-POT 0.8, all pairs" if m.get("pairing") == "all" else "m-POT 0.8"]
        nearer = sum(a < b for a, b in zip(ours["final"], m["final"], strict=True))
        error = m["spread"] / seeds**0.5
        lines.append(
            f"| {name}{settings(m)} | {m['mean']:.4f} ± {error:.4f} | {'' if m is ours else f'{nearer} times'} |"
        )
    return lines


def settled(results: dict[str, Any]) -> list[str]:
    parts = [f"{name} {m['mean']:.4f} ± {m['spread']:.4f}" for name, m in results["settled"].items()]
    return [f"With a tenth of the step and ten times as many: {', '.join(parts)}."]


def targets(results: dict[str, Any]) -> list[str]:
    """All that were tried, and in how many seeds m-POT 0.8 ends nearer than the best m-UOT."""
    names = list(results["targets"][0]["final"])
    lines = ["| target | " + " | ".join(names) + " | 0.8 nearer than m-UOT |", "| --- |" + " ---: |" * (len(names) + 1)]
    for case in results["targets"]:
        final = case["final"]
        means = ["ran away" if None in ends else f"{sum(ends) / len(ends):.4f}" for ends in final.values()]
        nearer = sum(a < b for a, b in zip(final["m-POT 0.8"], final["m-UOT"], strict=True))
        lines.append(f"| {case['target']} | {' | '.join(means)} | {nearer} of {results['seeds']} seeds |")
    return lines


def grid(results: dict[str, Any], pairing: str, *entropies: str) -> list[str]:
    shown_cells = [c for c in results["grid"] if c["pairing"] == pairing and c["entropy"] in entropies]
    cells = {(c["tau"], c["reg"]): c["mean"] for c in shown_cells}
    taus, regs = (sorted({key[at] for key in cells}) for at in (0, 1))
    lines = ["| ε \\ τ | " + " | ".join(f"{tau:g}" for tau in taus) + " |", "| --- |" + " ---: |" * len(taus)]
    for reg in regs:
        shown = ["ran away" if cells[tau, reg] is None else f"{cells[tau, reg]:.3f}" for tau in taus]
        lines.append(f"| {reg:g} | " + " | ".join(shown) + " |")
    return lines


def speed(results: dict[str, Any]) -> list[str]:
    paired, every = results["races"]
    return [
        f"{paired['steps']:,} steps of m-POT take {paired['ours']:.2f} s on one core of an "
        f"{results['machine']['processor']}, {paired['ratio']:.0f} times less than the same loop over POT's "
        f"`partial_wasserstein` ({paired['POT']:.1f} s); with all {4 * 4} pairs of batches {every['ours']:.2f} s, "
        f"{every['ratio']:.0f} times less. Both loops give the same points.",
    ]


def main() -> None:
    asked = pages.folders(__doc__)
    results = json.loads((asked.results / "flow.json").read_text())
    sections = [
        methods(results),
        others(results),
        settled(results),
        targets(results),
        grid(results, "paired", "none", "plain"),
        grid(results, "paired", "kl"),
        grid(results, "all", "none", "plain"),
        speed(results),
    ]
    pages.write(asked.docs / "flow.md", *sections)


if __name__ == "__main__":
    main()
