"""Pages with measured figures: what stands between two marks is written anew."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
START, END = "<!-- measured -->\n", "<!-- /measured -->\n"


def write(page: Path, *sections: Sequence[str]) -> None:
    """The lines of each section, between the marks of a page in their order."""
    text, *rest = page.read_text(encoding="utf-8").split(START)
    for lines, piece in zip(sections, rest, strict=True):
        # Markdown wants a blank line behind the mark.
        text += START + "\n" + "\n".join(lines).strip("\n") + "\n" + END + piece.split(END)[1]
    page.write_text(text, encoding="utf-8")


def folders(description: str | None) -> argparse.Namespace:
    """Where the command line says results and documentation are."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", metavar="DIR")
    return parser.parse_args()
