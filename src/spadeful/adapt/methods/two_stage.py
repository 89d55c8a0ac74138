"""TS-OT, TS-UOT and TS-POT: a large problem in the processor's memory, then small steps (algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from spadeful.adapt.methods.base import Batch, Draw, Step
from spadeful.adapt.methods.transport import at_iteration, check, letter
from spadeful.loss import JointCost
from spadeful.plan import Plan
from spadeful.problems import Problem
from spadeful.solve import solve


@dataclass(frozen=True)
class TwoStage:
    r"""Align k mini-batches at once without gradients, then train on the aligned pairs, m at a time.

    The plan :math:`\pi` between all k*m source and k*m target points is found from features that are computed
    batch by batch without gradients. Source point i is paired with the target point that gets most of its mass,
    and its pair weighs as much as that entry. Rows without mass pair with nobody: they are left out of the target
    batch, so that they contribute neither loss nor batch-norm statistics; a row that carries part of its mass
    (mass * k * m not whole) keeps its part.

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
            partners, weights = self.align(network, batches, problem)
            targets = torch.cat([batch.target for batch in batches])
            sizes = [len(batch.source) for batch in batches]  # a loader's last one may be short
            for batch, *pairs in zip(batches, torch.split(partners, sizes), torch.split(weights, sizes), strict=True):
                loss = self.loss(network, batch, targets, *pairs)
                yield loss / (self.n_batches * self.n_problems)

    @torch.no_grad()
    def align(self, network: Any, batches: list[Batch], problem: Problem) -> tuple[Tensor, Tensor]:
        """For every source point its partner's number and the mass between them, as a share of 1 / m per point."""
        with quiet_batch_norm(network, self.batch_norm):
            sources = torch.cat([network(batch.source)[0].float().cpu() for batch in batches])
            seen = [network(batch.target) for batch in batches]
        targets, logits = (torch.cat([part[i].float().cpu() for part in seen]) for i in (0, 1))
        labels = torch.cat([batch.labels.cpu() for batch in batches])
        plan = solve(self.cost.whole(sources, targets, labels, logits), problem)
        partners, masses = heaviest(plan, len(sources), sparse=problem.reg == 0)
        return partners, masses * len(sources)

    def loss(self, network: Any, batch: Batch, targets: Tensor, partners: Tensor, weights: Tensor) -> Tensor:
        """The loss of one mini-batch and its partners: each pair costs what its entry of the cost does."""
        source, logits = network(batch.source)
        loss = cross_entropy(logits, batch.labels)
        kept = weights > 0
        # Batch norm needs two points to have a spread.
        if int(kept.sum()) < 2:
            return loss
        rows = kept.to(batch.source.device)
        target, target_logits = network(targets[partners[kept].to(targets.device)])
        pairs = self.cost.of_pairs(source[rows], target, batch.labels[rows], target_logits)
        total: Tensor = loss + self.eta * (weights[kept].to(pairs) * pairs).sum() / len(weights)
        return total


def heaviest(plan: Plan, size: int, sparse: bool) -> tuple[Tensor, Tensor]:
    """For every row the column that gets most of its mass, and how much that is; 0 and 0 for a row without."""
    if not sparse:
        masses, columns = plan.matrix.max(dim=1)
        return columns, masses
    # Its few entries do: the matrix would be as large as the cost.
    rows, columns, masses = plan.triplets
    most = masses.new_zeros(size).scatter_reduce(0, rows, masses, "amax")
    first = masses == most[rows]
    partners = rows.new_zeros(len(most)).scatter_reduce(0, rows[first], columns[first], "amin", include_self=False)
    return partners, most


@contextmanager
def quiet_batch_norm(network: nn.Module, how: str) -> Iterator[None]:
    """What a pass without gradients does to batch norm."""
    training = network.training
    layers = [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    tracked = [layer.track_running_stats for layer in layers]
    if how == "eval":
        network.eval()
    elif how == "frozen":
        for layer in layers:
            layer.track_running_stats = False
    try:
        yield
    finally:
        network.train(training)
        for layer, before in zip(layers, tracked, strict=True):
            layer.track_running_stats = before
