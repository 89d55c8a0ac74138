"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="spadeful",
    help="Optimal transport, one spadeful at a time.",
    no_args_is_help=True,
    add_completion=False,
)


@contextmanager
def refusals() -> Iterator[None]:
    """What the library refuses is one line for the user of the command line, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as refusal:
        typer.echo(f"spadeful: {refusal}", err=True)
        raise typer.Exit(code=2) from None


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


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the picture goes.")] = Path("spadeful-demo.png"),
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it exists.")] = False,
) -> None:
    """Show partial transport on Example 1 of the paper, and every mass between two clouds of 1000 points."""
    from spadeful import demo as demonstration

    with refusals():
        demonstration.run(output, force)
