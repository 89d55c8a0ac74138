"""The command `flow`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spadeful.cli import options
from spadeful.cli.shared import (
    THE_BATCHES,
    THE_FILES,
    THE_PROBLEM,
    THE_STEPS,
    chosen_problem,
    leave_out,
    limits_of,
    plain_warnings,
    refusals,
    text_of,
)

HELP = """Let points flow to others along the gradient of a mini-batch loss.

X and Y are files of points (.npy, .npz, .csv, .parquet), images, from whose dark parts points are drawn, or one of \
the shapes disc and s. For example, the figure of the paper with partial transport of 0.8 of the mass, as an animation:

  spadeful flow -o run --mass 0.8 --animate run/flow.gif

The same with a mass that falls, which ends nearer: --mass-from 1 --mass 0.5. The folder gets the frames and, for \
each, the exact Wasserstein-2 distance to Y (flow.csv) as they come; the last points (points.npy) and a picture \
(flow.png) at the end.
"""


def flow(
    context: typer.Context,
    x: Annotated[str, typer.Argument(help="Where points start: a file, an image, disc or s.")] = "disc",
    y: Annotated[str, typer.Argument(help="Where they shall go.")] = "s",
    folder: Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the flow.")] = None,
    problem: options.Problem = "partial",
    mass: Annotated[
        float | None, typer.Option(help="For partial: the mass, 0.8 unless said.", rich_help_panel=THE_PROBLEM)
    ] = None,
    mass_from: Annotated[
        float | None,
        typer.Option(
            help="For partial: the mass of the first step, from which it goes to --mass.", rich_help_panel=THE_PROBLEM
        ),
    ] = None,
    tau: options.Taus = None,
    reg: options.Blur = 0.0,
    divergence: options.Divergence = None,
    entropy: options.Entropy = None,
    debiased: Annotated[
        bool,
        typer.Option(
            "--debiased", help="Follow the mini-batch energy of Salimans et al. (2018).", rich_help_panel=THE_PROBLEM
        ),
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Points in a batch.", rich_help_panel=THE_BATCHES)] = 4,
    n_batches: Annotated[int, typer.Option(help="Batches in a step.", rich_help_panel=THE_BATCHES)] = 4,
    pairing: Annotated[
        str,
        typer.Option(metavar="NAME", help="paired, or all: each batch with every other.", rich_help_panel=THE_BATCHES),
    ] = "paired",
    replace: options.Replace = False,
    steps: Annotated[int, typer.Option(help="How many steps.", rich_help_panel=THE_STEPS)] = 5000,
    lr: Annotated[
        float, typer.Option(help="The learning rate: how long a step is.", rich_help_panel=THE_STEPS)
    ] = 0.001,
    every: Annotated[int, typer.Option(help="Steps between two frames.", rich_help_panel=THE_STEPS)] = 100,
    measure: Annotated[
        bool, typer.Option("--distance/--no-distance", help="Find W2 at the frames.", rich_help_panel=THE_STEPS)
    ] = True,
    n: Annotated[
        int, typer.Option("--points", help="Drawn from an image or a shape.", rich_help_panel=THE_STEPS)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Decides points and batches.", rich_help_panel=THE_STEPS)] = 0,
    tol: options.Tol = None,
    max_iter: options.MaxIter = None,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    max_pixels: options.MaxPixels = 100_000_000,
    animation: Annotated[
        Path | None,
        typer.Option(
            "--animate", help="Write an animation too: a .gif, or an .mp4 where ffmpeg is.", rich_help_panel=THE_FILES
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the flow in the folder.", rich_help_panel=THE_FILES)
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace results that exist; without --resume, start afresh.", rich_help_panel=THE_FILES
        ),
    ] = False,
) -> None:
    with refusals(context), plain_warnings(context):
        from spadeful import Partial, Ramp, flowing
        from spadeful.problems import check_mass

        if folder is None:
            raise ValueError("The folder of the flow must be named by --output.")
        if problem == "partial" and mass is None:
            mass = 0.8
        chosen, schedule = chosen_problem(problem, mass, tau, reg, divergence, entropy), None
        if mass_from is not None:
            if not isinstance(chosen, Partial):
                raise ValueError(f"--mass-from is for --problem partial. Got it with --problem {problem}.")
            schedule = Ramp(check_mass(mass_from, "Ramp", "mass_from"), chosen.mass, steps)
        if not any(map(flowing.is_image, (x, y))):
            leave_out(context, {"max_pixels"}, "Neither of the two is an image.")
            if not {x, y} & {*flowing.SHAPES}:
                leave_out(context, {"n"}, "The points of files are taken as they are.")
        flowing.run(
            x,
            y,
            chosen,
            folder,
            n=n,
            seed=seed,
            most=max_pixels,
            animation=animation,
            text=text_of(delimiter, header, [x, y]),
            resume=resume,
            force=force,
            batch_size=batch_size,
            n_batches=n_batches,
            steps=steps,
            lr=lr,
            every=every,
            pairing=pairing,
            debiased=debiased,
            schedule=schedule,
            replace=replace,
            measure=measure,
            **limits_of(tol, max_iter, chosen),
        )
