"""Experiments: many runs of `spadeful adapt` described by one file, their results gathered in another.

A file of TOML holds

- `title`, and `note`, what the reader should know;
- `[settings]`, those of every run, at the length of the paper;
- `[[runs]]`, each a grid: lists of values by the name of the setting, of which all combinations are run. A value that
  has a table of its own, `[task.usps-mnist]` for the value "usps-mnist" of `task`, stands for the settings there;
- `[short]`, settings that win over all others in the runs for a processor without a GPU; `[[short.runs]]`, grids
  in place of the long ones; `[quick]`, the same for runs of seconds, which win over the short ones;
- `[paper]`, the figures of the paper by the names of the runs without their seed: one, one with its spread, or those
  of several seeds; tables within it hold other measures than the accuracy;
- `embedding`, the names of runs whose features are shown in the plane.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.table import Table

from spadeful import figures
from spadeful.adapt.config import Config, make_config, read_config
from spadeful.adapt.masses import ClassMasses
from spadeful.adapt.selection import RULES
from spadeful.adapting import MASSES, build, domains_of, load_kept, some_features
from spadeful.adapting import run as adapt
from spadeful.arrays import Floats
from spadeful.checkpoint import differences
from spadeful.files import reading, replacing
from spadeful.grids import configs_of, published, read_grids, spread, without_seed
from spadeful.progress import progress_bar
from spadeful.training import states
from spadeful.training.record import last_phase

#: A run, its folder, and the folder of its warm-up.
Wanted = tuple[Config, Path, Path | None]
#: What the results of a run tell of: the choice of each rule, and the end.
CHECKPOINTS = (*RULES, "last")
#: What a file in the folder of a run has to be.
OF_ITS_RUN = "as its run wrote it, or the folder be removed"
FIELDS = {spec.name for spec in dataclasses.fields(Config)}
DEFAULTS = {spec.name: spec.default for spec in dataclasses.fields(Config)}


@dataclass(frozen=True)
class Experiment:
    """What an experiment's file says."""

    name: str
    title: str
    note: str
    runs: dict[str, Config]
    paper: dict[str, float]
    length: str
    embedding: list[str]


def read_experiment(path: str | Path, length: str = "short") -> Experiment:
    """The runs of a file by name: the quick or short ones, or ("full") those of the paper's length."""
    path = Path(path)
    found = read_grids(path)
    if not {"title", "settings", "runs"} <= found.keys():
        raise ValueError(f"{path} must hold title, settings and runs. It holds {', '.join(found) or 'nothing'}.")
    runs = configs_of(found, path, length, FIELDS, make_config)
    paper = found.get("paper", {})
    means = {name: published(value)[0] for name, value in paper.items() if not isinstance(value, dict)}
    note, embedding = found.get("note", ""), found.get("embedding", [])
    return Experiment(path.stem, found["title"], note, runs, means, length, embedding)


def reproduce(
    experiment: Experiment,
    folder: str | Path,
    *,
    data: str | Path | None = None,
    n_jobs: int = 1,
    device: str = "cpu",
    progress: bool = False,
) -> dict[str, Any]:
    """Do the runs that are not done yet, each in a folder of its own, and gather the results of all.

    Runs that begin alike share their warm-up; the weights are those that each would have come to alone.
    """
    folder = Path(folder)
    waiting = {name: config for name, config in experiment.runs.items() if not is_done(config, folder / name)}
    first: list[Wanted] = []
    then: list[Wanted] = []
    for name, config in waiting.items():
        warm_up, begun = config.warm_up(), (folder / name / states.LAST).exists()
        place = folder / "warm-ups" / digest(warm_up) if warm_up and not begun else None
        if warm_up and place and not is_done(warm_up, place):
            first.append((warm_up, place, None))
        then.append((config, folder / name, place))
    stages = [list(dict.fromkeys(first)), then]
    with progress_bar("runs", sum(map(len, stages)), progress) as advance:
        for stage in stages:
            calls = (delayed(one_run)(*each, data, n_jobs, device) for each in stage)
            for _ in Parallel(n_jobs, return_as="generator_unordered")(calls):
                advance(1)
    return gather(experiment, folder)


def digest(config: Config) -> str:
    """A name for a config that stays when there are new settings."""
    told = {spec.name: getattr(config, spec.name) for spec in dataclasses.fields(config)}
    changed = {name: value for name, value in told.items() if value != DEFAULTS.get(name)}
    return sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:12]


def is_done(config: Config, folder: Path) -> bool:
    if not (folder / "result.json").exists():
        return False
    was = dataclasses.asdict(read_config(folder / "config.json", {}))
    if changes := differences(was, dataclasses.asdict(config)):
        raise ValueError(
            f"{folder} holds a run with other settings than the experiment: {'; '.join(changes)}. "
            "Choose another folder of runs (--runs), or remove that one."
        )
    return True


def one_run(
    config: Config, folder: Path, warm_up: Path | None, data: str | Path | None, n_jobs: int, device: str
) -> None:
    import torch

    cores = max(1, (os.cpu_count() or 1) // n_jobs)
    torch.set_num_threads(cores)
    if warm_up is not None:
        # As if the run had been interrupted after its warm-up: it goes on from there.
        with replacing(folder / "config.json", force=True) as temporary:
            temporary.write_text(config.to_json())
        states.copy(warm_up / states.LAST, folder / states.LAST)
    adapt(config, folder, data=data, resume=True, picture=False, device=device, workers=cores)


def gather(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """The results of the runs that are done."""
    packages = ("spadeful", "numpy", "torch")
    runs = []
    for name, config in experiment.runs.items():
        place = folder / name
        if is_done(config, place):
            with reading(place / "log.json", OF_ITS_RUN):
                rows = json.loads((place / "log.json").read_text())["rows"]
            with reading(place / "result.json", OF_ITS_RUN):
                found = dict(json.loads((place / "result.json").read_text()))
                found["last"]
            told = {"name": name, "config": dataclasses.asdict(config), **found, "rows": rows}
            runs.append(told | sent_in(place) | by_class_in(place))
    return {
        "title": experiment.title,
        "note": experiment.note,
        "length": experiment.length,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "missing": len(experiment.runs) - len(runs),
        "paper": experiment.paper,
        "runs": runs,
    }


def by_class_in(folder: Path) -> dict[str, Any]:
    """The accuracy and precision of the kept checkpoint by class, and their means."""
    path = folder / "classes.json"
    if not path.exists():
        return {}
    with reading(path, OF_ITS_RUN):
        found = json.loads(path.read_text())
        found["mean of classes"]
    return {"classes": found}


def sent_in(folder: Path) -> dict[str, Any]:
    """The mass that each class of the source sent in a run that transports, and the classes that the target lacks."""
    if not (folder / MASSES).exists():
        return {}
    with reading(folder / MASSES, OF_ITS_RUN):
        masses = ClassMasses.read(folder / MASSES)
    lacking = [name for name, has in zip(masses.classes, masses.present, strict=True) if not has]
    return {"sent": dict(zip(masses.classes, masses.sent.tolist(), strict=True)), "absent": lacking}


def write(results: dict[str, Any], path: str | Path, force: bool = False) -> None:
    with replacing(path, force) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")


#: Settings that a picture can show the accuracy against.
AXES = {"mass": "mass s", "n_batches": "mini-batches k", "batch_size": "size m of a mini-batch"}
#: Points of each domain whose features are shown, as in the paper.
EMBEDDED = 2000
#: Pairs of domains that get a panel each; the mean of more is shown.
PANELS = 4


def draw(results: dict[str, Any], path: str | Path, force: bool = False) -> None:
    """The accuracy on the target by method: against the setting that the runs differ in, or else the iteration."""
    runs = results["runs"]
    axis = next((name for name in AXES if len({run["config"][name] for run in runs}) > 2), None)
    tasks = list(dict.fromkeys((run["config"]["source"], run["config"]["target"]) for run in runs))
    panels = {f"{a} to {b}": [(a, b)] for a, b in tasks} if len(tasks) <= PANELS else {f"mean of {len(tasks)}": tasks}
    figure = figures.new_figure(5.5 * len(panels), 4)
    for axes, (title, shown) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        curves: dict[str, dict[float, list[float]]] = {}
        for run in runs:
            config = run["config"]
            if (config["source"], config["target"]) in shown:
                curve = curves.setdefault(curve_of(config, runs[0]["config"], axis), {})
                for at, accuracy in points_of(run, axis):
                    curve.setdefault(at, []).append(accuracy)
        means = {name: ([*sorted(c)], [mean(c[at]) for at in sorted(c)]) for name, c in curves.items()}
        figures.draw_methods(axes, means)
        if axis:
            axes.set_xticks(sorted({at for curve in curves.values() for at in curve}))
        axes.set(title=title, xlabel=AXES[axis] if axis else "iteration", ylabel="accuracy on the target, %")
    figures.save(figure, path, force)


def curve_of(config: dict[str, Any], first: dict[str, Any], axis: str | None) -> str:
    """The method of a run and, where a setting is the axis, how others differ from those of the first run.

    >>> run, first = ({"method": "m-pot", "n_batches": k, "batch_size": 63, "mass": 0.7} for k in (4, 1))
    >>> curve_of(run, first, "mass"), curve_of(run, first, "n_batches")
    ('n_batches=4,m-pot', 'm-pot')
    """
    other = [name for name in AXES if axis not in (None, name) and config[name] != first[name]]
    return ",".join([*(f"{name}={config[name]}" for name in other), config["method"]])


def draw_sent(results: dict[str, Any], path: str | Path, force: bool = False) -> None:
    """The share of the mass that each class of the source sends, by method: the mean of the runs to partial targets."""
    shares: dict[str, list[Floats]] = {}
    classes, lacking = [], []
    for run in results["runs"]:
        if run.get("absent"):
            sent = np.array([*run["sent"].values()])
            shares.setdefault(run["config"]["method"], []).append(sent / sent.sum())
            classes, lacking = [*run["sent"]], run["absent"]
    if not shares:
        return
    figure = figures.new_figure(max(5.5, 0.3 * len(classes)), 4)
    present = ~np.isin(classes, lacking)
    figures.draw_sent(
        figure.subplots(), {name: np.mean(each, axis=0) for name, each in shares.items()}, classes, present
    )
    figures.save(figure, path, force)


def draw_embedding(
    experiment: Experiment, folder: Path, path: str | Path, data: str | Path | None = None, force: bool = False
) -> None:
    """The features of both domains in the plane (t-SNE), for the runs that the experiment names for it."""
    names = shown_in_the_plane(experiment)
    n = 50 if experiment.length == "quick" else EMBEDDED
    figure = figures.new_figure(4.5 * len(names), 4.5)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        config = experiment.runs[name]
        pair = domains_of(config, data)
        network = build(config, pair)
        load_kept(network, folder / name)
        both = (pair.source_test, pair.target_test)
        figures.draw_embedding(axes, *(some_features(network, domain, n) for domain in both))
        axes.set_title(figures.title_of(without_seed(name)))
    figures.save(figure, path, force)


def shown_in_the_plane(experiment: Experiment) -> list[str]:
    return [name for name in experiment.embedding if name in experiment.runs]


def points_of(run: dict[str, Any], axis: str | None) -> list[tuple[float, float]]:
    if axis:
        return [(run["config"][axis], accuracy_of(run["last"]))]
    return [(row["iteration"], accuracy_of(row)) for row in last_phase(run["rows"])]


def accuracy_of(row: Mapping[str, Any]) -> float:
    """On the target; NaN where it has no labels."""
    return float(row.get("target_accuracy", math.nan))


def summary(results: dict[str, Any]) -> Table:
    """The accuracy on the target over the seeds, of the checkpoint that each rule of selection chooses."""
    partial = any(run.get("absent") for run in results["runs"])
    names = ("run", "seeds", *CHECKPOINTS, "paper", *(["from absent classes, %"] if partial else []))
    table = Table(*names, title=results["title"], title_justify="left")
    table.columns[0].overflow = "fold"
    for groups in (over_seeds, over_pairs):
        for name, runs in groups(results):
            shown = name.replace(",", ", ")  # to break lines at: figures stay whole where a terminal is narrow
            table.add_row(shown, *cells(runs, results["paper"]), *([from_absent(runs)] if partial else []))
        table.add_section()
    if results["missing"]:
        table.caption = f"Not done yet: {results['missing']} runs."
    return table


def cells(runs: list[dict[str, Any]], paper: dict[str, float]) -> list[str]:
    """A row of the summary: the spread over the seeds, of the mean over the pairs of domains."""
    seeds: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        seeds.setdefault(run["config"]["seed"], []).append(run)
    shown = [
        spread([mean(accuracy_of(run[which]) for run in each) for each in seeds.values()]) for which in CHECKPOINTS
    ]
    wanted = [paper.get(without_seed(run["name"])) for run in runs]
    known = [value for value in wanted if value is not None]
    return [str(len(seeds)), *shown, f"{mean(known):.2f}" if len(known) == len(runs) else ""]


def from_absent(runs: list[dict[str, Any]]) -> str:
    """The share of all mass that classes sent which the target lacks, in per cent; nothing where none was sent."""
    partial = [run for run in runs if run.get("absent")]
    shares = [sum(run["sent"][name] for name in run["absent"]) / sum(run["sent"].values()) for run in partial]
    return f"{100 * mean(shares):.1f}" if shares else ""


def over_seeds(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The runs that differ in their seed alone, by name."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        groups.setdefault(without_seed(run["name"]), []).append(run)
    yield from groups.items()


def over_pairs(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The runs that differ in their seed and pair of domains alone, by the rest of their names, if there are pairs."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    for run in results["runs"]:
        for part in run["name"].split(","):
            pairs.setdefault(part, set()).add((run["config"]["source"], run["config"]["target"]))
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        parts = without_seed(run["name"]).split(",")
        # A part that names a pair has that pair alone; so may a method, while runs are missing.
        general = [part for part in parts if len(pairs[part]) > 1 or part == run["config"]["method"]]
        groups.setdefault(",".join(general), []).append(run)
    everywhere = set().union(*pairs.values())
    for name, runs in groups.items():
        if len(everywhere) > 1 and {(run["config"]["source"], run["config"]["target"]) for run in runs} == everywhere:
            yield f"mean of {len(everywhere)}: {name}", runs
