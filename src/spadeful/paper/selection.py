"""What it costs to choose a checkpoint without the labels of the target."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import Any

from spadeful.paper.claims import values

#: Rules that see no labels of the target, and taking the last checkpoint as it comes.
RULES = ("density", "entropy", "source", "last")


def lost(results: dict[str, Any]) -> dict[str, float]:
    """By how many points, in the mean over runs, each rule's choice is less accurate than the best checkpoint."""
    best = values(results, "accuracy")
    found = {rule: values(results, "accuracy", rule) for rule in RULES}
    # A rule that could choose nothing in some run cannot be compared with those that could.
    whole = {rule: chosen for rule, chosen in found.items() if best and chosen.keys() == best.keys()}
    return {rule: mean(best[name] - chosen[name] for name in best) for rule, chosen in whole.items()}


def rows(found: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    """A row for each entry that adapts, and the mean over them."""
    losses = {name: each for name, results in found.items() if len(each := lost(results)) == len(RULES)}
    for name, each in losses.items():
        yield [f"`{name}`", str(len(found[name]["runs"])), *(f"{each[rule]:.2f}" for rule in RULES)]
    if losses:
        yield ["mean", "", *(f"{mean(each[rule] for each in losses.values()):.2f}" for rule in RULES)]
