"""mass_path: every mass in one solve."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from spadeful import _core
from spadeful.arrays import Floats, is_torch, own_kind, precise, read_cost, read_weights
from spadeful.exact import ExactAnswer
from spadeful.plan import Plan, Triplets, matrices
from spadeful.problems import check_mass


class MassPath:
    r"""The optimal partial plans of every mass.

    The optimal value is convex and piecewise linear in the mass. `masses` are its breakpoints, from 0 to the
    largest mass that can be moved (1 unless pairs are forbidden), `values` what it is there, and `prices` the
    slopes in between, so that there is one price fewer. `at` gives the plan of any mass.

    >>> import numpy as np, spadeful as sp
    >>> path = sp.mass_path(np.array([[0.0, 4.0], [1.0, 9.0]]))
    >>> path.masses, path.values, path.prices
    (array([0. , 0.5, 1. ]), array([0. , 0. , 2.5]), array([0., 5.]))
    >>> path.at(0.75).value
    1.25
    """

    def __init__(self, cost: Any, weights: tuple[Floats | None, Floats | None], path: _core.Path):
        self._cost = cost
        self._weights = weights
        self._path = path

    def __repr__(self) -> str:
        return f"MassPath(shape={tuple(self._cost.shape)}, pieces={len(self.prices)})"

    @cached_property
    def masses(self) -> Any:
        """The breakpoints, from 0 to the largest mass."""
        return precise(self._path.masses, self._cost)

    @cached_property
    def values(self) -> Any:
        """The optimal value at each breakpoint."""
        return precise(self._path.values, self._cost)

    @cached_property
    def prices(self) -> Any:
        """The price of mass between each breakpoint and the next; they never fall."""
        return precise(self._path.prices, self._cost)

    def at(self, mass: float) -> Plan:
        """The optimal plan of a mass, read off the path."""
        given: Any = mass  # one of `masses` may be a tensor
        mass = check_mass(given.item() if is_torch(given) and given.ndim == 0 else given, "at")
        largest = float(self._path.masses[-1])
        if mass > max(largest + 1e-12, float(self.masses[-1])):  # which may be in single precision
            raise ValueError(
                f"The mass {mass} cannot be transported: the forbidden pairs (inf) leave room for at most "
                f"{largest}. Ask for at most that mass, or allow more pairs."
            )
        mass, values = min(mass, largest), read_cost(self._cost, (2,))
        return Plan(self._cost, ExactAnswer(values, mass, self._weights, _Point(self, mass)))


class _Point:
    """The plan at one mass. The path does not keep the prices of rows and columns: they are solved for."""

    def __init__(self, path: MassPath, mass: float):
        self.triplets: Triplets = path._path.triplets(mass)
        self._path = path
        self._mass = mass

    @property
    def dense(self) -> Floats:
        return matrices(self.triplets, (1, *self._path._cost.shape))

    @cached_property
    def _solved(self) -> _core.Answers:
        return _core.solve(read_cost(self._path._cost, (2,)), self._mass, *self._path._weights, 1)

    @property
    def prices(self) -> Floats:
        return self._solved.prices

    @property
    def column_prices(self) -> Floats:
        return self._solved.column_prices


def mass_path(cost: Any, a: Any = None, b: Any = None) -> MassPath:
    r"""Solve partial transport for every mass at once.

    Successive shortest augmenting paths from all rows with mass left give the optimal plan of every mass on
    their way to the full one; a mass between two of them takes a part of the last path.

    Parameters
    ----------
    cost : array (m, n)
        What it costs to move a unit of mass from row i to column j; `inf` forbids the pair.
    a, b : array (m,), array (n,), optional
        Weights of the rows and columns, each summing to 1; uniform if absent.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> path = sp.mass_path(np.array([[1.0, 2.0, np.inf]]), b=np.array([0.5, 0.25, 0.25]))
    >>> path.masses, path.prices
    (array([0.  , 0.5 , 0.75]), array([1., 2.]))
    """
    values = read_cost(cost, (2,))
    weights = read_weights(a, "a", values.shape[0]), read_weights(b, "b", values.shape[1])
    return MassPath(own_kind(cost, values), weights, _core.path(values, *weights))
