"""The command `color`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import (
    THE_BATCHES,
    THE_FILES,
    THE_PROBLEM,
    chosen_problem,
    leave_out,
    many,
    plain_warnings,
    refusals,
)

THE_COLORS = "The colours"
#: What may be said along with --load.
WITH_LOAD = {"load", "apply_to", "into", "max_pixels", "force", "output", "compare", "save"}

HELP = """Give an image the colours of another.

Batches of pixels of SOURCE and TARGET are drawn at random, a transport problem is solved between the colours of each \
pair of them, and each pixel takes the mean of the colours that it was matched with (Algorithm 4 of the paper). With \
partial transport the dearest pairs are left out, so that colours without a counterpart are not forced upon it.

For example:

  spadeful color source.jpg target.jpg -o out.png --mass 0.9 --smooth

A sheet for the choice of a mass, and a folder of frames in the same colours:

  spadeful color source.jpg target.jpg --compare sheet.png --masses 0.7,0.8,0.9,0.99,1

  spadeful color source.jpg target.jpg --apply-to frames --into colored

Channels run from 0 to 1, and costs are squared distances: that is what --tau and --reg are measured in. Images may be \
of any sizes, PNG, JPEG, WebP, TIFF and others. Alpha, colours of 16 bits (PNG) and the ICC profile are kept, EXIF \
data are used to turn the image upright and then dropped.
"""


def color(
    context: typer.Context,
    source: Annotated[Path | None, typer.Argument(help="The image that is changed.", show_default=False)] = None,
    target: Annotated[Path | None, typer.Argument(help="The image with the colours.", show_default=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the image goes: .png, .jpg, .webp or .tif. With --masses the mass is added to its name.",
            rich_help_panel=THE_FILES,
        ),
    ] = None,
    problem: options.Problem = "partial",
    mass: Annotated[
        float | None,
        typer.Option(
            help="For partial: the share of each batch that is moved, 0.9 unless said.", rich_help_panel=THE_PROBLEM
        ),
    ] = None,
    masses: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER,NUMBER,...",
            help="For partial: several masses in one run, an image each. 1 is balanced.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = None,
    tau: options.Taus = None,
    reg: options.Blur = 0.0,
    divergence: options.Divergence = None,
    entropy: options.Entropy = None,
    batch_size: Annotated[int, typer.Option(help="Pixels in a batch.", rich_help_panel=THE_BATCHES)] = 100,
    n_batches: Annotated[
        int, typer.Option(help="How many batches. More are slower and less grainy.", rich_help_panel=THE_BATCHES)
    ] = 10_000,
    seed: options.Draws = 0,
    n_jobs: options.Jobs = None,
    smooth: Annotated[
        bool,
        typer.Option(
            "--smooth",
            help="Let pixels move as those of similar colours do in the mean, and not each for itself: no grain.",
            rich_help_panel=THE_COLORS,
        ),
    ] = False,
    unmatched: Annotated[
        str,
        typer.Option(
            metavar="nearest|keep",
            help="Pixels without a match move as the nearest matched colours do, or keep their colour.",
            rich_help_panel=THE_COLORS,
        ),
    ] = "nearest",
    neighbors: Annotated[
        int,
        typer.Option(help="How many nearest matched colours are averaged for that.", rich_help_panel=THE_COLORS),
    ] = 16,
    palette: Annotated[
        int | None,
        typer.Option(
            help="Reduce both images to so many colours first, by k-means; 3000 in the authors' experiments.",
            rich_help_panel=THE_COLORS,
        ),
    ] = None,
    space: Annotated[
        str,
        typer.Option(
            metavar="rgb|lab",
            help="Where colours are compared, RGB or CIELAB. lab takes every image as sRGB, whatever its profile.",
            rich_help_panel=THE_COLORS,
        ),
    ] = "rgb",
    compare: Annotated[
        Path | None,
        typer.Option(
            help="Draw a sheet of source, results and target (.png, .pdf, .svg): of --masses, or a few unless said.",
            rich_help_panel=THE_FILES,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Keep the transfer for further images, a .npz file.", rich_help_panel=THE_FILES),
    ] = None,
    load: Annotated[
        Path | None,
        typer.Option(
            help="Use a transfer that was saved, in the place of SOURCE and TARGET.", rich_help_panel=THE_FILES
        ),
    ] = None,
    apply_to: Annotated[
        list[Path] | None,
        typer.Option(
            help="Further images for the same transfer, a file or a folder, such as the frames of a video. Colours "
            "move alike in all, so nothing flickers. May be given again.",
            rich_help_panel=THE_FILES,
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="The folder that further images go to, under their names.", rich_help_panel=THE_FILES),
    ] = None,
    max_pixels: options.MaxPixels = 100_000_000,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results that exist.", rich_help_panel=THE_FILES)
    ] = False,
) -> None:
    with refusals(context), plain_warnings(context):
        from spadeful import coloring
        from spadeful.problems import check_masses

        outputs, further = coloring.Outputs(output, compare, save, into, force), apply_to or []
        if load is not None:
            if source is not None:
                raise ValueError("--load takes the place of SOURCE and TARGET. Pass either.")
            leave_out(context, set(context.params) - WITH_LOAD, "A transfer that is loaded has its settings.")
            coloring.run_saved(load, outputs, further, max_pixels)
            return
        if source is None or target is None:
            raise ValueError("Two images must be named, SOURCE and TARGET, or a saved transfer by --load.")
        several = [] if masses is None else [*check_masses(many(masses, "--masses"), "color")]
        if several and (problem, mass) != ("partial", None):
            raise ValueError("--masses is for --problem partial, and takes the place of --mass. Pass one of them.")
        if problem == "partial" and mass is None:
            mass = several[0] if several else 0.9
        chosen = chosen_problem(problem, mass, tau, reg, divergence, entropy)
        batches = {"batch_size": batch_size, "n_batches": n_batches, "seed": seed, "n_jobs": n_jobs}
        colors = {"smooth": smooth, "unmatched": unmatched, "neighbors": neighbors, "palette": palette, "space": space}
        coloring.run(source, target, chosen, several, outputs, apply_to=further, most=max_pixels, **batches, **colors)
