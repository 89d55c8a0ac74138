"""Running an entry, each kind in its way: results go to a file of JSON, pictures beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from spadeful import figures, simulations
from spadeful.batches import check_count
from spadeful.files import check_free, reading, replacing
from spadeful.flow import Flow, gradient_flow
from spadeful.grids import chosen_grids, combinations, configs_of, name_of, naming
from spadeful.images import Photo, read_photo
from spadeful.paper.entries import KINDS, Entry
from spadeful.problems import Balanced, Partial, Problem, Ramp, Unbalanced
from spadeful.progress import progress_bar
from spadeful.shapes import disc, s_shape
from spadeful.simulations.aggregated import aggregate
from spadeful.simulations.example import PARTIAL, UNBALANCED, example_one
from spadeful.simulations.flows import draw_flows

Runs = list[dict[str, Any]]

#: Settings that runs of a kind cannot do without.
NEEDED = {
    "flow": ("n", "steps", "batch_size", "n_batches", "lr"),
    "color": ("pairs", "masses", "batch_size", "n_batches", "seed"),
}
#: Those that are whole numbers.
COUNTS = {"n", "steps", "batch_size", "n_batches"}


class Job(NamedTuple):
    """An entry, how long its runs are, and where they go."""

    entry: Entry
    length: str
    output: Path
    runs: Path
    data: Path | None = None
    n_jobs: int = 1
    device: str = "cpu"
    force: bool = False

    def beside(self, name: str, ending: str = ".png") -> Path:
        """Where a picture goes."""
        return self.output.with_name(f"{self.output.stem}{'_' * bool(name)}{name}{ending}")

    def settings(self) -> dict[str, Any]:
        return {**self.entry.found.get("settings", {}), **chosen_grids(self.entry.found, self.length)[1]}


def check(job: Job) -> None:
    """Refuse what exists, and tell what is missing, before any work is done."""
    if job.entry.kind not in RUNNERS:
        raise ValueError(f"{job.entry.name} cannot be run: {KINDS[job.entry.kind]}. {job.entry.note}")
    if job.output.suffix.lower() != ".json":
        raise ValueError(f"The results must go to a file that ends in .json. Got {job.output} instead.")
    if job.length == "quick" and "quick" not in job.entry.found:
        raise ValueError(f"{job.entry.path} must hold [quick] to be run with --quick. It does not; leave --quick out.")
    check_free(job.output, job.force)
    job.entry.check_data(job.data)
    check_runs(job)


def check_runs(job: Job) -> None:
    """That an entry says all that its runs need, in words that they know."""
    entry, settings = job.entry, job.settings()
    if missing := [name for name in NEEDED.get(entry.kind, ()) if name not in settings]:
        raise ValueError(
            f"[settings] of {entry.path} must hold {', '.join(NEEDED[entry.kind])}. There is no {missing[0]}."
        )
    for name in (name for name in NEEDED.get(entry.kind, ()) if name in COUNTS):
        check_count(settings[name], f"{name} in [settings] of {entry.path}")
    if entry.kind in ("adapt", "flow", "generate") and not entry.count(job.length):
        raise ValueError(f"{entry.path} must hold [[runs]]. It holds {', '.join(entry.found)}.")
    if entry.kind == "adapt":
        from spadeful import reproducing

        reproducing.read_experiment(entry.path, job.length)
    elif entry.kind == "generate":
        generator_configs(job)
    elif entry.kind == "color":
        check_colors(job)
    else:
        for name, known in (("pictures", simulations.PICTURES), ("measures", SIMULATED)):
            if strange := [each for each in settings.get(name, []) if each not in known]:
                raise ValueError(
                    f"{name} of {entry.path} must be among {', '.join(known)}. Got {strange[0]!r} instead."
                )
        for _, chosen in points_of_grids(job):
            with naming(entry.path, chosen):
                problem_of(chosen)


def check_colors(job: Job) -> None:
    path, pairs, masses = job.entry.path, job.settings()["pairs"], job.settings()["masses"]
    if not all(isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, str) for n in pair) for pair in pairs):
        raise ValueError(f"pairs of {path} must be pairs of photos. Got {pairs!r} instead.")
    for mass in masses:
        with naming(path, {"mass": mass}):
            Partial(mass)
    photos(job)


def photos(job: Job) -> Path:
    """The folder with the photos."""
    named = job.data or os.environ.get("SPADEFUL_DATA")
    if not named:
        raise FileNotFoundError(
            f"{job.entry.name} needs photos, and the folder with the data is not known. Name the folder by --data or "
            "the environment variable SPADEFUL_DATA."
        )
    return Path(named).expanduser() / "photos"


def ready(jobs: list[Job]) -> list[Job]:
    """Those of some entries that can be run and have not been; of others it is said why not, unless all are such."""
    lacking = [job.entry.needs_data(job.data) for job in jobs]
    able = [job for job, lack in zip(jobs, lacking, strict=True) if not lack] or jobs
    found = [job for job in able if job.force or not job.output.exists()] or able
    for job in found:
        check(job)
    for lack in filter(None, lacking):
        print(f"Not run: {lack}")
    for job in able:
        if job not in found:
            print(f"Not run again: {job.output} exists. --force replaces it.")
    return found


def run(job: Job) -> None:
    """Run an entry."""
    check(job)
    RUNNERS[job.entry.kind](job)


def adapt(job: Job) -> None:
    """Runs of `spadeful adapt`, each in a folder of its own."""
    from spadeful import adapting, reproducing

    chosen = reproducing.read_experiment(job.entry.path, job.length)
    pictures = {
        "": job.entry.tells("accuracy"),
        "masses": any(config.target_classes for config in chosen.runs.values()),
    }
    pictures["embedding"] = bool(reproducing.shown_in_the_plane(chosen))
    for name, wanted in pictures.items():
        if wanted:
            check_free(job.beside(name), job.force)
    given = {"data": job.data, "n_jobs": job.n_jobs, "device": job.device}
    results = reproducing.reproduce(chosen, job.runs, **given, progress=True)  # type: ignore[arg-type]
    reproducing.write(results, job.output, job.force)
    if pictures[""]:
        reproducing.draw(results, job.beside(""), job.force)
    if pictures["masses"]:
        reproducing.draw_sent(results, job.beside("masses"), job.force)
    if pictures["embedding"]:
        reproducing.draw_embedding(chosen, job.runs, job.beside("embedding"), job.data, job.force)
    adapting.show(reproducing.summary(results))


def write(job: Job, runs: Runs, seconds: float) -> None:
    """The results of runs that have no folders."""
    results = {
        "title": job.entry.title,
        "note": job.entry.note,
        "length": job.length,
        "settings": job.settings(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("spadeful", "numpy")}},
        "seconds": round(seconds, 1),
        "missing": 0,
        "runs": runs,
    }
    with replacing(job.output, job.force) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{job.output}")


def problem_of(chosen: dict[str, Any]) -> Problem:
    """The problem of a method that a grid names."""
    method = chosen.get("method")
    needed = {"m-ot": ("seed",), "m-uot": ("tau", "seed"), "m-pot": ("mass", "seed")}
    if method not in needed:
        raise ValueError(f"method must be one of {', '.join(needed)}. Got {method!r} instead.")
    if missing := [name for name in needed[method] if name not in chosen]:
        raise ValueError(f"{method} needs {' and '.join(needed[method])}. There is no {missing[0]}.")
    check_count(chosen["seed"], "seed", least=0)
    if method == "m-ot":
        return Balanced()
    if method == "m-uot":
        return Unbalanced(chosen["tau"], chosen.get("reg", 0.0))
    return Partial(chosen["mass"])


def points_of_grids(job: Job) -> Iterator[tuple[str, dict[str, Any]]]:
    grids, _ = chosen_grids(job.entry.found, job.length)
    for grid in grids:
        for chosen in combinations(grid):
            yield name_of(chosen), chosen


def simulate(job: Job) -> None:
    """Simulations: the pictures of the paper, and measures of draws that the entry's grids name."""
    names = job.settings().get("pictures", [])
    for name in names:
        check_free(job.beside(name), job.force)
    start = perf_counter()
    runs = [each for measure in job.settings().get("measures", []) for each in SIMULATED[measure](job)]
    for name in names:
        picture = simulations.PICTURES[name]
        figures.save(picture.draw(picture.data()), job.beside(name), job.force)
    write(job, runs, perf_counter() - start)


def mappings(job: Job) -> Runs:
    """The misspecified and the optimal mappings of aggregated plans, draw by draw."""
    runs = []
    for name, chosen in points_of_grids(job):
        counts = aggregate({"": problem_of(chosen)}, chosen["seed"]).counts[""]
        measured = {"misspecified": counts.misspecified, "optimal": counts.optimal}
        runs.append({"name": name, "config": chosen, "measured": measured})
    return runs


def scaling(job: Job) -> Runs:
    """How much the plans of Example 1 change when its points are scaled by 10, by s and by tau."""
    runs = []
    for kind, axis, problems in (("pot", "s", PARTIAL), ("uot", "tau", UNBALANCED)):
        plain, scaled = (example_one(problems, scale).matrices for scale in (1.0, 10.0))
        for value in problems:
            change = float(np.abs(plain[value] - scaled[value]).sum())
            runs.append({"name": f"{kind},{axis}={value}", "config": {axis: value}, "measured": {"change": change}})
    return runs


#: What simulations are measured by.
SIMULATED: dict[str, Callable[[Job], Runs]] = {"mappings": mappings, "scaling": scaling}


def flow(job: Job) -> None:
    """Gradient flows of a disc to an S; the picture has those of the first seed."""
    check_free(job.beside(""), job.force)
    settings, start = job.settings(), perf_counter()
    points = dict(points_of_grids(job))
    flows: dict[str, Flow] = {}
    with progress_bar("flows", len(points), True) as advance:
        calls = (delayed(one_flow)(chosen, settings) for chosen in points.values())
        for name, found in zip(points, Parallel(job.n_jobs, return_as="generator")(calls), strict=True):
            flows[name] = found
            advance(1)
    runs = [
        {"name": name, "config": chosen, "measured": {"w2": float(flows[name].distances[-1])}}
        for name, chosen in points.items()
    ]
    first = next(iter(points.values()))["seed"]
    shown = {name.removesuffix(f",seed={first}"): flows[name] for name in points if name.endswith(f",seed={first}")}
    figures.save(draw_flows((ends(settings["n"], first)[1], shown)), job.beside(""), job.force)
    write(job, runs, perf_counter() - start)


def ends(n: int, seed: int) -> tuple[Any, Any]:
    return disc(n, seed=2 * seed), s_shape(n, seed=2 * seed + 1)


def one_flow(chosen: dict[str, Any], settings: dict[str, Any]) -> Flow:
    options = {name: settings[name] for name in ("batch_size", "n_batches", "steps", "lr")}
    x, y = ends(settings["n"], chosen["seed"])
    falling = Ramp(chosen["mass_from"], chosen["mass"], settings["steps"]) if "mass_from" in chosen else None
    options |= {"every": max(1, settings["steps"] // 5), "seed": chosen["seed"], "schedule": falling}
    return gradient_flow(x, y, problem_of(chosen), **options)


def color(job: Job) -> None:
    """Colour transfers between photos, a sheet each."""
    from spadeful.color import transfer_masses
    from spadeful.coloring import small

    settings, start, runs = job.settings(), perf_counter(), []
    pairs = settings["pairs"]
    sheets: dict[Path, Any] = {}  # written together at the end: one of a run that was stopped would be in its way
    for pair in pairs:
        check_free(job.beside(Path(pair[0]).stem, ".jpg"), job.force)
    folder = photos(job)
    options = {name: settings[name] for name in ("batch_size", "n_batches", "seed")}
    for pair in pairs:
        source, target = (read_photo(folder / name) for name in pair)
        target, masses = target.in_profile(source.profile), settings["masses"]
        pictures = {"source": small(source)}
        found = transfer_masses(source.pixels, target.pixels, masses, progress=True, **options)
        for mass, result in zip(masses, found, strict=True):
            method = {"method": "m-ot"} if mass == 1 else {"mass": mass, "method": "m-pot"}
            pictures["m-OT" if mass == 1 else f"m-POT, s = {mass:g}"] = small(Photo(result.image, source.profile))
            chosen = {**method, "task": Path(pair[0]).stem}
            measured = {"unmatched": 100 * float(result.unmatched)}
            runs.append({"name": name_of(chosen), "config": chosen, "measured": measured})
        figure = figures.new_figure(2.6 * (2 + len(masses)), 2.4)
        figures.draw_recolored(figure, {**pictures, "target": small(target)})
        sheets[job.beside(Path(pair[0]).stem, ".jpg")] = figure
    for path, figure in sheets.items():
        figures.save(figure, path, job.force)
    write(job, runs, perf_counter() - start)


def generate(job: Job) -> None:
    """Runs of `spadeful generate`, each in a folder of its own; pictures have samples of some, and scores of all."""
    for name in ("", "scores"):
        check_free(job.beside(name), job.force)
    configs, start = generator_configs(job), perf_counter()
    with progress_bar("runs", len(configs), True) as advance:
        calls = (delayed(one_generator)(config, job.runs / name, job) for name, config in configs.items())
        for _ in Parallel(job.n_jobs, return_as="generator_unordered")(calls):
            advance(1)
    runs = [generated(name, config, job.runs / name) for name, config in configs.items()]
    shown = [name for name in job.entry.found.get("shown", configs) if name in configs] or [*configs]
    sheets = {
        label(configs[name]): read_photo(max((job.runs / name / "samples").glob("*.png"))).pixels for name in shown
    }
    figure = figures.new_figure(1, 1)
    figures.draw_recolored(figure, sheets)
    figures.save(figure, job.beside(""), job.force)
    curves: dict[str, list[list[float]]] = {}
    for name, each in zip(configs, runs, strict=True):
        if each["score"]:
            curves.setdefault(label(configs[name]), []).append([row["score"] for row in each["rows"]])
    if curves:
        figure = figures.new_figure(5.5, 4)
        at = [row["iteration"] for row in runs[0]["rows"]]
        means = {name: (at, np.mean(each, axis=0).tolist()) for name, each in curves.items()}
        figures.draw_scores(figure.subplots(), means, runs[0]["score"])
        figures.save(figure, job.beside("scores"), job.force)
    write(job, runs, perf_counter() - start)


def generator_configs(job: Job) -> dict[str, Any]:
    from spadeful.generate.config import Config, make_config

    return configs_of(job.entry.found, job.entry.path, job.length, {spec.name for spec in fields(Config)}, make_config)


def label(config: Any) -> str:
    """A generator's method, and its mass if that is a part."""
    return str(config.method) + (f", s = {config.mass:g}" if config.method.endswith("-pot") else "")


def one_generator(config: Any, folder: Path, job: Job) -> None:
    """A run, if it is not done."""
    import torch

    from spadeful import generating
    from spadeful.training.runs import check_folder

    check_folder(folder, config, resume=True)
    if not (folder / "result.json").exists():
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // job.n_jobs))
        generating.run(config, folder, data=job.data, resume=True, device=job.device)


def generated(name: str, config: Any, folder: Path) -> dict[str, Any]:
    """What a run came to; a score is an FID where it was taken in the features of Inception."""
    from spadeful.reproducing import OF_ITS_RUN

    with reading(folder / "log.json", OF_ITS_RUN):
        rows = json.loads((folder / "log.json").read_text())["rows"]
        seconds = median(row["seconds"] for row in rows)
    measured = {"seconds": seconds, "iterations_per_second": 1 / seconds}
    with reading(folder / "result.json", OF_ITS_RUN):
        result = json.loads((folder / "result.json").read_text())
        score = result["score"]
        if result["best"]:
            measured["fid" if score == "FID" else "score"] = result["best"]["score"]
    return {"name": name, "config": asdict(config), "measured": measured, "score": score, "rows": rows}


RUNNERS: dict[str, Callable[[Job], None]] = {
    "adapt": adapt,
    "simulate": simulate,
    "flow": flow,
    "color": color,
    "generate": generate,
}
