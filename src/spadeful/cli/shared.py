"""What the commands share: words for refusals, and options that several have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from spadeful.points import Text
    from spadeful.problems import Problem

THE_PROBLEM, THE_BATCHES, THE_FILES, THE_SOLVER = "The problem", "The batches", "Reading and writing", "The solver"
THE_STEPS = "The steps"
#: Parameters that can be nothing else, wherever they are named.
NO_WORDS = ("lr", "reg", "tau", "tol")


@contextmanager
def refusals(context: typer.Context | None = None) -> Iterator[None]:
    """What the library refuses is one line for the user of the command line, not a traceback.

    With the context of a command, it is said with the names of its options and files.
    """
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as refusal:
        words = " ".join(str(refusal).split())
        if isinstance(refusal, MemoryError) and words in ("", "std::bad_alloc"):
            words = "There is not enough memory. Take fewer points, or smaller batches."
        words = re.sub(r"\w+=True \((--[\w-]+)\)", r"\1", words)
        words = re.sub(r"^The '(\w+)' parameter of \w+ must ", r"\1 must ", words)
        typer.echo(f"spadeful: {in_options(words, context) if context else words}", err=True)
        raise typer.Exit(code=2) from None
    except KeyboardInterrupt as stop:
        typer.echo(f"spadeful: Interrupted. {stop}".rstrip(), err=True)
        raise typer.Exit(code=130) from None


def in_options(words: str, context: typer.Context) -> str:
    """A refusal with what the user has typed: --batch-size for batch_size, --replace for replace=True, a file for x."""
    words = re.sub(r" \(of \w+: \w+\)", "", words)
    files = [str(value) for value in context.params.values() if isinstance(value, (str, Path)) and " " in str(value)]
    for at, file in enumerate(files):  # which may hold any word
        words = words.replace(file, f"\0{at}\0")
    for each in context.command.params:
        name, said = f"{each.name}", option_of(each)
        if each.param_type_name == "argument":
            said = str(context.params[name])
        else:
            words = re.sub(rf"\b{name}='(\w+)'", rf"{said} \1", words.replace(f"{name}=True", said))
            if "_" in name or name in NO_WORDS:
                words = re.sub(
                    rf"(?<= ){name}(?=[ ,;:.]( |$)|[ )]|$)", said, words.replace(f"pass {name}=", f"pass {name} ")
                )
        if words.startswith(f"{name} must "):
            words = said + words.removeprefix(name)
    return re.sub(r"\0(\d+)\0", lambda found: files[int(found[1])], words)


def option_of(parameter: Any) -> str:
    return str(max(parameter.opts, key=len))


def leave_out(context: typer.Context, names: set[str], why: str) -> None:
    """Refuse options that are given and would have no effect."""
    given = [each for each in context.command.params if "COMMAND" in str(context.get_parameter_source(each.name))]
    if idle := [option_of(each) for each in given if each.name in names]:
        raise ValueError(f"{why} Leave out {', '.join(idle)}.")


def check_data_dir(folder: Path | None) -> Path | None:
    """The folder with the data, where --data is the images themselves."""
    if folder is not None and not folder.expanduser().is_dir():
        raise FileNotFoundError(f"--data-dir must name the folder with the data. There is no folder {folder}.")
    return folder


def check_name(name: str, option: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f"{option} must be one of {', '.join(known)}. Got {name!r} instead.")


@contextmanager
def plain_warnings(context: typer.Context | None = None) -> Iterator[None]:
    """A warning is a line for the user, at once, with the names of a command's options if it is given."""
    import warnings

    def say(message: object, *_: object, **__: object) -> None:
        typer.echo(f"spadeful: {in_options(str(message), context) if context else message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = say
        yield


def text_of(delimiter: str | None, header: bool | None, points: list[str], labels: list[str] | None = None) -> Text:
    """How .csv files are written; refused where there are none. Whether labels have a header, their number tells."""
    from spadeful.points import Text

    delimiter = "\t" if delimiter == r"\t" else delimiter
    if delimiter is not None and len(delimiter) != 1:
        raise ValueError(f"--delimiter must be one character. Got {delimiter!r} instead.")
    files = points if header is not None else [*points, *(labels or [])]
    if (delimiter, header) != (None, None) and not any(name.lower().endswith(".csv") for name in files):
        raise ValueError("--delimiter, --header and --no-header are for .csv files. Got none of them.")
    return Text(delimiter, header)


def limits_of(tol: float | None, max_iter: int | None, problem: Problem) -> dict[str, Any]:
    """Those that are given; refused where nothing is iterated."""
    limits = {name: value for name, value in (("tol", tol), ("max_iter", max_iter)) if value is not None}
    if limits and not problem.reg:
        raise ValueError("--tol and --max-iter are for regularised problems. Pass --reg above 0 too, or neither.")
    return limits


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


def many(text: str, name: str) -> list[float]:
    """Numbers divided by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers divided by commas. Got {text!r} instead.") from None


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


def settings_of_run(
    folder: Path | None, config: Path | None, resume: bool, given: dict[str, Any], others: list[str] | None
) -> tuple[Path, Path | None, dict[str, Any]]:
    """A run's folder, its file of settings (its own, if it is gone on with), and what options change in them."""
    options = {name: value for name, value in given.items() if value is not None}
    changes = options | dict(map(setting, others or []))
    for name, value in options.items():
        if changes[name] != value:
            option = f"--{name.replace('_', '-')} {value}"
            raise ValueError(f"{name} must be said once. Got {option} and --set {name}={changes[name]}; leave one out.")
    if folder is None:
        raise ValueError("The folder of the run must be named by --output.")
    if config is None and resume and (folder / "config.json").exists():
        config = folder / "config.json"
    return folder, config, changes
