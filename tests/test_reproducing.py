"""Experiments: the runs that a file names, done once each, and what they came to."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spadeful.cli import app

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from spadeful.adapt.config import METHODS  # noqa: E402
from spadeful.adapting import run  # noqa: E402
from spadeful.figures import LOOKS  # noqa: E402
from spadeful.reproducing import CHECKPOINTS, read_experiment, reproduce, summary  # noqa: E402
from spadeful.training import states  # noqa: E402

SMALL = """
title = "Three classes in the plane"

[settings]
batch_size = 12
bottleneck = 4
lr = 0.05
warmup = 4
iterations = 400
evaluate_every = 2

[task.there]
source = "features.npz:a"
target = "features.npz:b"
mass = 0.7

[task.back]
source = "features.npz:b"
target = "features.npz:a"

[[runs]]
task = ["there", "back"]
method = ["m-pot", "m-ot"]
seed = [0, 1]

[short]
iterations = 4

[[short.runs]]
task = ["there"]
method = ["m-pot", "m-ot"]
seed = [0, 1]

[paper]
"there,m-pot" = 99.5
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y, domain = np.tile(np.arange(30) % 3, 2), np.repeat([0, 1], 30)
    x = np.array([[0, 0], [6, 0], [0, 6]])[y] + rng.normal(size=(60, 2)) + 2 * domain[:, None]
    np.savez("features.npz", x=x.astype(np.float32), y=y, domain=domain, domain_names=np.array(["a", "b"]))
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_a_grid_is_all_combinations_and_short_settings_win(folder):
    full, short = (read_experiment("small.toml", length) for length in ("full", "short"))
    assert len(full.runs) == 8
    assert list(short.runs) == [f"there,{method},seed={seed}" for method in ("m-pot", "m-ot") for seed in (0, 1)]
    assert full.runs["there,m-pot,seed=1"].iterations == 400
    chosen = short.runs["there,m-pot,seed=1"]
    assert (chosen.iterations, chosen.mass, chosen.seed, chosen.method) == (4, 0.7, 1, "m-pot")


def test_a_shared_warm_up_leads_to_the_weights_of_a_run_alone(folder):
    experiment = read_experiment("small.toml")
    results = reproduce(experiment, "runs")
    assert len(list(Path("runs/warm-ups").iterdir())) == 2  # one a seed
    assert [each["name"] for each in results["runs"]] == list(experiment.runs)
    name, config = list(experiment.runs.items())[1]
    record = run(config, "alone", picture=False)
    together, alone = (states.read(Path(place, states.LAST))[0] for place in (f"runs/{name}", "alone"))
    assert together.keys() == alone.keys()
    assert all((together[key] == alone[key]).all() for key in alone)
    best = results["runs"][1]["oracle"]
    assert best["target_accuracy"] == record.chosen("oracle")["target_accuracy"]
    assert best["phase"] == "m-POT"  # not the warm-up


def test_the_command_goes_on_and_gathers(folder):
    command = ["reproduce", "small.toml", "-o", "results.json", "--runs", "runs"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    first = json.loads(Path("results.json").read_text())
    assert first["missing"] == 0
    assert len(first["runs"]) == 4
    assert "99.50" in done.output
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    Path("runs/there,m-ot,seed=1/result.json").unlink()
    again = CliRunner().invoke(app, [*command, "--force"])
    assert again.exit_code == 0, again.output
    second = json.loads(Path("results.json").read_text())
    for one, other in zip(first["runs"], second["runs"], strict=True):
        assert one["oracle"] | {"seconds": 0} == other["oracle"] | {"seconds": 0}


def test_a_target_without_labels_has_no_accuracy(folder):
    with np.load("features.npz") as arrays:
        np.savez("unlabelled.npz", x=arrays["x"][30:])
    Path("small.toml").write_text(SMALL.replace('target = "features.npz:b"', 'target = "unlabelled.npz"'))
    done = CliRunner().invoke(app, ["reproduce", "small.toml", "-o", "results.json", "--runs", "runs"])
    assert done.exit_code == 0, done.output
    row = next(line for line in done.output.splitlines() if "there, m-pot" in line)
    assert [cell.strip() for cell in row.split("\u2502")][3:-2] == ["-"] * len(CHECKPOINTS)


def test_runs_that_are_not_done_are_said_to_be_missing(folder):
    experiment = read_experiment("small.toml")
    reproduce(experiment, "runs")
    Path("runs/there,m-ot,seed=1/result.json").unlink()
    from spadeful.reproducing import gather

    results = gather(experiment, Path("runs"))
    assert results["missing"] == 1
    assert "1 runs" in str(summary(results).caption)


@pytest.mark.parametrize("name", ["log.json", "result.json", "classes.json", "masses.csv"])
@pytest.mark.parametrize("text", ["", "[]"])
def test_damaged_files_of_a_run_are_named(folder, name, text):
    from spadeful.reproducing import gather

    experiment = read_experiment("small.toml")
    reproduce(experiment, "runs")
    damaged = Path("runs/there,m-pot,seed=0", name)
    assert damaged.exists()
    damaged.write_text(text)
    with pytest.raises(ValueError, match=f"{damaged} must be as its run wrote it, or the folder be removed"):
        gather(experiment, Path("runs"))


def test_other_settings_in_the_folder_are_refused(folder):
    reproduce(read_experiment("small.toml"), "runs")
    Path("small.toml").write_text(SMALL.replace("iterations = 4\n", "iterations = 6\n"))
    with pytest.raises(ValueError, match="other settings"):
        reproduce(read_experiment("small.toml"), "runs")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 'x'", "must hold title, settings and runs"),
        (SMALL.replace("lr = 0.05", "lr = -1"), "lr and head_lr must be above 0"),
        (SMALL.replace("lr = 0.05", "speed = 1"), "Got speed too"),
        (SMALL + "\n[shrt]\niterations = 2", "shrt"),
        (SMALL.replace('task = ["there"]', 'task = ["here"]'), "here,m-pot,seed=0 cannot: .* no .task.here."),
        (SMALL.replace('"m-ot"', '"m-xot"'), "small.toml must name .* there,m-xot,seed=0 cannot: method must be"),
    ],
)
def test_files_that_make_no_sense_are_refused(folder, text, message):
    Path("small.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_experiment("small.toml")


PARTIAL = """
title = "Two of three classes"

[settings]
target_classes = "0-1"
batch_size = 12
bottleneck = 4
lr = 0.05
warmup = 4
iterations = 4
evaluate_every = 2
mass = 0.4

[task.there]
source = "features.npz:a"
target = "features.npz:b"

[task.back]
source = "features.npz:b"
target = "features.npz:a"

[[runs]]
method = ["m-pot", "m-ot", "source-only"]
task = ["there", "back"]
seed = [0, 1]

[paper]
"m-pot,there" = 80.0
"m-pot,back" = 90.0
"m-ot,there" = 70.0
"""


def test_partial_targets_are_told_of_by_means_and_by_what_absent_classes_send(folder):
    pytest.importorskip("matplotlib")
    Path("partial.toml").write_text(PARTIAL)
    command = ["reproduce", "partial.toml", "-o", "results.json", "--runs", "runs"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    results = json.loads(Path("results.json").read_text())
    runs = {run["name"]: run for run in results["runs"]}
    assert runs["m-pot,there,seed=0"]["absent"] == ["2"]
    assert sum(runs["m-pot,there,seed=0"]["sent"].values()) == pytest.approx(0.4)
    assert list(runs["m-ot,back,seed=1"]["sent"].values()) == pytest.approx([1 / 3] * 3)
    assert "sent" not in runs["source-only,there,seed=0"]
    table = summary(results)
    shown = {row[0]: dict(zip((str(c.header) for c in table.columns), row, strict=True)) for row in rows_of(table)}
    assert {name for name in shown if name.startswith("mean")} == {
        f"mean of 2: {method}" for method in ("m-pot", "m-ot", "source-only")
    }
    row = shown["mean of 2: m-pot"]
    by_seed = [
        np.mean([runs[f"m-pot,{task},seed={seed}"]["density"]["target_accuracy"] for task in ("there", "back")])
        for seed in (0, 1)
    ]
    assert row["density"] == f"{np.mean(by_seed):.2f} ± {np.std(by_seed, ddof=1):.2f}"
    assert (row["paper"], row["seeds"]) == ("85.00", "2")
    assert shown["m-ot, there"]["paper"] == "70.00"
    assert shown["mean of 2: m-ot"]["paper"] == ""
    assert shown["mean of 2: m-ot"]["from absent classes, %"] == "33.3"
    assert shown["mean of 2: source-only"]["from absent classes, %"] == ""
    assert Path("results_masses.png").stat().st_size > 5000
    Path("results.json").unlink()
    Path("results.png").unlink()
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "results_masses.png" in refused.output


def test_every_method_has_a_look_of_its_own():
    looks = [LOOKS[method] for method in METHODS]
    assert len(set(looks)) == len(looks)
    partial = {"pada", "etn", "ba3us"}  # which no picture has beside other baselines
    rest = [LOOKS[method] for method in METHODS.keys() - partial]
    assert len({(colour, line) for colour, line, _ in rest}) == len(rest)


def rows_of(table):
    return list(zip(*(column.cells for column in table.columns), strict=True))
