"""Reading files, whose damage is told in a line, and writing results: never half, never over an earlier one unasked."""

from __future__ import annotations

import json
import os
import secrets
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

#: What the readers of damaged files raise.
DAMAGE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, OSError, SyntaxError, struct.error, zlib.error),
    # zipfile's, the latter two of a password or a compression that only damage asks for, and NumPy's, of a header
    *(zipfile.BadZipFile, RuntimeError, NotImplementedError, tokenize.TokenError),
)


def check_free(path: str | Path, force: bool = False) -> Path:
    """The path, if a result may be written there: asked before the work is done, not after."""
    path = Path(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} must be a folder. There is a file of that name.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{folder} must be a folder that can be written to. Choose another place for {path.name}."
        )
    if path.is_dir():
        raise IsADirectoryError(f"The output must be a file. Got the folder {path} instead; name a file in it.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists. Choose another name, or pass force=True (--force) to replace it.")
    return path


def check_apart(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write to one file twice, or over what is read."""
    taken = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in taken:
            raise ValueError(
                "Every output must have a file of its own, none of them an input. "
                f"Got {path} twice; choose another name."
            )
        taken.add(path.resolve())


def check_outside(folder: Path, inputs: Iterable[str | Path]) -> None:
    """Refuse to write into a folder of images that is read: they would be among them when it is read again."""
    for path in map(Path, inputs):
        if path.is_dir() and path.resolve() in (folder.resolve(), *folder.resolve().parents):
            raise ValueError(f"{folder} must not lie in {path}, whose images are read. Choose another folder.")


@contextmanager
def replacing(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A temporary file beside the path, renamed to it when the block ends well.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "plan.txt")) as temporary:
    ...         _ = temporary.write_text("done")
    ...     Path(folder, "plan.txt").read_text()
    'done'
    """
    path = check_free(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem[:32]}-{secrets.token_hex(6)}{path.suffix}")
    # Not by tempfile, whose files only their owner can read.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    mode = temporary.stat().st_mode
    try:
        yield temporary
        if temporary.stat().st_mode != mode:  # some write a file of their own in its place
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[None]:
    """Say of a file that cannot be read what it has to be."""
    try:
        yield
    except FileNotFoundError as missing:
        if missing.errno is None:  # it has words of its own
            raise
        raise FileNotFoundError(f"{path} must be {what}. There is no such file.") from None
    except DAMAGE as error:
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "pickle" in why or "Python objects" in why:  # NumPy would say how to load them all the same
            why = "it holds Python objects, which are not loaded"
        raise ValueError(f"{path} must be {what}. It cannot be read: {why}.") from error


@contextmanager
def opened_npz(path: str | Path) -> Iterator[Any]:
    """The arrays of an archive that `numpy.savez` wrote. Nothing in it can run code."""
    with Path(path).open("rb") as file:  # NumPy leaves a file open that it opened and could not read
        if not zipfile.is_zipfile(file):
            raise ValueError("it is no archive, or a part of one")
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def read_settings(path: str | Path) -> dict[str, Any]:
    """Settings by name from a file of TOML or JSON."""
    path = Path(path)
    try:
        if path.suffix == ".json":
            found = json.loads(path.read_text(encoding="utf-8"))
        elif sys.version_info >= (3, 11):
            import tomllib

            found = tomllib.loads(path.read_text(encoding="utf-8"))
        else:
            raise ValueError("TOML needs Python 3.11; write the settings as JSON")
        if not isinstance(found, dict):
            raise ValueError("it holds no settings by name")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} must be settings in TOML or JSON. There is no such file.") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} must be settings in TOML or JSON. It cannot be read: {error}") from None
    return found
