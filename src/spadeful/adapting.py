"""From a config to an adapted network in a folder: what `spadeful adapt` and `spadeful evaluate` do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from spadeful import figures
from spadeful.adapt.backbones import backbone_network
from spadeful.adapt.call import adapt, check_batch_size, check_selectable, class_scores, measure, predict
from spadeful.adapt.config import METHODS, Config, read_config
from spadeful.adapt.data import NAMES, Pair, source_and_target
from spadeful.adapt.domain import Domain
from spadeful.adapt.images import ImageFiles
from spadeful.adapt.masses import ClassMasses, class_masses
from spadeful.adapt.methods import Transport, TwoStage
from spadeful.adapt.networks import Network, network_for
from spadeful.adapt.selection import RULES
from spadeful.files import check_outside, replacing
from spadeful.progress import terminal, waiting
from spadeful.training import runs, states
from spadeful.training.record import Record

#: The mass between classes, where the method transports.
MASSES = "masses.csv"

#: Points of each domain that the picture of the features shows.
SHOWN = 500

SETS = ("source", "target")


def domains_of(config: Config, data: str | Path | None, workers: int = 1, progress: bool = False) -> Pair:
    """What a config adapts to what."""
    reading, held_out = config.reading(workers), config.held_out
    return source_and_target(config.source, config.target, data, config.target_classes, reading, progress, held_out)


def build(config: Config, pair: Pair, progress: bool = False) -> Network:
    torch.manual_seed(config.seed)
    if isinstance(pair.source, ImageFiles):
        if not config.backbone:
            raise ValueError("Images need a backbone. Name one by --backbone, such as microsoft/resnet-50.")
        with waiting(f"loading {config.backbone}", progress):
            return backbone_network(config.backbone, len(pair.source.classes), config.bottleneck, config.image_size)
    if config.backbone:
        raise ValueError(f"A backbone is for folders of images. {config.source} is none; leave out --backbone.")
    return network_for(pair.source.shape, len(pair.source.classes), config.bottleneck, config.initial)


def run(
    config: Config,
    folder: str | Path,
    *,
    data: str | Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    precision: str = "32-true",
    progress: bool = False,
    picture: bool = True,
    workers: int = 1,
) -> Record:
    """Adapt as the config says; the folder gets the config, checkpoints, logs, the result and a picture.

    Image files are read by as many processes as there are to be `workers`.
    """
    folder = Path(folder)
    check_outside(folder, {config.source, config.target} - {*NAMES})
    runs.check_folder(folder, config, resume)
    pair = domains_of(config, data, workers, progress)
    test = {"source": pair.source_test, "target": pair.target_test}
    check_selectable(config.select, test)
    check_batch_size(config.batch_size, pair.source, pair.target)
    network, method = build(config, pair, progress), config.build_method()
    network.statistics = config.statistics
    fabric = runs.start(folder, config, device, precision)
    with runs.kept_so_far(folder):
        record = adapt(
            network,
            pair.source,
            pair.target,
            method,
            config.training(),
            warmup=config.training(config.warmup) if config.warmup else None,
            batch_size=config.batch_size,
            test=test,
            folder=folder,
            resume=resume,
            fabric=fabric,
            progress=progress,
        )
        if fabric.is_global_zero:
            if isinstance(method, (Transport, TwoStage)):
                sizes = {"batch_size": config.batch_size, "iteration": config.iterations}
                masses = class_masses(network, pair.source, pair.target_test, method, **sizes, device=fabric.device)
                keep_masses(masses, folder, picture)
            if picture:
                draw(network, pair, record, folder, fabric.device)
            write_classes(network, pair.target_test, folder, fabric.device)
            # Last: a run that has it has all else.
            result = {rule: record.chosen(rule) for rule in RULES} | {"last": record.rows[-1]}
            with replacing(folder / "result.json", force=True) as temporary:
                temporary.write_text(json.dumps(result, indent=1) + "\n")
    return record


def draw(network: Network, pair: Pair, record: Record, folder: Path, device: Any) -> None:
    """The learning curves, and the features of both domains in the plane."""
    figure = figures.new_figure(12, 5)
    left, right = figure.subplots(1, 2)
    figures.draw_curves(left, record.rows)
    both = (pair.source_test, pair.target_test)
    figures.draw_embedding(right, *(some_features(network, domain, SHOWN, device) for domain in both))
    figures.save(figure, folder / "run.png", force=True)


def some_features(network: Network, domain: Domain, n: int, device: Any = "cpu") -> tuple[Any, Any]:
    """The features of some points of a domain and their labels, -1 where they are unknown."""
    some = np.random.default_rng(0).permutation(len(domain))[:n]
    features, _ = predict(network, domain.take(some), device)
    return features.numpy(), domain.y[some] if domain.y is not None else np.full(len(some), -1)


def keep_masses(masses: ClassMasses, folder: Path, picture: bool) -> None:
    """The mass between classes, as a table and a picture."""
    masses.write(folder / MASSES, force=True)
    if picture:
        figure = figures.new_figure(11, 5)
        figures.draw_masses(figure, masses.matrix, masses.classes, masses.present, masses.predicted)
        figures.save(figure, folder / "masses.png", force=True)


def write_classes(network: Network, test: Domain, folder: Path, device: Any) -> None:
    """How the kept checkpoint, or the last if none could be chosen, does on each class of the target."""
    if test.y is None:
        return
    load_kept(network, folder)
    with replacing(folder / "classes.json", force=True) as temporary:
        temporary.write_text(json.dumps(by_class(network, test, device), indent=1) + "\n")


def load_kept(network: Network, folder: Path) -> None:
    """Give a network the weights of a run's kept checkpoint, or of the last if none could be chosen."""
    best = folder / states.BEST
    states.unpack(states.read(best if best.exists() else folder / states.LAST)[0], {"network": network})


def by_class(network: Network, test: Domain, device: Any = "cpu") -> dict[str, tuple[float, float]]:
    """Accuracy and precision of each class that a labelled set has, and their means; in per cent, by name."""
    y = test.labels(np.arange(len(test))).numpy()
    predicted = predict(network, test, device)[1].argmax(1).numpy()
    scores = np.stack(class_scores(predicted, y, len(test.classes)), axis=1)
    there = ~np.isnan(scores[:, 0])
    found = {f"class {name}": score for name, score, known in zip(test.classes, scores, there, strict=True) if known}
    found["mean of classes"] = scores[there].mean(axis=0)
    return {name: (float(accuracy), float(precision)) for name, (accuracy, precision) in found.items()}


def class_tables(folder: Path) -> list[Table]:
    """What `write_classes` has written; no table without labels of the target."""
    path = folder / "classes.json"
    if not path.exists():
        return []
    table = Table("target", "accuracy, %", "precision, %", title="The kept checkpoint")
    for name, scores in json.loads(path.read_text()).items():
        table.add_row(name, *(f"{score:.2f}" for score in scores))
    return [table]


def summary(record: Record, config: Config, folder: Path) -> Table:
    """What each rule of selection would have kept."""
    title = f"{config.source} to {config.target}, {record.rows[-1]['phase']}"
    table = Table("checkpoint", "iteration", "source, %", "target, %", title=title)
    for name, row in {**{rule: record.chosen(rule) for rule in RULES}, "last": record.rows[-1]}.items():
        if row:
            shown = [f"{row[f'{part}_accuracy']:.2f}" if f"{part}_accuracy" in row else "-" for part in SETS]
            table.add_row(name + (" (kept)" if name == config.select else ""), str(row["iteration"]), *shown)
    table.caption = f"Kept: the best by {RULES[config.select].meaning}. Written to {folder}"
    return table


def sent(folder: Path) -> list[Table]:
    """The mass that each class of the source sends, where the method of a run transports."""
    if not (folder / MASSES).exists():
        return []
    masses = ClassMasses.read(folder / MASSES)
    table = Table("class of the source", masses.columns[1], "mass sent", title="What transport takes from each class")
    for name, has, mass in zip(masses.classes, masses.present, masses.sent, strict=True):
        table.add_row(name, "yes" if has else "no", f"{mass:.4f}")
    if not masses.present.all():
        lacking = "no point of the target is predicted to have" if masses.predicted else "the target lacks"
        table.caption = f"Classes that {lacking} send {100 * masses.absent:.1f} % of all mass."
    return [table]


def evaluate(
    folder: str | Path, data: str | Path | None = None, which: str = "best", workers: int = 1, progress: bool = False
) -> Table:
    """The accuracy of a run's checkpoint, all in all; the accuracy and precision class by class."""
    folder = Path(folder)
    if not (folder / runs.CONFIG).exists():
        lacks = f"It has no {runs.CONFIG}" if folder.is_dir() else "There is no such folder"
        raise FileNotFoundError(f"{folder} must be the folder of a run of `spadeful adapt`. {lacks}.")
    config = read_config(folder / runs.CONFIG, {})
    checkpoint = folder / {"best": states.BEST, "last": states.LAST}[which]
    if not checkpoint.exists():
        if not (folder / states.LAST).exists():
            raise FileNotFoundError(f"{folder} has no checkpoint yet. Go on with its run by `spadeful adapt --resume`.")
        raise ValueError(f"{folder} has no best checkpoint by the rule {config.select}. Pass --last for the last one.")
    pair = domains_of(config, data, workers, progress)
    network = build(config, pair, progress)
    tensors, _ = states.read(checkpoint)
    states.unpack(tensors, {"network": network})
    found = measure(network, {"source": pair.source_test, "target": pair.target_test})
    table = Table("set", "accuracy, %", "precision, %", title=f"{folder}, {which} checkpoint")
    for name in SETS:
        if f"{name}_accuracy" in found:
            table.add_row(name, f"{found[f'{name}_accuracy']:.2f}")
    if pair.target_test.y is not None:
        for name, scores in by_class(network, pair.target_test).items():
            table.add_row(f"target, {name}", *(f"{score:.2f}" for score in scores))
    return table


def listing() -> tuple[Table, ...]:
    """The methods, the rules of selection and the sets of data that there are."""
    methods, rules, sets = Table("method", "what it is"), Table("select", "what the best checkpoint has"), Table("data")
    for name, method in METHODS.items():
        methods.add_row(name, method.meaning)
    for name, rule in RULES.items():
        rules.add_row(name, f"{'most' if rule.sign > 0 else 'least'} of {rule.meaning}")
    for name in NAMES:
        sets.add_row(name)
    return methods, rules, sets


def show(*tables: Table) -> None:
    for table in tables:
        terminal().print(table)
