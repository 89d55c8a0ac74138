"""The commands `spadeful adapt` and `spadeful evaluate`, the networks they train and the methods they train by."""

import copy
import csv
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp
from spadeful.cli import app

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

from spadeful import adapt as ad  # noqa: E402
from spadeful.adapt import networks  # noqa: E402
from spadeful.adapt.config import make_config  # noqa: E402
from spadeful.adapt.streams import DomainStream  # noqa: E402
from spadeful.adapting import domains_of  # noqa: E402
from spadeful.figures import in_the_plane  # noqa: E402
from spadeful.files import check_outside  # noqa: E402
from spadeful.training import states  # noqa: E402

DATA = ["--source", "features.npz:a", "--target", "features.npz:b"]
SMALL = ["--batch-size", "12", "--set", "bottleneck=4", "--set", "lr=0.05"]
SHORT = [*SMALL, "--iterations", "6", "--warmup", "4", "--set", "evaluate_every=2"]
LOGS = {"log.csv", "log.json", "result.json", "classes.json", "run.png"}
FILES = {"config.json", "last.safetensors", "best.safetensors", *LOGS}
MASSES = {"masses.csv", "masses.png"}


def write_features():
    """Three classes in the plane, in the domain a and, moved, in the domain b."""
    rng = np.random.default_rng(0)
    y, domain = np.tile(np.arange(30) % 3, 2), np.repeat([0, 1], 30)
    x = np.array([[0, 0], [6, 0], [0, 6]])[y] + rng.normal(size=(60, 2)) + 2 * domain[:, None]
    names = {"domain_names": np.array(["a", "b"]), "class_names": np.array(["u", "v", "w"])}
    np.savez("features.npz", x=x.astype(np.float32), y=y, domain=domain, **names)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with features in it, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPADEFUL_DATA", raising=False)
    write_features()
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a finished run in it, and what the command said."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_features()
        return place, done(*DATA, *SHORT, "-o", "run")


def adapt(*arguments):
    return CliRunner().invoke(app, ["adapt", *map(str, arguments)])


def done(*arguments):
    result = adapt(*arguments)
    assert result.exit_code == 0, result.output
    return result


def one_line(result):
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("spadeful: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def refused(*arguments):
    """The one line with which a command is refused, before it leaves anything."""
    before = sorted(os.listdir())
    line = one_line(adapt(*arguments))
    assert sorted(os.listdir()) == before
    return line


def undrawn(monkeypatch):
    monkeypatch.setattr("spadeful.adapting.draw", lambda *_: None)


def cells(output):
    """The rows of a printed table, by their first cell."""
    rows = ([cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│"))
    return {first: others for first, *others in rows}


def assert_same_run(one, other):
    """Two checkpoints hold the same bits: weights, the optimiser's memory, the random state."""
    (ours, state), (theirs, other_state) = (states.read(path / states.LAST) for path in (one, other))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in s["rows"]] for s in (state, other_state)]
    assert rows[0] == rows[1]


def test_a_run_leaves_all_that_was_promised(finished):
    from matplotlib.image import imread

    run = finished[0] / "run"
    assert {path.name for path in run.iterdir()} - {".lock"} == FILES | MASSES
    config = json.loads((run / "config.json").read_text())
    assert (config["method"], config["iterations"], config["bottleneck"], config["lr"]) == ("m-pot", 6, 4, 0.05)
    with (run / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    phases = [("source-only", 2), ("source-only", 4), ("m-POT", 2), ("m-POT", 4), ("m-POT", 6)]
    assert [(row["phase"], int(row["iteration"])) for row in rows] == phases
    log, result = (json.loads((run / f"{name}.json").read_text()) for name in ("log", "result"))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in log["rows"]]
    assert result.keys() == {"oracle", "density", "entropy", "source", "last"}
    assert result["last"] == log["rows"][-1]
    assert result["density"] == log["best"]
    adapted = log["rows"][2:]  # the warm-up does not count
    assert result["oracle"]["target_accuracy"] == max(row["target_accuracy"] for row in adapted)
    assert result["entropy"]["target_entropy"] == min(row["target_entropy"] for row in adapted)
    picture = imread(run / "run.png")
    assert min(picture.shape[:2]) > 300
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20


def test_the_summary_is_all_that_is_said_where_there_is_no_terminal(finished):
    place, said = finished
    assert said.stderr == ""
    assert "m-POT" in said.stdout
    assert "neighbourhood density" in " ".join(said.stdout.split())
    assert "\r" not in said.stdout
    assert "\x1b" not in said.stdout
    result = json.loads((place / "run" / "result.json").read_text())
    shown = cells(said.stdout)
    for which, named in (("oracle", "oracle"), ("density", "density (kept)"), ("last", "last")):
        assert shown[named][-1] == f"{result[which]['target_accuracy']:.2f}"


@pytest.mark.parametrize(("which", "options"), [("best", []), ("last", ["--last"])])
def test_evaluate_finds_what_the_run_found(finished, monkeypatch, which, options):
    monkeypatch.chdir(finished[0])
    result = CliRunner().invoke(app, ["evaluate", "run", *options])
    assert result.exit_code == 0, result.output
    found = cells(result.stdout)
    rule = {"best": "density"}.get(which, which)
    expected = json.loads((finished[0] / "run" / "result.json").read_text())[rule]
    for name in ("source", "target"):
        assert found[name] == [f"{expected[f'{name}_accuracy']:.2f}", ""]
    classes = [float(found[f"target, class {name}"][0]) for name in "uvw"]
    assert np.mean(classes) == pytest.approx(expected["target_accuracy"], abs=0.01)


def test_evaluate_refuses_what_is_no_run(finished, monkeypatch, tmp_path):
    monkeypatch.chdir(finished[0])

    def says(folder, *options):
        return one_line(CliRunner().invoke(app, ["evaluate", str(folder), *options]))

    wanted = "must be the folder of a run of `spadeful adapt`."
    assert f"nowhere {wanted} There is no such folder." in says("nowhere")
    assert f"{tmp_path} {wanted} It has no config.json." in says(tmp_path)
    (tmp_path / "config.json").write_bytes((finished[0] / "run" / "config.json").read_bytes())
    for options in ([], ["--last"]):
        assert f"{tmp_path} has no checkpoint yet. Go on with its run" in says(tmp_path, *options)
    (tmp_path / states.LAST).write_bytes(b"not a checkpoint")
    assert "must be a checkpoint" in says(tmp_path, "--last")
    assert "has no best checkpoint by the rule density. Pass --last" in says(tmp_path)


def unlabelled():
    """Options for a target of which nobody knows the classes."""
    with np.load("features.npz") as arrays:
        np.savez("unlabelled.npz", x=arrays["x"][30:])
    return [*SHORT, "--source", "features.npz:a", "--target", "unlabelled.npz"]


def test_without_labels_of_the_target_nothing_is_told_as_if_they_were_known(folder, monkeypatch):
    drawn = []
    monkeypatch.setattr("spadeful.figures.save", lambda figure, *_, **__: drawn.append(figure))
    said = done(*unlabelled(), "-o", "free").stdout
    assert "oracle" not in cells(said)
    assert cells(said)["last"][-1] == "-"
    assert "The kept checkpoint" not in said
    assert not (folder / "free" / "classes.json").exists()
    assert "predicted in the target" in said
    names = (folder / "free" / "masses.csv").read_text().splitlines()[0].split(",")
    assert names == ["class", "predicted in the target", "sent", *(f"to predicted {name}" for name in "uvw")]
    masses = drawn[0]
    assert masses.axes[0].get_xlabel() == "predicted class of the target"
    words = [text.get_text() for text in masses.legends[0].get_texts()]
    assert words == ["predicted in the target"]
    assert CliRunner().invoke(app, ["evaluate", "free"]).exit_code == 0


def test_the_oracle_needs_labels_of_the_target(folder):
    line = refused(*unlabelled(), "--set", "select=oracle", "-o", "run")
    assert "select='oracle' needs labels of the target to test on. Got none" in line
    assert "density or entropy" in line


@pytest.mark.parametrize("size", [501, 10**9])
def test_batches_larger_than_all_points_are_refused(folder, size):
    """Sets that are smaller than the default are drawn from with repeats, and what is not is larger than no set."""
    line = refused(*DATA, *SHORT, "--batch-size", size, "-o", "run")
    assert "batch_size must be at most 500: source and target have 30 and 30 points" in line
    assert f"Got {size} instead." in line


def test_other_labels_of_the_target_are_other_data(folder, monkeypatch):
    undrawn(monkeypatch)
    done(*DATA, *SHORT, "-o", "run")
    tensors, state = states.read(folder / "run" / states.LAST)
    with np.load("features.npz") as arrays:
        np.savez("features.npz", **{**arrays, "y": np.where(arrays["domain"] == 1, 2 - arrays["y"], arrays["y"])})
    assert "It differs: labels of target tested was [[" in refused("-o", "run", "--resume")
    # A state that does not tell them goes on.
    state["settings"] = {name: value for name, value in state["settings"].items() if "tested" not in name}
    states.write(folder / "run" / states.LAST, tensors, state)
    done("-o", "run", "--resume")


def test_helps_fit_a_terminal_of_eighty_columns():
    """An example is one line, and no line of a paragraph is broken before its end."""
    said = {
        name: CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
        for name in ("adapt", "features")
    }
    assert "spadeful adapt --source usps --target mnist --mass 0.9 -o run --data DIR" in said["adapt"]
    assert "logs, and a picture. `--list` shows methods and data." in said["adapt"]
    assert "spadeful adapt --source FILE.npz:photos --target FILE.npz:sketches -o run" in said["features"]


def test_a_finished_run_is_resumed_to_the_same_run(finished, monkeypatch):
    monkeypatch.chdir(finished[0])
    undrawn(monkeypatch)
    before = (finished[0] / "run" / states.LAST).read_bytes()
    again = done("-o", "run", "--resume")
    assert again.stdout == finished[1].stdout
    assert (finished[0] / "run" / states.LAST).read_bytes() == before


def test_a_folder_keeps_its_run(finished, monkeypatch):
    monkeypatch.chdir(finished[0])
    assert "run holds a run. Pass --resume" in refused(*DATA, *SHORT, "-o", "run")
    assert "It differs: seed was 0 and is 1. " in refused("-o", "run", "--resume", "--seed", "1")
    changed = ["--config", "run/config.json", "--mass", "0.5"]
    assert "It differs: mass was 0.9 and is 0.5. " in refused(*DATA, "-o", "run", "--resume", *changed)


def test_other_data_are_refused_though_their_name_is_the_same(folder, monkeypatch):
    undrawn(monkeypatch)
    done(*DATA, *SHORT, "-o", "run")
    before = (folder / "run" / states.LAST).read_bytes()
    with np.load("features.npz") as arrays:
        np.savez("features.npz", **{**arrays, "x": arrays["x"] + 1})
    assert "It differs: source was [[" in refused("-o", "run", "--resume")
    assert (folder / "run" / states.LAST).read_bytes() == before


@pytest.mark.parametrize(("options", "says"), [([], "Pass --resume"), (["--resume"], "put them back")])
def test_a_run_without_its_settings_gets_none_that_may_be_false(folder, monkeypatch, options, says):
    """It may have been begun in Python, by other settings than those that the command has."""
    undrawn(monkeypatch)
    done(*DATA, *SHORT, "-o", "run")
    (folder / "run" / "config.json").unlink()
    assert says in refused(*DATA, *SHORT, "--mass", "0.5", "-o", "run", *options)
    assert not (folder / "run" / "config.json").exists()


def test_an_interrupted_run_ends_with_the_same_bits(folder, monkeypatch):
    undrawn(monkeypatch)
    options = [*DATA, *SMALL, "--iterations", "300", "--warmup", "4", "--set", "evaluate_every=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "spadeful", "adapt", *options, "-o", "broken"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (folder / "broken" / "log.csv").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert said == ""
    assert complaint.startswith("spadeful: Interrupted. Run the same command with --resume")
    assert complaint.count("\n") == 1
    state = states.read(folder / "broken" / states.LAST)[1]
    assert (state["phase"], state["iteration"]) < (1, 300)
    done(*options, "-o", "broken", "--resume")
    done(*options, "-o", "whole")
    assert_same_run(folder / "broken", folder / "whole")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML came with Python 3.11")
def test_options_win_over_the_config(folder, monkeypatch):
    undrawn(monkeypatch)
    (folder / "run.toml").write_text(
        'source = "features.npz:a"\ntarget = "features.npz:b"\nmethod = "ts-pot"\nmass = 0.5\nn_batches = 2\n'
        "iterations = 2\nwarmup = 0\nbatch_size = 6\nbottleneck = 3\nlr = 0.01\n"
    )
    done("--config", "run.toml", "--mass", "0.75", "--set", "lr=0.02", "--set", "schedule=annealed", "-o", "run")
    kept = json.loads((folder / "run" / "config.json").read_text())
    assert (kept["method"], kept["mass"], kept["batch_size"]) == ("ts-pot", 0.75, 6)
    assert (kept["lr"], kept["schedule"], kept["seed"]) == (0.02, "annealed", 0)
    assert json.loads((folder / "run" / "result.json").read_text())["last"]["phase"] == "TS-POT"


def test_the_seed_decides_a_run(folder, monkeypatch):
    undrawn(monkeypatch)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        done(*DATA, *SHORT, "--seed", seed, "-o", name)
    assert_same_run(folder / "a", folder / "b")
    one, other = (states.read(folder / name / states.LAST)[0]["network.features.weight"] for name in "ac")
    assert not torch.equal(one, other)


def test_list_names_methods_and_data():
    said = done("--list").stdout
    for name in ("source-only", "m-ot", "m-uot", "m-pot", "ts-ot", "ts-uot", "ts-pot", "usps", "mnist", "svhn"):
        assert name in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "m-xot"], "method must be one of source-only, m-ot"),
        (["--source", "nothing"], "A domain must be one of mnist"),
        (["--target", "features.npz:c"], "The domain must be one of a, b"),
        (["--target", "absent.npz:b"], "There is no file absent.npz"),
        (["--source", "mnist", "--target", "usps"], "Name it by --data"),
        (["--source", "mnist", "--target", "usps", "--data", "nowhere"], "There is no folder nowhere"),
        (["--mass", "2"], "mass"),
        (["--tau", "-1", "--method", "m-uot"], "tau"),
        (["--iterations", "0"], "iterations must be"),
        (["--batch-size", "1"], "batch_size must be at least 2"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--set", "lr"], "--set must be NAME=VALUE. Got 'lr' instead."),
        (["--set", "speed=3"], "Got speed too"),
        (["--set", "mas=0.5"], "Got mas too. The nearest to mas is mass."),
        (["--mass", "0.5", "--set", "mass=0.7"], "mass must be said once. Got --mass 0.5 and --set mass=0.7"),
        (["--batch-size", "9", "--set", "batch_size=8"], "Got --batch-size 9 and --set batch_size=8; leave one out."),
        (["--method", "dann", "--set", "rho=0.3"], "rho is for rot. Got it with dann, which has statistics, hidden."),
        (["--method", "rot", "--n-batches", "2"], "n_batches is for m-ot, m-uot, m-pot, ts-ot, ts-uot, ts-pot. Got"),
        (["--method", "source-only", "--set", "eta=2"], "Got it with source-only, which has none of its own."),
        (["--set", "mass_iterations=9"], "mass_iterations needs mass_from"),
        (["--set", "mass_from=0.1"], "mass_iterations must be at least 1. Got 0 instead."),
        (["--set", "lr=fast"], "lr must be of the type float. Got 'fast' instead."),
        (["--set", "eta=null"], "eta must be of the type float. Got None instead."),
        (["--set", "mass_from=2"], "mass"),
        (["--set", "bottleneck=0"], "bottleneck must be at least 1"),
        (["--set", "weight_decay=-1"], "weight_decay must be at least 0"),
        (["--config", "broken.toml"], "broken.toml must be settings"),
        (["--config", "absent.toml"], "absent.toml must be settings in TOML or JSON. There is no such file."),
        (["--config", "list.json"], "list.json must be settings"),
        (["--device", "abacus"], "abacus"),
        (["--precision", "8"], "precision must be one of 32-true, bf16-mixed, 16-mixed. Got '8' instead"),
        (["--method", "m-ot", "--mass", "0.5"], "mass is for m-pot, ts-pot. Got it with m-ot, which has reg, alpha"),
        (
            ["--tau", "1"],
            "tau is for m-uot, ts-uot. Got it with m-pot, which has mass, mass_from, mass_iterations, reg",
        ),
        (
            ["--method", "dann", "--reg", "0.1"],
            "reg is for m-ot, m-uot, m-pot, ts-ot, ts-uot, ts-pot. Got it with dann",
        ),
        (["--set", "alpha=NaN"], "alpha must be finite"),
        (["--set", "lam=-1"], "lam must be at least 0"),
        (["--seed", str(10**23)], "seed must be below 2**63"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_refused_in_a_line(folder, options, message):
    (folder / "broken.toml").write_text("source = \n")
    (folder / "list.json").write_text("[1, 2]")
    assert message in refused(*DATA, "-o", "run", *options)


def test_source_target_and_output_must_be_named(folder):
    assert "must be named by --output" in refused(*DATA)
    assert "must say source and target" in refused("-o", "run")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_device_that_is_not_there_is_refused(folder):
    assert "device and precision must be ones that there are. Got 'cuda' and '32-true' instead" in refused(
        *DATA, "-o", "run", "--device", "cuda"
    )


def test_settings_that_mean_nothing_are_refused(folder):
    run = [*DATA, "-o", "run"]
    assert "precision must be one of 32-true" in refused(*run, "--precision", "bf16-true")
    assert "gather is for m-ot" in refused(*run, "--method", "ts-pot", "--set", "gather=true")
    assert "validation must be in [0, 1)" in refused(*run, "--set", "validation=1.5")
    assert "initial must be 'authors' or 'torch'" in refused(*run, "--set", "initial=zeros")


def test_a_part_of_the_source_is_held_out_where_it_selects(folder):
    """The rule is the accuracy on points that were not trained with; the share is that of every class."""
    config = make_config({"source": "features.npz:a", "target": "features.npz:b", "select": "source"})
    pair = domains_of(config, None)
    assert (len(pair.source), len(pair.source_test), len(pair.target)) == (27, 3, 30)
    assert np.bincount(pair.source_test.y).tolist() == [1, 1, 1]
    both = np.concatenate([pair.source.x, pair.source_test.x])
    whole = domains_of(dataclasses.replace(config, select="density"), None)
    assert whole.source is whole.source_test
    assert np.array_equal(np.sort(both, axis=0), np.sort(whole.source.x, axis=0))
    assert len(domains_of(dataclasses.replace(config, validation=0.5), None).source_test) == 15


def test_training_that_fails_is_told_in_a_line(folder):
    failing = [*DATA, *SHORT, "--method", "source-only", "--set", "lr=1e30"]
    line = one_line(adapt(*failing, "-o", "run"))
    assert line.endswith("Lower the learning rate, or look for inputs that are not finite.\n")
    assert not (folder / "run" / states.LAST).exists()


@pytest.mark.parametrize(
    ("make", "shape"), [(ad.usps_network, (1, 28, 28)), (ad.svhn_network, (3, 32, 32))], ids=["usps", "svhn"]
)
def test_digit_networks_may_start_as_torch_does(make, shape):
    torch.manual_seed(0)
    found = make(initial="torch").features[0]
    torch.manual_seed(0)
    assert torch.equal(found.weight, torch.nn.Conv2d(found.in_channels, 32, found.kernel_size).weight)


@pytest.mark.parametrize(
    ("make", "shape"), [(ad.usps_network, (1, 28, 28)), (ad.svhn_network, (3, 32, 32))], ids=["usps", "svhn"]
)
def test_digit_networks_start_as_the_authors_do(make, shape):
    torch.manual_seed(0)
    network = make()
    features, logits = network(torch.randn(2, *shape))
    assert (features.shape, logits.shape) == ((2, 128), (2, 10))
    assert bool(((features > 0) & (features < 1)).all())
    assert make(7)(torch.randn(2, *shape))[1].shape == (2, 7)
    assert type(networks.network_for(shape, 10).features[0]) is torch.nn.Conv2d
    expected = {torch.nn.Conv2d: (0.0, 0.02), torch.nn.BatchNorm2d: (1.0, 0.02), torch.nn.Linear: (0.0, 0.1)}
    seen = set()
    for layer in network.modules():
        if type(layer) not in expected:
            continue
        seen.add(type(layer))
        mean, deviation = expected[type(layer)]
        weights = layer.weight.detach().double()
        # Five standard errors of the mean and of the deviation of so many normal numbers.
        assert abs(float(weights.mean()) - mean) < 5 * deviation / weights.numel() ** 0.5
        assert abs(float(weights.std()) / deviation - 1) < 5 / (2 * weights.numel()) ** 0.5
        if type(layer) is not torch.nn.Conv2d:
            assert not layer.bias.any()
    assert seen == set(expected)


def test_the_network_of_features_is_linear_and_xavier():
    torch.manual_seed(0)
    network = networks.network_for((300,), 7, bottleneck=100)
    features, logits = network(torch.randn(3, 300))
    assert (features.shape, logits.shape) == ((3, 100), (3, 7))
    weights = network.features.weight.detach()
    assert float(weights.std()) == pytest.approx((2 / 400) ** 0.5, rel=0.03)
    assert not network.features.bias.any()
    assert not network.classifier.bias.any()


@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 32, 32), (1, 16, 16), (28, 28)])
def test_there_is_no_network_for_other_images(shape):
    with pytest.raises(ValueError, match=r"images \(1, 28, 28\) and \(3, 32, 32\).*resize them"):
        networks.network_for(shape, 10)


class Vision(torch.nn.Module):
    """A model that answers with an object, as those of Hugging Face do."""

    def __init__(self, times=1):
        super().__init__()
        self.backbone, self.classifier = torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 5, 2)
        self.times = times

    def forward(self, x):
        x = self.backbone(x)
        for _ in range(self.times):
            logits = self.classifier(x)
        return SimpleNamespace(logits=logits.flatten(1))


def test_a_tapped_model_gives_what_enters_the_layer_and_its_logits():
    model = Vision()
    x = torch.randn(3, 1, 4, 4)
    features, logits = ad.Tapped(model, "classifier")(x)
    assert torch.equal(features, model.backbone(x).flatten(1))
    assert torch.equal(logits, model(x).logits)
    assert not model.classifier._forward_pre_hooks
    for copied in (copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))):
        assert torch.equal(copied(ad.Tapped(model, "classifier"))(x)[0], features)
    with pytest.raises(RuntimeError, match=r"must run once in a forward pass\. It ran 2 times"):
        ad.Tapped(Vision(times=2), "classifier")(x)


def domains(classes=2, size=60):
    rng = np.random.default_rng(0)
    y = np.arange(size) % classes
    x = rng.normal(size=(2, size, 2)).astype(np.float32) + 4 * np.float32(y)[:, None]
    names = tuple(map(str, range(classes)))
    return ad.Domain(x[0], y, "source", names), ad.Domain(x[1] + np.float32(1), None, "target", names)


def total(method, network, iteration=0, size=10):
    """The losses of an iteration, added up, and how many there were of how many batches."""
    stream, drawn = DomainStream(*domains(), size, seed=0), []

    def draw():
        drawn.append(stream.batch(len(drawn)))
        return drawn[-1]

    losses = [float(loss.detach()) for loss in method.losses(network, draw, ad.methods.Step(iteration))]
    return sum(losses), len(losses), len(drawn)


def linear(seed=0):
    torch.manual_seed(seed)
    return ad.feature_network(2, 2, bottleneck=3)


@pytest.mark.parametrize(("iteration", "mass"), [(0, 0.2), (5, 0.5), (10, 0.8), (99, 0.8)])
def test_masses_follow_the_schedule(iteration, mass):
    ramp = sp.Ramp(0.2, 0.8, iterations=10)
    one = ad.Transport(sp.Partial(0.9), schedule=ramp)
    total(one, linear(), iteration)
    assert float(one.loss.plan.sum()) == pytest.approx(mass, abs=1e-6)
    seen = []

    class Watched(ad.TwoStage):
        def align(self, *arguments):
            seen.append(super().align(*arguments))
            return seen[-1]

    total(Watched(sp.Partial(0.9), schedule=ramp), linear(), iteration)
    assert sum(float(masses.sum()) for _, masses in seen[0]) == pytest.approx(mass * 20)


@pytest.mark.parametrize("kind", [ad.Transport, ad.TwoStage])
def test_eta_scales_transport_alone(kind):
    none, one, more = (total(kind(sp.Partial(0.8), n_batches=2, eta=eta), linear())[0] for eta in (0.0, 1.0, 2.5))
    stream = DomainStream(*domains(), 10, seed=0)
    entropies = []
    for number in range(2):
        batch = stream.batch(number)
        entropies.append(float(torch.nn.functional.cross_entropy(linear()(batch.source)[1], batch.labels).detach()))
    assert none == pytest.approx(np.mean(entropies), rel=1e-6)
    assert one > none
    assert more - none == pytest.approx(2.5 * (one - none), rel=1e-5)


def test_several_problems_of_two_stages_count_alike():
    method = ad.TwoStage(sp.Partial(0.8), n_batches=2, n_problems=3)
    value, losses, drawn = total(method, linear())
    assert (losses, drawn) == (6, 6)
    stream = DomainStream(*domains(), 10, seed=0)
    single, alone = ad.TwoStage(sp.Partial(0.8), n_batches=2), []
    for number in range(3):
        waiting = iter([stream.batch(2 * number), stream.batch(2 * number + 1)])
        alone.append(sum(float(loss.detach()) for loss in single.losses(linear(), waiting.__next__, ad.methods.Step())))
    assert value == pytest.approx(np.mean(alone), rel=1e-6)


@pytest.mark.parametrize(
    "method",
    [ad.Transport(sp.Unbalanced(1.0, 0.1), n_batches=2), ad.TwoStage(sp.Partial(0.7), n_batches=2, n_problems=2)],
    ids=lambda method: method.name,
)
def test_the_same_call_gives_the_same_bits(method):
    found = []
    for _ in range(2):
        network = linear()
        ad.adapt(network, *domains(), method, ad.Training(6, lr=0.05, seed=2), batch_size=10, test={})
        found.append(network.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in found), strict=True))


def test_two_stages_take_loaders_whose_last_batch_is_short():
    source, target = domains(size=22)
    x, y, other = torch.tensor(np.array(source.x)), torch.tensor(np.array(source.y)), torch.tensor(np.array(target.x))
    pairs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    points = torch.utils.data.DataLoader(other, batch_size=8)
    method = ad.TwoStage(sp.Partial(0.75), n_batches=2)
    record = ad.adapt(linear(), pairs, points, method, ad.Training(6, evaluate_every=6))  # batches of 8, 8, 6, 8, ...
    assert np.isfinite(record.rows[-1]["loss"])


def test_a_network_is_made_for_all_classes_though_a_batch_holds_few():
    source, target = domains(classes=12)
    record = ad.adapt(None, source, target, ad.SourceOnly(), ad.Training(8, evaluate_every=8), batch_size=3)
    assert np.isfinite(record.rows[-1]["loss"])


def test_tensors_are_taken_as_arrays_are():
    source, target = domains()
    found = []
    for kind in (np.array, lambda values: torch.tensor(np.array(values))):
        data = (kind(source.x), kind(source.y)), kind(target.x)
        record = ad.adapt(None, *data, ad.Transport(sp.Partial(0.8)), ad.Training(3), batch_size=10)
        found.append(record.rows[-1]["loss"])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [ad.Transport, ad.TwoStage])
def test_methods_refuse_what_they_cannot_do(kind):
    with pytest.raises(ValueError, match=r"schedule is of the mass of a Partial problem\. Got the problem Balanced"):
        kind(sp.Balanced(), schedule=sp.Ramp(0.1, 0.9, 10))
    with pytest.raises(ValueError, match=r"n_batches must be at least 1\. Got 0 instead"):
        kind(sp.Partial(0.5), n_batches=0)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_two_processes_learn_as_one_that_has_the_batches_of_both(folder, monkeypatch):
    """Each draws every other batch, and gradients are averaged: the curve of k = 2 in one process."""
    run = [*DATA, *SHORT, "--mass", "0.7"]
    undrawn(monkeypatch)
    done(*run, "--n-batches", "2", "--warmup", "0", "-o", "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "spadeful"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SPADEFUL_DATA": ""}
    told = subprocess.run(
        [*command, "adapt", *run, "--warmup", "0", "-o", "two"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("Kept: ") == told.stdout.count("The kept checkpoint") == 1
    one, two = (json.loads((folder / name / "log.json").read_text())["rows"] for name in ("one", "two"))
    assert [row["iteration"] for row in one] == [row["iteration"] for row in two]
    for ours, theirs in zip(one, two, strict=True):
        for name in ("loss", "source_accuracy", "target_accuracy", "target_entropy"):
            assert theirs[name] == pytest.approx(ours[name], rel=1e-4)


@pytest.mark.parametrize(
    "name", ["log.csv", "best.safetensors", "result.json", "run.png", "masses.csv", "classes.json"]
)
def test_files_that_are_of_no_run_are_not_replaced(folder, name):
    (folder / "other").mkdir()
    (folder / "other" / name).write_text("precious")
    assert f"other/{name} exists, and is of no run" in refused(*DATA, *SHORT, "-o", "other")
    assert (folder / "other" / name).read_text() == "precious"


def test_what_is_hidden_in_a_folder_is_left_alone(folder):
    (folder / "run").mkdir()
    for name in (".probe", ".lock"):
        (folder / "run" / name).write_text("precious")
    done(*DATA, *SHORT, "-o", "run")
    assert [(folder / "run" / name).read_text() for name in (".probe", ".lock")] == 2 * ["precious"]


def test_names_are_printed_and_drawn_as_they_are(folder):
    with np.load("features.npz") as arrays:
        changed = {**arrays, "class_names": np.array(["u[red]", "[/b]", r"$\foo$ \u00fc"])}
    np.savez("features.npz", **changed)
    said = done(*DATA, *SHORT, "-o", "run[/b]").stdout
    said += CliRunner().invoke(app, ["evaluate", "run[/b]"]).stdout
    for name in ("run[/b], best", "Written to run[/b]", "class u[red]", "class [/b]", r"class $\foo$ \u00fc"):
        assert name in " ".join(said.split()), name
    assert (folder / "run[/b]" / "masses.png").exists()


def test_points_all_in_one_place_are_drawn(folder):
    np.savez("one.npz", x=np.full((4, 2), 0.1), y=np.array([0, 1, 0, 1]))
    done("--source", "one.npz", "--target", "one.npz", *SHORT, "-o", "run")
    for value in (0.0, 0.1):
        assert (in_the_plane(np.full((50, 3), value), np.full((50, 3), value)) == 0).all()


def test_a_source_that_lacks_classes_of_the_target_is_refused(folder):
    with np.load("features.npz") as arrays:
        kept = (arrays["domain"] == 1) | (arrays["y"] < 2)
        lacking = {name: arrays[name][kept] if len(arrays[name]) == 60 else arrays[name] for name in arrays.files}
    np.savez("features.npz", **lacking)
    assert "among those of the source, u, v. Got w of" in refused(*DATA, *SHORT, "-o", "run")
    lacking["class_names"] = np.array(["u", "u", "w"])
    np.savez("features.npz", **lacking)
    assert "names of their own. Got 'u' twice" in refused(*DATA, *SHORT, "-o", "run")


def test_a_run_is_not_kept_among_the_images_that_it_reads(tmp_path):
    inside = tmp_path / "photos" / "run"
    (tmp_path / "photos").mkdir()
    for folder in (inside, inside.parent):
        with pytest.raises(ValueError, match=r"must not lie in .*photos, whose images are read"):
            check_outside(folder, ["mnist", tmp_path / "photos"])
    check_outside(tmp_path, ["mnist", tmp_path / "photos"])
