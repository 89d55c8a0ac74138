"""TS-OT, TS-UOT and TS-POT: a large problem in the processor's memory, then small steps (algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spadeful.adapt.methods.base import Batch, Draw, Step, of_source, quiet_batch_norm
from spadeful.adapt.methods.transport import at_iteration, check, letter
from spadeful.loss import JointCost
from spadeful.plan import Plan
from spadeful.problems import Problem
from spadeful.solve import solve


@dataclass(frozen=True)
class TwoStage:
    r"""Align k mini-batches at once without gradients, then train on the aligned pairs, m at a time.

    The plan :math:`\pi` between all k*m source and k*m target points is found from features that are computed
    batch by batch without gradients. Source point i asks for the target point that gets most of its mass; a
    mini-batch of source points meets all that its points ask for, each once, under its block of the plan. Rows
    without mass ask for nobody, so that they contribute neither loss nor batch-norm statistics; a row that carries
    part of its mass (mass * k * m not whole) keeps its part.

    `n_problems` is the paper's :math:`\tilde k`, problems per iteration. `batch_norm` says what the pass without
    gradients does to batch norm: "train" (as the authors: batch statistics, running averages updated twice),
    "frozen" (batch statistics, running averages left alone) or "eval" (running averages used).
    """

    problem: Problem
    cost: JointCost = field(default_factory=JointCost)
    n_batches: int = 2
    n_problems: int = 1
    eta: float = 1.0
    schedule: Callable[[int], float] | None = None
    batch_norm: str = "frozen"

    def __post_init__(self) -> None:
        check(self.problem, self.schedule, n_batches=self.n_batches, n_problems=self.n_problems)
        if self.batch_norm not in ("train", "frozen", "eval"):
            raise ValueError(f"batch_norm must be 'train', 'frozen' or 'eval'. Got {self.batch_norm!r} instead.")

    @property
    def name(self) -> str:
        return f"TS-{letter(self.problem)}"

    @property
    def batches_per_iteration(self) -> int:
        return self.n_batches * self.n_problems

    def modules(self, features: int, classes: int) -> nn.Module | None:
        return None

    def losses(self, network: Any, draw: Draw, step: Step) -> Iterator[Tensor]:
        problem = at_iteration(self.problem, self.schedule, step.iteration)
        for _ in range(self.n_problems):
            batches = [draw() for _ in range(self.n_batches)]
            targets = torch.cat([batch.target for batch in batches])
            for batch, block in zip(batches, self.align(network, batches, problem), strict=True):
                yield self.loss(network, batch, targets, *block) / (self.n_batches * self.n_problems)

    @torch.no_grad()
    def align(self, network: Any, batches: list[Batch], problem: Problem) -> list[tuple[Tensor, Tensor]]:
        """For every batch the numbers of its target points, and the masses between the two, of which a point has 1."""
        with quiet_batch_norm(network, self.batch_norm):
            sources = torch.cat([network(batch.source)[0].float().cpu() for batch in batches])
            seen = [network(batch.target) for batch in batches]
        targets, logits = (torch.cat([part[i].float().cpu() for part in seen]) for i in (0, 1))
        labels = torch.cat([batch.labels.cpu() for batch in batches])
        plan = solve(self.cost.whole(sources, targets, labels, logits), problem)
        ends = [*accumulate((len(batch.source) for batch in batches), initial=0)]  # a loader's last one may be short
        blocks = []
        for first, last in pairwise(ends):
            masses = len(sources) * some_rows(plan, first, last, len(targets), sparse=problem.reg == 0)
            most, partners = masses.max(dim=1)
            columns = partners[most > 0].unique()  # type: ignore[no-untyped-call]
            blocks.append((columns, masses[:, columns]))
        return blocks

    def loss(self, network: Any, batch: Batch, targets: Tensor, columns: Tensor, masses: Tensor) -> Tensor:
        """The loss of one mini-batch of source points and those target points that it meets."""
        source, logits = of_source(network, batch.source)
        loss = cross_entropy(logits, batch.labels)
        # Batch norm needs two points to have a spread.
        if len(columns) < 2:
            return loss
        target, target_logits = network(targets[columns.to(targets.device)])
        cost = sum(self.cost(source[None], target[None], batch.labels[None], target_logits[None]).values())
        total: Tensor = loss + self.eta * (masses.to(cost) * cost).sum() / len(source)
        return total


def some_rows(plan: Plan, first: int, last: int, columns: int, sparse: bool) -> Tensor:
    """Some rows of a plan. The whole matrix would be as large as the cost: where it is sparse, its entries do."""
    if not sparse:
        return plan.matrix[first:last]  # type: ignore[no-any-return]
    row, column, mass = plan.triplets
    here = (row >= first) & (row < last)
    matrix = mass.new_zeros(last - first, columns)
    return matrix.index_put_((row[here] - first, column[here]), mass[here])  # type: ignore[no-any-return]
