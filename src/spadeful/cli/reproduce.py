"""The command `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import (
    refusals,
)


def reproduce(
    experiment: Annotated[Path, typer.Argument(help="A file of reproduce/, such as reproduce/digits.toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .json file for the results; beside it a .png.")],
    runs: Annotated[Path, typer.Option(help="The folder for the runs; one that was interrupted is gone on with.")],
    full: Annotated[bool, typer.Option("--full", help="At the length of the paper, not at that for a CPU.")] = False,
    n_jobs: Annotated[int, typer.Option(help="Runs at a time.")] = 1,
    data: Annotated[Path | None, typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace the results if they exist.")] = False,
) -> None:
    """Run an experiment of the paper: every method, task and seed that its file names."""
    with refusals():
        from spadeful import adapting, reproducing
        from spadeful.files import check_free

        picture, masses = output.with_suffix(".png"), output.with_name(f"{output.stem}_masses.png")
        chosen = reproducing.read_experiment(experiment, short=not full)
        partial = any(config.target_classes for config in chosen.runs.values())
        for path in (output, picture, masses)[: 3 if partial else 2]:
            check_free(path, force)
        results = reproducing.reproduce(chosen, runs, data=data, n_jobs=n_jobs, device=device, progress=True)
        reproducing.write(results, output, force)
        reproducing.draw(results, picture, force)
        if partial:
            reproducing.draw_sent(results, masses, force)
        adapting.show(reproducing.summary(results))
