"""Exact transport: calls the compiled core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spadeful import _core
from spadeful.arrays import Floats, own_kind, read_cost, read_weights
from spadeful.plan import Indices, Plan, Triplets
from spadeful.threads import check_threads

Weights = tuple[Floats | None, Floats | None]


class Solved(Protocol):
    """What the core hands over: plans, the price of mass and the prices of the columns."""

    @property
    def triplets(self) -> Triplets: ...

    @property
    def dense(self) -> Floats: ...

    @property
    def prices(self) -> Floats: ...

    @property
    def column_prices(self) -> Floats: ...


@dataclass(eq=False)
class ExactAnswer:
    """Sparse optimal plans of one mass, and the dual solution that certifies them."""

    cost: NDArray[Any]
    mass: float
    weights: Weights
    solved: Solved

    @property
    def triplets(self) -> Triplets:
        return self.solved.triplets

    @property
    def dense(self) -> Floats:
        return self.solved.dense

    @property
    def prices(self) -> Floats:
        return self.solved.prices

    @property
    def column_prices(self) -> Floats:
        return self.solved.column_prices

    @cached_property
    def row_prices(self) -> Floats:
        """Those that make the dual solution feasible for the cost, whatever the solver did."""
        rows: Floats = _core.certify(self.cost, self.prices, self.column_prices)
        return rows

    @cached_property
    def bound(self) -> Floats:
        dual = self.prices * self.mass
        for weights, prices in zip(self.weights, (self.row_prices, self.column_prices), strict=True):
            dual -= prices.mean(axis=1) if weights is None else prices @ weights
        return dual

    @property
    def extra(self) -> Floats:
        return np.zeros(len(self.prices))

    errors = extra

    @property
    def sweeps(self) -> Indices:
        return np.zeros(len(self.prices), dtype=np.int64)

    @property
    def converged(self) -> NDArray[np.bool_]:
        return np.ones(len(self.prices), dtype=np.bool_)


def solve_exact(cost: Any, mass: float, a: Any = None, b: Any = None, threads: int | None = None) -> Plan:
    """The optimal plan of a mass, for one cost (m, n) or each of a batch (k, m, n)."""
    values = read_cost(cost, (2, 3))
    weights = read_weights(a, "a", values.shape[-2]), read_weights(b, "b", values.shape[-1])
    solved = _core.solve(values, mass, *weights, 1 if values.ndim == 2 and threads is None else check_threads(threads))
    return Plan(own_kind(cost, values), ExactAnswer(values, mass, weights, solved))
