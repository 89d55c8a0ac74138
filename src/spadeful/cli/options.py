"""Options of several commands: those that solve, those that train, and those that use what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import THE_BATCHES, THE_FILES, THE_PROBLEM, THE_SOLVER

Problem = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="balanced moves all the mass, partial the cheapest part of it (--mass), unbalanced what is worth its "
        "price (--tau).",
        rich_help_panel=THE_PROBLEM,
    ),
]
Taus = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER[,NUMBER]",
        help="For unbalanced: the price of mass left or made; of x and of y, if two.",
        rich_help_panel=THE_PROBLEM,
    ),
]
Blur = Annotated[
    float,
    typer.Option(
        help="Entropic regularisation, in units of the cost: blurs the plan. 0 solves exactly.",
        rich_help_panel=THE_PROBLEM,
    ),
]
Divergence = Annotated[
    str | None,
    typer.Option(
        metavar="kl|tv",
        help="For unbalanced: its measure, Kullback-Leibler (kl, the default) or total variation (tv).",
        rich_help_panel=THE_PROBLEM,
    ),
]
Entropy = Annotated[
    str | None,
    typer.Option(
        metavar="plain|kl",
        help="For unbalanced with --reg: the entropy of the plan (the default), or relative to the weights.",
        rich_help_panel=THE_PROBLEM,
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Let a batch hold a point twice.", rich_help_panel=THE_BATCHES)
]
Draws = Annotated[int, typer.Option(help="Decides which batches are drawn.", rich_help_panel=THE_BATCHES)]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Processes; -1 for one a core. Without it, threads. The result is the same.", rich_help_panel=THE_SOLVER
    ),
]
Tol = Annotated[
    float | None,
    typer.Option(
        help="With --reg: the share of the mass that may be misplaced, 1e-6 unless said.", rich_help_panel=THE_SOLVER
    ),
]
MaxIter = Annotated[
    int | None,
    typer.Option(help="With --reg: the most sweeps for a batch, 10000 unless said.", rich_help_panel=THE_SOLVER),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What divides the cells of .csv files; found out unless said.", rich_help_panel=THE_FILES),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether .csv files begin with the columns' names; found out unless said.",
        rich_help_panel=THE_FILES,
    ),
]
MaxPixels = Annotated[int, typer.Option(help="Refuse images with more pixels.", rich_help_panel=THE_FILES)]

Method = Annotated[str | None, typer.Option(help="See --list; m-pot unless said.", rich_help_panel="What")]
Mass = Annotated[float | None, typer.Option(help="For partial transport.", rich_help_panel="What")]
Tau = Annotated[float | None, typer.Option(help="For unbalanced transport.", rich_help_panel="What")]
Reg = Annotated[float | None, typer.Option(help="Entropic regularisation.", rich_help_panel="What")]
Config = Annotated[
    Path | None, typer.Option(help="Settings in TOML or JSON; options given beside it win.", rich_help_panel="What")
]
Others = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as lr=0.001.", rich_help_panel="What"),
]
NBatches = Annotated[int | None, typer.Option(help="Batches in an iteration.", rich_help_panel="How long")]
Seed = Annotated[int | None, typer.Option(help="Decides everything random.", rich_help_panel="How long")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")]
Listed = Annotated[bool, typer.Option("--list", help="Show methods and data, and exit.")]
Data = Annotated[Path | None, typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that read images; one a core.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")]
Precision = Annotated[str, typer.Option(help="32-true, bf16-mixed or 16-mixed.")]
Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Last = Annotated[bool, typer.Option("--last", help="Of the last checkpoint, not of the best.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
