"""The estimator: POT's where batches hold everything, shifts undone, labels kept, scikit-learn's rules obeyed."""

import math
import os
import pickle
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import spadeful as sp

SHIFT = np.array([6.0, -4.0])


def clouds(n_source=60, n_target=60, dimensions=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_source, dimensions)), rng.normal(size=(n_target, dimensions)) + 2


def two_classes(n=300, seed=0):
    """Two Gaussian classes, and the same classes elsewhere, where a source classifier takes one for the other."""
    rng = np.random.default_rng(seed)
    ys, yt = np.arange(n) % 2, np.arange(n)[::-1] % 2
    centres = np.array([[0.0, 0.0], [6.0, 0.0]])
    return (centres[ys] + rng.normal(size=(n, 2)), ys), (centres[yt] + SHIFT + rng.normal(size=(n, 2)), yt)


def accuracy(xs, ys, xt, yt):
    return KNeighborsClassifier(n_neighbors=1).fit(xs, ys).score(xt, yt)


def class_masses(plan, ys):
    """The mass (classes, n_target) that every target point receives from every class."""
    return np.stack([np.asarray(plan.toarray())[ys == c].sum(axis=0) for c in np.unique(ys)])


def shared(plan, ys):
    """How many target points receive from several classes."""
    return int(((class_masses(plan, ys) > 1e-12).sum(axis=0) > 1).sum())


@pytest.mark.filterwarnings("ignore:MiniBatchTransport has no target:UserWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        sp.MiniBatchTransport(),
        sp.MiniBatchTransport(sp.Partial(0.7), n_neighbors=3, batch_size=16),
        sp.MiniBatchTransport(class_balanced=True),
    ],
    ids=["default", "partial", "class_balanced"],
)
def test_scikit_learn_s_own_checks_all_pass(estimator):
    checks = check_estimator(estimator, on_skip=None)
    assert {check["status"] for check in checks} <= {"passed", "skipped"}
    assert [check["check_name"] for check in checks if check["status"] == "skipped"] in ([], ["check_array_api_input"])


@pytest.mark.parametrize(("n_source", "n_target"), [(60, 60), (40, 60), (60, 45)])
def test_whole_batches_are_pot_s_transport(n_source, n_target):
    da = pytest.importorskip("ot.da")
    xs, xt = clouds(n_source, n_target)
    new = np.random.default_rng(1).normal(size=(30, 3))
    ours = sp.MiniBatchTransport().fit(xs, Xt=xt)
    theirs = da.EMDTransport().fit(Xs=xs, Xt=xt)
    assert (ours.batch_size_, ours.n_batches_) == ((n_source, n_target), 1)
    np.testing.assert_allclose(ours.plan_.toarray(), theirs.coupling_, atol=1e-12)
    for points in (xs, new):
        np.testing.assert_allclose(ours.transform(points), theirs.transform(Xs=points), atol=1e-9)
    for points in (xt, new + 2):
        np.testing.assert_allclose(ours.inverse_transform(points), theirs.inverse_transform(Xt=points), atol=1e-9)
    assert ours.value_ == pytest.approx((theirs.coupling_ * theirs.cost_).sum(), rel=1e-12)
    assert ours.standard_error_ == math.inf


@pytest.mark.parametrize(
    "kwargs", [{"batch_size": 300}, {"batch_size": 40}, {"class_balanced": True, "batch_size": 40}]
)
def test_a_shift_is_undone(kwargs):
    (xs, ys), (xt, yt) = two_classes()
    assert accuracy(xs, ys, xt, yt) < 0.6
    adapted = sp.MiniBatchTransport(**kwargs).fit(xs, ys, xt)
    assert accuracy(adapted.transform(xs), ys, xt, yt) > 0.95
    assert accuracy(xs, ys, adapted.inverse_transform(xt), yt) > 0.95
    np.testing.assert_allclose((adapted.transform(xs) - xs).mean(axis=0), SHIFT, atol=0.3)


def test_partial_transport_leaves_outliers_behind():
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(100, 2))
    xt = xs[rng.permutation(100)] + SHIFT
    xs[:20] += [0, 500]
    adapted = sp.MiniBatchTransport(sp.Partial(0.8), batch_size=100).fit(xs, Xt=xt)
    assert adapted.matched_.tolist() == [False] * 20 + [True] * 80
    # They move with their nearest neighbour that was matched.
    nearest = 20 + ((xs[:20, None] - xs[20:]) ** 2).sum(axis=2).argmin(axis=1)
    expected = adapted.images_[nearest] + xs[:20] - xs[nearest]
    np.testing.assert_allclose(adapted.images_[:20], expected, atol=1e-9)


def test_neighbours_are_averaged_and_fitted_points_keep_their_images():
    xs, xt = clouds()
    one, three = (sp.MiniBatchTransport(n_neighbors=k).fit(xs, Xt=xt) for k in (1, 3))
    new = np.random.default_rng(1).normal(size=(5, 3))
    nearest = ((new[:, None] - xs) ** 2).sum(axis=2).argsort(axis=1)[:, :3]
    expected = (one.images_[nearest] + new[:, None] - xs[nearest]).mean(axis=1)
    np.testing.assert_allclose(three.transform(new), expected, atol=1e-12)
    np.testing.assert_allclose(three.transform(xs[7:20]), one.images_[7:20], atol=1e-12)
    # With more neighbours than points it is all of them.
    np.testing.assert_allclose(
        sp.MiniBatchTransport(n_neighbors=1000).fit(xs, Xt=xt).transform(new),
        new + (one.images_ - xs).mean(axis=0),
        atol=1e-12,
    )


def test_points_fitted_twice_have_each_their_own_image():
    xs = np.zeros((2, 1))
    adapted = sp.MiniBatchTransport().fit(xs, Xt=[[1.0], [3.0]])
    assert sorted(adapted.transform(xs).ravel()) == [1, 3]


def test_class_balanced_batches_are_what_minibatch_draws():
    (xs, _), (xt, yt) = two_classes(60)
    ys = np.repeat(["rare", "common"], [10, 50])
    adapted = sp.MiniBatchTransport(class_balanced=True, n_batches=7, seed=3).fit(xs, ys, xt)
    assert adapted.batch_size_ == (20, 60)
    result = sp.minibatch(xs, xt, sp.Balanced(), (20, 60), 7, labels=ys, seed=3)
    assert (adapted.plan_ != result.plan).nnz == 0
    assert (adapted.value_, adapted.standard_error_) == (result.value, result.standard_error)
    # Every batch has half its mass in the class of ten points.
    assert adapted.plan_.toarray()[:10].sum() == pytest.approx(0.5)
    # Target batches are balanced where all their classes are known.
    both = sp.MiniBatchTransport(class_balanced=True).fit(xs, ys, xt, np.where(yt == 0, "rare", "common"))
    assert both.batch_size_ == (20, 60)
    assert shared(both.plan_, ys) == 0


def test_batches_are_enough_to_draw_every_point():
    xs, xt = clouds(500, 300)
    adapted = sp.MiniBatchTransport(batch_size=(50, 100)).fit(xs, Xt=xt)
    assert adapted.n_batches_ == 200
    assert adapted.matched_.all()
    assert math.isfinite(adapted.standard_error_)


@pytest.mark.parametrize("unknown", [-1, math.nan, None])
def test_known_target_classes_receive_from_their_own(unknown):
    (xs, ys), (xt, _) = two_classes(60)
    yt = np.full(60, unknown, dtype=object)
    yt[:15], yt[15:30] = 0, 1  # wherever they lie
    adapted = sp.MiniBatchTransport().fit(xs, ys, xt, yt)
    masses = class_masses(adapted.plan_, ys)
    assert masses[1, :15].max() == masses[0, 15:30].max() == 0
    assert masses[0, :15] == pytest.approx(1 / 60)
    assert masses[:, 30:].sum() == pytest.approx(0.5)
    # It is dearer than without, and the same if nothing is known.
    without = sp.MiniBatchTransport().fit(xs, ys, xt)
    assert adapted.value_ > without.value_ + 1
    nothing = sp.MiniBatchTransport().fit(xs, ys, xt, np.full(60, unknown, dtype=object))
    assert (nothing.plan_ != without.plan_).nnz == 0


def test_limit_max_is_pot_s():
    da = pytest.importorskip("ot.da")
    (xs, ys), (xt, yt) = two_classes(50)
    ys = (np.arange(50) < 30).astype(int)  # other proportions than the target's: some have to mix
    some = np.where(np.arange(50) % 3 > 0, yt, -1)
    ours = sp.MiniBatchTransport(limit_max=10).fit(xs, ys, xt, some)
    theirs = da.EMDTransport(limit_max=10).fit(Xs=xs, ys=ys, Xt=xt, yt=some)
    assert ours.value_ == pytest.approx((theirs.coupling_ * theirs.cost_).sum(), rel=1e-12)
    np.testing.assert_allclose(ours.transform(xs), theirs.transform(Xs=xs), atol=1e-9)


def test_known_classes_that_leave_no_room_are_refused():
    xs, xt = clouds(10, 10)
    ys, yt = np.repeat(["a", "b"], [7, 3]), np.repeat(["a", "b"], [4, 6])
    with pytest.raises(ValueError, match=r"room for the mass 1 .* Got one with room for 0.7 instead; .*limit_max"):
        sp.MiniBatchTransport().fit(xs, ys, xt, yt)
    fits = sp.MiniBatchTransport(sp.Partial(0.7)).fit(xs, ys, xt, yt)
    assert shared(fits.plan_, ys) == 0
    assert fits.plan_.sum() == pytest.approx(0.7)
    with pytest.raises(ValueError, match=r"mass 0\.71"):
        sp.MiniBatchTransport(sp.Partial(0.71)).fit(xs, ys, xt, yt)
    # Points of unknown class take what is left of any.
    sp.MiniBatchTransport().fit(xs, ys, xt, [*"aaaa", *"bbb", None, None, None])
    # A class that the source lacks receives nothing.
    lacking = sp.MiniBatchTransport(sp.Partial(0.4)).fit(xs, ys, xt, [*"aaaa", *"cccccc"])
    assert lacking.plan_.toarray()[:, 4:].sum() == 0


@pytest.mark.parametrize("label_reg", [0.02, 0.1])
def test_label_reg_is_the_group_penalty_of_courty_et_al(label_reg):
    da = pytest.importorskip("ot.da")
    (xs, ys), (xt, _) = two_classes(40)
    xs, xt = xs / 4, xt / 4
    ours = sp.MiniBatchTransport(sp.Balanced(reg=0.5), label_reg=label_reg, tol=1e-10).fit(xs, ys, xt)
    theirs = da.SinkhornLpl1Transport(
        reg_e=0.5, reg_cl=label_reg, max_iter=10, max_inner_iter=10_000, tol=1e-10, norm=None
    ).fit(Xs=xs, ys=ys, Xt=xt)
    np.testing.assert_allclose(ours.plan_.toarray(), theirs.coupling_, atol=1e-8)
    np.testing.assert_allclose(ours.transform(xs), theirs.transform(Xs=xs), atol=1e-6)


def test_label_reg_keeps_classes_apart_and_lowers_what_it_penalises():
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(60, 2)), rng.normal(size=(40, 2))
    ys = rng.integers(0, 3, 60)
    cost = ((xs[:, None] - xt) ** 2).sum(axis=2)

    def objective(plan, label_reg):
        return (cost * plan.toarray()).sum() + label_reg * np.sqrt(class_masses(plan, ys) + 1e-3).sum()

    plans = {reg: sp.MiniBatchTransport(label_reg=reg).fit(xs, ys, xt).plan_ for reg in (0.0, 0.1, 1.0)}
    assert shared(plans[0.0], ys) > shared(plans[0.1], ys) > shared(plans[1.0], ys)
    for reg in (0.1, 1.0):
        assert objective(plans[reg], reg) < objective(plans[0.0], reg)


@pytest.mark.slow
def test_labels_travel_to_other_processes_and_through_any_cost():
    (xs, ys), (xt, _) = two_classes(60)

    def manhattan(x, y):
        assert x.shape[1] == y.shape[1] == 2
        return abs(x[:, None] - y).sum(axis=2)

    settings = {"batch_size": 20, "n_batches": 40, "label_reg": 0.1, "cost": manhattan}
    here = sp.MiniBatchTransport(**settings).fit(xs, ys, xt)
    there = sp.MiniBatchTransport(**settings, n_jobs=2).fit(xs, ys, xt)
    assert (here.plan_ != there.plan_).nnz == 0


def test_pipeline_takes_the_target_from_constructor_or_fit():
    (xs, ys), (xt, yt) = two_classes()
    inside = make_pipeline(sp.MiniBatchTransport(target=xt), StandardScaler(), LogisticRegression()).fit(xs, ys)
    # Target points enter after the transport, points of the source before it.
    assert inside[1:].score(xt, yt) > 0.95
    assert inside.score(xs, ys) > 0.95
    scaler = StandardScaler().fit(xs)
    outside = make_pipeline(scaler, sp.MiniBatchTransport(target=xs), LogisticRegression())
    outside.fit(xs, ys, minibatchtransport__Xt=scaler.transform(xt))
    assert outside[2:].score(scaler.transform(xt), yt) > 0.95


def test_grid_search_over_the_mass():
    (xs, ys), (xt, yt) = two_classes(200)
    xt = xt - [SHIFT[0], 0]
    xs[::9] += [40, 0]  # a ninth of the source has no place in the target
    masses = [sp.Partial(0.85), sp.Partial(1.0)]
    pipeline = make_pipeline(sp.MiniBatchTransport(target=xt, batch_size=200), KNeighborsClassifier(n_neighbors=1))

    def on_target(fitted, *_):
        return fitted[-1].score(xt, yt)

    grid = {"minibatchtransport__problem": masses}
    search = GridSearchCV(pipeline, grid, scoring=on_target, cv=3, error_score="raise").fit(xs, ys)
    right, too_much = search.cv_results_["mean_test_score"]
    assert right > too_much + 0.02
    assert search.best_params_ == {"minibatchtransport__problem": sp.Partial(0.85)}
    assert search.best_estimator_[-1].score(xt, yt) > 0.95


def test_parameters_are_stored_as_given_and_cloned():
    _, xt = clouds()
    estimator = sp.MiniBatchTransport(sp.Partial(0.6), target=xt, batch_size=(3, 4))
    assert estimator.get_params()["target"] is xt
    assert estimator.set_params(problem=sp.Partial(0.9), seed=4) is estimator
    copy = clone(estimator)
    assert (copy.problem, copy.batch_size, copy.seed) == (sp.Partial(0.9), (3, 4), 4)
    np.testing.assert_array_equal(copy.target, xt)


def test_fit_s_target_goes_before_the_constructor_s():
    xs, xt = clouds()
    np.testing.assert_array_equal(sp.MiniBatchTransport(target=xs).fit(xs, Xt=xt).target_, xt)


def test_without_target_points_stay_and_a_warning_says_so():
    xs, _ = clouds()
    with pytest.warns(UserWarning, match="has no target"):
        adapted = sp.MiniBatchTransport().fit(xs)
    np.testing.assert_allclose(adapted.transform(xs), xs, rtol=1e-14)


def test_a_fitted_estimator_can_be_pickled():
    (xs, ys), (xt, _) = two_classes(60)
    adapted = sp.MiniBatchTransport(sp.Partial(0.8), label_reg=0.1).fit(xs, ys, xt)
    copy = pickle.loads(pickle.dumps(adapted))
    for move in ("transform", "inverse_transform"):
        np.testing.assert_array_equal(getattr(copy, move)(xs + 0.1), getattr(adapted, move)(xs + 0.1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_precision_is_kept(dtype):
    xs, xt = ((10 * points).astype(dtype) for points in clouds())
    adapted = sp.MiniBatchTransport().fit(xs, Xt=xt)
    expected = np.float32 if dtype == np.float32 else np.float64
    for moved in (adapted.images_, adapted.transform(xs), adapted.transform(xs[:3]), adapted.inverse_transform(xt)):
        assert moved.dtype == expected


@pytest.mark.parametrize(
    ("parameters", "fit", "message"),
    [
        ({"problem": 0.5}, {}, "problem must be"),
        ({"cost": "manhattan"}, {}, "cost must be one of"),
        ({"pairing": "some"}, {}, "pairing must be"),
        ({"batch_size": 0}, {}, "batch_size must be"),
        ({"n_batches": 0}, {}, "n_batches must be"),
        ({"n_neighbors": 0}, {}, "n_neighbors must be"),
        ({"label_reg": -1}, {}, "label_reg must be"),
        ({"label_reg": math.nan}, {}, "label_reg must be"),
        ({"limit_max": 0.5}, {}, "limit_max must be"),
        ({"label_reg": 1.0}, {"y": None}, "label_reg needs the classes of the source"),
        ({"class_balanced": True}, {"y": None}, "class_balanced=True needs"),
        ({"class_balanced": "yes"}, {}, "class_balanced must be True or False. Got 'yes' instead"),
        ({"max_sweeps": 0}, {}, "max_sweeps must be a whole number of at least 1. Got 0 instead"),
        ({}, {"y": None, "yt": [0] * 6}, "yt needs"),
        ({}, {"y": [0, 1]}, "inconsistent numbers of samples"),
        ({"label_reg": 1.0}, {"y": [0, 1]}, "y must hold one class a point, 6"),
        ({}, {"yt": [0, 1]}, "yt must hold one class a point, 6"),
        ({"label_reg": 1.0}, {"y": [0, 1, math.nan, 0, 1, 1]}, "class of every source point"),
        ({}, {"y": [-1, 1, 1, 1, 1, 1], "yt": [-1] * 6}, "must not hold -1"),
        ({}, {"Xt": np.zeros((6, 4))}, "as many features as X, 3. Got 4"),
        ({}, {"Xt": np.full((6, 3), np.nan)}, "Xt contains NaN"),
        ({"target": np.zeros(3)}, {"Xt": None}, "Expected 2D array"),
        ({"problem": sp.Unbalanced(1e-9, divergence="tv")}, {}, "must carry some mass"),
    ],
)
def test_bad_input_is_refused(parameters, fit, message):
    xs, xt = clouds(6, 6)
    arguments = {"y": [0, 0, 0, 1, 1, 1], "Xt": xt} | fit
    with pytest.raises((ValueError, TypeError), match=message):
        sp.MiniBatchTransport(**parameters).fit(xs, **arguments)


@pytest.mark.slow
def test_photos_of_one_domain_teach_to_tell_those_of_another():
    """Office-Caltech10: ten classes in four domains, as 64 principal components of ResNet-50 features."""
    file = Path(os.environ.get("SPADEFUL_DATA", "")) / "office_caltech10_resnet50.npz"
    if "SPADEFUL_DATA" not in os.environ or not file.is_file():
        pytest.skip("SPADEFUL_DATA names no folder with office_caltech10_resnet50.npz")
    with np.load(file, allow_pickle=False) as data:
        features, classes, domains = data["x"].astype(np.float64), data["y"], data["domain"]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    points = PCA(64, random_state=0).fit_transform(features)
    sets = [(points[domains == domain], classes[domains == domain]) for domain in range(4)]
    before, after = [], []
    for (xs, ys), (xt, yt) in permutations(sets, 2):
        moved = sp.MiniBatchTransport(batch_size=32).fit_transform(xs, Xt=xt)
        before.append(accuracy(xs, ys, xt, yt))
        after.append(accuracy(moved, ys, xt, yt))
    # Measured: 0.894 and 0.920.
    assert np.mean(after) > np.mean(before) + 0.015


def test_before_fit_there_is_nothing_to_transform():
    for move in ("transform", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(sp.MiniBatchTransport(), move)([[0.0]])


def test_without_scikit_learn_the_error_names_the_extra():
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import spadeful\n"
        "try: spadeful.MiniBatchTransport\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install spadeful[sklearn]" in done.stdout
