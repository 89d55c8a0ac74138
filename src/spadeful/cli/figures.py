"""The command `figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import refusals


def figures(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all of them unless said.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="Their folder.")] = None,
    ending: Annotated[str, typer.Option("--format", metavar="png|pdf|svg", help="Of the files.")] = "png",
    listed: Annotated[bool, typer.Option("--list", help="Show their names, and exit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace pictures that exist.")] = False,
) -> None:
    """Draw the simulation figures of the paper."""
    with refusals():
        from spadeful import simulations

        if listed:
            for name, picture in simulations.PICTURES.items():
                typer.echo(f"{name:16} {picture.shows}")
            return
        if folder is None:
            raise ValueError("The folder for the pictures must be named by --out.")
        for path in simulations.write(folder, names or [], force, f".{ending.lower()}", progress=True):
            typer.echo(str(path))
