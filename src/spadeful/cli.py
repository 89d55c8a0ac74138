"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from spadeful.problems import Problem

app = typer.Typer(
    name="spadeful",
    help="Optimal transport, one spadeful at a time.",
    no_args_is_help=True,
    add_completion=False,
)


@contextmanager
def refusals() -> Iterator[None]:
    """What the library refuses is one line for the user of the command line, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as refusal:
        typer.echo(f"spadeful: {' '.join(str(refusal).split())}", err=True)
        raise typer.Exit(code=2) from None
    except KeyboardInterrupt as stop:
        typer.echo(f"spadeful: Interrupted. {stop}".rstrip(), err=True)
        raise typer.Exit(code=130) from None


@contextmanager
def plain_warnings() -> Iterator[None]:
    """A warning is a line for the user, at once."""
    import warnings

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"spadeful: {message}", err=True)
        yield


def _print_version(wanted: bool) -> None:
    if wanted:
        from spadeful import __version__

        typer.echo(f"spadeful {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Optimal transport, one spadeful at a time."""


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="The folder that the pictures go to.")] = Path(
        "spadeful-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Transport alone, which takes a second.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="A folder with USPS and MNIST, to adapt the one to the other.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random in adaptation.")] = 0,
    iterations: Annotated[int | None, typer.Option(min=1, help="Of each method of adaptation.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace pictures that exist.")] = False,
) -> None:
    """Show partial transport on small examples, then five methods that adapt a network to other digits.

    Adaptation takes a minute or two and needs torch and scikit-learn; without them it is left out.
    """
    from spadeful import demo as demonstration

    with refusals():
        demonstration.run(folder, force, quick=quick, data=data, seed=seed, iterations=iterations)


THE_PROBLEM, THE_BATCHES, THE_FILES, THE_SOLVER = "The problem", "The batches", "Reading and writing", "The solver"
THE_STEPS = "The steps"

PLAN = """Transport between two clouds of points of any size, through mini-batches.

Batches of X and Y are drawn at random, a transport problem is solved between each pair of them, and their plans are \
added up to one sparse plan between all points. Files may be .npy, .npz (file.npz:name where it holds several arrays), \
.csv or .parquet, with a point in each row.

For example, moving three quarters of the mass and leaving the dearest quarter:

  spadeful plan x.npy y.npy -o plan.npz --problem partial --mass 0.75

In Python, spadeful.MiniBatchPlan.load("plan.npz") reads the plan.
"""


@app.command(help=PLAN)
def plan(
    x: Annotated[str, typer.Argument(help="The points that are moved.", show_default=False)],
    y: Annotated[str, typer.Argument(help="The points that they are moved to.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the plan goes, a .npz file.", rich_help_panel=THE_FILES)
    ],
    problem: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="balanced moves all the mass, partial the cheapest part of it (--mass), unbalanced what is worth "
            "its price (--tau).",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = "balanced",
    mass: Annotated[
        float | None,
        typer.Option(help="For partial: the share of the mass that is moved, up to 1.", rich_help_panel=THE_PROBLEM),
    ] = None,
    tau: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER[,NUMBER]",
            help="For unbalanced: the price of mass left or made; of x and of y, if two.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = None,
    reg: Annotated[
        float,
        typer.Option(
            help="Entropic regularisation, in units of the cost: blurs the plan. 0 solves exactly.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = 0.0,
    divergence: Annotated[
        str | None,
        typer.Option(
            metavar="kl|tv",
            help="For unbalanced: its measure, Kullback-Leibler (kl, the default) or total variation (tv).",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = None,
    entropy: Annotated[
        str | None,
        typer.Option(
            metavar="plain|kl",
            help="For unbalanced with --reg: the entropy of the plan (the default), or relative to the weights.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = None,
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
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a batch hold a point twice.", rich_help_panel=THE_BATCHES)
    ] = False,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Classes of x: every batch then holds as many points of each. Give it again for those of y.",
            rich_help_panel=THE_BATCHES,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which batches are drawn.", rich_help_panel=THE_BATCHES)] = 0,
    n_jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes; -1 for one a core. Without it, threads. The result is the same.",
            rich_help_panel=THE_SOLVER,
        ),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            help="With --reg: the share of the mass that may be misplaced, 1e-6 unless said.",
            rich_help_panel=THE_SOLVER,
        ),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(help="With --reg: the most sweeps for a batch, 10000 unless said.", rich_help_panel=THE_SOLVER),
    ] = None,
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
        typer.Option(help="Draw the clouds and the plan too, a .png file.", rich_help_panel=THE_FILES),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="What divides the cells of .csv files; found out unless said.", rich_help_panel=THE_FILES),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether .csv files begin with the columns' names; found out unless said.",
            rich_help_panel=THE_FILES,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on where an interrupted run has stopped.", rich_help_panel=THE_FILES),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace results that exist; start afresh.", rich_help_panel=THE_FILES),
    ] = False,
) -> None:
    from spadeful import planning
    from spadeful.points import Text

    with refusals():
        chosen = chosen_problem(problem, mass, tau, reg, divergence, entropy)
        limits = {name: value for name, value in (("tol", tol), ("max_iter", max_iter)) if value is not None}
        if limits and not chosen.reg:
            raise ValueError("--tol and --max-iter are for regularised problems. Pass --reg above 0 too, or neither.")
        sizes = numbers(batch_size, "--batch-size", int)
        delimiter = "\t" if delimiter == r"\t" else delimiter
        if delimiter is not None and len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character. Got {delimiter!r} instead.")
        if (delimiter, header) != (None, None) and not any(name.lower().endswith(".csv") for name in (x, y)):
            raise ValueError("--delimiter, --header and --no-header are for .csv files. Got none of them.")
        planning.run(
            x,
            y,
            chosen,
            planning.Outputs(output, images, picture, force),
            text=Text(delimiter, header),
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


def numbers(text: str, name: str, kind: type[int] | type[float]) -> Any:
    """One number, or a pair of them divided by a comma."""
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) not in (1, 2):
        raise ValueError(f"{name} must be a number, or two divided by a comma. Got {text!r} instead.")
    return values if len(values) == 2 else values[0]


def chosen_problem(
    name: str, mass: float | None, tau: str | None, reg: float, divergence: str | None, entropy: str | None
) -> Problem:
    """The problem that the options name; options of another problem are refused."""
    from spadeful.problems import Balanced, Partial, Unbalanced

    own = {"--mass": ("partial", mass), "--tau": ("unbalanced", tau)}
    own |= {"--divergence": ("unbalanced", divergence), "--entropy": ("unbalanced", entropy)}
    if name not in ("balanced", "partial", "unbalanced"):
        raise ValueError(f"--problem must be balanced, partial or unbalanced. Got {name!r} instead.")
    for option, (owner, value) in own.items():
        if value is not None and name != owner:
            raise ValueError(f"{option} is for --problem {owner}. Got it with --problem {name}.")
    if name == "balanced":
        return Balanced(reg)
    if name == "partial":
        if mass is None:
            raise ValueError("--problem partial needs --mass, the share of the mass that is moved. Pass --mass 0.75.")
        return Partial(mass, reg)
    if tau is None:
        raise ValueError("--problem unbalanced needs --tau, the price of mass left or made. Pass --tau 1.")
    if entropy is not None and not reg:
        raise ValueError("--entropy is for regularised problems. Pass --reg above 0 too.")
    given = {"divergence": divergence, "entropy": entropy}
    return Unbalanced(numbers(tau, "--tau", float), reg, **{key: value for key, value in given.items() if value})  # type: ignore[arg-type]


FLOW = """Let points flow to others along the gradient of a mini-batch loss.

X and Y are files of points (.npy, .npz, .csv, .parquet), images, from whose dark parts points are drawn, or one of \
the shapes disc and s. For example, the figure of the paper with partial transport of 0.8 of the mass, as an animation:

  spadeful flow -o run --mass 0.8 --animate run/flow.gif

The folder gets the frames and, for each, the exact Wasserstein-2 distance to Y (flow.csv) as they come; the last \
points (points.npy) and a picture (flow.png) at the end.
"""


@app.command(help=FLOW)
def flow(
    x: Annotated[str, typer.Argument(help="Where points start: a file, an image, disc or s.")] = "disc",
    y: Annotated[str, typer.Argument(help="Where they shall go.")] = "s",
    folder: Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the flow.")] = None,
    problem: Annotated[
        str, typer.Option(metavar="NAME", help="balanced, partial or unbalanced.", rich_help_panel=THE_PROBLEM)
    ] = "partial",
    mass: Annotated[
        float | None, typer.Option(help="For partial: the mass, 0.8 unless said.", rich_help_panel=THE_PROBLEM)
    ] = None,
    tau: Annotated[
        str | None,
        typer.Option(metavar="NUMBER[,NUMBER]", help="For unbalanced: the penalty.", rich_help_panel=THE_PROBLEM),
    ] = None,
    reg: Annotated[float, typer.Option(help="Entropic regularisation.", rich_help_panel=THE_PROBLEM)] = 0.0,
    divergence: Annotated[
        str | None, typer.Option(metavar="kl|tv", help="For unbalanced.", rich_help_panel=THE_PROBLEM)
    ] = None,
    entropy: Annotated[
        str | None, typer.Option(metavar="plain|kl", help="For unbalanced with --reg.", rich_help_panel=THE_PROBLEM)
    ] = None,
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
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a batch hold a point twice.", rich_help_panel=THE_BATCHES)
    ] = False,
    steps: Annotated[int, typer.Option(help="How many.", rich_help_panel=THE_STEPS)] = 5000,
    lr: Annotated[float, typer.Option(help="How long they are.", rich_help_panel=THE_STEPS)] = 0.001,
    every: Annotated[int, typer.Option(help="Steps between two frames.", rich_help_panel=THE_STEPS)] = 100,
    measure: Annotated[
        bool, typer.Option("--distance/--no-distance", help="Find W2 at the frames.", rich_help_panel=THE_STEPS)
    ] = True,
    n: Annotated[
        int, typer.Option("--points", help="Drawn from an image or a shape.", rich_help_panel=THE_STEPS)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Decides points and batches.", rich_help_panel=THE_STEPS)] = 0,
    animation: Annotated[
        Path | None, typer.Option("--animate", help="A .gif, or an .mp4 where ffmpeg is.", rich_help_panel=THE_FILES)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the flow in the folder.", rich_help_panel=THE_FILES)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results that exist; start afresh.", rich_help_panel=THE_FILES)
    ] = False,
) -> None:
    from spadeful import flowing

    with refusals():
        if folder is None:
            raise ValueError("The folder of the flow must be named by --output.")
        if problem == "partial" and mass is None:
            mass = 0.8
        flowing.run(
            x,
            y,
            chosen_problem(problem, mass, tau, reg, divergence, entropy),
            folder,
            n=n,
            seed=seed,
            animation=animation,
            resume=resume,
            force=force,
            batch_size=batch_size,
            n_batches=n_batches,
            steps=steps,
            lr=lr,
            every=every,
            pairing=pairing,
            debiased=debiased,
            replace=replace,
            measure=measure,
        )


@app.command()
def figures(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all of them unless said.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="The folder for the pictures.")] = None,
    ending: Annotated[str, typer.Option("--format", metavar="png|pdf|svg", help="Of the files.")] = "png",
    listed: Annotated[bool, typer.Option("--list", help="Show their names, and exit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace pictures that exist.")] = False,
) -> None:
    """Draw the simulation figures of the paper."""
    from spadeful import simulations

    with refusals():
        if listed:
            for name, picture in simulations.PICTURES.items():
                typer.echo(f"{name:16} {picture.shows}")
            return
        if folder is None:
            raise ValueError("The folder for the pictures must be named by --out.")
        for path in simulations.write(folder, names or [], force, f".{ending}", progress=True):
            typer.echo(str(path))


THE_COLORS = "The colours"

COLOR = """Give an image the colours of another.

Batches of pixels of SOURCE and TARGET are drawn at random, a transport problem is solved between the colours of each \
pair of them, and each pixel takes the mean of the colours that it was matched with (Algorithm 4 of the paper). With \
partial transport the dearest pairs are left out, so that colours without a counterpart are not forced upon it.

For example:

  spadeful color source.jpg target.jpg -o out.png --mass 0.9 --smooth

A sheet for the choice of a mass, and a folder of frames in the same colours:

  spadeful color source.jpg target.jpg --compare sheet.png --masses 0.7,0.8,0.9,0.99,1

  spadeful color source.jpg target.jpg --apply-to frames --into colored

Images may be of any sizes, PNG, JPEG, WebP, TIFF and others. Alpha, colours of 16 bits (PNG) and the ICC profile are \
kept, EXIF data are used to turn the image upright and then dropped.
"""


@app.command(help=COLOR)
def color(
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
    problem: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="partial moves the cheapest part of the mass (--mass), balanced all of it, unbalanced what is worth "
            "its price (--tau).",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = "partial",
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
    tau: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER[,NUMBER]",
            help="For unbalanced: the price of mass left or made. Channels run from 0 to 1.",
            rich_help_panel=THE_PROBLEM,
        ),
    ] = None,
    reg: Annotated[
        float, typer.Option(help="Entropic regularisation; 0 solves exactly.", rich_help_panel=THE_PROBLEM)
    ] = 0.0,
    divergence: Annotated[
        str | None, typer.Option(metavar="kl|tv", help="For unbalanced: its measure.", rich_help_panel=THE_PROBLEM)
    ] = None,
    entropy: Annotated[
        str | None,
        typer.Option(metavar="plain|kl", help="For unbalanced with --reg: of what.", rich_help_panel=THE_PROBLEM),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Pixels in a batch.", rich_help_panel=THE_BATCHES)] = 100,
    n_batches: Annotated[
        int, typer.Option(help="How many batches. More are slower and less grainy.", rich_help_panel=THE_BATCHES)
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Decides which batches are drawn.", rich_help_panel=THE_BATCHES)] = 0,
    n_jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes; -1 for one a core. Without it, threads. The result is the same.",
            rich_help_panel=THE_BATCHES,
        ),
    ] = None,
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
        typer.Option(metavar="rgb|lab", help="Where colours are compared, RGB or CIELAB.", rich_help_panel=THE_COLORS),
    ] = "rgb",
    compare: Annotated[
        Path | None,
        typer.Option(
            help="Draw a sheet of source, results and target too, a .png file: of --masses, or a few unless said.",
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
    max_pixels: Annotated[
        int, typer.Option(help="Refuse images with more pixels.", rich_help_panel=THE_FILES)
    ] = 100_000_000,
    force: Annotated[
        bool, typer.Option("--force", help="Replace results that exist.", rich_help_panel=THE_FILES)
    ] = False,
) -> None:
    from spadeful import coloring

    with refusals():
        outputs = coloring.Outputs(output, compare, save, into, force)
        if load is not None:
            if source is not None:
                raise ValueError("--load takes the place of SOURCE and TARGET. Pass either.")
            coloring.run_saved(load, outputs, apply_to or [], max_pixels)
            return
        if source is None or target is None:
            raise ValueError("Two images must be named, SOURCE and TARGET, or a saved transfer by --load.")
        several = [] if masses is None else many(masses, "--masses")
        if problem == "partial" and mass is None:
            mass = several[0] if several else 0.9
        elif several:
            raise ValueError("--masses is for --problem partial, and takes the place of --mass. Pass one of them.")
        coloring.run(
            source,
            target,
            chosen_problem(problem, mass, tau, reg, divergence, entropy),
            several,
            outputs,
            apply_to=apply_to or [],
            most=max_pixels,
            batch_size=batch_size,
            n_batches=n_batches,
            unmatched=unmatched,
            neighbors=neighbors,
            smooth=smooth,
            palette=palette,
            space=space,
            seed=seed,
            n_jobs=n_jobs,
        )


def many(text: str, name: str) -> list[float]:
    """Numbers divided by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers divided by commas. Got {text!r} instead.") from None


ADAPT = """Train a network on a labelled source for an unlabelled target.

For example, from USPS to MNIST by partial transport of nine tenths of the mass:

  spadeful adapt --source usps --target mnist --method m-pot --mass 0.9 -o run --data DIR

The folder gets the settings, a checkpoint at every evaluation, the best of them, logs, and a picture. `--list` shows
methods and data.
"""


@app.command(help=ADAPT)
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
        changes = {name: value for name, value in given.items() if value is not None} | dict(map(setting, others or []))
        if folder is None:
            raise ValueError("The folder of the run must be named by --output.")
        if config is None and resume and (folder / "config.json").exists():
            config = folder / "config.json"
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


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON reads it, or else a word."""
    import json

    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set must be NAME=VALUE. Got {text!r} instead.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@app.command()
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


@app.command()
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


@app.command()
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
