"""Plan: the one result type."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, is_torch, like, like_index, precise, read_cost, to_numpy

Indices = NDArray[np.int64]


class Answer(Protocol):
    """What a solver hands over, for one problem or a batch of k."""

    @property
    def triplets(self) -> tuple[Indices, Indices, Indices, Floats]:
        """Problem, row, column and mass of every entry."""

    @property
    def prices(self) -> Floats:
        """The price of mass, (k,)."""

    @property
    def column_prices(self) -> Floats:
        """The prices of the columns, (k, n)."""


class Plan:
    r"""A transport plan, what it costs, and the prices that prove it optimal.

    For one cost (m, n) the fields are numbers and arrays; for a batch (k, m, n) each has a leading axis k.
    They are of the library and on the device of the cost, and are computed when first asked for.

    The prices are a solution of the dual problem

    .. math:: \max_{\lambda,\ \alpha \ge 0,\ \beta \ge 0}\ \lambda s - \langle a, \alpha\rangle
              - \langle b, \beta\rangle \quad\text{with}\quad \lambda - \alpha_i - \beta_j \le C_{ij},

    where :math:`\lambda` is `price`, :math:`\alpha` is `row_prices` and :math:`\beta` is `col_prices`. Any
    such solution is a lower bound of what any plan costs, so `gap`, the difference, bounds how far from
    optimal this plan can be. It is computed from the cost that was passed: do not change that array before.

    >>> import numpy as np, spadeful as sp
    >>> plan = sp.solve(np.array([[0.0, 4.0], [1.0, 9.0]]), sp.Partial(mass=0.5))
    >>> plan.matrix
    array([[0.5, 0. ],
           [0. , 0. ]])
    >>> plan.value, plan.mass, plan.gap
    (0.0, 0.5, 0.0)
    """

    def __init__(self, cost: Any, mass: float, weights: tuple[Floats | None, Floats | None], answer: Answer):
        self._cost = cost
        self._asked = mass
        self._weights = weights
        self._answer = answer

    def __repr__(self) -> str:
        return f"Plan(shape={tuple(self._cost.shape)}, value={self.value}, mass={self.mass})"

    @property
    def _batch(self) -> bool:
        return len(self._cost.shape) == 3

    @property
    def _count(self) -> int:
        return int(self._cost.shape[0]) if self._batch else 1

    def _field(self, per_problem: Floats) -> Any:
        """One number or array a problem, as the user sees it."""
        if self._batch or per_problem.ndim > 1 or is_torch(self._cost):
            return precise(per_problem if self._batch else per_problem[0], self._cost)
        return float(per_problem[0])

    @cached_property
    def _entries(self) -> tuple[tuple[Indices, ...], Floats]:
        """Where the plan is not zero, as an index into the cost, and its masses there."""
        *indices, masses = self._answer.triplets
        return tuple(indices if self._batch else indices[1:]), masses

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

    @cached_property
    def matrix(self) -> Any:
        """The plan as a dense array of the cost's shape and precision."""
        indices, masses = self._entries
        dense = np.zeros(tuple(self._cost.shape))
        dense[indices] = masses
        return like(dense, self._cost)

    @cached_property
    def value(self) -> Any:
        r"""What the plan costs, :math:`\langle C, \pi\rangle`.

        For a tensor that requires gradients it is differentiable in the cost with the plan held fixed, which
        by the envelope theorem is the gradient of the optimal value.
        """
        if not is_torch(self._cost):
            return self._field(self._values)
        *indices, masses = self.triplets
        terms = self._cost[tuple(indices)] * masses
        return terms.new_zeros(self._count).index_add(0, indices[0], terms) if self._batch else terms.sum()

    @property
    def _values(self) -> Floats:
        indices, masses = self._entries
        return self._sum(to_numpy(self._cost)[indices].astype(np.float64) * masses)

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
        """What each column takes off the price of mass, at least 0; 0 where the column is not full."""
        return self._field(self._answer.column_prices)

    @cached_property
    def row_prices(self) -> Any:
        """What each row takes off the price of mass, at least 0; 0 where the row is not full."""
        return self._field(self._row_prices)

    @cached_property
    def _row_prices(self) -> Floats:
        cost = read_cost(self._cost, (2, 3))
        rows: Floats = _core.certify(cost, self._answer.prices, self._answer.column_prices)
        return rows

    @cached_property
    def gap(self) -> Any:
        """The certified duality gap: no plan of this mass costs less than `value - gap`."""
        dual = self._answer.prices * self._asked
        prices_of = self._row_prices, self._answer.column_prices
        for weights, prices in zip(self._weights, prices_of, strict=True):
            dual -= prices.mean(axis=1) if weights is None else prices @ weights
        return self._field(self._values - dual)

    @property
    def converged(self) -> bool:
        """Whether the plan is what was asked for: always, for an exact one."""
        return True
