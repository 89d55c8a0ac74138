"""Which checkpoint to keep: rules that look at the target's labels, and rules that do not.

A measure is computed at every evaluation; a rule says which measure counts, and in which direction. The oracle, which
the paper reports, needs labels of the target that nobody has in practice.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from spadeful.training.record import Rule

#: Points that the density is computed of at most, since its time grows with their square.
MOST = 5000


RULES = {
    "oracle": Rule("target_accuracy", 1, "the accuracy on the target's labels, as the paper reports"),
    "density": Rule("target_density", 1, "the soft neighbourhood density of the target's predictions"),
    "entropy": Rule("target_entropy", -1, "the entropy of the target's predictions"),
    "source": Rule("source_accuracy", 1, "the accuracy on the source"),
}


def check_rule(name: str) -> str:
    if name not in RULES:
        raise ValueError(f"select must be one of {', '.join(RULES)}. Got {name!r} instead.")
    return name


def soft_neighbourhood_density(probabilities: Tensor, temperature: float = 0.05) -> float:
    """How many neighbours points have that are predicted alike, as the mean entropy of their similarities.

    Point i looks at point j with a probability that grows with the cosine of their predictions,
    exp(cos_ij / temperature); it is high where predictions form few dense clusters (Saito et al., ICCV 2021). A point
    that is alone has none.
    """
    if len(probabilities) < 2:
        return 0.0
    if len(probabilities) > MOST:
        probabilities = probabilities[torch.linspace(0, len(probabilities) - 1, MOST).long()]
    unit = normalize(probabilities, dim=1)
    entropies = []
    for start in range(0, len(unit), 1000):
        some = unit[start : start + 1000]
        logits = some @ unit.T / temperature
        logits[torch.arange(len(some)), torch.arange(start, start + len(some))] = -torch.inf  # not itself
        entropies.append(torch.special.entr(logits.softmax(dim=1)).sum(dim=1))
    return float(torch.cat(entropies).mean())
