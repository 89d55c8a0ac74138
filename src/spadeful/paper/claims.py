"""What the paper claims of its figures, tested with ours."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_1samp, wilcoxon

from spadeful.training.record import last_phase
from spadeful.training.settings import check_types

#: The checkpoints whose accuracy is compared: the best by the target's labels, as in the paper, and without them.
ORACLE, LABEL_FREE = "oracle", "density"


class Measure(NamedTuple):
    """Something that runs are compared by: its name, its unit, whether more of it is better, and digits to show."""

    title: str
    unit: str
    more: bool
    digits: int = 2


MEASURES = {
    "accuracy": Measure("accuracy", "points", True),
    "precision": Measure("mean precision of the classes", "points", True),
    "absent": Measure("mass that classes send which the target lacks", "%", False),
    "seconds": Measure("time per iteration", "s", False, 4),
    "iterations_per_second": Measure("iterations per second", "", True),
    "seconds_per_epoch": Measure("seconds per epoch, of n / (k m) iterations", "s", False, 1),
    "misspecified": Measure("misspecified mappings", "mappings", False),
    "optimal": Measure("optimal mappings", "mappings", True),
    "change": Measure("change of the plan under scaling", "of the mass", False, 6),
    "w2": Measure("Wasserstein-2 distance at the end", "", False, 4),
    "unmatched": Measure("pixels without a match", "%", False),
    "fid": Measure("FID", "", False),
    "score": Measure("Fréchet distance in features that are not Inception's", "", False),
}

#: Below it a difference counts as one.
LEVEL = 0.05
#: Pairs from which on ranks are tested, and from which on differences are, by Student's t.
RANKED, TESTED = 6, 3


@dataclass(frozen=True)
class Claim:
    """Runs with the parts `better` in their names do better than those, alike otherwise, that have `than` instead.

    Or, where there is `at_most`, the measure of runs with the parts `better` is never above it. `where` are further
    parts that the names of the runs must have.
    """

    says: str
    better: str
    than: str = ""
    measure: str = "accuracy"
    where: str = ""
    at_most: float | None = None
    paper: float | None = None  # the gain that the paper tells, where its tables do not give it

    @classmethod
    def read(cls, given: dict[str, Any], where: str = "a claim") -> Claim:
        known = {spec.name for spec in fields(cls)}
        if not {"says", "better"} <= given.keys() <= known or ("than" in given) == ("at_most" in given):
            raise ValueError(
                f"A claim of {where} must hold says, better and either than or at_most, and may hold measure, "
                f"where and paper. Got {', '.join(given)} instead."
            )
        if given.get("measure", "accuracy") not in MEASURES:
            raise ValueError(
                f"The measure of a claim of {where} must be one of {', '.join(MEASURES)}. "
                f"Got {given['measure']!r} instead."
            )
        claim = cls(**given)
        try:
            check_types(claim)
        except (ValueError, TypeError) as error:
            raise ValueError(f"A claim of {where} must be of texts and numbers: {error}") from None
        return claim


class Verdict(NamedTuple):
    """What pairs of runs say of a claim: the mean gain, how many pairs, the test and its p-value."""

    verdict: str
    gain: float | None = None
    pairs: int = 0
    test: str = ""
    p: float | None = None


def measured(run: dict[str, Any], measure: str, checkpoint: str = ORACLE) -> float | None:
    """A measure of a run, if it has it."""
    if measure in run.get("measured", {}):
        return float(run["measured"][measure])
    if measure == "accuracy" and run.get(checkpoint):
        return float(run[checkpoint]["target_accuracy"])
    if measure == "absent" and run.get("absent") and run.get("sent"):
        return float(100 * sum(run["sent"][name] for name in run["absent"]) / sum(run["sent"].values()))
    if measure == "precision" and run.get("classes"):
        return float(run["classes"]["mean of classes"][1])
    if measure == "seconds" and run.get("rows"):
        # The median: a machine that was busy for a while makes some iterations slow.
        return float(median(row["seconds"] for row in last_phase(run["rows"])))
    return None


def values(results: dict[str, Any], measure: str, checkpoint: str = ORACLE) -> dict[str, float]:
    """A measure of all runs that have it, by their names."""
    found = {run["name"]: measured(run, measure, checkpoint) for run in results["runs"]}
    return {name: value for name, value in found.items() if value is not None}


def having(found: dict[str, float], parts: str, where: str) -> dict[frozenset[str], float]:
    """The values of runs that have some parts in their names, by the other parts."""
    wanted, further = set(parts.split(",")), set(where.split(",")) - {""}
    names = {name: set(name.split(",")) for name in found}
    return {frozenset(names[name] - wanted): found[name] for name in found if wanted | further <= names[name]}


def gains(found: dict[str, float], claim: Claim) -> list[float]:
    """By how much the one run of each pair is better than the other."""
    one, other = (having(found, parts, claim.where) for parts in (claim.better, claim.than))
    sign = 1 if MEASURES[claim.measure].more else -1
    return [sign * (value - other[rest]) for rest, value in one.items() if rest in other]


def judge(found: dict[str, float], claim: Claim) -> Verdict:
    """Test a claim with the values of runs by their names.

    >>> claim = Claim("a beats b", "a", "b")
    >>> judge({"a,seed=0": 3.0, "b,seed=0": 1.0, "a,seed=1": 4.0, "b,seed=1": 3.0}, claim)
    Verdict(verdict='better, too few pairs for a test', gain=1.5, pairs=2, test='', p=None)
    """
    if claim.at_most is not None:
        own = list(having(found, claim.better, claim.where).values())
        if not own:
            return Verdict("not run")
        return Verdict("holds" if max(own) <= claim.at_most else "does not hold", max(own), len(own))
    differences = gains(found, claim)
    if not differences:
        return Verdict("not run")
    gain, n = mean(differences), len(differences)
    side = "better" if gain > 0 else "worse" if gain < 0 else "equal"
    if n < TESTED:
        return Verdict(f"{side}, too few pairs for a test", gain, n)
    if not any(differences) or (n < RANKED and np.ptp(differences) <= 1e-6 * abs(gain)):
        return Verdict(f"{side} by the same in all pairs" if gain else "equal in all pairs", gain, n)
    test, tested = ("Wilcoxon", wilcoxon) if n >= RANKED else ("t", partial(ttest_1samp, popmean=0.0))
    p = float(tested(differences).pvalue)
    if p >= LEVEL:
        return Verdict(f"open: {side}, not significant", gain, n, test, p)
    # Ranks may say one thing and a mean that a few large differences make another.
    up = float(tested(differences, alternative="greater").pvalue) < 0.5
    if up != (gain > 0):
        ranks = "better" if up else "worse"
        return Verdict(f"open: {ranks} by ranks, {side} in the mean", gain, n, test, p)
    return Verdict("holds" if up else "does not hold: worse", gain, n, test, p)
