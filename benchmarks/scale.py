"""Draw the picture of minibatch.json, and write its figures into docs/scale.md between the marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import pages

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#333333"
MARKERS = ["o", "s", "D"]
#: What the extrapolation is for.
POINTS, WORKERS = 10**9, 100


def settle(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(which="major", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    low, high = axes.get_ylim()
    ticks = [digit * 10.0**power for power in range(-5, 4) for digit in ((1, 2, 5) if high / low < 1000 else (1,))]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)


def draw_over_k(axes: Any, errors: dict[str, Any], what: str, title: str) -> None:
    for case, colour, marker in zip(errors["over k"], (BLUE, ORANGE, GREEN), MARKERS, strict=False):
        axes.plot(case["k"], case[what], color=colour, marker=marker, ms=5, lw=1.6, label=f"m = {case['m']}")
    ks = np.array(errors["over k"][0]["k"])
    lowest = errors["over k"][-1][what][0]
    axes.plot(ks, 0.6 * lowest / np.sqrt(ks), color=GREY, lw=1.2, ls="--", label=r"slope of $1/\sqrt{k}$")
    settle(axes, title, "pairs of batches k", "from that of very many pairs, relative")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.legend(frameon=False, fontsize=8)


def draw_over_m(axes: Any, errors: dict[str, Any]) -> None:
    ms = [case["m"] for case in errors["over m"]]
    for what, colour, marker, label in (
        ("value", BLUE, "o", "value, above the optimum"),
        ("map", ORANGE, "s", "barycentric map"),
    ):
        axes.plot(ms, [case[what] for case in errors["over m"]], color=colour, marker=marker, ms=5, lw=1.6, label=label)
    title = f"Error of value and map over m, with many pairs (n = {errors['n']:,})"
    settle(axes, title, "batch size m", "from that of the whole problem, relative")
    axes.set_xticks(ms, [str(m) for m in ms])
    axes.legend(frameon=False, fontsize=8)


def draw_over_n(axes: Any, results: dict[str, Any]) -> None:
    sizes, pot = results["sizes"], results["large"]["POT a pair"]["cpu"]
    axes.plot(sizes["sizes"], sizes["seconds"], color=BLUE, marker="o", ms=5, lw=1.6, label="spadeful")
    axes.axhline(pot * sizes["k"], color=GREY, lw=1.2, ls="--", label="loop over POT")
    axes.set_yscale("log")
    axes.set_ylim(min(sizes["seconds"]) / 3, pot * sizes["k"] * 4)
    settle(axes, f"Time over n, m = {sizes['m']}, k = {sizes['k']}, one thread", "points n on each side", "seconds")
    axes.legend(frameon=False, fontsize=8)


def draw(results: dict[str, Any], file: Path) -> None:
    # Without pyplot: it would look for a display.
    figure = Figure(figsize=(10, 7.4), layout="constrained")
    (value, plan), (batch, size) = figure.subplots(2, 2)
    errors = results["errors"]
    draw_over_k(value, errors, "value", f"Error of the value over k (n = {errors['n']:,})")
    draw_over_k(plan, errors, "plan", f"Error of the plan over k, Frobenius norm (n = {errors['n']:,})")
    draw_over_m(batch, errors)
    draw_over_n(size, results)
    figure.savefig(file, dpi=130)


def seconds(spent: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if spent >= 2 * unit:
            return f"{spent / unit:.1f} {name}"
    return f"{spent:.3g} s"


def size(count: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"


def measured(results: dict[str, Any]) -> list[str]:
    large, colours, machine = results["large"], results["colours"], results["machine"]
    one, two, k = large["one thread"], large["two threads"], large["k"]
    pot, pot_colours = large["POT a pair"]["cpu"] * k, colours["POT a pair"]["cpu"] * colours["k"]
    over = large["one thread, wall"]
    quick = "These are figures of a quick run of small problems; `make bench` takes the large ones. "
    rows = [
        (f"{large['n']:,} points, 64-D, m = {large['m']}, k = {k:,}", "one thread", one["cpu"],
         large["to loop"]["one thread"]),
        ("", "two threads", two["wall"], large["to loop"]["as called"]),
        ("", "two processes", large["two processes"], pot / large["two processes"]),
        ("", "loop over POT, one thread", pot, 1),
        (f"{colours['n']:,} colours, m = {colours['m']}, k = {colours['k']:,}", "one thread",
         colours["one thread"]["cpu"], colours["to loop"]["one thread"]),
        ("", "two threads", colours["two threads"]["wall"], colours["to loop"]["as called"]),
        ("", "loop over POT, one thread", pot_colours, 1),
    ]  # fmt: skip
    return [
        f"{quick if results['quick'] else ''}Measured on {machine['cores']} cores of an {machine['processor']} with "
        f"`Partial(0.75)`, points in memory-mapped float32 files (colours in float64). The loop calls `ot.dist` and "
        f"`ot.partial.partial_wasserstein` on the same batches; its time is that of a sample of them.",
        "",
        "| problem | how | time | times faster than the loop |",
        "| --- | --- | ---: | ---: |",
        *(f"| {problem} | {how} | {seconds(spent)} | {ratio:.1f} |" for problem, how, spent, ratio in rows),
        "",
        f"Of the time on one thread {large['share']['one thread']:.0%} is spent in the costs and the solver, on two "
        f"{large['share']['two threads']:.0%}. Time grows as k to the power {large['exponent']:.3f}. Two processes are "
        f"{over / large['two processes']:.2f} times as fast as one with one thread, once they are started. Beyond the "
        f"points' files and the plan ({size(one['plan'])}) the process holds at most {size(large['memory'])}.",
        "",
    ]


def extrapolated(results: dict[str, Any]) -> list[str]:
    """A cluster runs what was measured, once for every part of the points."""
    large = results["large"]
    one, part, k = large["one thread"], large["n"], large["k"]
    files = 2 * part * 64 * 4
    parts = POINTS // part
    rows = [
        (f"the value to ± {one['spread'] / k**0.5:.2%} (one standard error)", 1, 1),
        (f"plan and map, every point in {k * large['m'] / part:.1f} batches on average", parts, 1),
        (f"plan and map, every point in {10 * k * large['m'] / part:.0f} batches", parts, 10),
    ]
    lines = [
        "| for | parts | k in all | processor time | time on "
        f"{WORKERS} workers | memory of a worker | read by all | sent back |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for wanted, count, times in rows:
        spent = one["cpu"] * times
        rounds = -(-count // WORKERS)
        back = count * (8 * k * times if wanted.startswith("the value") else one["plan"] * times)
        held = large["memory"] + 2 * one["plan"] * times
        lines.append(
            f"| {wanted} | {count:,} | {count * k * times:,} | {seconds(count * spent)} | {seconds(rounds * spent)} | "
            f"{size(held)} + {size(files)} of files | {size(count * files)} | {size(back)} |"
        )
    rate = files / one["cpu"]
    return [
        *lines,
        "",
        f"Here m = {large['m']} and each part has {part:,} points a side and k = {k:,} pairs (or ten times as many), "
        f"which is the run measured above: {seconds(one['cpu'])} on one thread. A worker that reads as it goes reads "
        f"{size(rate)} a second. Memory counts the plan twice, "
        f"as it is while plans are added up. The values of single pairs spread by {one['spread']:.1%} of their mean.",
        "",
    ]


def main() -> None:
    asked = pages.folders(__doc__)
    results = json.loads((asked.results / "minibatch.json").read_text())
    draw(results, asked.docs / "pictures" / "minibatch.png")
    pages.write(asked.docs / "scale.md", measured(results), extrapolated(results))


if __name__ == "__main__":
    main()
