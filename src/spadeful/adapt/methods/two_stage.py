"""TS-OT, TS-UOT and TS-POT: a large problem in the processor's memory, then small steps (algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spadeful.adapt.methods.base import Batch, Draw, Step, needs_two_points, of_source, quiet_batch_norm
from spadeful.adapt.methods.repeats import merge, split
from spadeful.adapt.methods.transport import check, letter
from spadeful.loss import JointCost
from spadeful.plan import Plan
from spadeful.problems import Problem, Schedule, Unbalanced, at_iteration
from spadeful.solve import solve

#: A sparse plan: rows, columns and masses.
Triplets = tuple[Tensor, Tensor, Tensor]


class Seen(NamedTuple):
    """What the cost is made of, of all points of some batches."""

    sources: Tensor
    targets: Tensor
    labels: Tensor
    logits: Tensor


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
    schedule: Schedule | None = None
    batch_norm: str = "frozen"

    def __post_init__(self) -> None:
        check(self.problem, self.schedule, n_batches=self.n_batches, n_problems=self.n_problems)
        if self.batch_norm not in ("train", "frozen", "eval"):
            raise ValueError(f"batch_norm must be 'train', 'frozen' or 'eval'. Got {self.batch_norm!r} instead.")

    @property
    def name(self) -> str:
        return f"TS-{letter(self.problem)}"

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
        plan = self.plan(self.see(network, batches), problem)
        m, n = (sum(len(getattr(batch, side)) for batch in batches) for side in ("source", "target"))
        ends = [*accumulate((len(batch.source) for batch in batches), initial=0)]  # a loader's last one may be short
        blocks = []
        for first, last in pairwise(ends):
            masses = m * (plan[first:last] if isinstance(plan, Tensor) else some_rows(plan, first, last, n))
            most, partners = masses.max(dim=1)
            columns = partners[most > 0].unique()  # type: ignore[no-untyped-call]
            blocks.append((columns, masses[:, columns]))
        return blocks

    def see(self, network: Any, batches: list[Batch]) -> Seen:
        with quiet_batch_norm(network, self.batch_norm):
            sources = torch.cat([of_source(network, batch.source)[0].float().cpu() for batch in batches])
            seen = [network(batch.target) for batch in batches]
        targets, logits = (torch.cat([part[i].float().cpu() for part in seen]) for i in (0, 1))
        return Seen(sources, targets, torch.cat([batch.labels.cpu() for batch in batches]), logits)

    def plan(self, seen: Seen, problem: Problem) -> Tensor | Triplets:
        """A matrix, or rows, columns and masses where it is sparse: the matrix would be as large as the cost.

        Where points were drawn so often that half the matrix repeats, it is solved between the distinct ones: ties make
        a problem slow. Penalties of marginals would change with that, and entropy too.
        """
        if problem.reg > 0:
            return solve(self.cost.whole(*seen), problem).matrix  # type: ignore[no-any-return]
        x, y = merge(seen.sources, seen.labels), merge(seen.targets, seen.logits)
        if isinstance(problem, Unbalanced) or 2 * len(x.first) * len(y.first) > len(x.points) * len(y.points):
            return sparse(solve(self.cost.whole(*seen), problem))
        cost = self.cost.whole(*(part[each.first] for part, each in zip(seen, (x, y, x, y), strict=True)))
        return split(sparse(solve(cost, problem, a=x.weights, b=y.weights)), x, y)

    def loss(self, network: Any, batch: Batch, targets: Tensor, columns: Tensor, masses: Tensor) -> Tensor:
        """The loss of one mini-batch of source points and those target points that it meets."""
        source, logits = of_source(network, batch.source)
        loss = cross_entropy(logits, batch.labels)
        if not len(columns) or (len(columns) == 1 and needs_two_points(network)):
            return loss
        target, target_logits = network(targets[columns.to(targets.device)])
        cost = sum(self.cost(source[None], target[None], batch.labels[None], target_logits[None]).values())
        total: Tensor = loss + self.eta * (masses.to(cost) * cost).sum() / len(source)
        return total


def sparse(plan: Plan) -> Triplets:
    row, column, mass = plan.triplets
    return row, column, mass


def some_rows(plan: Triplets, first: int, last: int, columns: int) -> Tensor:
    row, column, mass = plan
    here = (row >= first) & (row < last)
    matrix = mass.new_zeros(last - first, columns)
    return matrix.index_put_((row[here] - first, column[here]), mass[here])
