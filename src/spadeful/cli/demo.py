"""The command `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import leave_out, refusals


def demo(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--output", "-o", help="The folder that the pictures go to.")] = Path(
        "spadeful-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Transport alone, which takes a second.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="A folder with USPS and MNIST, to adapt the one to the other.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random in adaptation.")] = 0,
    iterations: Annotated[int | None, typer.Option(min=1, help="Of each method of adaptation.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace pictures that exist.")] = False,
) -> None:
    """Show partial transport on small examples, then five methods that adapt a network to other digits.

    Adaptation takes a minute or two and needs torch and scikit-learn; without them it is left out.
    """
    with refusals(context):
        from spadeful import demo as demonstration

        if quick:
            leave_out(context, {"data", "seed", "iterations"}, "--quick does without domain adaptation.")
        demonstration.run(folder, force, quick=quick, data=data, seed=seed, iterations=iterations)
