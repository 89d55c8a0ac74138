"""The simulation figures of the paper, by the numbers behind them and by what is drawn of these."""

import numpy as np
import pytest
from typer.testing import CliRunner

import spadeful as sp
from spadeful import figures, simulations
from spadeful.cli import app
from spadeful.flow import Flow
from spadeful.simulations import aggregated, example, flows

same_color = pytest.importorskip("matplotlib.colors", reason="pictures need matplotlib").same_color

THIRD = 1 / 3


def entries(matrix):
    """The mappings (from, to) of a matrix, numbered from 1 as in the paper."""
    return {(int(i) + 1, int(j) + 1): float(matrix[i, j]) for i, j in zip(*np.nonzero(matrix > 1e-9), strict=True)}


# Example 1.


def test_partial_transport_of_the_example():
    """At s = 1 the three misspecified mappings that the paper names, of mass 1/3; at s = 1/3 the optimal one alone."""
    found = {s: entries(matrix) for s, matrix in example.partial_example().matrices.items()}
    assert found["1/3"] == pytest.approx({(3, 3): THIRD})
    assert found["2/3"] == pytest.approx({(2, 3): THIRD, (3, 4): THIRD})
    assert found["1"] == pytest.approx({(1, 3): THIRD, (2, 4): THIRD, (3, 5): THIRD})


def test_partial_transport_does_not_see_the_scale():
    small, large = example.partial_example(), example.scaled_partial_example()
    np.testing.assert_array_equal(large.points[1], 10 * small.points[1])
    for name, matrix in small.matrices.items():
        np.testing.assert_allclose(large.matrices[name], matrix, atol=1e-12)


@pytest.mark.parametrize("make", [example.unbalanced_example, lambda: example.apart_examples()[0]])
def test_unbalanced_transport_of_the_example(make):
    """Against the multiplicative updates of POT; its mass grows with tau, as the paper tells."""
    ot = pytest.importorskip("ot")
    found = make()
    x, y = (points[part] for points, part in zip(found.points, found.batch, strict=True))
    weights = np.full(len(x), 1 / len(x))
    for tau, plan in found.plans.items():
        theirs = ot.unbalanced.mm_unbalanced(
            weights, weights, ot.dist(x, y), float(tau), div="kl", numItermax=20_000, stopThr=1e-15
        )
        np.testing.assert_allclose(plan.matrix, theirs, atol=1e-4)
    masses = [plan.mass for plan in found.plans.values()]
    assert (np.diff([0, *masses, 1]) > 0).all()


def test_unbalanced_transport_sees_the_scale():
    """Costs are 100 times as large, so that tau has to be; with the old ones next to nothing is left."""
    small, large = example.unbalanced_example(), example.scaled_unbalanced_example()
    assert max(plan.mass for plan in large.plans.values()) < 0.01 < min(plan.mass for plan in small.plans.values())
    raised = {tau: sp.Unbalanced(100 * float(tau)) for tau in small.plans}
    for name, matrix in example.example_one(raised, scale=10.0).matrices.items():
        np.testing.assert_allclose(matrix, small.matrices[name], atol=1e-8)


def test_small_penalties_favour_the_optimal_mapping():
    """ "The mass of misspecified matchings is small compared to the right matchings" for tau = 0.2 and 0.5."""
    for name, matrix in example.unbalanced_example().matrices.items():
        right = matrix[2, 2]
        assert (right == matrix.max()) == (name != "10")
        if name in ("0.2", "0.5"):
            assert matrix.sum() - right < right / 2


def test_batches_without_an_optimal_mapping():
    """Partial and unbalanced transport map the nearest points; all of the mass maps farther ones too."""
    unbalanced, partial = example.apart_examples()
    assert not set(unbalanced.batch[0]) & set(unbalanced.batch[1])
    found = {s: entries(matrix) for s, matrix in partial.matrices.items()}
    assert found["1/4"] == pytest.approx({(2, 4): 1 / 4})
    assert found["1/2"] == pytest.approx({(2, 4): 1 / 2})
    assert found["1"] == pytest.approx({(1, 4): 1 / 2, (2, 5): 1 / 2})
    for name in ("0.2", "0.5", "1"):
        matrix = unbalanced.matrices[name]
        assert matrix[1, 3] > 0.9 * matrix.sum() > 0


def test_arrows_are_the_entries():
    """Black where the full plan has them, red elsewhere, dashed where they are small, with their masses."""
    found = example.unbalanced_example()
    for name, plan in found.plans.items():
        axes = figures.new_figure(2, 3).subplots()
        figures.draw_batch_plan(axes, found.points, found.batch, plan)
        arrows = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
        drawn = entries(found.matrices[name] * (found.matrices[name] > figures.NOTHING))
        assert len(arrows) == len(drawn)
        black = sum(same_color(arrow.get_edgecolor()[:3], figures.RIGHT) for arrow in arrows)
        assert black == sum(i == j for i, j in drawn)
        assert sum(arrow.get_linestyle() == "--" for arrow in arrows) == sum(m < figures.SMALL for m in drawn.values())
        labels = [text.get_text() for text in axes.texts if text.get_text()]
        assert sorted(labels) == sorted(figures.number(m) for m in drawn.values() if m >= figures.SMALL)


def test_matrices_tell_their_masses():
    axes = figures.new_figure(2, 2).subplots()
    found = example.partial_example()
    example.draw_matrix(axes, found.matrices["2/3"], found.batch)
    assert {(text.get_position(), text.get_text()) for text in axes.texts} == {((2, 1), "1/3"), ((3, 2), "1/3")}


# Ten points.


@pytest.fixture(scope="module")
def comparison():
    return aggregated.comparison()


@pytest.fixture(scope="module")
def roles():
    return aggregated.role_of_mass()


def test_counts_are_of_the_matrices(comparison, roles):
    assert (comparison.full > 0).sum() == 10
    for data in (comparison, roles):
        for name, plan in data.plans.items():
            some, right = plan > 0, data.full > 0
            assert data.counts[name] == (some.sum(), (some & ~right).sum(), (some & right).sum())


def test_partial_transport_is_nearer_to_the_full_plan(comparison):
    """As in the paper: 55 misspecified mappings of m-OT, fewer of m-POT, and most of m-UOT, of tiny masses."""
    names = list(comparison.plans)
    assert [name.split(",")[0] for name in names] == ["m-OT", "m-UOT", "m-POT"]
    plain, unbalanced, partial = (comparison.counts[name] for name in names)
    assert plain.misspecified == 55
    assert partial.misspecified < plain.misspecified < unbalanced.misspecified
    assert partial.optimal == plain.optimal == 10
    modes = (comparison.x[:, 1] > 10)[:, None] == (comparison.y[:, 1] > 10)
    shares = [plan[modes].sum() / plan.sum() for plan in comparison.plans.values()]
    assert shares[0] < shares[2] < shares[1], "masses are put between the right clusters"
    blurred = comparison.plans[names[1]]
    assert (blurred < 1e-6).sum() > 30


def test_less_mass_has_fewer_mappings(roles):
    misspecified, optimal = ([getattr(c, kind) for c in roles.counts.values()] for kind in ("misspecified", "optimal"))
    assert (np.diff(misspecified) > 0).all()
    assert (np.diff(optimal) >= 0).all()
    assert optimal[0] <= 5 < optimal[-1]
    for mass, plan in zip((0.2, 0.4, 0.6, 0.8), roles.plans.values(), strict=True):
        assert plan.sum() == pytest.approx(mass)


def test_lines_are_the_mappings(roles):
    figure = aggregated.draw_aggregated(roles)
    above = figure.axes[:5]
    assert [axes.get_title().split("\n")[1] for axes in above[1:]] == [
        f"({total}, {wrong}, {right})" for total, wrong, right in roles.counts.values()
    ]
    for axes, counts in zip(above[1:], roles.counts.values(), strict=True):
        blue = sum(same_color(line.get_color(), figures.TARGET) for line in axes.lines)
        assert (len(axes.lines), blue) == (counts.total, counts.optimal)


# Flows, and all of them.


def test_flows_of_the_paper_are_drawn_with_their_distances():
    target, found = flows.paper_flows(steps=50, n=60)
    assert list(found) == list(flows.METHODS)
    figure = flows.draw_flows((target, found))
    assert len(figure.axes) == 6 * 6
    for row, flow in enumerate(found.values()):
        assert list(flow.steps) == [0, 10, 20, 30, 40, 50]
        titles = [axes.get_title() for axes in figure.axes[6 * row : 6 * row + 6]]
        assert titles == [f"step {s}, $W_2$ = {d:#.3g}" for s, d in zip(flow.steps, flow.distances, strict=True)]
        last = figure.axes[6 * row + 5].collections[1]
        np.testing.assert_array_equal(last.get_offsets(), flow.points[-1])


def test_frames_of_flows_show_the_same_part_of_the_plane():
    far = np.array([[[0.0, 0.0], [1.0, 0.0]], [[5.0, 0.0], [1.0, -7.0]]])
    near = far[[0, 0]]
    found = {"m-uot,tau=0.1,reg=1.0": far, "m-pot,mass=0.9": near}
    drawn = {name: Flow(np.arange(2), points, np.zeros(2)) for name, points in found.items()}
    figure = flows.draw_flows((near[0], drawn))
    for axes in figure.axes:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        assert left < 0 < 5 < right
        assert low < -7 < 0 < high
        assert (left, right, low, high) == (*figure.axes[0].get_xlim(), *figure.axes[0].get_ylim())
        assert axes.get_aspect() == 1
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["m-UOT\nτ = 0.1, ε = 1.0", "m-POT\ns = 0.9"]


def test_names_of_methods_are_already_as_the_paper_writes_them():
    assert [figures.title_of(name) for name in flows.METHODS] == list(flows.METHODS)


def test_examples_tell_their_scale():
    for found, numbers in (
        (example.partial_example(), range(1, 6)),
        (example.scaled_partial_example(), range(10, 51, 10)),
    ):
        axes = example.draw_examples(found).axes[0]
        assert [float(tick.get_text()) for tick in axes.get_yticklabels()] == list(numbers)


def test_classes_are_told_apart_by_colour_and_by_marker():
    pytest.importorskip("sklearn")
    assert all(len(set(each)) == 10 for each in zip(*figures.CLASSES, strict=True))
    axes = figures.new_figure(2, 2).subplots()
    labels = np.repeat(np.arange(10), 2)
    points = np.random.default_rng(0).normal(size=(20, 3)) + 9 * labels[:, None]
    figures.draw_embedding(axes, (points, labels), (points + 1, labels))
    source, target = axes.collections[:10], axes.collections[10:20]
    for side, hollow in ((source, True), (target, False)):
        for drawn, (colour, _) in zip(side, figures.CLASSES, strict=True):
            assert same_color(drawn.get_edgecolor()[0], colour)
            assert (len(drawn.get_facecolor()) == 0) == hollow


def test_points_without_a_label_are_of_no_class():
    pytest.importorskip("sklearn")
    axes = figures.new_figure(2, 2).subplots()
    labels = np.array([-1, -1, 9, 9, 19, 19])
    points = np.random.default_rng(0).normal(size=(6, 3))
    figures.draw_embedding(axes, (points, labels), (points + 1, labels))
    unknown, ninth, nineteenth = axes.collections[:3]
    assert same_color(unknown.get_edgecolor()[0], "0.6")
    assert same_color(ninth.get_edgecolor()[0], nineteenth.get_edgecolor()[0])
    assert not np.array_equal(ninth.get_paths()[0].vertices, nineteenth.get_paths()[0].vertices)


@pytest.mark.parametrize("size", [1, 5])
def test_the_area_under_the_prices_is_the_value(size):
    path = sp.mass_path(np.random.default_rng(0).random((size, size)))
    figure = figures.new_figure(2, 2)
    figures.draw_mass_path(figure.subplots(), path)
    (steps,) = figure.axes[1].patches
    prices, masses, _ = steps.get_data()
    assert (prices * np.diff(masses)).sum() == pytest.approx(path.values[-1])


def test_every_picture_has_data_and_a_drawing():
    for name, picture in simulations.PICTURES.items():
        if name != "gradient-flow":  # above, with fewer steps
            assert picture.draw(picture.data()).axes


def test_the_command_draws_what_it_is_asked_for(tmp_path):
    def call(*options):
        return CliRunner().invoke(app, ["figures", *options])

    done = call("example-pot", "non-overlapping", "--out", str(tmp_path), "--format", "svg")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["example-pot.svg", "non-overlapping.svg"]
    again = call("example-uot", "example-pot", "--out", str(tmp_path), "--format", "svg")
    assert again.exit_code == 2
    assert "exists" in again.stderr
    assert not (tmp_path / "example-uot.svg").exists(), "refused before anything is drawn"
    assert call("example-pot", "--out", str(tmp_path), "--format", "svg", "--force").exit_code == 0
    wrong = call("example-3", "--out", str(tmp_path))
    assert wrong.exit_code == 2
    assert "role-of-s" in wrong.stderr
    assert call("example-pot", "--out", str(tmp_path), "--format", "doc").exit_code == 2
    assert call("example-pot").exit_code == 2
    listed = call("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(simulations.PICTURES)
