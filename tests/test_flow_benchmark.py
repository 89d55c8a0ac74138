"""The benchmark of gradient flows runs, checks its rival's points, and fills the page."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ["ot", "lap", "matplotlib", "psutil"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"needs all of {', '.join(NEEDED)}"),
]


def test_flows_are_measured_and_documented(tmp_path):
    def call(script, *options):
        command = [sys.executable, ROOT / "benchmarks" / script, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr

    call("flow.py", "--quick", "--output", tmp_path)
    results = json.loads((tmp_path / "flow.json").read_text())
    assert results["quick"]
    assert all(goal["reached"] is not None for goal in results["goals"])
    assert all(race["away"] < 1e-9 for race in results["races"]), "both loops end at the same points"
    page = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")
    (tmp_path / "flow.md").write_text(page, encoding="utf-8")
    for _ in range(2):
        call("flow_page.py", "--results", tmp_path, "--docs", tmp_path)
        again = (tmp_path / "flow.md").read_text(encoding="utf-8")
        assert again.splitlines()[:5] == page.splitlines()[:5]
        assert f"after {results['steps']:,} steps" in again
        assert again.count("<!-- measured -->") == page.count("<!-- measured -->") == 8
