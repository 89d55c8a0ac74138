"""Reading settings, and writing results: never half a file, never over an earlier one unasked."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} must be settings in TOML or JSON. It cannot be read: {error}") from None
    return found
