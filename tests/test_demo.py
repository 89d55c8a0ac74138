import numpy as np
import pytest
from typer.testing import CliRunner

from spadeful.cli import app
from spadeful.demo import example_one, squared_distances, two_clouds
from spadeful.masspath import mass_path

pytest.importorskip("matplotlib", reason="the demonstration draws a picture")


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


def test_the_command_prints_and_draws(tmp_path):
    output = tmp_path / "demo.png"
    first = CliRunner().invoke(app, ["demo", "--output", str(output)])
    assert first.exit_code == 0, first.output
    assert "misspecified" in first.output
    assert output.read_bytes().startswith(b"\x89PNG")

    again = CliRunner().invoke(app, ["demo", "--output", str(output)])
    assert again.exit_code == 2
    assert "exists" in again.stderr
    assert "Traceback" not in again.output
