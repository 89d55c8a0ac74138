"""The commands `adapt`, `evaluate` and `features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import plain_warnings, refusals, settings_of_run

HELP = """Train a network on a labelled source for an unlabelled target.

For example, from USPS to MNIST by partial transport of nine tenths of the mass:

  spadeful adapt --source usps --target mnist --mass 0.9 -o run --data DIR

The folder gets the settings, a checkpoint at every evaluation, the best of them, logs, and a picture. `--list` shows \
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
    method: options.Method = None,
    mass: options.Mass = None,
    tau: options.Tau = None,
    reg: options.Reg = None,
    iterations: Annotated[int | None, typer.Option(help="After the warm-up.", rich_help_panel="How long")] = None,
    warmup: Annotated[int | None, typer.Option(help="On the source alone, first.", rich_help_panel="How long")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Points in a batch.", rich_help_panel="How long")] = None,
    n_batches: options.NBatches = None,
    seed: options.Seed = None,
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
    config: options.Config = None,
    others: options.Others = None,
    folder: options.Output = None,
    data: options.Data = None,
    device: options.Device = "cpu",
    precision: options.Precision = "32-true",
    resume: options.Resume = False,
    listed: options.Listed = False,
) -> None:
    with refusals():
        from spadeful import adapting
        from spadeful.adapt.config import make_config, read_config
        from spadeful.threads import check_threads
        from spadeful.training.runs import is_first, part
        from spadeful.training.settings import check_settings

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
        check_settings(chosen, changes)
        if "mass_iterations" in changes and chosen.mass_from is None:
            raise ValueError("mass_iterations needs mass_from, where the mass starts. Pass --set mass_from=0.1 too.")
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
        if is_first():
            tables = *adapting.class_tables(folder), *adapting.sent(folder)
            adapting.show(adapting.summary(record, chosen, folder), *tables)
        part()


def evaluate(
    folder: options.Run,
    data: options.Data = None,
    last: options.Last = False,
    workers: options.Workers = None,
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
    workers: options.Workers = None,
    device: options.Device = "cpu",
    force: options.Force = False,
) -> None:
    """Compute the features of images once, to adapt with them often: the quick way without a GPU.

    This then needs no GPU:

      spadeful adapt --source FILE.npz:photos --target FILE.npz:sketches -o run
    """
    with refusals():
        from spadeful import featuring
        from spadeful.adapt.images import Reading
        from spadeful.threads import check_threads

        reading = Reading(size, crops, corrupt, check_threads(workers))
        with plain_warnings():
            said = featuring.run(folders, backbone, output, reading=reading, device=device, force=force, progress=True)
        typer.echo(said)
