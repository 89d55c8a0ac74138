"""The commands `adapt`, `evaluate` and `features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli.shared import plain_warnings, refusals, settings_of_run

HELP = """Train a network on a labelled source for an unlabelled target.

For example, from USPS to MNIST by partial transport of nine tenths of the mass:

  spadeful adapt --source usps --target mnist --method m-pot --mass 0.9 -o run --data DIR

The folder gets the settings, a checkpoint at every evaluation, the best of them, logs, and a picture. `--list` shows
methods and data.
"""


def adapt(
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            "--source-features",
            help="The labelled set: see --list, or file.npz:domain, or a folder of class folders with images.",
            rich_help_panel="What",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "--target-features", help="The set to adapt to.", rich_help_panel="What"),
    ] = None,
    target_classes: Annotated[
        str | None, typer.Option(help="Those that the target has: 0-24, or 0,3,7, or names.", rich_help_panel="What")
    ] = None,
    method: Annotated[str | None, typer.Option(help="See --list; m-pot unless said.", rich_help_panel="What")] = None,
    mass: Annotated[float | None, typer.Option(help="For partial transport.", rich_help_panel="What")] = None,
    tau: Annotated[float | None, typer.Option(help="For unbalanced transport.", rich_help_panel="What")] = None,
    reg: Annotated[float | None, typer.Option(help="Entropic regularisation.", rich_help_panel="What")] = None,
    iterations: Annotated[int | None, typer.Option(help="After the warm-up.", rich_help_panel="How long")] = None,
    warmup: Annotated[int | None, typer.Option(help="On the source alone, first.", rich_help_panel="How long")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Points in a batch.", rich_help_panel="How long")] = None,
    n_batches: Annotated[int | None, typer.Option(help="Batches in an iteration.", rich_help_panel="How long")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides everything random.", rich_help_panel="How long")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="For images: a vision model on Hugging Face, or its folder.", rich_help_panel="Images"),
    ] = None,
    corrupt: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|skip", help="What to do about files that are no images.", rich_help_panel="Images"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that read images; one a core.", rich_help_panel="Images")
    ] = None,
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
    data: Annotated[Path | None, typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "cpu",
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed or 16-mixed.")] = "32-true",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show methods and data, and exit.")] = False,
) -> None:
    with refusals():
        from spadeful import adapting
        from spadeful.adapt.config import make_config, read_config
        from spadeful.threads import check_threads

        if listed:
            adapting.show(*adapting.listing())
            return
        given = {
            "source": source,
            "target": target,
            "target_classes": target_classes,
            "method": method,
            "mass": mass,
            "tau": tau,
            "reg": reg,
            "iterations": iterations,
            "warmup": warmup,
            "batch_size": batch_size,
            "n_batches": n_batches,
            "backbone": backbone,
            "corrupt": corrupt,
            "seed": seed,
        }
        folder, config, changes = settings_of_run(folder, config, resume, given, others)
        chosen = read_config(config, changes) if config else make_config(changes, "The options")
        with plain_warnings():
            record = adapting.run(
                chosen,
                folder,
                data=data,
                resume=resume,
                device=device,
                precision=precision,
                progress=True,
                workers=check_threads(workers),
            )
        adapting.show(adapting.summary(record, chosen, folder), *adapting.class_tables(folder), *adapting.sent(folder))


def evaluate(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[Path | None, typer.Option(help="The folder with the data; SPADEFUL_DATA unless said.")] = None,
    last: Annotated[bool, typer.Option("--last", help="Of the last checkpoint, not of the best.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read images; one a core.")] = None,
) -> None:
    """Test the network of a run, all in all and class by class."""
    with refusals():
        from spadeful import adapting
        from spadeful.threads import check_threads

        with plain_warnings():
            found = adapting.evaluate(folder, data, "last" if last else "best", check_threads(workers), progress=True)
        adapting.show(found)


def features(
    folders: Annotated[list[Path], typer.Argument(help="Folders of class folders with images, each a domain.")],
    backbone: Annotated[str, typer.Option(help="A vision model on Hugging Face, or its folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file for the features.")],
    crops: Annotated[int, typer.Option(metavar="1|10", help="Of an image: its centre, or ten and their mean.")] = 1,
    size: Annotated[int, typer.Option(min=1, help="Pixels a side that the backbone sees.")] = 224,
    corrupt: Annotated[
        str, typer.Option(metavar="refuse|skip", help="What to do about files that are no images.")
    ] = "refuse",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read images; one a core.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Compute the features of images once, to adapt with them often: the quick way without a GPU.

    `spadeful adapt --source-features FILE.npz:photos --target-features FILE.npz:sketches -o run` then needs no GPU.
    """
    with refusals():
        from spadeful import featuring
        from spadeful.adapt.images import Reading
        from spadeful.threads import check_threads

        reading = Reading(size, crops, corrupt, check_threads(workers))
        with plain_warnings():
            said = featuring.run(folders, backbone, output, reading=reading, device=device, force=force, progress=True)
        typer.echo(said)
