"""The command `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import leave_out, refusals

HELP = """Reproduce a table or figure of the paper: every method, task and seed that its file names.

What there is, with the data that each needs and about how long it takes:

  spadeful reproduce --list

A table in a minute or a few, to see that it runs; at a length for a CPU; at that of the paper, on a GPU:

  spadeful reproduce table-1 --quick

  spadeful reproduce table-1 --n-jobs 2

  spadeful reproduce table-2 --full --device cuda

Runs that were interrupted are gone on with. A page with all results beside the paper's, with a verdict on each of its \
claims:

  spadeful reproduce report -o report.md
"""

#: What may be said along with `report`.
OF_REPORT = {"name", "output", "results", "force"}


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="table-1, figure-2, a label, the name or file of an entry (reproduce/digits.toml), or: report.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .json file for the results, pictures go beside it; the .md or .html file of the report. In the "
            "folder reproduced unless said.",
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="The folder for the runs; in reproduced/runs unless said."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show all tables and figures, and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny, to see that it runs.")] = False,
    full: Annotated[bool, typer.Option("--full", help="At the length of the paper, not at that for a CPU.")] = False,
    n_jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    data: options.Data = None,
    device: options.Device = "cpu",
    results: Annotated[
        Path | None, typer.Option(help="For the report: the folder with results, reproduced unless said.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the results if they exist.")] = False,
) -> None:
    with refusals(context):
        if listed:
            from spadeful.paper.listing import listing
            from spadeful.progress import terminal

            terminal().print(*listing())
            return
        if name is None:
            raise ValueError("A table or figure must be named, such as table-1. --list shows all.")
        if name == "report":
            from spadeful.paper.report import write_report

            leave_out(context, set(context.params) - OF_REPORT, "The report is written of results, and runs nothing.")
            for path in write_report(output, results, force=force):
                typer.echo(str(path))
            return
        leave_out(context, {"results"}, "--results is for the report alone.")
        if quick and full:
            raise ValueError("--quick and --full are two lengths. Pass one of them.")
        from spadeful.paper import kinds
        from spadeful.paper.entries import REPRODUCED, find_entries

        length = "quick" if quick else "full" if full else "short"
        found = find_entries(name)
        if len(found) > 1 and (output or runs):
            raise ValueError(
                f"{name} has several entries: {', '.join(entry.name for entry in found)}. Name one of them, or leave "
                "--output and --runs out."
            )
        jobs = []
        for entry in found:
            own = entry.name if length == "short" else f"{entry.name}-{length}"
            into = output or REPRODUCED / f"{own}.json", runs or REPRODUCED / "runs" / own
            jobs.append(kinds.Job(entry, length, *into, data, n_jobs, device, force))
        try:
            for job in kinds.ready(jobs):
                kinds.run(job)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Run the same command again to go on from what is done.") from None
