"""The commands `generate score` and `generate features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import check_data_dir, plain_warnings, refusals

HELP = """Tell how far generated images are from real ones: the Frechet distance in the features of a network.

In the features of Inception it is the FID. Scores compare only where features, real images and the number of samples \
are the same; the paper takes 11,000 samples.
"""


def score(
    context: typer.Context,
    samples: Annotated[
        str, typer.Argument(help="The folder of a run, a folder of images, or an .npz file with x in bytes.")
    ],
    data: Annotated[
        str | None,
        typer.Option(help="The real images: mnist, cifar10, celeba, a folder or an .npz file; the run's unless said."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="inception for the FID, or its weights in .pth; a file of `generate features`; or a vision model on "
            "Hugging Face, or its folder; the run's unless said."
        ),
    ] = None,
    part: Annotated[str, typer.Option(metavar="train|test", help="Of the real images.")] = "train",
    most: Annotated[int | None, typer.Option(min=2, help="So many samples.")] = None,
    data_dir: options.Data = None,
    cache: Annotated[
        Path | None, typer.Option(help="The folder that statistics of real images are kept in.", show_default=False)
    ] = None,
    workers: options.Workers = None,
    device: options.Device = "cpu",
) -> None:
    with refusals(context):
        from spadeful import scoring
        from spadeful.generate.score import cache_folder
        from spadeful.threads import check_threads

        with plain_warnings():
            found = scoring.score(
                samples,
                data,
                features,
                data=check_data_dir(data_dir),
                part=part,
                most=most,
                cache=cache or cache_folder(),
                device=device,
                workers=check_threads(workers),
                progress=True,
            )
        typer.echo(found)


def features(
    context: typer.Context,
    data: Annotated[str, typer.Option(metavar="mnist|cifar10", help="The images to train a classifier on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .safetensors file for the features.")],
    iterations: Annotated[int, typer.Option(min=1, help="Of training.")] = 1000,
    batch_size: Annotated[int, typer.Option(min=2, help="Images in a batch.")] = 100,
    seed: Annotated[int, typer.Option(help="Decides everything random.")] = 0,
    data_dir: options.Data = None,
    force: options.Force = False,
) -> None:
    """Train a small classifier whose features images are scored in: for scores without the weights of Inception."""
    with refusals(context):
        from spadeful import scoring

        settings = {"iterations": iterations, "batch_size": batch_size, "seed": seed, "force": force}
        with plain_warnings():
            typer.echo(scoring.train(data, output, data=check_data_dir(data_dir), **settings, progress=True))
