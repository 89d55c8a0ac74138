"""The mini-batch loss for torch: transport between two batches of features, with the plan held fixed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from spadeful.arrays import like, to_numpy
from spadeful.costs import batch_costs
from spadeful.problems import Balanced, Partial, Problem, Schedule, Sliced, Unbalanced, check_schedule
from spadeful.sliced import directions, slice_points
from spadeful.solve import solve
from spadeful.threads import all_cores


def check_dimensions(source: Tensor, target: Tensor) -> None:
    if source.shape[-1] != target.shape[-1]:
        raise ValueError(
            "source and target must have the same number of dimensions. "
            f"Got {source.shape[-1]} and {target.shape[-1]} instead."
        )


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """(..., m, d) and (..., n, d) to (..., m, n). Differentiable everywhere, also where points coincide.

    In double precision: the differences of squares would lose all digits of points that are close, but far from
    the others. What is too large for the type of the points is its largest number: infinite costs forbid pairs.
    """
    check_dimensions(x, y)
    centre = y.double().mean(dim=-2, keepdim=True).detach()
    near, far = x.double() - centre, y.double() - centre
    one_x, one_y = torch.ones_like(near[..., :1]), torch.ones_like(far[..., :1])
    # All of |x|^2 - 2 x.y + |y|^2 as one product, whose result is the only matrix of its size.
    left = torch.cat([near.square().sum(-1, keepdim=True), -2 * near, one_x], dim=-1)
    right = torch.cat([one_y, far, far.square().sum(-1, keepdim=True)], dim=-1)
    return (left @ right.transpose(-1, -2)).clamp_(0, torch.finfo(x.dtype).max).to(x.dtype)


@dataclass(frozen=True)
class JointCost:
    r"""The cost of features and labels together (appendix B.1 of the paper, after DeepJDOT).

    .. math:: C_{ij} = \alpha \lVert g^s_i - g^t_j\rVert^2 - \lambda \log \mathrm{softmax}(F(g^t_j))_{y_i}
    """

    alpha: float = 0.1
    lam: float = 0.1

    def __call__(
        self, source: Tensor, target: Tensor, labels: Tensor | None, logits: Tensor | None
    ) -> dict[str, Tensor]:
        if labels is None or logits is None:
            raise ValueError("JointCost needs the labels of the source and the logits of the target. Got none.")
        check_labels(labels, source, logits, target)
        log_probabilities = logits.log_softmax(dim=-1)  # (..., n, classes): finite for all finite logits
        index = labels[..., :, None].expand(*labels.shape, logits.shape[-2])
        return {
            "features": self.alpha * squared_distances(source.flatten(2), target.flatten(2)),
            "labels": -self.lam * log_probabilities.transpose(-1, -2).gather(-2, index.long()),
        }

    @torch.no_grad()
    def whole(self, source: Tensor, target: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        """The same between all points (m, d) and (n, d) on the processor in double precision: one matrix, no second."""
        check_labels(labels[None], source[None], logits[None], target[None])
        m, n, log_probabilities = len(source), len(target), logits.double().log_softmax(dim=-1)
        blocks = math.gcd(m, 8)  # as if they were batches, for threads to share
        rows, columns = np.arange(m).reshape(blocks, -1), np.broadcast_to(np.arange(n), (blocks, n))
        x, y = (points.flatten(1).numpy() for points in (source, target))
        distances = batch_costs(x, y, rows, np.ascontiguousarray(columns), "sqeuclidean", all_cores())
        chosen = nn.functional.one_hot(labels, logits.shape[-1]).double()
        cost = torch.from_numpy(distances.reshape(m, n)).mul_(self.alpha)
        return cost.addmm_(chosen, log_probabilities.T, alpha=-self.lam)


def check_labels(labels: Tensor, source: Tensor, logits: Tensor, target: Tensor) -> None:
    if labels.shape != source.shape[:2] or labels.is_floating_point():
        raise ValueError(
            f"labels must hold a whole number for each of the {source.shape[0] * source.shape[1]} source points. "
            f"Got {labels.dtype} of the shape {tuple(labels.shape)} by mini-batches instead."
        )
    if logits.ndim != 3 or logits.shape[:2] != target.shape[:2]:
        raise ValueError(
            f"logits must have the shape ({target.shape[0] * target.shape[1]}, classes), a row a target point. "
            f"Got {tuple(logits.shape)} by mini-batches instead."
        )
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        return  # looking at them would hold up the device
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[2]:
        raise ValueError(
            f"labels must be from 0 to {logits.shape[2] - 1}, the classes of the logits. "
            f"Got {int(labels.min())} to {int(labels.max())} instead."
        )


class MiniBatchLoss(nn.Module):
    r"""The mini-batch loss of m-OT, m-UOT or m-POT: :math:`\frac1k \sum_i \langle C_i, \pi_i\rangle`.

    The plan is optimal for the cost at hand and held fixed when gradients are taken (the envelope theorem); so second
    derivatives, as of a penalty on gradients, do not know how a regularised plan would change. Exact
    problems are solved in the compiled core: the cost makes one trip to the processor and the plan one trip back.
    Regularised ones are solved where the features are. Everything is done in full precision, also under autocast.

    Parameters
    ----------
    problem : Balanced, Partial, Unbalanced or Sliced
        Sliced, every call takes new directions. Its seed and the iteration decide them: that of `at`, one more a call.
    cost : "sqeuclidean", JointCost or a function
        A function of mini-batches (k, m, d) and (k, n, d), and of labels (k, m) and logits (k, n, classes) where one
        of them is passed, that returns the costs (k, m, n), or a dictionary of terms that add up to them.
    n_batches : int
        k: the features of a call are taken as so many mini-batches, one after the other.
    schedule : function of the iteration, optional
        The mass of a partial problem at each iteration, such as `Ramp`; see `at`.
    gather : bool
        Under torch.distributed: solve one problem between the batches of all processes, not one in each. Every process
        gets the whole loss, and its own share of the gradient once DDP has taken the mean.
    tol, max_iter : float, int
        For regularised problems, as in `solve`.

    `plan` holds the plans (k, m, n) of the last call; there are none of a sliced problem.

    >>> import torch, spadeful as sp
    >>> x, y = torch.zeros(4, 2, requires_grad=True), torch.ones(4, 2)
    >>> loss = sp.MiniBatchLoss(sp.Partial(mass=0.5))
    >>> value = loss(x, y)
    >>> value.item()
    1.0
    >>> value.backward()
    """

    def __init__(
        self,
        problem: Problem | Sliced,
        cost: Literal["sqeuclidean"] | JointCost | Callable[..., Any] = "sqeuclidean",
        n_batches: int = 1,
        *,
        schedule: Schedule | None = None,
        gather: bool = False,
        tol: float = 1e-6,
        max_iter: int = 10_000,
    ) -> None:
        super().__init__()
        if not isinstance(problem, (Balanced, Partial, Unbalanced, Sliced)):
            raise TypeError(
                "problem must be Balanced(), Partial(mass), Unbalanced(tau) or Sliced(problem). "
                f"Got {problem!r} instead."
            )
        solved = problem.problem if isinstance(problem, Sliced) else problem
        if solved is not problem and not isinstance(cost, str):
            raise ValueError(f"cost must be left out for Sliced, which has one of its own. Got {cost!r} instead.")
        if not callable(cost) and not (isinstance(cost, str) and cost == "sqeuclidean"):
            raise ValueError(f"cost must be 'sqeuclidean', a JointCost or a function. Got {cost!r} instead.")
        if isinstance(n_batches, bool) or not hasattr(n_batches, "__index__") or n_batches < 1:
            raise ValueError(f"n_batches must be a whole number of at least 1. Got {n_batches!r} instead.")
        check_schedule(solved, schedule)
        self.problem, self.cost, self.n_batches, self.schedule = problem, cost, int(n_batches), schedule
        self.gather, self.tol, self.max_iter = bool(gather), tol, max_iter
        # Numbers travel as a tensor: were they constants, a compiled graph would be made anew for every mass.
        self._kind, numbers = taken_apart(solved)
        with torch.inference_mode(False):
            self._iteration = torch.tensor(0, device="cpu")
            self._numbers = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        self.plan: Tensor | None = None
        self.at(0)

    def at(self, iteration: int) -> MiniBatchLoss:
        """Set the mass to that of an iteration, where there is a schedule, and the directions of a sliced problem."""
        self._iteration.fill_(iteration)
        if self.schedule is not None:
            self._numbers[0] = Partial(self.schedule(iteration)).mass
        return self

    @property
    def mass(self) -> float | None:
        """The mass that is asked for now; None of an unbalanced problem, which asks for none."""
        return None if isinstance(self.problem, Unbalanced) else float(self._numbers[0])

    def extra_repr(self) -> str:
        return f"{self.problem}, cost={self.cost!r}, n_batches={self.n_batches}"

    def forward(
        self, source: Tensor, target: Tensor, labels: Tensor | None = None, logits: Tensor | None = None
    ) -> Tensor:
        """The loss of source features (k*m, d) and target features (k*n, d), labels (k*m,), logits (k*n, classes)."""
        given: dict[str, Tensor | None] = {"source": source, "target": target}
        if labels is not None or logits is not None:
            given |= {"labels": labels, "logits": logits}
        batches = [None if x is None else self._split(name, x) for name, x in given.items()]
        if self.gather:
            # The points of all processes in the same mini-batch, whose number comes second meanwhile.
            batches = [None if x is None else gathered(x.transpose(0, 1)).transpose(0, 1) for x in batches]
        device = source.device.type
        with torch.autocast("cpu" if device == "meta" else device, enabled=False):
            if isinstance(self.problem, Sliced):
                return self._slice(self.problem, *batches)  # type: ignore[arg-type]
            in_pairs = self._in_pairs(device)
            with torch.set_grad_enabled(torch.is_grad_enabled() and not in_pairs):
                terms = self._terms(*batches)  # type: ignore[arg-type]
            cost = torch.stack(list(terms.values())).sum(0) if len(terms) > 1 else next(iter(terms.values()))
            detached = [term.detach() for term in terms.values()]
            names = "\n".join(terms)
            self.plan = transport_plan(
                cost.detach(), self._numbers, self._kind, detached, names, self.tol, self.max_iter
            )
            if in_pairs:
                return self._of_pairs(self.plan, *batches[:2])  # type: ignore[arg-type]
            # A forbidden pair costs inf and carries nothing, which together would be nan.
            return (self.plan * torch.where(self.plan > 0, cost, 0.0)).sum() / self.n_batches

    def _in_pairs(self, device: str) -> bool:
        """Whether the few pairs that exact plans consist of are all that has to be differentiated.

        On a GPU, or in a compiled graph, counting them would hold everything up.
        """
        exact = isinstance(self.problem, (Balanced, Partial)) and self.problem.reg == 0
        return exact and self.cost == "sqeuclidean" and device == "cpu" and not torch.compiler.is_compiling()

    def _of_pairs(self, plan: Tensor, source: Tensor, target: Tensor) -> Tensor:
        (batch, row, column), (_, m, n) = plan.nonzero(as_tuple=True), plan.shape
        x, y = (points.flatten(2).flatten(0, 1) for points in (source, target))
        costs = (x.index_select(0, batch * m + row) - y.index_select(0, batch * n + column)).square().sum(dim=1)
        return (plan[batch, row, column] * costs).sum() / self.n_batches

    def _split(self, name: str, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor. Got {type(x).__name__} instead; torch.as_tensor makes it one.")
        if name in ("source", "target") and (x.ndim < 2 or not x.is_floating_point()):
            raise ValueError(
                f"{name} must hold features (points, dimensions) of floats. Got {x.dtype} of {tuple(x.shape)} instead."
            )
        if len(x) == 0 or len(x) % self.n_batches:
            raise ValueError(
                f"{name} must hold {self.n_batches} mini-batches of one size (n_batches). Got {len(x)} points instead."
            )
        full = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return full.reshape(self.n_batches, len(x) // self.n_batches, *x.shape[1:])

    def _slice(self, asked: Sliced, source: Tensor, target: Tensor, *others: Tensor | None) -> Tensor:
        if others:
            raise ValueError("A sliced problem takes points alone. Got labels or logits too.")
        source, target = source.flatten(2), target.flatten(2)
        check_dimensions(source, target)
        fixed = source.detach(), target.detach()
        numbers = self._numbers, self._iteration.clone()
        value: Tensor
        value, *gradients = slice_batches(*fixed, *numbers, asked.n_projections, asked.p, asked.seed)
        self._iteration += 1
        for points, still, gradient in zip((source, target), fixed, gradients, strict=True):
            value = value + (gradient * (points - still)).sum()  # nothing is added but the gradient
        return value

    def _terms(self, source: Tensor, target: Tensor, *others: Tensor | None) -> dict[str, Tensor]:
        if self.cost == "sqeuclidean":
            return {"features": squared_distances(source.flatten(2), target.flatten(2))}
        if isinstance(self.cost, JointCost) and not others:
            others = None, None
        found = self.cost(source, target, *others)
        terms = found if isinstance(found, dict) else {"cost": found}
        wanted = (self.n_batches, source.shape[1], target.shape[1])
        for name, term in terms.items():
            if tuple(term.shape) != wanted:
                raise ValueError(
                    f"The term {name!r} of the cost must have the shape {wanted}. Got {tuple(term.shape)}."
                )
        if not terms:
            raise ValueError("cost must return at least one term. Got an empty dictionary.")
        return terms


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        own = x.contiguous()
        parts = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, own)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        torch.distributed.all_reduce(total)
        return total.chunk(torch.distributed.get_world_size())[torch.distributed.get_rank()]


def gathered(x: Tensor) -> Tensor:
    """The batches of all processes, which must be of one size, one after the other; gradients find their way back."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return x
    whole: Tensor = _Gather.apply(x)  # type: ignore[no-untyped-call]
    return whole


def taken_apart(problem: Problem) -> tuple[str, list[float]]:
    """A problem as a word and numbers, which is what an operator of torch takes."""
    if isinstance(problem, Unbalanced):
        return f"unbalanced {problem.divergence} {problem.entropy}", [0.0, problem.reg, *problem.taus]
    if isinstance(problem, Partial):
        return "partial", [problem.mass, problem.reg, 0.0, 0.0]
    return "balanced", [1.0, problem.reg, 0.0, 0.0]


def put_together(kind: str, numbers: list[float]) -> Problem:
    mass, reg, *taus = numbers
    if kind == "balanced":
        return Balanced(reg)
    if kind == "partial":
        return Partial(mass, reg)
    _, divergence, entropy = kind.split()
    return Unbalanced((taus[0], taus[1]), reg, divergence, entropy)  # type: ignore[arg-type]


@torch.library.custom_op("spadeful::transport_plan", mutates_args=())
def transport_plan(
    cost: Tensor, numbers: Tensor, kind: str, terms: list[Tensor], names: str, tol: float, max_iter: int
) -> Tensor:
    """The optimal plans of costs (k, m, n): one operator, which a compiled graph runs as it is."""
    try:
        plan = solve(cost, put_together(kind, numbers.tolist()), tol=tol, max_iter=max_iter)
    except ValueError as error:
        for name, term in zip(names.split("\n"), terms, strict=True):
            bad = (term.isnan() | term.isneginf()).nonzero()
            if len(bad):
                batch, row, column = bad[0].tolist()
                raise ValueError(
                    f"The term '{name}' of the cost must be finite. Got {term[batch, row, column].item()} in "
                    f"mini-batch {batch}, between source point {row} and target point {column}. "
                    "Lower the learning rate, or look for inputs that are not finite."
                ) from error
        raise
    matrix: Tensor = plan.matrix
    return matrix.clone(memory_format=torch.contiguous_format)


@transport_plan.register_fake
def _(cost: Tensor, numbers: Tensor, kind: str, terms: list[Tensor], names: str, tol: float, max_iter: int) -> Tensor:
    return cost.new_empty(cost.shape, dtype=cost.dtype if cost.is_floating_point() else torch.float64)


@torch.library.custom_op("spadeful::slice_batches", mutates_args=())
def slice_batches(
    source: Tensor, target: Tensor, numbers: Tensor, iteration: Tensor, n_projections: int, p: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean sliced cost of mini-batches (k, m, d) and (k, n, d), and its gradients in them, the plans held fixed."""
    asked = Sliced(Balanced(), n_projections, p, seed)  # type: ignore[arg-type]
    towards = directions(asked, source.shape[2], int(iteration))
    found = [
        slice_points(x, y, float(numbers[0]), p, towards, all_cores(), ("source", "target"))
        for x, y in zip(to_numpy(source), to_numpy(target), strict=True)
    ]
    values, gradients = zip(*found, strict=True)
    of_source, of_target = (np.stack(each) / len(found) for each in zip(*gradients, strict=True))
    return like(np.mean(values), source), like(of_source, source), like(of_target, target)


@slice_batches.register_fake
def _(
    source: Tensor, target: Tensor, numbers: Tensor, iteration: Tensor, n_projections: int, p: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    return source.new_empty(()), torch.empty_like(source), torch.empty_like(target)
