"""Points that were drawn several times, as one that weighs as much."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Parts of a point's mass below this are rounding.
ROUNDING = 1e-9


class Merged(NamedTuple):
    """The distinct ones of some points, in the order in which they come first."""

    first: Tensor  # of each, a point that it stands for
    counts: Tensor  # of each, how many
    points: Tensor  # all, those that are equal after each other

    @property
    def weights(self) -> Tensor:
        return self.counts.double() / len(self.points)


def merge(*parts: Tensor) -> Merged:
    """Of points that are given by several tensors of as many rows each.

    >>> merged = merge(torch.tensor([[2.0], [1.0], [2.0]]), torch.tensor([0, 1, 0]))
    >>> merged.first.tolist(), merged.counts.tolist(), merged.points.tolist()
    ([0, 1], [2, 1], [0, 2, 1])
    """
    rows = [np.ascontiguousarray(part.reshape(len(part), -1).numpy()).view(np.uint8) for part in parts]
    keys = np.ascontiguousarray(np.concatenate(rows, axis=1))
    whole = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, which, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)  # that of the points, not of the bytes of their numbers
    points = np.argsort(np.argsort(order)[which], kind="stable")
    return Merged(*(torch.from_numpy(each) for each in (first[order], counts[order], points)))


def split(plan: tuple[Tensor, Tensor, Tensor], x: Merged, y: Merged) -> tuple[Tensor, Tensor, Tensor]:
    """A plan between distinct points, as rows, columns and masses, as one between all points.

    Of equal points one is filled after the other, so that the plan stays sparse. All x weigh alike, and so do all y.

    >>> x, y = merge(torch.tensor([1.0, 1.0])), merge(torch.tensor([1.0, 2.0]))
    >>> row, column, mass = split((torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0.5, 0.25])), x, y)
    >>> row.tolist(), column.tolist(), mass.tolist()
    ([0, 1], [0, 1], [0.5, 0.25])
    """
    sides = [(merged.points.tolist(), (merged.counts.cumsum(0) - merged.counts).tolist()) for merged in (x, y)]
    most = [1 / len(merged.points) for merged in (x, y)]
    room = [[most[side]] * len(starts) for side, (_, starts) in enumerate(sides)]  # of the point that is filled now
    found: list[tuple[int, int, float]] = []
    for *ends, left in zip(*(part.tolist() for part in plan), strict=True):
        while left > ROUNDING * min(most):
            piece = min(left, *(room[side][end] for side, end in enumerate(ends)))
            row, column = (points[starts[end]] for (points, starts), end in zip(sides, ends, strict=True))
            found.append((row, column, piece))
            left -= piece
            for side, end in enumerate(ends):
                room[side][end] -= piece
                if room[side][end] <= ROUNDING * most[side]:
                    room[side][end] = most[side]
                    sides[side][1][end] += 1
    rows, columns, masses = zip(*found, strict=True) if found else ((), (), ())
    return torch.tensor(rows).long(), torch.tensor(columns).long(), torch.tensor(masses, dtype=torch.float64)
