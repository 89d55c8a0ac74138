"""The command `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import (
    THE_BATCHES,
    THE_FILES,
    THE_PROBLEM,
    check_name,
    chosen_problem,
    limits_of,
    numbers,
    plain_warnings,
    refusals,
    text_of,
)

HELP = """Transport between two clouds of points of any size, through mini-batches.

Batches of X and Y are drawn at random, a transport problem is solved between each pair of them, and their plans are \
added up to one sparse plan between all points. Files may be .npy, .npz (file.npz:name where it holds several arrays), \
.csv or .parquet, with a point in each row.

For example, moving three quarters of the mass and leaving the dearest quarter:

  spadeful plan x.npy y.npy -o plan.npz --problem partial --mass 0.75

In Python, spadeful.MiniBatchPlan.load("plan.npz") reads the plan.
"""


def plan(
    context: typer.Context,
    x: Annotated[str, typer.Argument(help="The points that are moved.", show_default=False)],
    y: Annotated[str, typer.Argument(help="The points that they are moved to.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the plan goes, a .npz file.", rich_help_panel=THE_FILES)
    ],
    problem: options.Problem = "balanced",
    mass: Annotated[
        float | None,
        typer.Option(help="For partial: the share of the mass that is moved, up to 1.", rich_help_panel=THE_PROBLEM),
    ] = None,
    tau: options.Taus = None,
    reg: options.Blur = 0.0,
    divergence: options.Divergence = None,
    entropy: options.Entropy = None,
    cost: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Of moving a unit from one point to another: sqeuclidean, euclidean or cosine.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = "sqeuclidean",
    batch_size: Annotated[
        str,
        typer.Option(
            metavar="NUMBER[,NUMBER]", help="Points in a batch; of x and of y, if two.", rich_help_panel=THE_BATCHES
        ),
    ] = "100",
    n_batches: Annotated[
        int, typer.Option(help="How many batches. More are slower and give a better mean.", rich_help_panel=THE_BATCHES)
    ] = 1000,
    pairing: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="paired: the first batch of x with the first of y, and so on; all: each with every other; bomb: "
            "weighted by transport between the batches themselves (BoMb-OT).",
            rich_help_panel=THE_BATCHES,
        ),
    ] = "paired",
    replace: options.Replace = False,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Classes of x: every batch then holds as many points of each. Give it again for those of y.",
            rich_help_panel=THE_BATCHES,
        ),
    ] = None,
    seed: options.Draws = 0,
    n_jobs: options.Jobs = None,
    tol: options.Tol = None,
    max_iter: options.MaxIter = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--map",
            help="Write the image of each x too, a .npy file: the mean of the y that it is matched with. "
            "Points without a match stay where they are.",
            rich_help_panel=THE_FILES,
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the clouds and the plan too: .png, .pdf or .svg.", rich_help_panel=THE_FILES),
    ] = None,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where an interrupted run has stopped.", rich_help_panel=THE_FILES),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace results that exist; start afresh.", rich_help_panel=THE_FILES),
    ] = False,
) -> None:
    with refusals(context), plain_warnings(context):
        from spadeful import planning
        from spadeful.costs import NAMES

        if resume and force:
            raise ValueError("--resume goes on with a run, and --force starts afresh. Pass one of them.")
        check_name(cost, "--cost", NAMES)
        check_name(pairing, "--pairing", ("paired", "all", "bomb"))
        chosen = chosen_problem(problem, mass, tau, reg, divergence, entropy)
        limits = limits_of(tol, max_iter, chosen)
        sizes = numbers(batch_size, "--batch-size", int)
        planning.run(
            x,
            y,
            chosen,
            planning.Outputs(output, images, picture, force),
            text=text_of(delimiter, header, [x, y], labels),
            labels=labels or [],
            resume=resume,
            batch_size=sizes,
            n_batches=n_batches,
            cost=cost,
            pairing=pairing,
            replace=replace,
            seed=seed,
            n_jobs=n_jobs,
            **limits,
        )
