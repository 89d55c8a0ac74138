"""A bar with an estimate on a terminal, or what is waited for; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A function that says how much more is done."""
    if not wanted:
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)


@contextmanager
def waiting(title: str, wanted: bool) -> Iterator[None]:
    """Says what is waited for, and how long already: weights may have to come over a slow network."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal)) as shown:
        shown.add_task(title, total=None)
        yield
