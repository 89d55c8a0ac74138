"""What adversarial methods share: reversed gradients, their schedule, and a discriminator."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reverse(x: Tensor, strength: float = 1.0) -> Tensor:
    """The same values; gradients come back negated and times `strength`: one side climbs what the other descends."""
    reversed_: Tensor = _Reverse.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


def rising(progress: float) -> float:
    """From 0 to almost 1 as training goes on: 2 / (1 + exp(-10 q)) - 1 (Ganin et al., 2016)."""
    return 2 / (1 + math.exp(-10 * progress)) - 1


def discriminator(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    """Three linear layers with ReLU and dropout, as in the code of CDAN."""
    return nn.Sequential(
        *(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(hidden, outputs),
    )


def entropies(logits: Tensor) -> Tensor:
    """The entropy of each prediction."""
    logs = log_softmax(logits, dim=1)
    return -(logs.exp() * logs).sum(dim=1)


def domains(source: Tensor, target: Tensor) -> Tensor:
    """1 for every point of the source, 0 for every one of the target."""
    return torch.cat([torch.ones(len(source)), torch.zeros(len(target))]).to(source)
