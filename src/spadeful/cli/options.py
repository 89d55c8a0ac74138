"""Options of several commands: those that train, and those that use what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
