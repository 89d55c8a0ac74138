"""The command `generate`, and `generate sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import score
from spadeful.cli.shared import plain_warnings, refusals, settings_of_run

HELP = """Train a generator of images by transport between mini-batches, or use one.

For example, digits by partial transport of nearly all of the mass, and a sheet of them:

  spadeful generate --data mnist --method m-pot --mass 0.98 -o run --data-dir DIR

  spadeful generate sample run -o sheet.png

The folder gets the settings, a checkpoint and a sheet of samples at every evaluation, the best checkpoint if a score \
is asked for, logs, and a sheet of interpolations. `--list` shows methods and data.
"""

app = typer.Typer(help=HELP, invoke_without_command=True)


@app.callback()
def generate(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Option(help="The images: see --list, or a folder, or file.npz.", rich_help_panel="What")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels a side.", rich_help_panel="What")] = None,
    method: Annotated[str | None, typer.Option(help="See --list; m-pot unless said.", rich_help_panel="What")] = None,
    mass: Annotated[float | None, typer.Option(help="For partial transport.", rich_help_panel="What")] = None,
    tau: Annotated[float | None, typer.Option(help="For unbalanced transport.", rich_help_panel="What")] = None,
    reg: Annotated[float | None, typer.Option(help="Entropic regularisation.", rich_help_panel="What")] = None,
    debiased: Annotated[
        bool | None,
        typer.Option("--debiased", help="The mini-batch energy of Salimans et al. (2018).", rich_help_panel="What"),
    ] = None,
    pairing: Annotated[
        str | None,
        typer.Option(metavar="paired|all", help="Which mini-batches are compared.", rich_help_panel="What"),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(help="Features to take a score in, as in `generate score --features`.", rich_help_panel="What"),
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Of training.", rich_help_panel="How long")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a batch.", rich_help_panel="How long")] = None,
    n_batches: Annotated[int | None, typer.Option(help="Batches in an iteration.", rich_help_panel="How long")] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Iterations from sheet to sheet.", rich_help_panel="How long")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides everything random.", rich_help_panel="How long")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML or JSON; options given beside it win.", rich_help_panel="What")
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any other setting, such as lr=0.001.", rich_help_panel="What"
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the run.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read images; one a core.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "cpu",
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed or 16-mixed.")] = "32-true",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show methods and data, and exit.")] = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    with refusals():
        from rich.console import Console

        from spadeful import generating
        from spadeful.generate.config import make_config, read_config
        from spadeful.threads import check_threads

        if listed:
            for table in generating.listing():
                Console().print(table)
            return
        given = {
            "data": data,
            "image_size": image_size,
            "method": method,
            "mass": mass,
            "tau": tau,
            "reg": reg,
            "debiased": debiased,
            "pairing": pairing,
            "score": score,
            "iterations": iterations,
            "batch_size": batch_size,
            "n_batches": n_batches,
            "evaluate_every": evaluate_every,
            "seed": seed,
        }
        folder, config, changes = settings_of_run(folder, config, resume, given, others)
        chosen = read_config(config, changes) if config else make_config(changes, "The options")
        with plain_warnings():
            record = generating.run(
                chosen,
                folder,
                data=data_dir,
                resume=resume,
                device=device,
                precision=precision,
                progress=True,
                workers=check_threads(workers),
            )
        Console().print(generating.summary(record, chosen, folder))


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A sheet .png, or all images in an .npz.")],
    n: Annotated[int, typer.Option("-n", help="How many images.")] = 64,
    seed: Annotated[int, typer.Option(help="Decides which.")] = 0,
    last: Annotated[bool, typer.Option("--last", help="Of the last checkpoint, not of the best.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write new images of the generator of a run."""
    with refusals():
        from spadeful import generating

        typer.echo(f"Wrote {generating.sample(folder, output, n, seed=seed, last=last, force=force)}")


app.command()(score.score)
app.command()(score.features)
