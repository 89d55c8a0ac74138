"""Every example runs, and ends in a picture."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="examples draw pictures")

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))
NEEDS = re.compile(r"^(?:import|from) (sklearn|torch)\b", re.MULTILINE)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_ends_in_a_picture(example, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for package in NEEDS.findall(example.read_text(encoding="utf-8")):
        pytest.importorskip(package)
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.extend(pyplot.get_fignums()))
    try:
        runpy.run_path(str(example))
        assert len(shown) == 1
        assert all(axes.has_data() for axes in pyplot.figure(shown[0]).axes)
    finally:
        pyplot.close("all")
