"""Write docs/benchmarks.md between its marks: every result that there is, and which goals are reached."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pages
from costs import TITLES
from measure import geometric_mean

Results = dict[str, Any]
Lines = list[str]


def table(head: list[str], rows: list[list[str]], words: int = 1) -> Lines:
    """A table of some columns of words, then of figures."""
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return ["", *("| " + " | ".join(line) + " |" for line in lines), ""]


def figure(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def milliseconds(seconds: float) -> str:
    return figure(1000 * seconds)


# Exact transport


def ratio(results: Results, family: str, mass: float) -> str:
    """How many times faster, in the geometric mean and at least."""
    ratios = [c["ratio"] for c in results["grid"] if c["family"] == family and c["mass"] == mass and c["ratio"]]
    return f"{geometric_mean(ratios):.1f} ({min(ratios):.1f})" if ratios else "-"


def ratios(results: Results) -> Lines:
    masses = results["masses"]
    rows = [[TITLES[f], *(ratio(results, f, s) for s in masses)] for f in results["families"]]
    return table(["costs", *(f"s = {s:g}" for s in masses)], rows)


def times(results: Results) -> Lines:
    cells = {(c["family"], c["mass"], c["m"]): c for c in results["grid"]}
    rows = []
    for family in results["families"]:
        for mass in results["masses"]:
            found = [cells[family, mass, m] for m in results["sizes"]]
            shown = [
                f"{milliseconds(c['seconds']['spadeful'])} ({c['ratio']:.1f})" if c["ratio"] else "-" for c in found
            ]
            rows.append([f"{TITLES[family]}, s = {mass:g}", *shown])
    return table(["ms (times faster)", *(f"m = {m}" for m in results["sizes"])], rows)


def paths(results: Results) -> Lines:
    rows = []
    for family in results["families"]:
        found = [c for c in results["path"] if c["family"] == family]
        rows.append([TITLES[family], *(f"{milliseconds(c['seconds']['path'])} ({c['to_solve']:.1f})" for c in found)])
    return table(["ms of the path (times `solve` at s = 1)", *(f"m = {m}" for m in results["sizes"])], rows)


def batches(results: Results) -> Lines:
    first = results["batch"][0]
    rows = [
        [TITLES[c["family"]], f"{1000 * c['seconds']['two threads, dense']:.1f}", c["note"] or f"{c['to_loop']:.1f}",
         f"{c['to_thread']:.2f}"]
        for c in results["batch"]
    ]  # fmt: skip
    head = f"{first['count']} problems, m = {first['m']}, s = {first['mass']:g}"
    return table([head, "ms on two threads", "times faster than a loop over POT", "than one thread"], rows)


def exact(results: Results) -> Lines:
    sizes = f"{results['sizes'][0]} to {results['sizes'][-1]}"
    failed = [
        f"{name} on {TITLES[c['family']]}, m = {c['m']}, s = {c['mass']:g}: {note}"
        for c in results["grid"]
        for name, note in c["notes"].items()
    ]
    return [
        "Times faster than POT's `partial_wasserstein` (s < 1) and than the fastest of POT `emd`, SciPy and lapx "
        f"(s = 1): the geometric mean over {sizes} points a side, and in brackets the smallest. One thread each, in "
        "the same run; every answer is checked against the others'.",
        *ratios(results),
        "![How many times faster, over the size, for four masses](../benchmarks/results/exact.png)",
        "",
        "The times themselves:",
        *times(results),
        "The whole mass path, beside the one solve of the full problem:",
        *paths(results),
        "A batch of problems:",
        *batches(results),
        "Time grows with m on the 2-D clouds as a power of "
        + ", ".join(f"{power:.2f} (s = {mass})" for mass, power in results["exponents"].items())
        + ".",
        "",
        *(["Solvers that failed, were wrong or were not asked: " + "; ".join(failed) + ".", ""] if failed else []),
    ]


# Entropic transport


def entropic(results: Results) -> Lines:
    rows = []
    for case in results["cases"]:
        found = (f"{rival(name)} {x:.1f} ({case['wanted'][name]:g})" for name, x in case["ratios"].items())
        rows.append([case["case"], milliseconds(case["seconds"]["spadeful"]), ", ".join(found)])
    said = (
        "To a marginal error of 1e-6; without an entropy (exact) to a certified gap of 1e-10 of the objective, which "
        "L-BFGS-B comes near and majorisation-minimisation (MM) does not."
    )
    return [said, *table(["problem", "ms", "times faster than (goal)"], rows)]


def rival(name: str) -> str:
    return "one thread" if name == "one thread over two" else name


def entropic_goals(results: Results) -> list[Results]:
    return [
        {"goal": f"{case['case']}: {bound:g} times faster than {rival(name)}", "figure": case["ratios"][name], "at": "",
         "reached": case["ratios"][name] >= bound}
        for case in results["cases"]
        for name, bound in case["wanted"].items()
    ]  # fmt: skip


def others(results: Results) -> Lines:
    """OTT-JAX and GeomLoss on the same problems: times, and how far from the optimal plan each was spent."""
    cases = [case for case in results["cases"] if len(case["seconds"]) > 1]
    names = ["spadeful", *dict.fromkeys(name for case in cases for name in case["seconds"] if name != "spadeful")]
    rows = []
    for case in cases:
        spent, errors = case["seconds"], case["errors"]
        cells = [f"{1000 * spent[n]:.2f} ({errors[n]['plan']:.0e})" if n in spent else "-" for n in names]
        rows.append([case["case"], *cells])
    return [
        "OTT-JAX is jitted, its compilation left out; the `scaling` of GeomLoss trades time for accuracy. Processor "
        "time on one thread in ms, and in brackets the distance from the optimal plan, as a share of the mass. Neither "
        "transports a prescribed mass.",
        *table(["problem", *names], rows),
    ]


# Clouds, colours, flows


def minibatch(results: Results) -> Lines:
    large, colours = results["large"], results["colours"]
    rows = []
    for name, found in (
        (f"{large['n']:,} points, 64-D, m = {large['m']}, k = {large['k']:,}", large),
        (f"{colours['n']:,} colours, m = {colours['m']}, k = {colours['k']:,}", colours),
    ):
        spent = found["two threads"]["wall"], found["one thread"]["cpu"], found["POT a pair"]["cpu"] * found["k"]
        faster = found["to loop"]
        rows.append([name, *(f"{each:.2f}" for each in spent), f"{faster['as called']:.1f}",
                     f"{faster['one thread']:.1f}"])  # fmt: skip
    return [
        "`Partial(0.75)`. [Scale](scale.md) has more of these, and the errors over k and m. POT's loop has one thread.",
        *table(
            ["mini-batches", "s on two threads", "on one", "a loop over POT, s", "times faster", "on one thread"], rows
        ),
    ]


def color(results: Results) -> Lines:
    rows = [
        [name, f"{case['seconds']:.1f}", f"{case['several masses']:.1f}", f"{case['to loop']:.1f}"]
        for name, case in results["speed"].items()
    ]
    return [
        "[Colour transfer](color.md) has more of these, and how good the colours are.",
        *table(["photos", "s, one thread", "s for five masses", "times faster than a loop over POT"], rows),
    ]


def flow(results: Results) -> Lines:
    rows = [
        [
            f"{race['steps']:,} steps, {race['pairing']}",
            f"{race['ours']:.2f}",
            f"{race['POT']:.1f}",
            f"{race['ratio']:.0f}",
        ]
        for race in results["races"]
    ]
    return [
        "[Gradient flow](flow.md) has what is reached.",
        *table(["m-POT", "s, one core", "a loop over POT, s", "times faster"], rows),
    ]


def adapt(results: Results) -> Lines:
    lines = []
    for found in results["iterations"]:
        parts = list(next(iter(found["split"].values())))
        rows = []
        for name, seconds in found["seconds"].items():
            split = found["split"].get(name, {})
            over = found["to cross-entropy"].get(name)
            cells = [f"{1000 * split[part]:.1f}" if part in split else "-" for part in parts]
            rows.append([name, f"{1000 * seconds:.0f}", *cells, f"{over:.3f}" if over else "-"])
        head = f"{found['digits']}, m = {found['m']}, threads: {found['threads']}"
        lines += table([head, "ms an iteration", *(f"{part}, ms" for part in parts), "times cross-entropy"], rows)
    return lines


def two_stages(results: Results) -> Lines:
    rows = [
        [f"{r['source']} to {r['target']}", f"{r['problem']:.2f}", f"{r['bytes'] / 1e6:.0f}"]
        for r in results["problems"]
    ]
    first = results["problems"][0]
    return table([f"{first['m'] * first['k']:,} points, one core", "s a problem", "MB"], rows)


def beside(results: Results) -> Lines:
    rows = [
        [name, f"{mean['accuracy']:.2f}", f"{1000 * mean['seconds']:.1f}" if "seconds" in mean else "-"]
        for name, mean in results["means"].items()
    ]
    size = results["size"]
    head = f"{len(results['tasks'])} runs of {size['iterations']} iterations, m = {size['m']}, one core"
    return table([head, "accuracy, %", "ms an iteration"], rows)


def generate(results: Results) -> Lines:
    parts = ("networks", "cost", "solver")
    rows = [
        [
            f"{found['images']}, {found['method']}",
            *(f"{1000 * found[part]:.0f}" for part in ("seconds", *parts)),
            f"{100 * found['share']:.1f}",
        ]
        for found in results["cases"]
    ]
    first = results["cases"][0]
    head = f"m = {first['m']}, k = {first['k']}, one core"
    return table([head, "ms an iteration", *(f"{part}, ms" for part in parts), "transport, %"], rows)


#: The results in the order of the page: their title, the command that makes them, and their tables.
KNOWN: dict[str, tuple[str, str, Callable[[Results], Lines]]] = {
    "exact": ("Exact transport", "make bench", exact),
    "entropic": ("Entropic transport", "make bench", entropic),
    "others": ("Beside OTT-JAX and GeomLoss", "make rivals", others),
    "minibatch": ("Mini-batches", "make bench", minibatch),
    "color": ("Colour transfer", "benchmarks/color.py", color),
    "flow": ("Gradient flow", "benchmarks/flow.py", flow),
    "adapt": ("Deep domain adaptation", "make rivals", adapt),
    "two_stages": ("Two-stage training", "benchmarks/two_stages.py", two_stages),
    "beside": ("Domain adaptation beside skada", "make rivals", beside),
    "generate": ("Generative models", "benchmarks/generate.py", generate),
}


def goals_of(name: str, results: Results) -> list[Results]:
    return entropic_goals(results) if name == "entropic" else results.get("goals", [])


def measured(goal: Results) -> str:
    if goal["figure"] is None:
        return "-"
    return figure(goal["figure"]) + (f" ({goal['at']})" if goal["at"] else "")


def judged(goals: list[Results]) -> Lines:
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [[cell(g["goal"]), measured(g), words[g["reached"]]] for g in goals]
    return table(["goal", "measured", "reached"], rows) if rows else []


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def machine(results: Results) -> str:
    found = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if name != "spadeful")
    return f"{found['cores']} cores of an {found['processor']} ({found['instructions']}), {found['system']}, {versions}"


def title_of(name: str) -> str:
    return KNOWN[name][0] if name in KNOWN else name.capitalize()


def section(name: str, results: Results) -> Lines:
    _, command, tables = KNOWN.get(name, ("", f"benchmarks/{name}.py", lambda _: []))
    quick = "These are figures of a quick run of small problems. " if results.get("quick") else ""
    goals = [] if name == "entropic" else goals_of(name, results)  # it has them beside its figures
    made = f"{quick}By `{command}`, on {machine(results)}."
    return [f"## {title_of(name)}", "", made, "", *tables(results), *judged(goals)]


def overview(found: dict[str, Results]) -> Lines:
    """How many goals are reached, and which are not."""
    goals = [(name, g) for name, results in found.items() for g in goals_of(name, results)]
    reached, missed = (sum(g["reached"] is wanted for _, g in goals) for wanted in (True, False))
    rows = [[title_of(name), cell(g["goal"]), measured(g)] for name, g in goals if g["reached"] is False]
    return [
        f"Of {len(goals)} goals that were set, {reached} are reached and {missed} missed"
        + (f"; {len(goals) - reached - missed} could not be measured" if reached + missed < len(goals) else "")
        + ("." if not rows else ". Those missed:"),
        *(table(["", "goal", "measured"], rows, words=2) if rows else []),
    ]


def read(folder: Path) -> dict[str, Results]:
    """All results of a folder, those with tables of their own first."""
    files = {path.stem: path for path in sorted(folder.glob("*.json"))}
    names = [*(name for name in KNOWN if name in files), *(name for name in files if name not in KNOWN)]
    found = {name: json.loads(files[name].read_text(encoding="utf-8")) for name in names}
    return {name: results for name, results in found.items() if "machine" in results}


def main() -> None:
    asked = pages.folders(__doc__)
    found = read(asked.results)
    lines = overview(found) + [line for name, results in found.items() for line in section(name, results)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    pages.write(asked.docs / "benchmarks.md", [text])


if __name__ == "__main__":
    main()
