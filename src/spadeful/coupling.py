"""Pairs of points of two batches, drawn from the plan between them: what flow matching trains on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from spadeful.arrays import Floats, is_torch, like_index, open_array
from spadeful.batches import check_count
from spadeful.costs import Cost, batch_costs, check_cost, function_cost, read_points, refuse_points
from spadeful.plan import Indices
from spadeful.problems import Balanced, Partial, Problem, Unbalanced
from spadeful.solve import solve
from spadeful.transport import as_sparse, row_masses

#: Numbers of pairs this close to a whole one are whole: sums of masses miss it by less.
WHOLE = 1e-9

Seed = int | np.random.Generator | None


def couple(
    x0: Any,
    x1: Any,
    problem: Problem = Balanced(),  # noqa: B008 (a frozen value)
    *,
    cost: Cost = "sqeuclidean",
    seed: Seed = None,
    n_pairs: int | None = None,
) -> tuple[Any, Any]:
    r"""Pair the points of two batches by the optimal plan between them: x0[i] goes with x1[j].

    A pair is drawn :math:`m \pi_{ij}` times in expectation, with m the points of x0 and :math:`\pi` the plan:

    - Exact `Balanced` or `Partial` between as many points: a matching, in which no point is repeated. `Balanced`
      pairs every point. `Partial` pairs mass * m points; where that is not whole, the number is rounded down or up
      at random, with the mean that was asked for, and the optimal matching is found for it.
    - All else (batches of two sizes, entropic, unbalanced): the rows by systematic sampling, so that each appears
      as often as its mass says, rounded down or up: every row once under `Balanced`, mass * m of them, at most once,
      under `Partial`. A row's partner is drawn with the row of the plan as probabilities, independently of
      others. A plan of mass above 1 (unbalanced) is scaled to 1: there are never more than m pairs.

    Parameters
    ----------
    x0, x1 : array (m, ...), array (n, ...)
        The points, NumPy or torch, with uniform weights. Beyond the first axis they are flattened for the cost.
    problem : Balanced, Partial or Unbalanced
        What is solved between them.
    cost : str or function
        "sqeuclidean", "euclidean", "cosine", or a function of two batches (m, d), (n, d) returning (m, n). It gets
        arrays or tensors, as were passed, without their gradients.
    seed : int or numpy.random.Generator, optional
        Decides what is drawn; a generator is drawn from. Without it every call differs.
    n_pairs : int, optional
        Draw only so many of the pairs, in random order: transport is then solved over a larger batch than is
        trained on. At most the number that is there whatever the rounding.

    Returns
    -------
    i, j : array (k,), array (k,)
        Indices into x0 and x1, in the library and on the device of x0; sorted by i unless `n_pairs` is given.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> x0, x1 = np.array([[0.0], [1.0], [9.0]]), np.array([[1.5], [5.0], [0.1]])
    >>> sp.couple(x0, x1)
    (array([0, 1, 2]), array([2, 0, 1]))
    >>> sp.couple(x0, x1, sp.Partial(mass=2 / 3))
    (array([0, 1]), array([2, 0]))
    """
    check_settings(problem, cost, n_pairs)
    rng = generator(seed)
    rates = pair_rates(x0, x1, problem, cost, rng, n_pairs)
    i, j = draw_pairs(rates, n_pairs, rng)
    return like_index(i, x0), like_index(j, x0)


class CouplingSampler:
    """The coupling in the form that torchcfm's flow matchers call: set it as their `ot_sampler`.

    Its methods are those of torchcfm's `OTPlanSampler`. Unlike that, it draws pairs by the rule of `couple` unless
    told to `replace`, so that an exact plan repeats and drops no point; it has a random state of its own; and a plan
    without mass is an error. Under `Partial` fewer pairs come back than points went in: let `t` be drawn by the
    matcher, or pass as many times as there are pairs.

    Parameters
    ----------
    problem, cost, n_pairs
        As in `couple`. With `n_pairs` batches larger than it may be passed, and so many pairs come back.
    seed : int or numpy.random.Generator, optional
        Decides all that is drawn. Where several processes train together, give each another.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> sampler = sp.CouplingSampler(sp.Partial(mass=0.5), seed=0)
    >>> x0, x1 = sampler.sample_plan(np.array([[0.0], [1.0]]), np.array([[1.5], [5.0]]))
    >>> x0, x1
    (array([[1.]]), array([[1.5]]))

    In torchcfm: ``matcher.ot_sampler = sp.CouplingSampler(sp.Partial(mass=0.9))``.
    """

    def __init__(
        self,
        problem: Problem = Balanced(),  # noqa: B008 (a frozen value)
        *,
        cost: Cost = "sqeuclidean",
        seed: Seed = None,
        n_pairs: int | None = None,
    ):
        check_settings(problem, cost, n_pairs)
        self.problem = problem
        self.cost = cost
        self.n_pairs = n_pairs
        self.rng = generator(seed)

    def __repr__(self) -> str:
        return f"CouplingSampler({self.problem!r}, cost={self.cost!r}, n_pairs={self.n_pairs})"

    def get_map(self, x0: Any, x1: Any) -> Floats:
        """The plan between two batches, as a NumPy array (m, n)."""
        plan: Floats = solve(cost_between(x0, x1, self.cost), self.problem).matrix
        return plan

    def sample_map(self, pi: Any, batch_size: int, replace: bool = False) -> tuple[Indices, Indices]:
        """So many pairs drawn from a plan, as NumPy arrays.

        Without `replace` the rows are drawn by systematic sampling: one appears twice only if its share of the mass
        is more than one pair in `batch_size`. With it each pair is drawn independently of the others.
        """
        check_count(batch_size, "batch_size")
        rates = as_sparse(pi, "pi")
        if not (np.isfinite(rates.data).all() and (rates.data >= 0).all()):
            raise ValueError("pi must hold finite masses of at least 0.")
        return self._draw(rates, batch_size, replace)

    def sample_plan(self, x0: Any, x1: Any, replace: bool = False) -> tuple[Any, Any]:
        """The points of both batches in pairs, drawn as `couple` does.

        With `replace`, as many independent draws from the plan as there are points in x0, or `n_pairs`.
        """
        i, j = self._pairs(x0, x1, replace)
        return take(x0, i), take(x1, j)

    def sample_plan_with_labels(
        self, x0: Any, x1: Any, y0: Any = None, y1: Any = None, replace: bool = False
    ) -> tuple[Any, Any, Any, Any]:
        """As `sample_plan`, with the labels of the points that were drawn, or None for labels that were not given."""
        for y, x, name in ((y0, x0, "0"), (y1, x1, "1")):
            if y is not None and len(y) != len(x):
                raise ValueError(f"y{name} must hold a label a point of x{name}, {len(x)}. Got {len(y)} instead.")
        i, j = self._pairs(x0, x1, replace)
        labels = (None if y is None else take(y, drawn) for y, drawn in ((y0, i), (y1, j)))
        return take(x0, i), take(x1, j), *labels

    def sample_trajectory(self, X: Any) -> Any:  # noqa: N803 (torchcfm's name)
        """Paths of points (k, times, ...) through populations X (m, times, ...), each step drawn as `couple` does.

        All m paths come back under `Balanced`; else those whose points were paired at every step. They never meet
        where plans are matchings; where they do otherwise, they go on independently.
        """
        X = X if is_torch(X) else np.asarray(X)  # noqa: N806
        shape = X.shape
        if len(shape) < 2 or not shape[1]:
            raise ValueError(f"X must have the shape (points, times, ...). Got {shape} instead.")
        visited = [np.arange(shape[0])]
        for t in range(shape[1] - 1):
            rates = pair_rates(X[:, t], X[:, t + 1], self.problem, self.cost, self.rng)
            going = systematic(row_masses(rates)[visited[-1]], self.rng)
            if not len(going):
                raise ValueError(f"No path goes on from time {t}: no point that one has reached was paired. Move more.")
            visited = [places[going] for places in visited]
            visited.append(partners(rates, visited[-1], self.rng))
        times = np.broadcast_to(np.arange(shape[1]), (len(visited[0]), shape[1]))
        return X[like_index(np.stack(visited, axis=1), X), like_index(times.copy(), X)]

    def _pairs(self, x0: Any, x1: Any, replace: bool) -> tuple[Indices, Indices]:
        if replace:
            pi = as_sparse(self.get_map(x0, x1))
            return self._draw(pi, len(x0) if self.n_pairs is None else self.n_pairs, replace=True)
        rates = pair_rates(x0, x1, self.problem, self.cost, self.rng, self.n_pairs)
        return draw_pairs(rates, self.n_pairs, self.rng)

    def _draw(self, plan: Any, count: int, replace: bool) -> tuple[Indices, Indices]:
        masses = row_masses(plan)
        total = masses.sum()
        if not total > 0:
            raise ValueError("The plan carries no mass: there is nothing to pair. Move more, or lower the costs.")
        if replace:
            drawn = self.rng.choice(len(masses), count, p=masses / total)
        else:
            drawn = self.rng.permutation(systematic(masses * (count / total), self.rng))
        return drawn, partners(plan, drawn, self.rng)


def pair_rates(
    x0: Any, x1: Any, problem: Problem, cost: Cost, rng: np.random.Generator, n_pairs: int | None = None
) -> Any:
    """How often each pair is to be drawn (m, n), sparse: the plan with a mass of 1 for each point of x0."""
    costs = cost_between(x0, x1, cost)
    m, n = costs.shape
    matching = m == n and isinstance(problem, (Balanced, Partial)) and not problem.reg
    total = getattr(problem, "mass", 1.0) * m
    if not isinstance(problem, Unbalanced) and total < 1 - WHOLE:
        raise ValueError(f"mass must be at least 1/{m} for {m} points to give a pair. Got {total / m} instead.")
    if matching:
        total = near_whole(total)
        k = int(total)
        up = total - k
        # Of k pairs each has the chance n_pairs / k: a larger k is drawn the more often, for all to be as likely.
        k += rng.random() < (up if n_pairs is None else up * (k + 1) / total)
        rows, columns, _ = solve(costs, Partial(k / m)).triplets
        rates = scipy.sparse.csr_array((np.ones(k), (rows, columns)), shape=(m, n))
    else:
        plan = solve(costs, problem)
        rates = as_sparse(plan) * (m / max(plan.mass, 1.0))
        total = near_whole(row_masses(rates).sum())
        if total < 1:
            raise ValueError(
                f"The plan must carry the mass of at least one of the {m} points, 1/{m}, to pair any. Got {plan.mass} "
                "instead; raise tau, or lower the costs."
            )
    if n_pairs is not None and n_pairs > int(total):
        raise ValueError(f"n_pairs must be at most the pairs that there are, {int(total)}. Got {n_pairs} instead.")
    return rates


def draw_pairs(rates: Any, n_pairs: int | None, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Pairs drawn as often as the rates say, or so many of them in random order."""
    masses = row_masses(rates)
    if n_pairs is None:
        i = np.sort(systematic(masses, rng))
    else:
        i = rng.permutation(systematic(masses * (n_pairs / masses.sum()), rng))
    return i, partners(rates, i, rng)


def systematic(counts: Floats, rng: np.random.Generator) -> Indices:
    """Each index as often as its count says, rounded down or up at random; so is the sum of all.

    They are laid end to end, in random order, and a comb of teeth one apart is thrown on them.
    """
    order = rng.permutation(len(counts))
    ends = near_whole(np.cumsum(counts[order]))
    # Short of 1, which a sum with `ends` could be rounded up to.
    teeth = np.floor(ends + rng.random() * (1 - WHOLE))
    return np.repeat(order, np.diff(teeth, prepend=0).astype(np.int64))


def partners(rates: Any, rows: Indices, rng: np.random.Generator) -> Indices:
    """A column for each of some rows, drawn with the row of the plan as probabilities."""
    ends = np.cumsum(rates.data)
    first, last = rates.indptr[rows], rates.indptr[rows + 1] - 1
    start = ends[first] - rates.data[first]
    picked = np.searchsorted(ends, start + rng.random(len(rows)) * (ends[last] - start), side="right")
    return np.asarray(rates.indices[picked.clip(first, last)], dtype=np.int64)


def near_whole(values: Any) -> Any:
    """The values, whole where they miss it by rounding only."""
    whole = np.rint(values)
    return np.where(abs(values - whole) < WHOLE, whole, values)


def cost_between(x0: Any, x1: Any, cost: Cost) -> Floats:
    """The costs (m, n) between two batches, or an error that names what is wrong with them."""
    flat0, flat1 = flatten(x0, "x0"), flatten(x1, "x1")
    if np.shape(x0)[1:] != np.shape(x1)[1:]:
        raise ValueError(
            "x0 and x1 must hold points of one shape. "
            f"Got {tuple(np.shape(x0)[1:])} and {tuple(np.shape(x1)[1:])} instead."
        )
    if not callable(cost):
        rows, columns = np.arange(len(flat0))[None], np.arange(len(flat1))[None]
        return np.asarray(batch_costs(flat0, flat1, rows, columns, cost, threads=1)[0])
    passed = (x.detach().reshape(len(x), -1) if is_torch(x) else flat for x, flat in ((x0, flat0), (x1, flat1)))
    return function_cost(cost, *passed)


def flatten(x: Any, name: str) -> NDArray[Any]:
    """The points of a batch (m, ...) as (m, d)."""
    values = open_array(x, name)
    if not values.ndim or not values.size:
        raise ValueError(f"{name} must hold at least one point, (points, ...). Got the shape {values.shape} instead.")
    flat = read_points(values.reshape(len(values), -1), name)
    refuse_points(flat, np.arange(len(flat)), name)
    return flat


def take(x: Any, indices: Indices) -> Any:
    """Some points or labels by their places, which the index of a table of pandas does not tell."""
    return x[like_index(indices, x)] if is_torch(x) else np.asarray(x)[indices]


def check_settings(problem: object, cost: object, n_pairs: object) -> None:
    if not isinstance(problem, (Balanced, Partial, Unbalanced)):
        raise TypeError(f"problem must be Balanced(), Partial(mass) or Unbalanced(tau). Got {problem!r} instead.")
    check_cost(cost)
    if n_pairs is not None:
        check_count(n_pairs, "n_pairs")


def generator(seed: Seed) -> np.random.Generator:
    """A random state of one's own; a generator is its own."""
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0
    if seed is not None and not whole and not isinstance(seed, np.random.Generator):
        raise ValueError(
            f"seed must be a whole number of at least 0, a numpy.random.Generator or None. Got {seed!r} instead."
        )
    return np.random.default_rng(seed)
