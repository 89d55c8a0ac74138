"""The results as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

import goals
from costs import TITLES
from rivals import OURS


def clock(times: dict[str, float], name: str) -> str:
    if name not in times:
        return "–"
    spent = times[name]
    return f"{1e6 * spent:.0f} µs" if spent < 1e-3 else f"{1e3 * spent:.4g} ms"


def factor(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


def coloured(ratio: float | None, bound: float) -> str:
    if ratio is None:
        return "[red]–[/]"
    return f"[{'green' if ratio >= bound else 'red'}]{ratio:.1f}×[/]"


def grid_table(results: dict[str, Any]) -> Table:
    table = Table(title="Times of spadeful, and how many times faster: s < 1 than POT, s = 1 than the fastest rival")
    for name in ("costs", "m"):
        table.add_column(name, justify="right" if name == "m" else "left")
    for mass in results["masses"]:
        table.add_column(f"s = {mass:g}", justify="right")
    table.add_column("fastest rival", no_wrap=True)
    cells = {(c["family"], c["m"], c["mass"]): c for c in results["grid"]}
    for family in results["families"]:
        for m in results["sizes"]:
            row = [cells[family, m, mass] for mass in results["masses"]]
            shown = [
                f"{clock(c['seconds'], OURS)} {coloured(c['ratio'], goals.bounds(c['mass'])['each'])}" for c in row
            ]
            table.add_row(
                TITLES[family], str(m), *shown, row[-1]["rival"] or "–", end_section=m == results["sizes"][-1]
            )
    return table


def notes_table(results: dict[str, Any]) -> Table:
    table = Table(
        "solver",
        "costs",
        "m",
        "s",
        "what happened",
        title="Solvers that failed, were wrong or were not asked",
    )
    for c in results["grid"] + results["path"]:
        for name, note in c["notes"].items():
            table.add_row(name, TITLES[c["family"]], str(c["m"]), f"{c['mass']:g}", note)
    return table


def path_table(results: dict[str, Any]) -> Table:
    table = Table(title="The whole path, how many times the solve that follows it, how many times sp.solve")
    table.add_column("costs")
    for m in results["sizes"]:
        table.add_column(f"m = {m}", justify="right")
    for family in results["families"]:
        cells = [c for c in results["path"] if c["family"] == family]
        shown = [f"{clock(c['seconds'], 'path')} {factor(c['to_follow'])} {factor(c['to_solve'])}" for c in cells]
        table.add_row(TITLES[family], *shown)
    return table


def batch_table(results: dict[str, Any]) -> Table:
    shape = results["batch"][0]
    title = f"A batch of {shape['count']} problems, m = {shape['m']}, s = {shape['mass']:g}"
    table = Table("costs", "two threads", "than POT's loop", "than one thread", title=title)
    for c in results["batch"]:
        loop = c["note"] or f"{factor(c['to_loop'])} faster"
        spent = clock(c["seconds"], "two threads, dense")
        table.add_row(TITLES[c["family"]], spent, loop, f"{factor(c['to_thread'])} faster")
    return table


def memory_table(results: dict[str, Any]) -> Table:
    table = Table(title="Extra memory a thread, in float64 copies of one cost")
    table.add_column("costs")
    tasks = list(dict.fromkeys(memory_task(c) for c in results["memory"]))
    for task in tasks:
        table.add_column(task, justify="right")
    copies = {(c["family"], memory_task(c)): f"{c['copies']:.2f}" for c in results["memory"]}
    for family in dict.fromkeys(c["family"] for c in results["memory"]):
        table.add_row(TITLES[family], *(copies[family, task] for task in tasks))
    return table


def memory_task(case: dict[str, Any]) -> str:
    if case["batch"]:
        return f"{case['form']} batch"
    return f"s = {case['mass']:g}" if case["mass"] else "path"


def goals_table(results: dict[str, Any]) -> Table:
    table = Table("goal", "measured", "reached", title="Goals")
    words = {True: "[green]yes[/]", False: "[red]no[/]", None: "not measured"}
    for g in results["goals"]:
        figure = "" if g["figure"] is None else f"{g['figure']:.3g}"
        table.add_row(g["goal"], figure + (f" ({g['at']})" if g["at"] else ""), words[g["reached"]])
    return table


def of(results: dict[str, Any]) -> list[Table]:
    """All tables, without empty ones; the goals come last."""
    makers = (grid_table, path_table, batch_table, memory_table, notes_table, goals_table)
    return [table for table in (make(results) for make in makers) if table.row_count]
