"""What is asked of the plan: problems as frozen values that check themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

#: Masses this close to 1 are 1: sums of weights, as users form them, miss it by as much.
ROUNDING = 1e-14


def is_number(x: object) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


def check_mass(mass: object, owner: str, name: str = "mass") -> float:
    """The mass as a float in (0, 1], with 1 where it misses 1 by rounding only."""
    if not is_number(mass):
        raise TypeError(f"The {name!r} parameter of {owner} must be a number in (0, 1]. Got {mass!r} instead.")
    value = float(mass)  # type: ignore[arg-type]
    if math.isclose(value, 1.0, rel_tol=0.0, abs_tol=ROUNDING):
        return 1.0
    if not 0.0 < value <= 1.0:
        raise ValueError(f"The {name!r} parameter of {owner} must be in (0, 1]. Got {mass!r} instead.")
    return value


def check_masses(masses: Any, owner: str) -> tuple[float, ...]:
    """Several masses, at least one."""
    if not isinstance(masses, Iterable) or isinstance(masses, str):
        raise TypeError(f"The 'masses' parameter of {owner} must list numbers in (0, 1]. Got {masses!r} instead.")
    wanted = tuple(check_mass(mass, owner, "masses") for mass in masses)
    if not wanted:
        raise ValueError("masses must hold at least one number in (0, 1]. Got none.")
    return wanted


def check_reg(reg: object, owner: str) -> float:
    """The regularisation as a finite float of at least 0."""
    if not is_number(reg):
        raise TypeError(f"The 'reg' parameter of {owner} must be a number of at least 0. Got {reg!r} instead.")
    value = float(reg)  # type: ignore[arg-type]
    if not 0.0 <= value < math.inf:
        raise ValueError(f"The 'reg' parameter of {owner} must be finite and at least 0. Got {reg!r} instead.")
    return value


@dataclass(frozen=True)
class Balanced:
    r"""Move all the mass: :math:`\min_\pi \langle C, \pi\rangle` over plans with marginals a and b.

    With `reg` the entropic problem, :math:`\langle C, \pi\rangle + \mathrm{reg} \sum \pi (\log \pi - 1)`.

    >>> Balanced(), Balanced(reg=0.1)
    (Balanced(reg=0.0), Balanced(reg=0.1))
    """

    reg: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "reg", check_reg(self.reg, "Balanced"))


@dataclass(frozen=True)
class Partial:
    r"""Move the cheapest part of the mass, :math:`\mathrm{POT}_s` of the paper (section 3.1).

    .. math:: \min_\pi \langle C, \pi\rangle
              \quad\text{with}\quad \pi 1 \le a,\ \pi^\top 1 \le b,\ 1^\top \pi 1 = s

    With `reg` the entropic problem, :math:`\langle C, \pi\rangle + \mathrm{reg} \sum \pi (\log \pi - 1)`.

    >>> Partial(mass=0.75)
    Partial(mass=0.75, reg=0.0)
    >>> Partial(mass=1.3)
    Traceback (most recent call last):
    ValueError: The 'mass' parameter of Partial must be in (0, 1]. Got 1.3 instead.
    """

    mass: float
    reg: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", check_mass(self.mass, "Partial"))
        object.__setattr__(self, "reg", check_reg(self.reg, "Partial"))


@dataclass(frozen=True)
class Unbalanced:
    r"""Pay for mass that is left or made, :math:`\mathrm{UOT}^\tau_\phi` of the paper (section 2.1).

    .. math:: \min_{\pi \ge 0} \langle C, \pi\rangle + \tau_a D(\pi 1, a) + \tau_b D(\pi^\top 1, b)
              + \mathrm{reg}\, H(\pi)

    where D is the Kullback-Leibler divergence :math:`\sum x \log(x/y) - x + y` ("kl") or the total variation
    :math:`\sum |x - y|` ("tv"), and H the entropy :math:`\sum \pi (\log \pi - 1)` ("plain", as in the paper's
    experiments) or :math:`\mathrm{KL}(\pi \,|\, a b^\top)` ("kl"). With m points a side of equal weights the
    second equals the first with every cost raised by 2 reg log(m). `tau` is one number or a pair.

    >>> Unbalanced(tau=0.5, reg=0.01)
    Unbalanced(tau=0.5, reg=0.01, divergence='kl', entropy='plain')
    """

    tau: float | tuple[float, float]
    reg: float = 0.0
    divergence: Literal["kl", "tv"] = "kl"
    entropy: Literal["plain", "kl"] = "plain"

    def __post_init__(self) -> None:
        pair = self.taus
        if len(pair) != 2 or not all(is_number(t) for t in pair):
            raise TypeError(f"The 'tau' parameter of Unbalanced must be a number or a pair. Got {self.tau!r} instead.")
        if not all(0.0 < float(t) < math.inf for t in pair):
            raise ValueError(f"The 'tau' parameter of Unbalanced must be finite and above 0. Got {self.tau!r} instead.")
        for name, choices in (("divergence", ("kl", "tv")), ("entropy", ("plain", "kl"))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"The '{name}' parameter of Unbalanced must be {choices[0]!r} or {choices[1]!r}. "
                    f"Got {getattr(self, name)!r} instead."
                )
        taus = float(pair[0]), float(pair[1])
        object.__setattr__(self, "tau", taus if isinstance(self.tau, tuple) else taus[0])
        object.__setattr__(self, "reg", check_reg(self.reg, "Unbalanced"))

    @property
    def taus(self) -> tuple[float, float]:
        """The penalties of rows and columns."""
        if isinstance(self.tau, tuple):
            return self.tau
        return self.tau, self.tau


Problem = Balanced | Partial | Unbalanced


@dataclass(frozen=True)
class Sliced:
    r"""Transport of the points' projections onto random lines, as the mean over the lines.

    .. math:: \frac1L \sum_{l=1}^L \mathrm{POT}_s(\theta_l^\top X, \theta_l^\top Y)
              \quad\text{with the cost}\quad |\theta_l^\top x - \theta_l^\top y|^p

    for L directions :math:`\theta_l` drawn uniformly from the sphere; partial, it is that of Bonneel and Coeurjolly
    (2019). It takes points, not a cost: see `sliced` and `MiniBatchLoss`.

    >>> Sliced(Partial(mass=0.9), n_projections=50)
    Sliced(problem=Partial(mass=0.9, reg=0.0), n_projections=50, p=2, seed=0)
    """

    problem: Balanced | Partial
    n_projections: int = 100
    p: Literal[1, 2] = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.problem, (Balanced, Partial)) or self.problem.reg > 0:
            raise TypeError(
                "The 'problem' parameter of Sliced must be Balanced() or Partial(mass), without reg. "
                f"Got {self.problem!r} instead."
            )
        for name, least in (("n_projections", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                rule = f"The '{name}' parameter of Sliced must be a whole number of at least {least}."
                raise ValueError(f"{rule} Got {value!r} instead.")
            object.__setattr__(self, name, int(value))
        if isinstance(self.p, bool) or self.p not in (1, 2):
            raise ValueError(f"The 'p' parameter of Sliced must be 1 or 2. Got {self.p!r} instead.")
        object.__setattr__(self, "p", int(self.p))

    @property
    def mass(self) -> float:
        return self.problem.mass if isinstance(self.problem, Partial) else 1.0


#: The mass of a partial problem at each iteration.
Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Ramp:
    """A number that grows or falls linearly over the first iterations, then stays (section 4.2 of the paper).

    >>> ramp = Ramp(0.01, 0.325, iterations=2500)
    >>> ramp(0), ramp(1250), ramp(2500), ramp(5000)
    (0.01, 0.1675, 0.325, 0.325)
    """

    start: float
    end: float
    iterations: int

    def __call__(self, iteration: int) -> float:
        done = min(1.0, max(0, iteration) / self.iterations) if self.iterations > 0 else 1.0
        return self.end if done >= 1 else float(f"{self.start + (self.end - self.start) * done:.12g}")


def check_schedule(problem: object, schedule: Schedule | None) -> None:
    if schedule is not None and not callable(schedule):
        raise TypeError(
            f"schedule must be a function of the step, such as Ramp(1.0, 0.5, 5000). Got {schedule!r} instead."
        )
    if schedule is not None and not isinstance(problem, Partial):
        raise ValueError(f"schedule is of the mass of a Partial problem. Got the problem {problem!r} instead.")


def at_iteration(problem: Problem, schedule: Schedule | None, iteration: int) -> Problem:
    """The problem with the mass that a schedule sets.

    >>> at_iteration(Partial(0.5, reg=0.1), Ramp(1.0, 0.5, 10), 5)
    Partial(mass=0.75, reg=0.1)
    """
    if schedule is None or not isinstance(problem, Partial):
        return problem
    return Partial(schedule(iteration), problem.reg)
