"""The benchmarks run, check every answer, and write what they measured."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parents[1] / "benchmarks" / "run.py"
NEEDED = ["ot", "lap", "matplotlib", "psutil"]
ADAPTING = ["torch", "lightning_fabric", "sklearn", "safetensors"]
OTHERS = ["geomloss", "jax", "ott", "torch"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"needs all of {', '.join(NEEDED)}"),
]


def bench(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        RUN,
        "--quick",
        "--families",
        "uniform",
        "--sizes",
        "8",
        "16",
        "--output",
        folder,
    ]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)


def quick_results(name: str, folder: Path) -> dict[str, Any]:
    """What a script finds of the smallest problems."""
    command = [sys.executable, RUN.with_name(f"{name}.py"), "--quick", "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def test_smallest_run_measures_everything(tmp_path):
    done = bench(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Goals" in done.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["exact.json", "exact.png"]
    results = json.loads((tmp_path / "exact.json").read_text())
    assert results.keys() == {
        "machine", "families", "sizes", "masses", "grid", "path", "batch", "memory", "exponents", "goals",
    }  # fmt: skip
    assert len(results["grid"]) == 2 * 4
    for cell in results["grid"]:
        assert cell["notes"] == {}, "a solver failed, or two of them disagree"
        assert cell["relative_gap"] <= 1e-9
        assert min(cell["seconds"].values()) > 0
        assert cell["ratio"] == pytest.approx(cell["seconds"][cell["rival"]] / cell["seconds"]["spadeful"])
    assert all(set(goal) == {"goal", "bound", "figure", "at", "reached"} for goal in results["goals"])


def test_results_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "exact.json").write_text("kept")
    done = bench(tmp_path)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (tmp_path / "exact.json").read_text() == "kept"


def test_mini_batches_are_measured_and_documented(tmp_path):
    def call(script: str, *options: object) -> None:
        done = subprocess.run(
            [sys.executable, RUN.with_name(script), *options], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    call("minibatch.py", "--quick", "--output", tmp_path)
    results = json.loads((tmp_path / "minibatch.json").read_text())
    assert results["quick"]
    assert len(results["goals"]) == 6
    assert all(goal["reached"] is not None for goal in results["goals"])
    large = results["large"]
    assert 0 < large["memory"] < 2**30
    assert all(0 < share < 1 for share in large["share"].values())
    assert large["one thread"]["value"] == large["two threads"]["value"], "threads change nothing"
    for case in results["errors"]["over k"]:
        for what in ("value", "plan"):
            assert case[what][-1] < case[what][0] / 2, "more pairs come closer"
    (tmp_path / "pictures").mkdir()
    page = (RUN.parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
    (tmp_path / "scale.md").write_text(page, encoding="utf-8")
    for _ in range(2):
        call("scale.py", "--results", tmp_path, "--docs", tmp_path)
        again = (tmp_path / "scale.md").read_text(encoding="utf-8")
        assert again.splitlines()[:5] == page.splitlines()[:5]
        assert again.splitlines()[-3:] == page.splitlines()[-3:]
        assert f"{large['n']:,} points" in again
        assert len(again) < 2 * len(page)
    assert (tmp_path / "pictures" / "minibatch.png").stat().st_size > 10_000


def test_lines_are_measured_and_agree(tmp_path):
    results = quick_results("sliced", tmp_path)
    assert len(results["lines"]) == 8
    for case in results["lines"]:
        assert "10000" in case["seconds"]["every mass"]
        assert min(spent for each in case["seconds"].values() for spent in each.values()) > 0
    assert len(results["goals"]) == 4


@pytest.mark.torch
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ADAPTING)), reason=f"needs all of {', '.join(ADAPTING)}")
def test_iterations_of_adaptation_are_split_into_their_parts(tmp_path):
    results = quick_results("adapt", tmp_path)
    assert results.keys() == {"machine", "quick", "real data", "iterations", "goals"}
    assert [found["threads"] for found in results["iterations"]] == [1, 2]
    for found in results["iterations"]:
        assert found["split"].keys() == {"m-OT", "m-POT", "m-UOT"} == found["share"].keys()
        for name, parts in found["split"].items():
            assert parts.keys() == {"network", "cost", "solver", "transfer"}
            assert min(parts.values()) >= 0
            assert sum(parts.values()) <= 1.001 * found["seconds"][name], "the parts make up the iteration"
    assert all(set(goal) == {"goal", "bound", "figure", "at", "reached"} for goal in results["goals"])
    assert len(results["goals"]) == 6


@pytest.mark.torch
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ADAPTING)), reason=f"needs all of {', '.join(ADAPTING)}")
def test_problems_of_two_stages_are_timed_in_their_parts(tmp_path):
    results = quick_results("two_stages", tmp_path)
    (problem,) = results["problems"]
    assert problem["cost"] + problem["solver"] <= problem["problem"] + 0.02
    assert [set(goal) for goal in results["goals"]] == 2 * [{"goal", "bound", "figure", "at", "reached"}]


@pytest.mark.torch
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ADAPTING)), reason=f"needs all of {', '.join(ADAPTING)}")
def test_adaptation_is_set_beside_skada_where_it_is_installed(tmp_path):
    results = quick_results("beside", tmp_path)
    assert {"source-only", "m-OT", "DANN"} <= results["means"].keys()
    if "skada DeepJDOT" in results["means"]:
        (task,) = results["tasks"]
        assert task["found"]["m-OT"]["accuracy"] == task["found"]["skada DeepJDOT"]["accuracy"], "they are one method"


@pytest.mark.torch
@pytest.mark.skipif(not importlib.util.find_spec("lightning_fabric"), reason="needs lightning_fabric")
def test_iterations_of_generators_are_split_into_their_parts(tmp_path):
    results = quick_results("generate", tmp_path)
    assert [found["method"] for found in results["cases"]] == ["m-OT", "m-POT"]
    for found in results["cases"]:
        parts = [found[part] for part in ("networks", "cost", "solver")]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(found["seconds"])
    share, score = results["goals"]
    assert share["figure"] == max(found["share"] for found in results["cases"])
    assert score["figure"] == results["score"]["seconds"] > 0


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, OTHERS)),
    reason=f"needs all of {', '.join(OTHERS)}: the environment that make rivals sets up",
)
def test_other_libraries_solve_the_same_problems(tmp_path):
    results = quick_results("others", tmp_path)
    cases = {case["case"]: case for case in results["cases"]}
    for name, case in cases.items():
        libraries = {who.split(",")[0] for who in case["seconds"]}
        assert libraries | case["notes"].keys() == {"spadeful", "OTT-JAX", "GeomLoss"}, name
        assert not any("off by" in note for note in case["notes"].values()), case["notes"]
        for who in libraries - {"GeomLoss"}:
            assert case["errors"][who]["marginal"] <= 2e-6
        if "GeomLoss" in libraries:
            coarse, fine = (case["errors"][who]["plan"] for who in ("GeomLoss", "GeomLoss, scaling 0.99"))
            assert fine < coarse / 5, "a finer schedule comes closer to the optimum of this very problem"
