"""What a terminal shows: text, a bar with an estimate, what is waited for. The last two are for terminals alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def terminal(**options: Any) -> Console:
    """A terminal on which the names of files and classes are printed as they are, brackets and all."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


@contextmanager
def progress_bar(title: str, total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A function that says how much more is done."""
    if not wanted:
        yield lambda amount: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    where = terminal(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=where, disable=not where.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)


@contextmanager
def waiting(title: str, wanted: bool) -> Iterator[None]:
    """Says what is waited for, and how long already: weights may have to come over a slow network."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    where = terminal(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=where, transient=True, disable=not (wanted and where.is_terminal)) as shown:
        shown.add_task(title, total=None)
        yield
