"""The commands `generate score` and `generate features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import plain_warnings, refusals

DATA = typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")
DEVICE = typer.Option(help="cpu, cuda, mps or auto.")


def score(
    samples: Annotated[str, typer.Argument(help="A folder of images, or an .npz file with x in bytes.")],
    images: Annotated[str, typer.Option(help="The real images: mnist, cifar10, celeba, a folder or an .npz file.")],
    features: Annotated[
        str,
        typer.Option(
            help="inception for the FID, or its weights in .pth; a file of `generate features`; or a vision model on "
            "Hugging Face, or its folder."
        ),
    ],
    part: Annotated[str, typer.Option(metavar="train|test", help="Of the real images.")] = "train",
    most: Annotated[int | None, typer.Option(min=2, help="Only the first so many samples.")] = None,
    data: Annotated[Path | None, DATA] = None,
    cache: Annotated[
        Path | None, typer.Option(help="The folder that statistics of real images are kept in.", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read images; one a core.")] = None,
    device: Annotated[str, DEVICE] = "cpu",
) -> None:
    """Tell how far generated images are from real ones: the Frechet distance in the features of a network.

    In the features of Inception it is the FID. Scores compare only where features, real images and the number of
    samples are the same; the paper takes 11,000 samples.
    """
    with refusals():
        from spadeful import scoring
        from spadeful.generate.score import cache_folder
        from spadeful.threads import check_threads

        with plain_warnings():
            found = scoring.score(
                samples,
                images,
                features,
                data=data,
                part=part,
                most=most,
                cache=cache or cache_folder(),
                device=device,
                workers=check_threads(workers),
                progress=True,
            )
        typer.echo(found)


def features(
    which: Annotated[str, typer.Argument(metavar="mnist|cifar10", help="The images to train a classifier on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .safetensors file for the features.")],
    iterations: Annotated[int, typer.Option(min=1, help="Of training.")] = 1000,
    batch_size: Annotated[int, typer.Option(min=2, help="Images in a batch.")] = 100,
    seed: Annotated[int, typer.Option(help="Decides everything random.")] = 0,
    data: Annotated[Path | None, DATA] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Train a small classifier whose features images are scored in: for scores without the weights of Inception."""
    with refusals():
        from spadeful import scoring

        settings = {"iterations": iterations, "batch_size": batch_size, "seed": seed, "force": force}
        with plain_warnings():
            typer.echo(scoring.train(which, output, data=data, **settings, progress=True))
