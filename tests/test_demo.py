import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from spadeful import demo
from spadeful.cli import app
from spadeful.demo import example_one, squared_distances, two_clouds
from spadeful.masspath import mass_path

DATA = os.environ.get("SPADEFUL_DATA")
PNG = b"\x89PNG"
whole = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(demo.missing("matplotlib", *demo.ADAPTATION)), reason="adaptation needs spadeful[demo]"),
]


def invoke(*options):
    return CliRunner().invoke(app, ["demo", *map(str, options)])


def refusal(result):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture
def brief(one_thread):
    """Options of a demonstration that takes seconds."""
    return "--iterations", "2"


def test_example_one_is_the_papers():
    """At s = 1/3 the batch keeps the one right mapping; at s = 1 all three are misspecified."""
    example = example_one()
    wrong = {}
    for name, plan in example.plans.items():
        rows, cols, masses = plan.triplets
        np.testing.assert_allclose(masses, 1 / 3)
        wrong[name] = int((example.batch[0][rows] != example.batch[1][cols]).sum())
    assert wrong == {"1/3": 0, "2/3": 2, "1": 3}


def test_the_price_bends_where_the_outliers_begin():
    path = mass_path(squared_distances(*two_clouds(n=200, outliers=0.1)))
    before, after = np.interp([0.88, 0.92], path.masses[1:], path.prices)
    assert after > 3 * before


def test_the_quick_part_prints_and_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="the demonstration draws a picture")
    first = invoke("--quick", "--output", tmp_path)
    assert first.exit_code == 0, first.output
    assert "misspecified" in first.output
    assert (tmp_path / "transport.png").read_bytes().startswith(PNG)
    assert "exists" in refusal(invoke("--quick", "--output", tmp_path))
    assert invoke("--quick", "--output", tmp_path, "--force").exit_code == 0


@pytest.mark.parametrize("absent", ["torch", "matplotlib"])
def test_what_is_not_installed_is_left_out_and_said(absent, tmp_path):
    """As on a machine without the package: Python takes a None among its modules for one that is not there."""
    code = f"import sys; sys.modules[{absent!r}] = None; from spadeful.cli import app; app()"
    command = [sys.executable, "-c", code, "demo", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "misspecified" in done.stdout
    assert absent in done.stdout
    assert "pip install 'spadeful[demo]'" in done.stdout
    assert not (tmp_path / "digits.png").exists()
    with_data = subprocess.run([*command, "--data", str(tmp_path)], capture_output=True, text=True)
    assert with_data.returncode == 2
    assert absent in with_data.stderr


@pytest.mark.parametrize(("option", "value"), [("--data", "."), ("--seed", 0), ("--iterations", 3)])
def test_what_is_of_adaptation_is_not_for_the_quick_part(tmp_path, option, value):
    said = refusal(invoke("--quick", option, value, "--output", tmp_path / "out"))
    assert said == f"spadeful: --quick does without domain adaptation. Leave out {option}.\n"
    assert not (tmp_path / "out").exists()


def test_seeds_that_torch_does_not_take_are_refused_before_any_work(tmp_path):
    assert "--seed must be below 2**63" in refusal(invoke("--seed", 2**64, "--output", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


class TestAdaptation:
    pytestmark = whole

    def test_every_method_is_in_the_table_and_the_pictures_are_drawn(self, brief, tmp_path):
        result = invoke("--output", tmp_path, *brief)
        assert result.exit_code == 0, result.output
        for name in ("source-only", "m-OT", "m-UOT", "m-POT", "TS-POT"):
            assert name in result.output
        assert "s = 0.6" in result.output
        for name in demo.PICTURES:
            assert (tmp_path / name).read_bytes().startswith(PNG)

    def test_a_picture_that_exists_is_refused_before_any_work(self, tmp_path):
        (tmp_path / "features.png").write_text("mine")
        assert "features.png exists" in refusal(invoke("--output", tmp_path))
        assert (tmp_path / "features.png").read_text() == "mine"
        assert not (tmp_path / "transport.png").exists()

    def test_an_interrupted_run_leaves_nothing_and_does_not_stand_in_the_way(self, monkeypatch, tmp_path):
        from spadeful import demo_digits

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(demo_digits, "compare", interrupt)
        result = invoke("--output", tmp_path / "out")
        assert result.exit_code == 130
        assert result.stderr.endswith("spadeful: Interrupted. No picture was written.\n")
        assert not (tmp_path / "out").exists()

    def test_a_folder_without_the_data_is_refused_before_any_work(self, tmp_path):
        assert "no folder" in refusal(invoke("--data", tmp_path / "nowhere", "--output", tmp_path / "out"))
        assert "usps" in refusal(invoke("--data", tmp_path, "--output", tmp_path / "out"))
        assert not (tmp_path / "out").exists()

    @pytest.mark.slow
    @pytest.mark.skipif(not DATA, reason="needs USPS and MNIST: set SPADEFUL_DATA")
    def test_usps_to_mnist(self, brief, tmp_path):
        result = invoke("--data", DATA, "--output", tmp_path, *brief)
        assert result.exit_code == 0, result.output
        assert "USPS to MNIST" in result.output
        assert (tmp_path / "digits.png").read_bytes().startswith(PNG)

    def test_the_classes_are_in_other_proportions(self):
        """What the text says of the setting: a fifth of 5 to 9, and two thirds of the mass in common."""
        from spadeful.demo_digits import printed_to_handwritten

        setting = printed_to_handwritten()
        shares = [np.bincount(domain.y) / len(domain) for domain in (setting.source, setting.tested)]
        assert np.minimum(*shares).sum() == pytest.approx(2 / 3, abs=0.02)
        assert setting.adapted.y is None
        assert setting.mass < np.minimum(*shares).sum()

    def test_balanced_transport_has_to_match_digits_with_others(self, one_thread):
        """Whatever the features are, at least the distance in total variation between the classes of two batches."""
        from spadeful import Balanced
        from spadeful.adapt import SourceOnly, Transport
        from spadeful.demo_digits import printed_to_handwritten, small_network, wrong_mass

        setting, network = printed_to_handwritten(), small_network()
        assert wrong_mass(Transport(Balanced()), network, setting, seed=0) > 1 / 3
        assert wrong_mass(SourceOnly(), network, setting, seed=0) is None
