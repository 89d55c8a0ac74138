"""Every table and figure of the paper has an entry that runs, and the page about them says what the numbers say."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spadeful.cli import app
from spadeful.paper import kinds, selection
from spadeful.paper.claims import Claim, Verdict, judge, measured
from spadeful.paper.entries import all_entries, find_entries, read_entry
from spadeful.paper.labels import LABELS, numbered
from spadeful.paper.listing import listing
from spadeful.paper.report import as_html, page, read_results, told_by

if sys.version_info < (3, 11):
    pytest.skip("entries are TOML, which needs Python 3.11", allow_module_level=True)

#: As they follow in the paper's source.
TABLES = [
    *("DA_digits_summary", "DA_visda_summary", "DA_office_summary", "PDA_office_summary", "DA_digits_details"),
    *("DA_office_details", "DA_visda_details", "DA_efficient_office_detail", "DA_efficient_visda_detail"),
    *("VisDA_change_m", "PDA_office_details", "GM_details", "DA_digits_equi", "DA_visda_equi", "DA_office_equi"),
    *("GM_details_equi", "two_stage_timing", "DGM_timing"),
]
FIGURES = [
    *("mOT", "DA_s", "twostageDA", "conventionalDA", "mUOT", "mUOTscale", "mPOTscale", "nonoverlap"),
    *("OTmatrix_main", "POTmatrix_main", "tsne_digits", "tsne_visda", "ablation_studies_VisDA", "DGM_Cifar10"),
    *("DGM_CelebA", "colortransfer_main", "gradientflow_main", "deepDA_timing"),
]
ENTRIES = all_entries()
ADAPTED = [entry for entry in ENTRIES.values() if entry.kind == "adapt"]


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments])


def test_every_table_and_figure_has_an_entry_and_is_listed():
    assert list(LABELS) == [f"table:{name}" for name in TABLES] + [f"fig:{name}" for name in FIGURES]
    assert {label for entry in ENTRIES.values() for label in entry.labels} == set(LABELS)
    paper, needs = listing()
    rows = list(zip(*(column.cells for column in paper.columns), strict=True))
    assert [row[2] for row in rows] == list(LABELS)
    assert "none" not in {row[3] for row in rows}
    assert list(needs.columns[0].cells) == list(ENTRIES)
    shown = call("--list")
    assert shown.exit_code == 0, shown.output
    assert "Table 18" in shown.output
    assert "Figure 18" in shown.output


@pytest.mark.parametrize("name", ["table-1", "Table 1", "table:DA_digits_summary"])
def test_entries_are_found_by_what_the_paper_calls_them(name):
    assert {entry.name for entry in find_entries(name)} == {"digits", "digits_baselines", "svhn"}
    assert [entry.name for entry in find_entries("figure-17")] == ["gradient_flow"]
    assert [entry.name for entry in find_entries("digits")] == ["digits"]


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_entries_say_what_they_need(entry):
    assert entry.labels or entry.stands_for or entry.beside
    assert entry.hardware
    assert set(entry.beside) <= set(ENTRIES)
    assert entry.cpu or "V100" in entry.hardware
    text = entry.path.read_text()
    assert all(claim.measure == "accuracy" or claim.measure in text for claim in entry.claims)


@pytest.mark.torch
@pytest.mark.parametrize("length", ["quick", "short", "full"])
@pytest.mark.parametrize("entry", ADAPTED, ids=lambda entry: entry.name)
def test_entries_of_adaptation_make_configs(entry, length):
    pytest.importorskip("torch")
    pytest.importorskip("lightning_fabric")
    from spadeful.grids import without_seed
    from spadeful.reproducing import read_experiment

    experiment = read_experiment(entry.path, length)
    assert len(experiment.runs) == entry.count(length) > 0
    names = {without_seed(name) for name in experiment.runs}
    assert experiment.paper.keys() <= names or length != "full"
    assert {config.method for config in experiment.runs.values()} != {"source-only"}
    if length == "quick":
        assert all(config.iterations <= 2 for config in experiment.runs.values())
    if length == "full":
        assert set(experiment.embedding) <= experiment.runs.keys()


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_claims_are_of_runs_that_there_are(entry):
    from spadeful.grids import chosen_grids, combinations, name_of

    names = {
        name_of(chosen)
        for each in (entry, *(ENTRIES[name] for name in entry.beside))
        for grid in chosen_grids(each.found, "full")[0]
        for chosen in combinations(grid)
    }
    for claim in entry.claims:
        if names and claim.at_most is None:
            assert judge(dict.fromkeys(names, 1.0), claim).pairs > 0, claim


def six(gain):
    values = {f"{side},task{i},seed=0": 50.0 + i for i in range(6) for side in ("a", "b")}
    return {name: value + gain * (1 + i) * name.startswith("a") for i, (name, value) in enumerate(values.items())}


def test_verdicts_are_those_of_the_tests():
    claim = Claim("a beats b", "a", "b")
    # Of 64 choices of signs for six pairs, one has no negative rank; two-sided 2 / 64.
    verdict = judge(six(1.0), claim)
    assert (verdict.verdict, verdict.pairs, verdict.test) == ("holds", 6, "Wilcoxon")
    assert verdict.p == pytest.approx(2 / 64)
    assert verdict.gain == pytest.approx(np.mean([1, 3, 5, 7, 9, 11]))
    assert judge(six(-1.0), claim).verdict == "does not hold: worse"
    # Less of it is better: the same numbers speak against the claim.
    assert judge(six(1.0), Claim("a is quicker", "a", "b", "seconds")).verdict == "does not hold: worse"
    # Differences 1, 2, 3: t = 2 sqrt(3) with two degrees of freedom, p = 1 - t / sqrt(t^2 + 2).
    three = {f"{side},seed={i}": (1.0 + i) * (side == "a") for i in range(3) for side in "ab"}
    verdict = judge(three, claim)
    assert (verdict.verdict, verdict.gain, verdict.test) == ("open: better, not significant", 2.0, "t")
    assert verdict.p == pytest.approx(1 - np.sqrt(12 / 14))
    one_large = {f"{name},seed={seed}": 0.0 for name in "ab" for seed in range(15)}
    one_large |= {f"b,seed={seed}": 1.0 + seed / 100 for seed in range(14)} | {"a,seed=14": 100.0}
    assert judge(one_large, claim).verdict == "open: worse by ranks, better in the mean"
    assert judge({"a,seed=0": 1.0, "b,seed=1": 2.0}, claim) == Verdict("not run")
    assert judge({}, claim) == Verdict("not run")
    assert judge({"a,seed=0": 2.0, "b,seed=0": 2.0}, claim).verdict == "equal, too few pairs for a test"
    assert judge(dict.fromkeys(six(1.0), 3.0), claim).verdict == "equal in all pairs"


def test_bounds_and_further_parts_of_claims():
    bound = Claim("small", "a", measure="change", at_most=0.5)
    assert judge({"a,x": 0.1, "a,y": 0.5, "b": 9.0}, bound).verdict == "holds"
    assert judge({"a,x": 0.1, "a,y": 0.6}, bound).verdict == "does not hold"
    values = {"k=4,a,seed=0": 5.0, "k=1,a,seed=0": 3.0, "k=4,b,seed=0": 1.0, "k=1,b,seed=0": 2.0}
    assert judge(values, Claim("", "k=4", "k=1", where="a")).gain == 2.0
    assert judge(values, Claim("", "k=4", "k=1", where="b")).gain == -1.0
    sizes = {"m=501,a,t,seed=0": 1.0, "t,b,seed=0": 4.0}
    assert judge(sizes, Claim("", "b", "a,m=501")).gain == 3.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"says": "x", "better": "a"}, "either than or at_most"),
        ({"says": "x", "better": "a", "than": "b", "speed": 1}, "speed"),
        ({"says": "x", "better": "a", "than": "b", "measure": "beauty"}, "beauty"),
    ],
)
def test_claims_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Claim.read(given)


def test_the_mass_of_absent_classes_is_a_share():
    assert measured({"sent": {"a": 0.3, "b": 0.1, "c": 0.1}, "absent": ["b", "c"]}, "absent") == pytest.approx(40)
    assert measured({"sent": {"a": 0.3}, "absent": []}, "absent") is None


def test_rules_without_labels_are_told_by_what_they_lose():
    less = {"oracle": 0, "density": 1, "entropy": 2, "source": 4, "last": 8}
    runs = [
        {"name": f"m-pot,seed={seed}"} | {rule: {"target_accuracy": 90 - (1 + seed) * by} for rule, by in less.items()}
        for seed in (0, 1)
    ]
    assert selection.lost({"runs": runs}) == {"density": 1.5, "entropy": 3, "source": 6, "last": 12}
    first, last = selection.rows({"digits": {"runs": runs}, "examples": {"runs": []}})
    assert first == ["`digits`", "2", "1.50", "3.00", "6.00", "12.00"]
    assert last == ["mean", "", *first[2:]]
    runs[0]["source"] = {}
    assert "source" not in selection.lost({"runs": runs})


def test_the_time_is_that_of_the_adaptation_alone():
    adapted = [{"phase": "m-OT", "iteration": at, "seconds": s} for at, s in enumerate((1.0, 2.0, 7.0))]
    rows = [{"phase": "source-only", "iteration": 0, "seconds": 9.0}, *adapted]
    assert measured({"rows": rows, "last": rows[-1]}, "seconds") == 2.0


SMALL = """
title = "Small"
note = "Short: a little."
labels = ["table:DA_digits_summary"]
needs = ["mnist"]
hardware = "a GPU"

[settings]
batch_size = 2

[task.there]
source = "a"

[task.back]
source = "b"

[[runs]]
task = ["there", "back"]
method = ["m-pot", "m-ot"]
seed = [0, 1, 2]

[[claims]]
says = "m-POT is better than m-OT"
better = "m-pot"
than = "m-ot"

[[claims]]
says = "m-OT takes less time than m-POT"
better = "m-ot"
than = "m-pot"
measure = "seconds"

[paper]
"there,m-pot" = [98.0, 99.0, 100.0]
"back,m-pot" = 97.0
"there,m-ot" = "90.0 ± 1.5"
"back,m-ot" = 91.0
"""
ACCURACIES = {
    ("there", "m-pot"): (90.0, 92.0, 94.0),
    ("back", "m-pot"): (80.0, 81.0, 82.0),
    ("there", "m-ot"): (89.0, 90.0, 91.0),
    ("back", "m-ot"): (70.0, 72.0, 74.0),
}


def small_results(missing=()):
    runs = []
    for (task, method), accuracies in ACCURACIES.items():
        for seed, accuracy in enumerate(accuracies):
            name = f"{task},{method},seed={seed}"
            row = {"phase": method, "iteration": 1, "seconds": 0.5 + (method == "m-pot"), "target_accuracy": accuracy}
            told = {
                which: row | {"target_accuracy": accuracy - less} for less, which in ((0, "oracle"), (1, "density"))
            }
            if name not in missing:
                runs.append({"name": name, **told, "last": row, "rows": [row]})
    return {"title": "Small", "length": "short", "missing": len(missing), "runs": runs}


def small_page(tmp_path, results=None):
    (tmp_path / "small.toml").write_text(SMALL)
    if results:
        (tmp_path / "small.json").write_text(json.dumps(results))
        (tmp_path / "small.png").write_bytes(b"")
        (tmp_path / "small_masses.png").write_bytes(b"")
        (tmp_path / "smaller.png").write_bytes(b"")
    entries = {"small": read_entry(tmp_path / "small.toml")}
    return page(entries, read_results(entries, tmp_path), Path("results"), tmp_path)


def row_of(text, first):
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_has_means_spreads_and_verdicts(tmp_path):
    text = small_page(tmp_path, small_results())
    # there 92 ± 2, back 81 ± 1; the mean of both by seed is 85, 86.5, 88.
    assert row_of(text, "m-POT")[1:] == [
        "92.00 ± 2.00",
        "81.00 ± 1.00",
        "86.50 ± 1.50",
        "85.50 ± 1.50",
        "86.50 ± 1.50",
        "98.00",
    ]
    assert row_of(text, "*m-POT, paper*")[1:3] == ["99.00 ± 0.82", "97.00"]
    assert row_of(text, "*m-OT, paper*")[1:3] == ["90.00 ± 1.50", "91.00"]
    # Gains 1, 2, 3 there and 10, 9, 8 back: all positive.
    verdict = row_of(text, "m-POT is better than m-OT")
    assert verdict[1:7] == ["`small`", "+7.50 points", "+5.50 points", "6", "0.031 (Wilcoxon)", "holds"]
    assert verdict[7:] == ["+5.50 points", "0.031 (Wilcoxon)", "holds"]
    timed = row_of(text, "m-OT takes less time than m-POT")
    assert timed[2:] == ["none", "+1.0000 s", "6", "0.031 (Wilcoxon)", "holds", "", "", ""]
    assert "![Small](results/small.png)" in text
    assert "![Small](results/small_masses.png)" in text
    assert "smaller.png" not in text
    assert "<td>92.00 ± 2.00</td>" in as_html(text)
    assert "| 1.5000 |" in text.replace("1.5000 ± 0.0000", "1.5000")


def test_the_page_says_what_is_missing(tmp_path):
    text = small_page(tmp_path, small_results({"back,m-ot,seed=0", "back,m-ot,seed=1", "back,m-ot,seed=2"}))
    assert "**Not run: 3 runs missing.**" in text
    assert row_of(text, "m-OT")[1:5] == ["90.00 ± 1.00", "not run", "not run", "not run"]
    without = small_page(
        tmp_path, small_results({run["name"] for run in small_results()["runs"] if "m-ot" in run["name"]})
    )
    assert row_of(without, "m-OT")[1:] == ["not run"] * 5 + ["90.50"]
    assert row_of(text, "m-POT is better than m-OT")[1] == "`small`, 3 runs missing"
    assert row_of(text, "m-POT is better than m-OT")[4] == "3"


def test_claims_of_the_fid_are_told_by_our_score_where_there_is_none():
    claim = Claim("a beats b", "a", "b", measure="fid")
    own = {"runs": [{"name": "a", "measured": {"score": 1.0}}, {"name": "b", "measured": {"score": 2.0}}]}
    assert told_by(claim, own["runs"]).measure == "score"
    real = [{"name": "a", "measured": {"score": 1.0, "fid": 60.0}}]
    assert told_by(claim, real).measure == "fid"
    assert told_by(claim, []).measure == "fid"


@pytest.mark.torch
def test_of_several_entries_those_are_run_whose_data_are_there(here, monkeypatch):
    """What the others lack is said; where all lack something, that is an error."""
    pytest.importorskip("lightning_fabric")
    told = []
    monkeypatch.setattr(kinds, "run", lambda job: told.append(job.entry.name))
    (here / "mnist.npz").touch()
    (here / "usps.npz").touch()
    done = call("fig:DA_s", "--data", ".")
    assert done.exit_code == 0, done.output
    assert told == ["mass"]
    assert "Not run: office-home needs Office-Home" in done.output


def test_without_results_the_page_says_what_they_need(tmp_path):
    text = small_page(tmp_path)
    assert "**Not run: 12 runs missing, needs MNIST at `mnist.npz` of the data.**" in text
    assert row_of(text, "m-POT is better than m-OT")[1:] == ["`small`", "+7.50 points", "not run"]
    assert "99.00 ± 0.82" in text
    assert "nan" not in text


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"runs": []}', '{"runs": [{}], "missing": 0}'])
def test_damaged_results_are_named(tmp_path, text):
    (tmp_path / "digits.json").write_text(text)
    done = CliRunner().invoke(app, ["reproduce", "report", "--results", str(tmp_path), "-o", str(tmp_path / "x.md")])
    assert done.exit_code == 2
    assert f"{tmp_path / 'digits.json'} must be results of spadeful reproduce" in done.stderr


def test_what_is_done_is_not_run_again(tmp_path, capsys):
    entries = find_entries("examples") + find_entries("mappings")
    jobs = [kinds.Job(entry, "quick", tmp_path / f"{entry.name}.json", tmp_path) for entry in entries]
    assert kinds.ready(jobs) == jobs
    jobs[0].output.write_text("{}")
    assert kinds.ready(jobs) == jobs[1:]
    assert f"Not run again: {jobs[0].output} exists" in capsys.readouterr().out
    jobs[1].output.write_text("{}")
    with pytest.raises(FileExistsError):
        kinds.ready(jobs)


def test_quick_runs_are_no_results(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        small_page(tmp_path, small_results() | {"length": "quick"})


@pytest.mark.parametrize("ending", [".md", ".html"])
def test_the_report_is_written_once(tmp_path, ending):
    path = tmp_path / f"report{ending}"
    command = ["report", "-o", str(path), "--results", str(tmp_path)]
    done = call(*command)
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert all(f"{numbered(label)}: " in text for label in LABELS)
    assert "needs VisDA-2017" in text
    assert call(*command).exit_code == 2
    assert call(*command, "--force").exit_code == 0
    assert call("report", "-o", str(tmp_path / "report.pdf"), "--results", str(tmp_path)).exit_code == 2
    assert "--results" in call("report", "--results", str(tmp_path / "none")).output


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPADEFUL_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "results", "picture"),
    [
        ("figure-1", "examples-quick", "examples-quick_example-pot"),
        ("figure-10", "mappings-quick", "mappings-quick_role-of-s"),
        ("figure-17", "gradient_flow-quick", "gradient_flow-quick"),
    ],
)
def test_simulations_run_without_data(here, name, results, picture):
    pytest.importorskip("matplotlib")
    done = call(name, "--quick")
    assert done.exit_code == 0, done.output
    found = json.loads(Path(f"reproduced/{results}.json").read_text())
    assert found["length"] == "quick"
    assert found["versions"]["spadeful"]
    assert all(value >= 0 for run in found["runs"] for value in run["measured"].values())
    assert Path(f"reproduced/{picture}.png").stat().st_size > 5000
    again = call(name, "--quick")
    assert again.exit_code == 2
    assert "--force" in again.output


def test_partial_transport_does_not_see_the_scale(here):
    pytest.importorskip("matplotlib")
    assert call("examples", "--quick").exit_code == 0
    runs = json.loads(Path("reproduced/examples-quick.json").read_text())["runs"]
    verdict = judge({run["name"]: run["measured"]["change"] for run in runs}, ENTRIES["examples"].claims[0])
    assert (verdict.verdict, verdict.pairs) == ("holds", 3)
    assert all(run["measured"]["change"] > 0.02 for run in runs if run["name"].startswith("uot"))


def test_colours_are_transferred_between_photos_of_the_data(here):
    pytest.importorskip("matplotlib")
    pillow = pytest.importorskip("PIL.Image")
    Path("data/photos").mkdir(parents=True)
    for name, seed in (("s1.png", 0), ("t1.png", 1)):
        pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        pillow.fromarray(pixels).save(f"data/photos/{name}")
    done = call("figure-16", "--quick", "--data", "data", "-o", "color.json")
    assert done.exit_code == 0, done.output
    runs = json.loads(Path("color.json").read_text())["runs"]
    assert [run["name"] for run in runs] == ["m-ot,s1", "mass=0.99,m-pot,s1", "mass=0.9,m-pot,s1"]
    assert Path("color_s1.jpg").exists()


def test_colours_that_were_interrupted_leave_nothing_in_the_way(here, monkeypatch):
    pytest.importorskip("matplotlib")
    pillow = pytest.importorskip("PIL.Image")
    Path("data/photos").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        pillow.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(f"data/photos/{name}")
    Path("x.toml").write_text(COLORS.replace('[["a.png", "b.png"]]', '[["a.png", "b.png"], ["b.png", "a.png"]]'))
    read, photos = kinds.read_photo, []

    def interrupted(path):
        photos.append(path)
        if len(photos) == 3:
            raise KeyboardInterrupt
        return read(path)

    monkeypatch.setattr(kinds, "read_photo", interrupted)
    assert call("x.toml", "--data", "data").exit_code == 130
    done = call("x.toml", "--data", "data")
    assert done.exit_code == 0, done.output
    assert {path.name for path in Path("reproduced").iterdir()} == {"x.json", "x_a.jpg", "x_b.jpg"}


@pytest.mark.torch
@pytest.mark.usefixtures("one_thread")
def test_adaptation_runs_on_features_of_the_data(here):
    pytest.importorskip("lightning_fabric")
    pytest.importorskip("matplotlib")
    Path("data").mkdir()
    y, domain = np.tile(np.arange(70) % 7, 4), np.repeat(np.arange(4), 70)
    x = np.random.default_rng(0).normal(size=(280, 8)) + y[:, None]
    names = np.array(["art_painting", "cartoon", "photo", "sketch"])
    kept = {"x": x.astype(np.float16), "y": y, "domain": domain, "domain_names": names}
    np.savez("data/pacs_resnet50.npz", **kept, class_names=np.array([f"c{i}" for i in range(7)]))
    command = ["pacs_baselines", "--quick", "--data", "data", "-o", "pacs.json", "--runs", "runs"]
    done = call(*command)
    assert done.exit_code == 0, done.output
    results = json.loads(Path("pacs.json").read_text())
    assert results["missing"] == 0
    assert [run["name"] for run in results["runs"]] == ["dann,P2A,seed=0", "rot,P2A,seed=0"]
    assert call(*command).exit_code == 2


@pytest.mark.torch
@pytest.mark.usefixtures("one_thread")
def test_generators_run_on_images_of_the_data(here):
    pytest.importorskip("lightning_fabric")
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    Path("data").mkdir()
    x = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    y = np.arange(40) % 10
    np.savez("data/cifar10.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    command = ["figure-14", "--quick", "--data", "data", "-o", "cifar.json", "--runs", "runs"]
    done = call(*command)
    assert done.exit_code == 0, done.output
    results = json.loads(Path("cifar.json").read_text())
    assert [run["name"] for run in results["runs"]] == [f"batch_size=4,{m},seed=0" for m in ("m-ot", "m-pot")]
    assert all(run["measured"]["seconds"] > 0 for run in results["runs"])
    assert Path("cifar.png").stat().st_size > 1000
    rows = [run["rows"] for run in results["runs"]]
    assert call(*command).exit_code == 2
    again = call(*command, "--force")
    assert again.exit_code == 0, again.output
    assert [run["rows"] for run in json.loads(Path("cifar.json").read_text())["runs"]] == rows  # not run anew


@pytest.mark.torch
@pytest.mark.parametrize("length", ["quick", "short", "full"])
@pytest.mark.parametrize("name", ["generate_cifar10", "generate_celeba"])
def test_entries_of_generators_make_configs(name, length):
    pytest.importorskip("torch")
    from dataclasses import fields

    from spadeful.generate.config import Config, make_config
    from spadeful.grids import chosen_grids, combinations, name_of, settings_of, without_seed

    entry = ENTRIES[name]
    grids, changes = chosen_grids(entry.found, length)
    known = {spec.name for spec in fields(Config)}
    chosen = {name_of(each): each for grid in grids for each in combinations(grid)}
    configs = {run: make_config(settings_of(entry.found, each, known) | changes) for run, each in chosen.items()}
    if length == "full":
        assert entry.paper["fid"].keys() == {without_seed(run) for run in configs}
        assert set(entry.found["shown"]) <= configs.keys()
        # The paper's epochs, of so many iterations each.
        assert {config.iterations for config in configs.values()} == {200 * 250 if "cifar" in name else 100 * 814}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--list"),
        (["table-99"], "table-1"),
        (["table-1", "-o", "x.json"], "several entries"),
        (["pacs"], "pacs_resnet50.npz"),
        (["pacs", "--data", "."], "SPADEFUL_DATA"),
        (["table-2", "--full", "--data", "."], "VisDA-2017"),
        (["figure-3"], "nothing to run"),
        (["figure-1", "-o", "x.txt"], ".json"),
        (["figure-1", "--quick", "--full"], "Pass one"),
        (["figure-1", "--results", "."], "--results is for the report alone. Leave out --results."),
        (["report", "--quick", "--n-jobs", "2"], "runs nothing. Leave out --quick, --n-jobs."),
        (["report"], "There is no folder reproduced with results. Run `spadeful reproduce` first"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(here, arguments, message):
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("note = 'x'", "title"),
        ("title = 'x'\nkind = 'opera'", "opera"),
        ("title = 'x'\nlabels = ['table:99']", "table:99"),
        ("title = 'x'\nneeds = ['imagenet']", "imagenet"),
        ("title = 3", "title of .* must be a text. Got 3 instead"),
        ("title = 'x'\nlabels = 'fig:mOT'", "labels of .* must be a list of texts. Got 'fig:mOT'"),
        ("title = 'x'\ncpu = 'no'", "cpu of .* must be true or false. Got 'no'"),
        ("title = 'x'\ntask = 'there'\n[[runs]]\ntask = ['there']", "task of .* must be a table of tables"),
        ("title = 'x'\ncolour = 'red'", "Got colour too"),
        ("title = 'x'\n[[runs]]\nseed = []", r"seed in \[\[runs\]\] of .* must be a list of at least one value"),
        ("title = 'x'\n[[short.runs]]\nseed = 0", r"seed in \[\[short.runs\]\] of .* Got 0 instead"),
        ("title = 'x'\n[[quick.runs]]", r"\[\[quick.runs\]\] of .* must hold lists of values"),
        ("title = 'x'\n[runs]\nseed = [0]", "runs of .* must be a list of tables"),
        ("title = 'x'\n[quick]\nruns = 3", "quick.runs of .* must be a list of tables"),
        ("title = 'x'\n[paper]\nm-ot = '55'", r"'m-ot' in \[paper\] of .* must be a number, .* Got '55' instead"),
        ("title = 'x'\n[paper.fid]\nm-ot = []", r"'m-ot' in \[paper\] of .* Got \[\] instead"),
        ("title = 'x'\nclaims = ['a']", "claims of .* must be a list of tables"),
        ("title = 'x'\n[[claims]]\nsays = 'a'\nbetter = 1\nthan = 'b'", "A claim of .* better must be of the type str"),
    ],
)
def test_entries_that_make_no_sense_are_refused(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as refusal:
        read_entry(tmp_path / "x.toml")
    assert "x.toml" in str(refusal.value)


FLOW = """
title = "x"
kind = "flow"
settings = {n = 20, steps = 10, batch_size = 4, n_batches = 2, lr = 0.001}
runs = [{method = ["m-ot"], seed = [0]}]
"""
SIMULATION = """
title = "x"
kind = "simulate"
settings = {pictures = ["example-pot"], measures = ["mappings"]}
runs = [{method = ["m-ot"], seed = [0]}]
"""
COLORS = """
title = "x"
kind = "color"
settings = {pairs = [["a.png", "b.png"]], masses = [0.9], batch_size = 10, n_batches = 2, seed = 0}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FLOW.replace("n = 20, ", ""), "[settings] of x.toml must hold n, steps, batch_size, n_batches, lr"),
        (FLOW.replace("steps = 10", "steps = 'ten'"), "steps in [settings] of x.toml must be a whole number"),
        (FLOW.replace("runs = ", "# "), "x.toml must hold [[runs]]"),
        (FLOW.replace("m-ot", "m-xot"), "m-xot,seed=0 cannot: method must be one of m-ot, m-uot, m-pot"),
        (FLOW.replace("m-ot", "m-pot"), "m-pot,seed=0 cannot: m-pot needs mass and seed. There is no mass."),
        (FLOW.replace("seed = [0]", "seed = [-1]"), "seed must be a whole number of at least 0"),
        (SIMULATION.replace("example-pot", "example"), "pictures of x.toml must be among example-pot"),
        (SIMULATION.replace("mappings", "maps"), "measures of x.toml must be among mappings, scaling"),
        (COLORS.replace(", seed = 0", ""), "There is no seed"),
        (COLORS.replace('["a.png", "b.png"]', '["a.png"]'), "pairs of x.toml must be pairs of photos"),
        (COLORS.replace("0.9", "2"), "mass=2 cannot"),
        (COLORS, "Name the folder by --data"),
    ],
)
def test_entries_of_one_s_own_are_refused_before_any_work(here, text, message):
    """Of a kind that knows which settings its runs need."""
    Path("x.toml").write_text(text)
    done = call("x.toml")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not Path("reproduced").exists()


def test_without_quick_runs_there_are_none(here):
    Path("x.toml").write_text(FLOW)
    assert "x.toml must hold [quick] to be run with --quick" in call("x.toml", "--quick").stderr


def test_the_report_reads_what_was_reproduced(here):
    pytest.importorskip("matplotlib")
    assert call("examples").exit_code == 0
    assert call("report").exit_code == 0
    text = Path("reproduced/report.md").read_text(encoding="utf-8")
    assert "![Example 1](examples_example-pot.png)" in text
    assert "| holds |" in text
