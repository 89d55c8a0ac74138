"""m-OT (DeepJDOT), m-UOT (JUMBOT) and m-POT: one method, three problems (algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spadeful.adapt.methods.base import Draw, Step, both
from spadeful.loss import JointCost, MiniBatchLoss
from spadeful.problems import Partial, Problem, Schedule, Unbalanced, check_schedule


def letter(problem: Problem) -> str:
    """OT, UOT or POT."""
    return "UOT" if isinstance(problem, Unbalanced) else "POT" if isinstance(problem, Partial) else "OT"


def check(problem: Problem, schedule: Schedule | None, **counts: int) -> None:
    check_schedule(problem, schedule)
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1. Got {count!r} instead.")


@dataclass(frozen=True)
class Transport:
    r"""Cross-entropy on the source plus transport from source to target, over k mini-batches.

    .. math:: \frac1k \sum_i \Big(\frac1m \sum_j L_s(y_{ij}, F(G(s_{ij}))) + \eta \langle C_i, \pi_i\rangle\Big)

    with the joint cost of features and labels. `schedule` is the mass at each iteration, `eta` the paper's
    :math:`\eta_3`, which scales the transport loss alone. With several processes, `gather` solves one problem over the
    batches of all.
    """

    problem: Problem
    cost: JointCost = field(default_factory=JointCost)
    n_batches: int = 1
    eta: float = 1.0
    schedule: Schedule | None = None
    gather: bool = False

    def __post_init__(self) -> None:
        check(self.problem, self.schedule, n_batches=self.n_batches)

    @property
    def name(self) -> str:
        return f"m-{letter(self.problem)}"

    @cached_property
    def loss(self) -> MiniBatchLoss:
        return MiniBatchLoss(self.problem, self.cost, schedule=self.schedule, gather=self.gather)

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return None

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        self.loss.at(step.iteration)
        for _ in range(self.n_batches):
            batch = draw()
            source, source_logits, target, target_logits = both(network, batch)
            transport = self.loss(source, target, batch.labels, target_logits)
            yield (cross_entropy(source_logits, batch.labels) + self.eta * transport) / self.n_batches
