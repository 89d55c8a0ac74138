"""The command line: parse, call, print. One module a command."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from spadeful.cli import adapt, color, demo, figures, flow, generate, plan, reproduce

app = typer.Typer(
    name="spadeful",
    help="Optimal transport, one spadeful at a time.",
    no_args_is_help=True,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from spadeful import __version__

        typer.echo(f"spadeful {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Optimal transport, one spadeful at a time."""
    for stream in (sys.stdout, sys.stderr):  # a character that a terminal lacks is no reason to fail
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


app.command()(demo.demo)
app.command(help=plan.HELP)(plan.plan)
app.command(help=flow.HELP)(flow.flow)
app.command()(figures.figures)
app.command(help=color.HELP)(color.color)
app.command(help=adapt.HELP)(adapt.adapt)
app.command()(adapt.evaluate)
app.command()(adapt.features)
app.add_typer(generate.app, name="generate")
app.command(help=reproduce.HELP)(reproduce.reproduce)
