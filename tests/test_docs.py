"""The Python in the README and in the docs runs, what they point to is there, and no public name is left out."""

import importlib
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
#: Pages whose sections need nothing of each other: each is run alone, where what it imports is installed.
IN_SECTIONS = {"moving.md"}

#: Libraries whose warnings are their own.
OTHERS = r"(geomloss|jax|jaxopt|ot|ott|skada|torchcfm)\b"

SECTION = re.compile(r"^(?=## )", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
OPTIONAL = re.compile(r"\bspadeful\.(adapt|generate)\b")
TABLE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
IN_REPOSITORY = re.compile(r"\b(?:benchmarks|core|docs|examples|reproduce|src|tests)/[\w./*-]*[\w*]")
DOCUMENTED = re.compile(r"^\.\. auto(?:class|function|exception|data):: (spadeful[\w.]*)\.(\w+)$", re.MULTILINE)


def runs(page: Path) -> list:
    """The blocks of a page or of each of its sections, each with the number of the line before its first."""
    text = page.read_text(encoding="utf-8")
    found, start = [], 0
    for part in SECTION.split(text) if page.name in IN_SECTIONS else [text]:
        blocks = [(text.count("\n", 0, start + block.start(1)), block[1]) for block in BLOCK.finditer(part)]
        title = f"{page.name}, {part.splitlines()[0].strip('# ')}" if page.name in IN_SECTIONS else page.name
        found += [pytest.param(page, blocks, id=title)] if blocks else []
        start += len(part)
    return found


@pytest.mark.parametrize(("page", "blocks"), [run for page in PAGES for run in runs(page)])
def test_blocks_run_in_order(page, blocks, tmp_path, monkeypatch):
    """Later blocks see the names of earlier ones; files they write go to a folder of their own."""
    for line, block in blocks:
        for package in [*IMPORT.findall(block), *(["torch"] if OPTIONAL.search(block) else [])]:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{page.name}, line {line}: {package} is not installed")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    warnings.filterwarnings("ignore", module=OTHERS)
    for line, block in blocks:
        # Blank lines in front give a traceback the page's own line numbers.
        exec(compile("\n" * line + block, page, "exec"), names)


def test_readme_shows_python():
    assert runs(ROOT / "README.md")


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"https?:|#", link):
            continue
        path = link.split("#")[0]
        # The gallery is made of the examples when the documentation is built.
        example = re.fullmatch(r"gallery/(\w+)\.(?:rst|md)", path)
        target = ROOT / "examples" / f"{example[1]}.py" if example else page.parent / path
        assert path == "gallery/index.rst" or target.exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page):
    for name in set(IN_REPOSITORY.findall(page.read_text(encoding="utf-8"))):
        made = name.startswith(("docs/_build", "docs/gallery"))
        assert made or list(ROOT.glob(name)), f"{page.name}: {name}"


def test_every_page_is_in_the_table_of_contents():
    tables = TABLE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    listed = [entry.split("<")[-1].strip("> ") for table in tables for entry in table.splitlines()]
    listed = [entry for entry in listed if entry and not entry.startswith(":")]
    assert sorted(listed) == sorted({"gallery/index", *(page.stem for page in DOCS.glob("*.md"))} - {"index"})


def documented() -> dict[str, list[str]]:
    """The names on the page of the API, by their modules."""
    names: dict[str, list[str]] = {}
    for module, name in DOCUMENTED.findall((DOCS / "api.md").read_text(encoding="utf-8")):
        names.setdefault(module, []).append(name)
    return names


@pytest.mark.parametrize("module", ["spadeful", "spadeful.adapt"])
def test_public_names_are_documented(module):
    if module != "spadeful":
        for needed in ("torch", "lightning_fabric", "sklearn"):
            pytest.importorskip(needed)
    public = set(importlib.import_module(module).__all__) - {"__version__"}
    assert sorted(documented()[module]) == sorted(public)


def test_functions_of_bounds_are_documented():
    from spadeful import bounds

    public = {name for name, value in vars(bounds).items() if getattr(value, "__module__", "") == "spadeful.bounds"}
    assert sorted(documented()["spadeful.bounds"]) == sorted(name for name in public if not name.startswith("_"))


def test_documented_names_exist():
    """Those of the modules whose names are not all documented; `spadeful` and `spadeful.adapt` are compared above."""
    for module, names in documented().items():
        if module.startswith("spadeful.generate") and importlib.util.find_spec("torch") is None:
            continue
        if module not in ("spadeful", "spadeful.adapt"):
            for name in names:
                assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize(("script", "page"), [("readme", "README.md"), ("summary", "docs/benchmarks.md")])
def test_figures_are_those_that_were_measured(script, page, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / page).write_bytes((ROOT / page).read_bytes())
    command = [sys.executable, ROOT / "benchmarks" / f"{script}.py", "--docs", tmp_path / "docs"]
    subprocess.run(command, check=True, timeout=60)
    assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / page).read_text(encoding="utf-8"), (
        f"run benchmarks/{script}.py"
    )
