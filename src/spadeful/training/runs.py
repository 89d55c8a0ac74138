"""The folder of a run from its first moment: whose settings it holds, on which device, and how it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed
from lightning_fabric import Fabric

from spadeful.checkpoint import check_same_run
from spadeful.files import read_settings, replacing
from spadeful.training.loop import TrainingError
from spadeful.training.settings import check_names, to_json
from spadeful.training.states import BEST, LAST

CONFIG = "config.json"
#: What a run writes beside it.
RESULTS = (BEST, "log.csv", "log.json", "result.json", "run.png", "classes.json", "masses.csv", "masses.png", "samples",
           "interpolation.png")  # fmt: skip
#: Weights are kept in full precision: solvers and optimisers need it.
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


def check_folder(folder: Path, config: Any, resume: bool) -> None:
    """That a run with this config may be begun in the folder, or gone on with."""
    kept = folder / CONFIG
    if not kept.exists() and not (folder / LAST).exists():
        if taken := [name for name in RESULTS if (folder / name).exists()]:
            raise FileExistsError(f"{folder / taken[0]} exists, and is of no run. Choose another folder.")
        return
    if not resume:
        raise FileExistsError(f"{folder} holds a run. Pass --resume to go on with it, or choose another folder.")
    if not kept.exists():
        raise ValueError(
            f"{folder} must hold the settings of its run, {CONFIG}. It has none; put them back, or go on with it in "
            "Python, if it was begun there."
        )
    found = read_settings(kept)
    check_names(found, type(config), str(kept))
    check_same_run(folder, asdict(type(config)(**found)), asdict(config))


def start(folder: Path, config: Any, device: str, precision: str, **options: Any) -> Fabric:
    """The processes of a run, once its config is in the folder."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}. Got {precision!r} instead.")
    try:
        fabric = Fabric(accelerator=device, precision=precision, **(processes(device) | options))  # type: ignore[arg-type]
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"device and precision must be ones that there are. Got {device!r} and {precision!r} instead: {error}"
        ) from None
    fabric.launch()
    fabric.barrier()  # until all processes have seen whether the folder is free
    if fabric.is_global_zero and not (folder / CONFIG).exists():
        with replacing(folder / CONFIG) as temporary:
            temporary.write_text(to_json(config))
    return fabric


def processes(device: str) -> dict[str, Any]:
    """How many processes on how many machines: those that `torchrun` has started, or else one a GPU."""
    world, here = (int(os.environ.get(name, 0)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if world > 1 and here:
        return {"devices": here, "num_nodes": world // here, "strategy": "ddp"}
    return {"devices": 1 if device == "cpu" else "auto"}


def is_first() -> bool:
    """Whether this is the process that speaks, of those that share a run."""
    shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not shared or torch.distributed.get_rank() == 0


def part() -> None:
    """Let processes that shared a run go: one that ends with its group still there may be killed on the way out."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def kept_so_far(folder: Path) -> Iterator[None]:
    """Say of a run that stops how it goes on."""
    try:
        yield
    except TrainingError as error:
        raise ValueError(str(error)) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Run the same command with --resume to go on from what {folder} holds.") from None
