"""solve(cost, problem): the only dispatch."""

from __future__ import annotations

from typing import Any

from spadeful.exact import solve_exact
from spadeful.plan import Plan
from spadeful.problems import Balanced, Partial, Problem


def solve(cost: Any, problem: Problem, a: Any = None, b: Any = None, *, threads: int | None = None) -> Plan:
    """Find the optimal plan for a cost.

    Parameters
    ----------
    cost : array (m, n) or (k, m, n)
        What it costs to move a unit of mass from row i to column j; `inf` forbids the pair. NumPy or torch,
        of any real type. A batch holds k problems, solved over threads.
    problem : Balanced or Partial
        What is asked of the plan.
    a, b : array (m,), array (n,), optional
        Weights of the rows and columns, each summing to 1; uniform if absent.
    threads : int, optional
        How many problems of a batch to solve at a time; all cores if absent. It does not change the answer.

    >>> import numpy as np, spadeful as sp
    >>> x, y = np.arange(1.0, 4.0), np.arange(3.0, 6.0)
    >>> cost = 1 + (x[:, None] - y) ** 2
    >>> sp.solve(cost, sp.Partial(mass=1 / 3)).matrix.round(2)
    array([[0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.  ],
           [0.33, 0.  , 0.  ]])
    >>> sp.solve(cost, sp.Balanced()).value
    5.0
    """
    if isinstance(problem, Partial):
        return solve_exact(cost, problem.mass, a, b, threads)
    if isinstance(problem, Balanced):
        return solve_exact(cost, 1.0, a, b, threads)
    raise TypeError(f"problem must be Balanced() or Partial(mass). Got {problem!r} instead.")
