"""Checkpoints: everything that a run needs to go on, in one safetensors file that is there whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from spadeful.files import replacing

LAST, BEST = "last.safetensors", "best.safetensors"


def pack(parts: dict[str, nn.Module], optimizer: Optimizer) -> dict[str, Tensor]:
    """Weights, the optimiser's memory and the random state, as tensors with names."""
    tensors = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    for number, memory in optimizer.state_dict()["state"].items():
        for key, value in memory.items():
            tensors[f"optimizer.{number}.{key}"] = torch.as_tensor(value)
    tensors["random"] = torch.get_rng_state()
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def unpack(tensors: dict[str, Tensor], parts: dict[str, nn.Module], optimizer: Optimizer | None = None) -> None:
    """Put back what `pack` took."""
    for name, part in parts.items():
        prefix = f"{name}."
        part.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    if optimizer is None:
        return
    memory: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            memory.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": memory, "param_groups": optimizer.state_dict()["param_groups"]})
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
        probe = self.path / ".probe"
        try:
            probe.write_bytes(b"0")
            probe.unlink()
        except OSError as error:
            raise OSError(f"{self.path} must be a folder that can be written to: {error}") from None
        self._lock = (self.path / ".lock").open("w")
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
