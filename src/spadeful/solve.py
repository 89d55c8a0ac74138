"""solve(cost, problem): the only dispatch."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from spadeful.entropic import solve_entropic
from spadeful.exact import solve_exact
from spadeful.plan import Plan
from spadeful.problems import Balanced, Partial, Problem, Sliced, Unbalanced, is_number
from spadeful.threads import check_threads
from spadeful.unbalanced import solve_unbalanced


def check_limits(tol: object, max_iter: object) -> tuple[float, int]:
    """The limits of an iteration as numbers of Python, unless none could keep them."""
    if not is_number(tol) or not 0 < float(tol) < 1:  # type: ignore[arg-type]
        raise ValueError(f"tol must be a number between 0 and 1. Got {tol!r} instead.")
    if isinstance(max_iter, bool) or not isinstance(max_iter, Integral) or max_iter < 1:
        raise ValueError(f"max_iter must be a whole number of at least 1. Got {max_iter!r} instead.")
    return float(tol), int(max_iter)  # type: ignore[arg-type]


def solve(
    cost: Any,
    problem: Problem,
    a: Any = None,
    b: Any = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    threads: int | None = None,
) -> Plan:
    """Find the optimal plan for a cost.

    Parameters
    ----------
    cost : array (m, n) or (k, m, n)
        What it costs to move a unit of mass from row i to column j; `inf` forbids the pair. NumPy or torch,
        of any real type. A batch holds k problems, solved over threads.
    problem : Balanced, Partial or Unbalanced
        What is asked of the plan.
    a, b : array (m,), array (n,), optional
        Weights of the rows and columns, each summing to 1; uniform if absent.
    tol, max_iter : float, int
        A regularised problem is iterated until no more than this share of the mass is misplaced, or for so
        many sweeps (also at each of the larger regularisations by which a small one is approached); a warning says if
        they were not enough. Exact problems need neither.
    threads : int, optional
        How many problems of a batch to solve at a time; all cores if absent. It does not change the answer.

    Examples
    --------
    >>> import numpy as np, spadeful as sp
    >>> x, y = np.arange(1.0, 4.0), np.arange(3.0, 6.0)
    >>> cost = 1 + (x[:, None] - y) ** 2
    >>> sp.solve(cost, sp.Partial(mass=1 / 3)).matrix.round(2)
    array([[0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.  ],
           [0.33, 0.  , 0.  ]])
    >>> sp.solve(cost, sp.Balanced()).value
    5.0
    >>> plan = sp.solve(cost, sp.Balanced(reg=1.0))
    >>> round(plan.value, 3), plan.converged
    (5.348, True)
    """
    if isinstance(problem, Sliced):
        raise TypeError(f"problem must be one that takes a cost. Got {problem!r}, which takes points: see sliced.")
    if threads is not None:
        threads = check_threads(threads)
    tol, max_iter = check_limits(tol, max_iter)
    if isinstance(problem, (Balanced, Partial, Unbalanced)) and problem.reg > 0:
        return solve_entropic(cost, problem, a, b, tol, max_iter, threads)
    if isinstance(problem, (Balanced, Partial)):
        return solve_exact(cost, getattr(problem, "mass", 1.0), a, b, threads)
    if isinstance(problem, Unbalanced):
        return solve_unbalanced(cost, problem, a, b, threads)
    raise TypeError(f"problem must be Balanced(), Partial(mass) or Unbalanced(tau). Got {problem!r} instead.")
