"""The command `generate`, and `generate sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options, score
from spadeful.cli.shared import check_data_dir, leave_out, plain_warnings, refusals, settings_of_run

HELP = """Train a generator of images by transport between mini-batches, or use one.

For example, digits by partial transport of nearly all of the mass, and a sheet of them:

  spadeful generate --data mnist --mass 0.98 -o run --data-dir DIR

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
    method: options.Method = None,
    mass: options.Mass = None,
    tau: options.Tau = None,
    reg: options.Reg = None,
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
    n_batches: options.NBatches = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Iterations from sheet to sheet.", rich_help_panel="How long")
    ] = None,
    seed: options.Seed = None,
    config: options.Config = None,
    others: options.Others = None,
    folder: options.Output = None,
    data_dir: options.Data = None,
    workers: options.Workers = None,
    device: options.Device = "cpu",
    precision: options.Precision = "32-true",
    resume: options.Resume = False,
    listed: options.Listed = False,
) -> None:
    if context.invoked_subcommand is not None:
        with refusals():
            leave_out(context, set(context.params), f"Options go after `generate {context.invoked_subcommand}`.")
        return
    with refusals():
        from spadeful import generating
        from spadeful.generate.config import make_config, read_config
        from spadeful.progress import terminal
        from spadeful.threads import check_threads
        from spadeful.training.runs import is_first
        from spadeful.training.settings import check_settings

        if listed:
            for table in generating.listing():
                terminal().print(table)
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
        check_settings(chosen, changes)
        with plain_warnings():
            record = generating.run(
                chosen,
                folder,
                data=check_data_dir(data_dir),
                resume=resume,
                device=device,
                precision=precision,
                progress=True,
                workers=check_threads(workers),
            )
        if is_first():
            terminal().print(generating.summary(record, chosen, folder))


@app.command()
def sample(
    context: typer.Context,
    folder: options.Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="A sheet .png, or all images in an .npz.")],
    n: Annotated[int, typer.Option("-n", help="How many images.")] = 64,
    seed: Annotated[int, typer.Option(help="Decides which.")] = 0,
    last: options.Last = False,
    force: options.Force = False,
) -> None:
    """Write new images of the generator of a run."""
    with refusals(context):
        from spadeful import generating

        typer.echo(f"Wrote {generating.sample(folder, output, n, seed=seed, last=last, force=force)}")


app.command(help=score.HELP)(score.score)
app.command()(score.features)
