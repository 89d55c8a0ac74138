"""Mini-batch transport as a scikit-learn estimator: fit and transform, with labels where they are known."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from spadeful.aggregate import MiniBatchPlan
from spadeful.arrays import Floats
from spadeful.batches import Indices, check_count, check_flag
from spadeful.costs import Cost, batch_costs, check_cost
from spadeful.entropic import quietly
from spadeful.minibatch import check_sizes, minibatch
from spadeful.problems import Balanced, Partial, Problem, Unbalanced, is_number
from spadeful.solve import solve
from spadeful.transport import barycentric_map

#: How often a point is drawn, on average, where the number of batches is not given.
DRAWS = 20
#: The power and the offset of the penalty on classes that share a target point, and how often it is renewed.
POWER, OFFSET, ROUNDS = 0.5, 1e-3, 10
#: Points that are moved in one go.
CHUNK = 4096
#: The code of an unknown class.
UNKNOWN = -1


class MiniBatchTransport(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Move source points onto target points by mini-batch transport, for domain adaptation with scikit-learn.

    `fit` finds the mini-batch plan between the two sets (see `minibatch`), and `transform` moves a fitted source
    point to its barycentric image :math:`\sum_j \pi_{ij} y_j / \sum_j \pi_{ij}`. Any other point, and a source
    point that has no mass (an outlier that partial transport leaves behind, or one that no batch has drawn), moves
    with the nearest source points that have some: to the mean over these neighbours of
    :math:`T(x_i) + x - x_i` (Ferradans et al., 2014). `inverse_transform` does the same from target to source.

    A classifier is trained on the moved source and then used on target points as they are. In a pipeline, that
    is the steps after this one: `pipeline[-1].predict(Xt)`; `pipeline.predict` expects points of the source.

    Parameters
    ----------
    problem : Balanced, Partial or Unbalanced, optional
        What is solved between two batches; `Balanced()` if absent. To search over masses, list problems:
        `{"problem": [Partial(0.6), Partial(0.9)]}`.
    batch_size : int or pair of ints
        Points of a batch, of source and target if they differ; at most all of them. Larger batches bring the plan
        nearer to that between the whole sets, smaller ones average over more points, which often generalises
        better. Batches with as many of each class hold at most as many of each as the smallest has.
    n_batches : int, optional
        How many batches. If absent, so many that each point is drawn about 20 times, or one that holds them all.
        Pass fewer where not only pairs of them meet.
    cost : str or function
        "sqeuclidean", "euclidean", "cosine", or a function of two batches (m, d), (n, d) returning (m, n).
    pairing : "paired", "all", "bomb" or a problem
        Which batches meet, as in `minibatch`.
    class_balanced : bool
        Whether source batches hold as many points of each class as can be; target batches too if `yt` is given
        and knows every class.
    label_reg : float
        How much it costs a target point to receive from several classes: :math:`\eta` of the group penalty

        .. math:: \min_\pi\ \langle C, \pi\rangle + \dots
                  + \eta \sum_j \sum_c \Big(\varepsilon + \sum_{i : y_i = c} \pi_{ij}\Big)^{p},
                  \qquad p = \tfrac12,\ \varepsilon = 10^{-3}

        (Courty et al., Optimal Transport for Domain Adaptation, 2016). Being concave it is minimised by
        linearising it: a batch is solved up to 10 times, each time with
        :math:`\eta p (\varepsilon + \sum_{i : y_i = c} \pi_{ij})^{p-1}` of the plan before added to the costs of
        class c. `value_` then contains this term.
    limit_max : float
        What pairs of different known classes cost, in units of the largest cost in their batches (and at least
        what they cost anyway). By default they are forbidden; it is an error if that leaves no room for the mass
        in a pair of batches.
    n_neighbors : int
        With how many neighbours a point moves that was not fitted; with all where there are fewer.
    target : array (n, d), optional
        The target points, for use where only X and y are passed to `fit`, as in a pipeline or a grid search.
        It has to be given as the steps before this one would return it.
    seed : int
        Decides every batch.
    n_jobs : int, optional
        Processes, as in `minibatch`.
    tol, max_sweeps : float, int
        For regularised problems: `tol` and `max_iter` of `solve`.

    Attributes
    ----------
    plan_ : sparse array (n_source, n_target)
    value_, standard_error_ : float
        What the plan costs, and how far that may be from the mean over all batches.
    matched_ : array (n_source,)
        Which source points have mass.
    images_ : array (n_source, d)
        Where the source points go.
    source_, target_ : array (n_source, d), array (n_target, d)
    batch_size_, n_batches_ : pair of ints, int
        What was used.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> rng = np.random.default_rng(0)
    >>> xs = rng.normal(size=(200, 2))
    >>> xt = xs[::-1] + [5, 0]
    >>> adapted = sp.MiniBatchTransport(batch_size=200).fit(xs, Xt=xt)
    >>> bool(np.allclose(adapted.transform(xs), xs + [5, 0]))
    True
    >>> adapted.transform([[0.0, 0.0]])
    array([[5., 0.]])
    """

    def __init__(
        self,
        problem: Problem | None = None,
        *,
        batch_size: int | tuple[int, int] = 64,
        n_batches: int | None = None,
        cost: Cost = "sqeuclidean",
        pairing: Literal["paired", "all", "bomb"] | Problem = "paired",
        class_balanced: bool = False,
        label_reg: float = 0.0,
        limit_max: float = math.inf,
        n_neighbors: int = 1,
        target: Any = None,
        seed: int = 0,
        n_jobs: int | None = None,
        tol: float = 1e-6,
        max_sweeps: int = 10_000,
    ):
        self.problem = problem
        self.batch_size = batch_size
        self.n_batches = n_batches
        self.cost = cost
        self.pairing = pairing
        self.class_balanced = class_balanced
        self.label_reg = label_reg
        self.limit_max = limit_max
        self.n_neighbors = n_neighbors
        self.target = target
        self.seed = seed
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_sweeps = max_sweeps

    def fit(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> MiniBatchTransport:  # noqa: N803
        """Find the plan from source to target.

        Parameters
        ----------
        X : array (n_source, d)
            The source points.
        y : array (n_source,), optional
            Their classes, numbers or strings. Ignored unless `class_balanced`, `label_reg` or `yt` asks for them.
        Xt : array (n_target, d), optional
            The target points, before those of the constructor. With neither, a warning says that the source
            is transported onto itself.
        yt : array (n_target,), optional
            Classes of the target where they are known; -1, NaN or None where not.
        """
        self._check_parameters()
        source = validate_data(self, X, dtype=[np.float64, np.float32])
        target = self._read_target(source, Xt)
        labels = read_labels(y, yt, len(source), len(target)) if self._needs_labels(y, yt) else None
        if y is not None:
            check_consistent_length(source, y)
        result = self._transport(source, target, labels)
        if not result.mass > 0:
            raise ValueError(
                f"The plan must carry some mass. With problem={self.problem!r} it carries none; raise tau, or allow "
                "more pairs."
            )
        self.source_, self.target_, self.plan_ = source, target, result.plan
        self.value_, self.standard_error_ = result.value, result.standard_error
        self._forth = NeighbourMap.of(self.plan_, source, target, self.n_neighbors, self.n_jobs)
        self.matched_, self.images_ = self._forth.matched, self._forth.everywhere(source)
        return self

    def fit_transform(self, X: Any, y: Any = None, Xt: Any = None, yt: Any = None) -> Any:  # noqa: N803
        """Find the plan, and return where the source points go."""
        return self.fit(X, y, Xt, yt).images_.copy()

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Where points of the source domain go, fitted or not."""
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        if np.array_equal(points, self.source_):  # of points fitted twice, each has its own image
            return self.images_.astype(points.dtype)
        return self._forth(points)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Where points of the target domain come from: `transform` with the roles of source and target exchanged."""
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        back = NeighbourMap.of(self.plan_.T, self.target_, self.source_, self.n_neighbors, self.n_jobs)
        if np.array_equal(points, self.target_):
            return back.everywhere(self.target_).astype(points.dtype)
        return back(points)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_parameters(self) -> None:
        if not isinstance(self.problem, (Balanced, Partial, Unbalanced, type(None))):
            raise TypeError(
                f"problem must be Balanced(), Partial(mass), Unbalanced(tau) or None. Got {self.problem!r} instead."
            )
        check_cost(self.cost)
        check_count(self.n_neighbors, "n_neighbors")
        check_count(self.max_sweeps, "max_sweeps")
        check_flag(self.class_balanced, "class_balanced")
        if not is_number(self.label_reg) or not 0 <= self.label_reg < math.inf:
            raise ValueError(f"label_reg must be a finite number of at least 0. Got {self.label_reg!r} instead.")
        if not is_number(self.limit_max) or not self.limit_max >= 1:
            raise ValueError(f"limit_max must be a number of at least 1, or inf. Got {self.limit_max!r} instead.")

    def _read_target(self, source: NDArray[Any], given: Any) -> NDArray[Any]:
        if given is None:
            given = self.target
        if given is None:
            warnings.warn(
                "MiniBatchTransport has no target, so the source is transported onto itself. Pass Xt to fit, or "
                "target to the constructor.",
                stacklevel=3,
            )
            return source
        names, theirs = getattr(self, "feature_names_in_", None), getattr(given, "columns", None)
        if names is not None and theirs is not None and list(theirs) != list(names):
            raise ValueError(
                f"The target must have the columns of X, in their order: {', '.join(names)}. "
                f"Got {', '.join(map(str, theirs))} instead."
            )
        target: NDArray[Any] = check_array(given, dtype=[np.float64, np.float32], input_name="Xt")
        if target.shape[1] != source.shape[1]:
            raise ValueError(
                f"The target must have as many features as X, {source.shape[1]}. Got {target.shape[1]} instead."
            )
        return target

    def _needs_labels(self, y: Any, yt: Any) -> bool:
        asked = {"class_balanced=True": self.class_balanced, "label_reg": self.label_reg > 0, "yt": yt is not None}
        needed = [name for name, is_asked in asked.items() if is_asked]
        if needed and y is None:
            raise ValueError(f"{needed[0]} needs the classes of the source. Pass them to fit as y.")
        return bool(needed)

    def _transport(self, source: NDArray[Any], target: NDArray[Any], labels: Labels | None) -> MiniBatchPlan:
        problem = Balanced() if self.problem is None else self.problem
        m, n = check_sizes(self.batch_size)
        m, n = min(m, len(source)), min(n, len(target))
        balanced: tuple[Indices, Indices | None] | None = None
        if labels is not None and self.class_balanced:
            m, balanced = min(m, most_balanced(labels.source)), (labels.source, None)
            if (labels.target >= 0).all():
                n, balanced = min(n, most_balanced(labels.target)), labels
        self.batch_size_ = m, n
        self.n_batches_ = check_count(self._enough(len(source), len(target)), "n_batches")
        x, y, cost = source, target, self.cost
        if labels is not None and (self.label_reg > 0 or (labels.target >= 0).any()):
            x, y = with_labels(source, labels.source), with_labels(target, labels.target)
            cost = LabelCost(self.cost, problem, self.label_reg, self.limit_max, self.tol, self.max_sweeps)
        return minibatch(
            x,
            y,
            problem,
            self.batch_size_,
            self.n_batches_,
            cost=cost,
            pairing=self.pairing,
            labels=balanced,
            seed=self.seed,
            n_jobs=self.n_jobs,
            tol=self.tol,
            max_iter=self.max_sweeps,
        )

    def _enough(self, *points: int) -> int:
        if self.n_batches is not None:
            return self.n_batches
        if self.batch_size_ == points:
            return 1
        return max(math.ceil(DRAWS * count / size) for count, size in zip(points, self.batch_size_, strict=True))


class NeighbourMap(NamedTuple):
    """A map that is known at some points, and moves any other with the nearest of them."""

    matched: NDArray[np.bool_]
    points: NDArray[Any]
    images: Floats
    index: Any

    @staticmethod
    def of(plan: Any, x: NDArray[Any], y: NDArray[Any], n_neighbors: int, n_jobs: int | None) -> NeighbourMap:
        """The barycentric map of a plan, known where x has mass."""
        images = barycentric_map(plan, y)
        matched = ~np.ma.getmaskarray(images)[:, 0]
        points = x[matched]
        index = NearestNeighbors(n_neighbors=min(n_neighbors, len(points)), n_jobs=n_jobs).fit(points)
        return NeighbourMap(matched, points, images.data[matched], index)

    def everywhere(self, x: NDArray[Any]) -> NDArray[Any]:
        """Where the points of the plan go."""
        images = np.empty_like(x)
        images[self.matched] = self.images
        if not self.matched.all():
            images[~self.matched] = self(x[~self.matched])
        return images

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        moved = np.empty_like(x)
        for part in gen_batches(len(x), CHUNK):
            nearest = self.index.kneighbors(x[part], return_distance=False)
            away = x[part][:, None] - self.points[nearest]
            # A point that is itself known goes to its image, however many neighbours it has.
            itself = (away == 0).all(axis=2)
            weights = np.where(itself.any(axis=1, keepdims=True), itself, 1.0)
            weights /= weights.sum(axis=1, keepdims=True)
            moved[part] = np.einsum("ik,ikd->id", weights, self.images[nearest] + away)
        return moved


class Labels(NamedTuple):
    """The classes of source and target as whole numbers, UNKNOWN where not known."""

    source: Indices
    target: Indices


def read_labels(y: Any, yt: Any, n_source: int, n_target: int) -> Labels:
    """Number the classes of source and target alike."""
    ours = as_list(y, n_source, "y")
    theirs = [None] * n_target if yt is None else as_list(yt, n_target, "yt")
    if any(label is None or label != label for label in ours):
        raise ValueError("y must hold the class of every source point. Got NaN or None among them.")
    # In the order in which `minibatch` would have them, so that it draws the same batches.
    ordered = sorted(set(ours), key=lambda label: (type(label).__name__, label))
    codes = {label: code for code, label in enumerate(ordered)}
    if yt is not None and -1 in codes:
        raise ValueError("y must not hold -1 where yt is given, in which -1 stands for an unknown class. Rename it.")
    for label in theirs:
        if not is_unknown(label):
            codes.setdefault(label, len(codes))
    numbers = [UNKNOWN if is_unknown(label) else codes[label] for label in theirs]
    return Labels(np.array([codes[label] for label in ours]), np.array(numbers))


def as_list(labels: Any, size: int, name: str) -> list[Any]:
    values = np.asarray(labels, dtype=object if isinstance(labels, (list, tuple)) else None)
    if values.shape != (size,):
        raise ValueError(f"{name} must hold one class a point, {size} of them. Got the shape {values.shape} instead.")
    return values.tolist()  # type: ignore[no-any-return]


def is_unknown(label: Any) -> bool:
    itself = label == label  # NaN is not, and NA of pandas does not say
    return label is None or not isinstance(itself, (bool, np.bool_)) or not itself or bool(label == -1)


def most_balanced(classes: Indices) -> int:
    """The largest batch that holds as many points of each class, none twice."""
    counts = np.bincount(classes)
    counts = counts[counts > 0]
    return int(len(counts) * counts.min())


def with_labels(points: NDArray[Any], classes: Indices) -> NDArray[Any]:
    """The points with their class as a last coordinate, by which it travels to the cost of their batches."""
    return np.column_stack([points, classes.astype(points.dtype)])


@dataclass(frozen=True)
class LabelCost:
    """The cost between two batches of points whose last coordinate is their class."""

    cost: Cost
    problem: Problem
    label_reg: float
    limit_max: float
    tol: float
    max_iter: int

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> Floats:
        ours, theirs = x[:, -1].astype(np.int64), y[:, -1].astype(np.int64)
        costs = self._between(np.ascontiguousarray(x[:, :-1]), np.ascontiguousarray(y[:, :-1]))
        apart = (theirs >= 0) & (ours[:, None] != theirs)
        if apart.any():
            if math.isinf(self.limit_max):
                self._check_room(ours, theirs)
                costs[apart] = math.inf
            else:
                largest = costs.max(where=np.isfinite(costs), initial=0.0)
                costs[apart] = np.maximum(costs[apart], self.limit_max * largest)
        return self._separated(costs, ours) if self.label_reg > 0 else costs

    def _between(self, x: NDArray[Any], y: NDArray[Any]) -> Floats:
        rows, cols = np.arange(len(x))[None], np.arange(len(y))[None]
        costs: Floats = batch_costs(x, y, rows, cols, self.cost, threads=1)[0]
        return costs

    def _check_room(self, ours: Indices, theirs: Indices) -> None:
        """Refuse batches whose known classes leave no room for the mass."""
        mass = 1.0 if isinstance(self.problem, Balanced) else getattr(self.problem, "mass", 0.0)
        count = max(ours.max(), theirs.max()) + 1
        of_rows = np.bincount(ours, minlength=count) / len(ours)
        of_cols = np.bincount(theirs[theirs >= 0], minlength=count) / len(theirs)
        # What a class cannot send to its own it sends to the points of unknown class.
        within = np.minimum(of_rows, of_cols).sum()
        room = within + min((theirs < 0).mean(), 1 - within)
        if room < mass - 1e-9:
            raise ValueError(
                f"Every pair of batches must have room for the mass {mass:g} between points that may be of one class. "
                f"Got one with room for {room:.6g} instead; ask for less mass with Partial(mass), draw batches with "
                "class_balanced=True, or let classes mix at a price with a finite limit_max."
            )

    def _separated(self, costs: Floats, classes: Indices) -> Floats:
        """The costs with the penalty on classes that share a column, which is linearised at the plan before."""
        present, row_class = np.unique(classes, return_inverse=True)
        members = (np.arange(len(present))[:, None] == row_class).astype(np.float64)
        penalised = costs
        for _ in range(ROUNDS - 1):  # the last time is for whoever asked for the cost
            with quietly():
                plan = solve(penalised, self.problem, tol=self.tol, max_iter=self.max_iter, threads=1)
            received = members @ plan.matrix
            before = penalised
            penalised = costs + self.label_reg * POWER * (received + OFFSET)[row_class] ** (POWER - 1)
            if np.array_equal(penalised, before):
                break
        return penalised
