"""The Python in the README and in the docs runs as printed."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONAL = re.compile(r"^\s*(?:import|from) (torch|sklearn|matplotlib|spadeful\.adapt)\b", re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """List the Python blocks of a page, each with the number of the line before its first."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_blocks_run_in_order(page, tmp_path, monkeypatch):
    """Later blocks of a page see the names of earlier ones; files they write go to a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for line, block in blocks(page):
        for name in OPTIONAL.findall(block):
            package = "torch" if name == "spadeful.adapt" else name
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{page.name}, line {line}: {package} is not installed")
        # Blank lines in front give a traceback the page's own line numbers.
        exec(compile("\n" * line + block, page, "exec"), names)


def test_readme_shows_python():
    assert blocks(ROOT / "README.md")
