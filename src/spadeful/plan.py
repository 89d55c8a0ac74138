"""Plan: the one result type."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats, is_torch, like, like_index, precise, to_numpy

Indices = NDArray[np.int64]
#: Problem (None for a single one), row, column and mass of every entry of a sparse plan.
Triplets = tuple[Indices | None, Indices, Indices, Floats]


def matrices(triplets: Triplets, shape: tuple[int, ...]) -> Floats:
    """Sparse plans as matrices (k, m, n)."""
    problems, rows, columns, masses = triplets
    dense = np.zeros(shape)
    dense[0 if problems is None else problems, rows, columns] = masses
    return dense


class Answer(Protocol):
    """What a solver hands over, for one problem or a batch of k. All but the plan has a leading axis k."""

    @property
    def triplets(self) -> Triplets | None:
        """The entries of a sparse plan; None for a dense one."""

    @property
    def dense(self) -> Any:
        """The plan as matrices (k, m, n); of a dense one in the library of the cost."""

    @property
    def extra(self) -> Any:
        """What the objective adds to the value (k,)."""

    @property
    def bound(self) -> Any:
        """The dual objective (k,)."""

    @property
    def prices(self) -> Any:
        """The price of mass (k,)."""

    @property
    def row_prices(self) -> Any:
        """(k, m)"""

    @property
    def column_prices(self) -> Any:
        """(k, n)"""

    @property
    def errors(self) -> Any:
        """The share of mass that is not where the marginals want it (k,)."""

    @property
    def sweeps(self) -> Indices:
        """Iterations (k,)."""

    @property
    def converged(self) -> NDArray[np.bool_]:
        """(k,)"""


class Plan:
    r"""A transport plan, what it costs, and the prices that prove it optimal.

    For one cost (m, n) the fields are numbers and arrays; for a batch (k, m, n) each has a leading axis k.
    They are of the library and on the device of the cost, and are computed when first asked for.

    The prices are a solution of the dual problem: for partial transport of mass s,

    .. math:: \max_{\lambda,\ \alpha \ge 0,\ \beta \ge 0}\ \lambda s - \langle a, \alpha\rangle
              - \langle b, \beta\rangle \quad\text{with}\quad \lambda - \alpha_i - \beta_j \le C_{ij},

    where :math:`\lambda` is `price`, :math:`\alpha` is `row_prices` and :math:`\beta` is `col_prices`; for
    other problems penalties take the place of constraints. Any such solution is a lower bound of what any plan
    costs, so `gap`, the difference, bounds how far from optimal this plan can be. For an exact plan it is
    computed from the cost that was passed: do not change that array before.

    >>> import numpy as np, spadeful as sp
    >>> plan = sp.solve(np.array([[0.0, 4.0], [1.0, 9.0]]), sp.Partial(mass=0.5))
    >>> plan.matrix
    array([[0.5, 0. ],
           [0. , 0. ]])
    >>> plan.value, plan.mass, plan.gap
    (0.0, 0.5, 0.0)
    """

    def __init__(self, cost: Any, answer: Answer):
        self._cost = cost
        self._answer = answer

    def __repr__(self) -> str:
        return f"Plan(shape={tuple(self._cost.shape)}, value={self.value}, mass={self.mass})"

    @property
    def _batch(self) -> bool:
        return len(self._cost.shape) == 3

    @property
    def _count(self) -> int:
        return int(self._cost.shape[0]) if self._batch else 1

    def _field(self, per_problem: Any) -> Any:
        """One number or array a problem, as the user sees it."""
        if self._batch or per_problem.ndim > 1 or is_torch(self._cost):
            return precise(per_problem if self._batch else per_problem[0], self._cost)
        return per_problem[0].item()

    @cached_property
    def _entries(self) -> tuple[tuple[Indices, ...], Floats]:
        """Where the plan is not zero, as an index into the cost, and its masses there."""
        if self._answer.triplets is None:
            matrix = to_numpy(self._dense)
            indices = matrix.nonzero()
            return indices, matrix[indices]
        problems, rows, columns, masses = self._answer.triplets
        return ((rows, columns) if problems is None else (problems, rows, columns)), masses

    def _sum(self, terms: Floats) -> Floats:
        """The sum of some terms, one an entry, for each problem."""
        if not self._batch:
            return np.array([terms.sum()])
        return np.bincount(self._entries[0][0], terms, self._count).astype(np.float64)

    @property
    def triplets(self) -> tuple[Any, ...]:
        """The non-zero entries: (rows, cols, masses), with the problems' numbers in front for a batch."""
        indices, masses = self._entries
        return (*(like_index(i, self._cost) for i in indices), precise(masses, self._cost))

    @property
    def _dense(self) -> Any:
        return self._answer.dense if self._batch else self._answer.dense[0]

    @cached_property
    def matrix(self) -> Any:
        """The plan as a dense array of the cost's shape and precision."""
        return like(self._dense, self._cost)

    @cached_property
    def value(self) -> Any:
        r"""What the plan costs, :math:`\langle C, \pi\rangle`.

        For a tensor that requires gradients it is differentiable in the cost with the plan held fixed, which
        by the envelope theorem is the gradient of the optimal value.
        """
        if not is_torch(self._cost):
            return self._field(self._values)
        if self._answer.triplets is None:
            return self._cost.where(self.matrix > 0, 0).mul(self.matrix).sum((-2, -1))
        *indices, masses = self.triplets
        terms = self._cost[tuple(indices)] * masses
        return terms.new_zeros(self._count).index_add(0, indices[0], terms) if self._batch else terms.sum()

    @cached_property
    def _values(self) -> Floats:
        indices, masses = self._entries
        return self._sum(to_numpy(self._cost)[indices].astype(np.float64) * masses)

    @property
    def objective(self) -> Any:
        """What was minimised: `value` plus penalties and entropy, as the problem defines them. Differentiable."""
        return self.value + self._field(self._answer.extra)

    @property
    def mass(self) -> Any:
        """How much mass the plan moves."""
        return self._field(self._sum(self._entries[1]))

    @property
    def price(self) -> Any:
        """The price of mass: the slope of `value` in the mass (between two slopes where it bends)."""
        return self._field(self._answer.prices)

    @cached_property
    def col_prices(self) -> Any:
        """What each column takes off the price of mass; in partial transport at least 0, and 0 if not full."""
        return self._field(self._answer.column_prices)

    @cached_property
    def row_prices(self) -> Any:
        """What each row takes off the price of mass; in partial transport at least 0, and 0 if not full."""
        return self._field(self._answer.row_prices)

    @cached_property
    def gap(self) -> Any:
        """The certified duality gap: no plan has an objective below `objective - gap`."""
        return self._field(self._values + to_numpy(self._answer.extra) - to_numpy(self._answer.bound))

    @property
    def marginal_error(self) -> Any:
        """The share of the mass that was not where the marginals want it when the iteration stopped."""
        return self._field(self._answer.errors)

    @property
    def n_iter(self) -> Any:
        """How many sweeps were made; 0 for an exact plan."""
        return self._answer.sweeps if self._batch else int(self._answer.sweeps[0])

    @property
    def converged(self) -> Any:
        """Whether the marginal error is what was asked for: always, for an exact plan."""
        return self._answer.converged if self._batch else bool(self._answer.converged[0])
