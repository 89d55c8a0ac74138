"""What is asked of the plan: problems as frozen values that check themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

#: Masses this close to 1 are 1: sums of weights, as users form them, miss it by as much.
ROUNDING = 1e-14


def check_mass(mass: object, owner: str) -> float:
    """The mass as a float in (0, 1], with 1 where it misses 1 by rounding only."""
    if isinstance(mass, bool) or not isinstance(mass, Real):
        raise TypeError(f"The 'mass' parameter of {owner} must be a number in (0, 1]. Got {mass!r} instead.")
    value = float(mass)
    if math.isclose(value, 1.0, rel_tol=0.0, abs_tol=ROUNDING):
        return 1.0
    if not 0.0 < value <= 1.0:
        raise ValueError(f"The 'mass' parameter of {owner} must be in (0, 1]. Got {mass!r} instead.")
    return value


@dataclass(frozen=True)
class Balanced:
    r"""Move all the mass: :math:`\min_\pi \langle C, \pi\rangle` over plans with marginals a and b.

    >>> Balanced()
    Balanced()
    """


@dataclass(frozen=True)
class Partial:
    r"""Move the cheapest part of the mass, :math:`\mathrm{POT}_s` of the paper (section 3.1).

    .. math:: \min_\pi \langle C, \pi\rangle
              \quad\text{with}\quad \pi 1 \le a,\ \pi^\top 1 \le b,\ 1^\top \pi 1 = s

    >>> Partial(mass=0.75)
    Partial(mass=0.75)
    >>> Partial(mass=1.3)
    Traceback (most recent call last):
    ValueError: The 'mass' parameter of Partial must be in (0, 1]. Got 1.3 instead.
    """

    mass: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", check_mass(self.mass, "Partial"))


Problem = Balanced | Partial
