r"""How far mini-batch partial transport is from its expectation: the paper's two concentration theorems.

`value_error` bounds the error of the value (Theorem 1) and `marginal_error` that of the plan's row and column sums
(Theorem 2), either with probability :math:`1 - \delta`; `value_batches` and `marginal_batches` tell how many batches
keep an error below a wanted one. They need numbers only and solve nothing. The points of one batch are distinct, and
the batches are drawn independently of each other.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from numbers import Integral

from spadeful.problems import check_mass, is_number


def largest_value(
    *, mass: float, distance: float, spread: float, v: float, gamma: float, n_points: int, delta: float
) -> float:
    r"""The value that no pair of batches exceeds, :math:`D_n` of Theorem 1, with probability :math:`1 - \delta/4`.

    .. math:: D_n = s \left[ d(\mathbb{E}X, \mathbb{E}Y) + \mathbb{E}\,d(X, \mathbb{E}X) + \mathbb{E}\,d(Y, \mathbb{E}Y)
              + 2 \max\left\{ 2\gamma \left[\log(2n) + \log(8/\delta)\right], v^2/\gamma \right\} \right]

    The costs have to be distances d, not their squares, and the distances of points to their mean sub-exponential.

    This is larger than what Theorem 1 prints, in two places. Its proof needs :math:`2\gamma[\ldots]` where it prints
    :math:`\gamma[\ldots]`. And a sub-exponential distance strays little from its own expectation, which need not be
    small: both expectations are added here as `spread`. Without them (`spread=0`, as in the paper) the theorem fails
    for points on two circles around one centre, where v is 0, gamma as small as one likes, and the value is not 0.

    Where every pair is known to cost at most c, s times c may stand for :math:`D_n` in `value_error`.

    Parameters
    ----------
    mass : float
        The mass s that is moved, in (0, 1].
    distance : float
        The distance of the two means.
    spread : float
        The expected distance of a source point to its mean, plus that of a target point.
    v, gamma : float
        :math:`\mathbb{E} \exp(\lambda (Z - \mathbb{E}Z)) \le \exp(v^2\lambda^2/2)` for :math:`|\lambda| < 1/\gamma`,
        for Z either distance. A Z in an interval of length r has v = r/2 with any gamma, of which
        :math:`v/\sqrt{2\log(16n/\delta)}` makes the answer smallest.
    n_points : int
        The points n on either side.
    delta : float
        The probability left for the theorem to fail, in (0, 1).

    Examples
    --------
    >>> largest_value(mass=0.5, distance=1.0, spread=2.0, v=1.0, gamma=0.1, n_points=1000, delta=0.05)
    11.5
    """
    owner = "largest_value"
    mass = check_mass(mass, owner)
    distance, spread = _size(distance, "distance", owner), _size(spread, "spread", owner)
    v, gamma = _size(v, "v", owner), _positive(gamma, "gamma", owner)
    n_points, delta = _count(n_points, "n_points", owner), _delta(delta, owner)
    farthest = max(2 * gamma * (math.log(2 * n_points) + _log_over(8, delta)), v * (v / gamma))
    return mass * (distance + spread + 2 * farthest)


def value_error(
    *, largest: float, n_batches: int, delta: float, n_points: int | None = None, batch_size: int | None = None
) -> float:
    r"""The error of the mini-batch value that is exceeded with probability at most :math:`\delta` (Theorem 1).

    .. math:: \left| \text{m-POT}^s_k(\mu_n, \nu_n) - \text{m-POT}^s(\mu, \nu) \right| \le
              D_n \sqrt{\frac{8 \log(4/\delta)}{\lfloor n/m \rfloor}} + D_n \sqrt{\frac{2 \log(4/\delta)}{k}}

    The first term is for the points, which are a sample, the second for the batches. Without `n_points` and
    `batch_size` it is the second alone, which bounds the error around the full mini-batch value, the mean over all
    pairs of batches of the points at hand.

    Parameters
    ----------
    largest : float
        :math:`D_n`, as `largest_value` gives it for the same n and :math:`\delta`; or any other bound on the values.
    n_batches : int
        The pairs of batches k.
    delta : float
        The probability left for a larger error, in (0, 1).
    n_points, batch_size : int, optional
        The points n on either side and how many of them, m, are in a batch.

    Examples
    --------
    >>> round(value_error(largest=1.0, n_batches=1000, delta=0.05), 4)
    0.0936
    >>> round(value_error(largest=1.0, n_batches=1000, delta=0.05, n_points=100_000, batch_size=100), 4)
    0.2808
    """
    owner = "value_error"
    n_batches = _count(n_batches, "n_batches", owner)
    of_points, of_one_batch = _value_terms(largest, delta, n_points, batch_size, owner)
    return of_points + of_one_batch / math.sqrt(n_batches)


def value_batches(
    *, error: float, largest: float, delta: float, n_points: int | None = None, batch_size: int | None = None
) -> int:
    r"""The fewest pairs of batches for which `value_error` is at most a wanted error (Theorem 1 solved for k).

    .. math:: k = \left\lceil \frac{2 D_n^2 \log(4/\delta)}
              {\left(\mathrm{error} - D_n \sqrt{8 \log(4/\delta) / \lfloor n/m \rfloor}\right)^2} \right\rceil

    More batches do not make up for too few points: an error that the term of the points alone exceeds is refused.

    Parameters
    ----------
    error : float
        The wanted error.
    largest, delta, n_points, batch_size
        As for `value_error`.

    Examples
    --------
    >>> value_batches(error=0.1, largest=1.0, delta=0.05)
    877
    >>> value_batches(error=0.1, largest=1.0, delta=0.05, n_points=10_000, batch_size=100)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: The 'error' parameter of value_batches must be above 0.592..., the error that 10000 points in batches
    of 100 leave however many batches are drawn. Got 0.1 instead. Allow a larger error, or take more points or smaller
    batches.
    """
    owner = "value_batches"
    error = _positive(error, "error", owner)
    of_points, of_one_batch = _value_terms(largest, delta, n_points, batch_size, owner)
    if error <= of_points:
        raise ValueError(
            f"The 'error' parameter of {owner} must be above {of_points}, the error that {n_points} points in batches "
            f"of {batch_size} leave however many batches are drawn. Got {error!r} instead. Allow a larger error, or "
            "take more points or smaller batches."
        )
    return _fewest(lambda k: of_points + of_one_batch / math.sqrt(k), error, owner)


def marginal_error(*, mass: float, n_batches: int, delta: float) -> float:
    r"""The error of a row or column sum that is exceeded with probability at most :math:`\delta` (Theorem 2).

    .. math:: \left| \left(\pi^{\text{m-POT}^s_k} 1_n - \pi^{\text{m-POT}^s} 1_n\right)_i \right|
              \le 2 s \sqrt{\frac{\log(2/\delta)}{k}}

    around the sums of the full mini-batch plan, the mean over all pairs of batches, with the constant that the
    theorem's proof ends with. It holds for each coordinate i; for all 2n sums at once take :math:`\delta/(2n)`.
    The size m of the batches is not in it: a sum is at most 1/m in any one plan, so that the error is smaller, the
    more so the larger the batches are.

    Parameters
    ----------
    mass : float
        The mass s that is moved, in (0, 1].
    n_batches : int
        The pairs of batches k.
    delta : float
        The probability left for a larger error, in (0, 1).

    Examples
    --------
    >>> round(marginal_error(mass=0.5, n_batches=100, delta=0.05), 4)
    0.1921
    """
    owner = "marginal_error"
    return _marginal_term(mass, delta, owner) / math.sqrt(_count(n_batches, "n_batches", owner))


def marginal_batches(*, error: float, mass: float, delta: float) -> int:
    r"""The fewest pairs of batches for which `marginal_error` is at most a wanted error (Theorem 2 solved for k).

    .. math:: k = \left\lceil 4 s^2 \log(2/\delta) / \mathrm{error}^2 \right\rceil

    Parameters
    ----------
    error : float
        The wanted error.
    mass, delta
        As for `marginal_error`.

    Examples
    --------
    >>> marginal_batches(error=0.1, mass=0.5, delta=0.05)
    369
    """
    owner = "marginal_batches"
    error, of_one_batch = _positive(error, "error", owner), _marginal_term(mass, delta, owner)
    return _fewest(lambda k: of_one_batch / math.sqrt(k), error, owner)


def _value_terms(
    largest: float, delta: float, n_points: int | None, batch_size: int | None, owner: str
) -> tuple[float, float]:
    """The terms of Theorem 1: of the points, and of the batches if there were one."""
    largest, delta = _size(largest, "largest", owner), _delta(delta, owner)
    of_one_batch = largest * math.sqrt(2 * _log_over(4, delta))
    if n_points is None and batch_size is None:
        return 0.0, of_one_batch
    if n_points is None or batch_size is None:
        raise TypeError(
            f"The 'n_points' and 'batch_size' parameters of {owner} must be given together or not at all. "
            f"Got {n_points!r} and {batch_size!r} instead."
        )
    n_points, batch_size = _count(n_points, "n_points", owner), _count(batch_size, "batch_size", owner)
    if batch_size > n_points:
        raise ValueError(
            f"The 'batch_size' parameter of {owner} must be at most n_points = {n_points}. Got {batch_size} instead."
        )
    return largest * math.sqrt(8 * _log_over(4, delta) / (n_points // batch_size)), of_one_batch


def _marginal_term(mass: float, delta: float, owner: str) -> float:
    """The bound of Theorem 2 for one batch."""
    return 2 * check_mass(mass, owner) * math.sqrt(_log_over(2, _delta(delta, owner)))


def _fewest(bound: Callable[[int], float], error: float, owner: str) -> int:
    """The first k with bound(k) <= error. Searched for, as rounding can put the closed form one off."""
    counts = range(1, sys.maxsize)
    k = bisect_left(counts, True, key=lambda k: bound(k) <= error)
    if k == len(counts):
        raise ValueError(
            f"The 'error' parameter of {owner} must be such that fewer than {sys.maxsize} batches reach it. "
            f"Got {error!r} instead. Allow a larger error."
        )
    return counts[k]


def _log_over(numerator: int, delta: float) -> float:
    """log(numerator / delta), where the quotient may overflow."""
    return math.log(numerator) - math.log(delta)


def _size(value: object, name: str, owner: str) -> float:
    if not is_number(value):
        raise TypeError(f"The '{name}' parameter of {owner} must be a number of at least 0. Got {value!r} instead.")
    if not 0.0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"The '{name}' parameter of {owner} must be finite and at least 0. Got {value!r} instead.")
    return float(value)  # type: ignore[arg-type]


def _positive(value: object, name: str, owner: str) -> float:
    if _size(value, name, owner) == 0.0:
        raise ValueError(f"The '{name}' parameter of {owner} must be above 0. Got {value!r} instead.")
    return float(value)  # type: ignore[arg-type]


def _delta(delta: object, owner: str) -> float:
    if not is_number(delta):
        raise TypeError(f"The 'delta' parameter of {owner} must be a number in (0, 1). Got {delta!r} instead.")
    if not 0.0 < float(delta) < 1.0:  # type: ignore[arg-type]
        raise ValueError(f"The 'delta' parameter of {owner} must be in (0, 1). Got {delta!r} instead.")
    return float(delta)  # type: ignore[arg-type]


def _count(value: object, name: str, owner: str) -> int:
    if not (isinstance(value, Integral) and is_number(value)):
        raise TypeError(f"The '{name}' parameter of {owner} must be a whole number. Got {value!r} instead.")
    if value < 1:
        raise ValueError(f"The '{name}' parameter of {owner} must be at least 1. Got {value!r} instead.")
    return int(value)
