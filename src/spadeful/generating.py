"""From a config to a generator in a folder, and from there to images: what `spadeful generate` does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from spadeful.adapt.call import device_named
from spadeful.batches import check_count, check_seed
from spadeful.files import check_free, check_outside, replacing
from spadeful.generate.config import METHODS, Config
from spadeful.generate.data import MOST_BYTES, NAMES, Images, check_batch_size, read_images
from spadeful.generate.features import Features
from spadeful.generate.networks import FeatureNetwork, Generator
from spadeful.generate.samples import as_bytes, generated, noise, ways, write_sheet
from spadeful.generate.score import Score, cache_folder, reference
from spadeful.generate.train import Training, train
from spadeful.progress import waiting
from spadeful.training import runs, states
from spadeful.training.record import Record

#: Sheets while training: images, and images in a row. Sheets of interpolations: ways, and images on each.
SHOWN, COLUMNS = 64, 8
WAYS, STEPS = 8, 10


def build(config: Config, images: Images) -> tuple[Generator, FeatureNetwork]:
    torch.manual_seed(config.seed)
    width = config.width
    return Generator(images.shape, config.latent, width), FeatureNetwork(images.shape, width)


def run(
    config: Config,
    folder: str | Path,
    *,
    data: str | Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    precision: str = "32-true",
    progress: bool = False,
    workers: int = 1,
) -> Record:
    """Train as the config says; the folder gets the config, checkpoints, logs, sheets of samples and the result."""
    folder = Path(folder)
    check_outside(folder, {config.data} - {*NAMES})
    runs.check_folder(folder, config, resume)
    images = read_images(config.data, data, size=config.image_size, workers=workers, progress=progress)
    check_batch_size(config.batch_size, images)
    generator, features = build(config, images)
    score = scorer(config, images, device, progress)
    fabric = runs.start(folder, config, device, precision, devices=1)
    shown, looked_at = noise(SHOWN, config.latent, config.seed), noise(config.score_images, config.latent, config.seed)

    def evaluate(iteration: int) -> dict[str, float]:
        sheet = torch.cat(list(generated(generator, shown)))
        write_sheet(folder / "samples" / f"{iteration:06}.png", sheet, COLUMNS, force=True)
        return {} if score is None else {"score": score(generated(generator, looked_at))}

    with runs.kept_so_far(folder):
        record = train(
            generator,
            features,
            images,
            config.build_method(),
            Training(config.iterations, config.lr, (config.beta1, config.beta2), config.evaluate_every, config.seed),
            batch_size=config.batch_size,
            latent=config.latent,
            evaluate=evaluate,
            folder=folder,
            resume=resume,
            fabric=fabric,
            progress=progress,
        )
    generator = read_generator(folder)
    on_the_way = generated(generator, ways(generator.latent, WAYS, STEPS, config.seed))
    write_sheet(folder / "interpolation.png", torch.cat(list(on_the_way)), STEPS, force=True)
    result = {"score": score.name if score else None, "best": record.best, "last": record.rows[-1]}
    with replacing(folder / "result.json", force=True) as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")
    return record


def scorer(config: Config, images: Images, device: str, progress: bool) -> Score | None:
    """The score that a config asks for."""
    if not config.score:
        return None
    with waiting(f"loading {config.score}", progress):
        features = Features.load(config.score, device_named(device))
    return Score(features, reference(features, images, cache_folder(), progress))


def read_generator(folder: str | Path, last: bool = False) -> Generator:
    """The generator of a run's best checkpoint; of its last where no score was taken, or if asked for."""
    folder = Path(folder)
    paths = [folder / name for name in (states.BEST, states.LAST)][last:]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise FileNotFoundError(f"{folder} must be the folder of a run of `spadeful generate`. It has no checkpoint.")
    try:
        return Generator.of(states.part(states.read(path)[0], "generator"))
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path} must hold a generator of `spadeful generate`. It does not: {error}") from None


def sample(
    folder: str | Path, output: str | Path, n: int = 64, *, seed: int = 0, last: bool = False, force: bool = False
) -> Path:
    """Write new images: side by side in a .png, or as the array x (n, H, W, C) of bytes in an .npz."""
    output = check_free(output, force)
    ending = output.suffix.lower()
    if ending not in (".png", ".npz"):
        raise ValueError(f"The output must end in .png or .npz. Got {output.name!r} instead.")
    check_count(n, "n")
    check_seed(seed)
    batches = drawn(read_generator(folder, last), n, seed)
    if ending == ".png":
        write_sheet(output, torch.cat(list(batches)), columns_of(n), force)
    else:
        with replacing(output, force) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, x=np.concatenate([as_bytes(batch) for batch in batches]))
    return output


def drawn(generator: Generator, n: int, seed: int) -> Iterator[Tensor]:
    """So many new images, some at a time; refused if all of them do not fit the memory."""
    most = MOST_BYTES // (4 * int(np.prod(generator.shape)))
    if n > most:
        raise ValueError(
            f"The number of images must be at most {most}, to fit in {MOST_BYTES / 1e9:.0f} GB of memory. "
            f"Got {n} instead."
        )
    return generated(generator, noise(n, generator.latent, seed))


def columns_of(n: int) -> int:
    """As many as rows, or some more.

    >>> columns_of(64), columns_of(10)
    (8, 4)
    """
    return int(np.ceil(np.sqrt(n)))


def summary(record: Record, config: Config, folder: Path) -> Table:
    table = Table(
        "checkpoint", "iteration", "loss", "score", "s / iteration", title=f"{config.data}, {record.rows[-1]['phase']}"
    )
    for name, row in (("best score", record.best), ("last", record.rows[-1])):
        if row:
            score = f"{row['score']:.4g}" if "score" in row else "-"
            table.add_row(name, str(row["iteration"]), f"{row['loss']:.4g}", score, f"{row['seconds']:.3f}")
    table.caption = f"Written to {folder}"
    return table


def listing() -> tuple[Table, ...]:
    """The methods and the sets of images that there are."""
    methods, sets = Table("method", "what it is"), Table("data")
    for name, meaning in METHODS.items():
        methods.add_row(name, meaning)
    for name in NAMES:
        sets.add_row(name)
    return methods, sets
