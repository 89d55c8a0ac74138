"""Checkpoints: everything that a run needs to go on, in one safetensors file that is there whole or not at all."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from spadeful.checkpoint import differences
from spadeful.files import replacing

LAST, BEST = "last.safetensors", "best.safetensors"


def weights_of(modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}


def shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in tensors.items()}


def pack(modules: dict[str, nn.Module], optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
    """Weights, the optimisers' memory and the random state, as tensors with names."""
    tensors = weights_of(modules)
    for name, optimizer in optimizers.items():
        for number, memory in optimizer.state_dict()["state"].items():
            for key, value in memory.items():
                tensors[f"{name}.{number}.{key}"] = torch.as_tensor(value)
    tensors["random"] = torch.get_rng_state()
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """What `pack` named after a module or an optimiser."""
    return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}


def unpack(
    tensors: dict[str, Tensor], modules: dict[str, nn.Module], optimizers: dict[str, Optimizer] | None = None
) -> None:
    """Put back what `pack` took; of the modules alone, to use them. What is of other modules is refused untouched."""
    names = {*modules} if optimizers is None else {key.split(".")[0] for key in tensors} - {"random", *optimizers}
    found = {key: value for key, value in tensors.items() if key.split(".")[0] in names}
    changes = differences(shapes(found), shapes(weights_of(modules)))
    if changes:
        raise ValueError(
            f"The checkpoint must be of this network and method. It holds another, of other shapes: {changes[0]}. "
            "Choose another folder, or go on with what it was begun with."
        )
    for name, module in modules.items():
        module.load_state_dict(part(tensors, name))
    if optimizers is None:
        return
    for name, optimizer in optimizers.items():
        memory: dict[int, dict[str, Tensor]] = {}
        for key, value in part(tensors, name).items():
            number, what = key.split(".", 1)
            memory.setdefault(int(number), {})[what] = value
        optimizer.load_state_dict({"state": memory, "param_groups": optimizer.state_dict()["param_groups"]})
        for weights, kept in optimizer.state.items():  # in their layout: optimisers may walk through both at once
            for what, value in kept.items():
                if value.shape == weights.shape:
                    kept[what] = torch.empty_like(weights).copy_(value)
    torch.set_rng_state(tensors["random"])


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    with replacing(path, force=True) as temporary:
        save_file(tensors, temporary, metadata={"state": json.dumps(state)})


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint. Nothing in it can run code."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["state"])  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} must be a checkpoint of spadeful. It cannot be read: {error}") from None


def copy(source: Path, target: Path) -> None:
    """A real copy: the best checkpoint does not change when training goes on."""
    with replacing(target, force=True) as temporary:
        shutil.copyfile(source, temporary)


def room_for(*modules: nn.Module) -> int:
    """The bytes that the checkpoints of some modules take, with their optimisers, copies and logs."""
    weights = sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
    return 10 * weights + 1_000_000


class Folder:
    """The folder of one run, which one process may write to at a time."""

    def __init__(self, path: str | Path, room: int) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.path).free
        if free < room:
            raise OSError(
                f"{self.path} must have room for {room / 1e6:.0f} MB of checkpoints. It has {free / 1e6:.0f} MB."
            )
        probe = self.path / f".probe-{secrets.token_hex(6)}"
        try:
            probe.write_bytes(b"0")
            probe.unlink()
        except OSError as error:
            raise OSError(f"{self.path} must be a folder that can be written to: {error}") from None
        self._lock = (self.path / ".lock").open("a")
        try:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # there is no such lock on this system
            pass
        except OSError:
            self._lock.close()
            raise OSError(f"{self.path} is in use by another run. Wait for it, or choose another folder.") from None

    def close(self) -> None:
        self._lock.close()
