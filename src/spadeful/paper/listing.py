"""Lists of all tables and figures of the paper, and of the entries that reproduce them."""

from __future__ import annotations

from rich.table import Column, Table

from spadeful.paper.entries import DATA, KINDS, all_entries
from spadeful.paper.labels import LABELS, numbered


def listing() -> tuple[Table, Table]:
    """The tables and figures with their entries, and the entries with what they need."""
    entries = all_entries()
    paper = Table("paper", "shows", *folded("label", "entries"), title="The paper", title_justify="left")
    for label, shows in LABELS.items():
        names = [entry.name for entry in entries.values() if label in entry.labels]
        instead = [entry.name for entry in entries.values() if label in entry.stands_for]
        cell = ", ".join(names) or "none"
        paper.add_row(numbered(label), shows, label, cell + (f"; instead: {', '.join(instead)}" if instead else ""))
    needs = Table(*folded("entry"), "kind", "data", "CPU", "runs", "takes", title="The entries", title_justify="left")
    needs.caption = "Runs are those for a CPU, or else those of the paper. Times on a GPU are from the paper's own."
    for entry in entries.values():
        data = ", ".join(DATA[name].title for name in entry.needs)
        runs = entry.count("short" if entry.cpu else "full")
        cpu = "yes" if entry.cpu else "no"
        needs.add_row(entry.name, KINDS[entry.kind], data or "-", cpu, str(runs or "-"), entry.takes or "-")
    return paper, needs


def folded(*names: str) -> list[Column]:
    """Columns of names that are needed in full."""
    return [Column(name, overflow="fold") for name in names]
