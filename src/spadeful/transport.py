"""What a plan is used for: a map, pairs drawn from it, a count of what it matched."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from spadeful.arrays import Floats, open_array, to_floats, to_numpy
from spadeful.batches import check_count
from spadeful.plan import Indices, Plan


def as_sparse(plan: Any, name: str = "plan") -> Any:
    """A plan, dense or sparse, or what holds one, as CSR without explicit zeros."""
    plan = plan.matrix if isinstance(plan, Plan) else getattr(plan, "kept", getattr(plan, "plan", plan))
    if not scipy.sparse.issparse(plan):
        values = to_floats(open_array(plan, name), name)
        if values.ndim != 2:
            raise ValueError(f"{name} must be one plan (m, n). Got the shape {values.shape} instead.")
        plan = scipy.sparse.csr_array(values)
    matrix = plan.tocsr()
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    if not (matrix.data >= 0).all() or not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} must hold finite masses of at least 0.")
    return matrix


class MappingCounts(NamedTuple):
    """How many entries of a plan are not zero, and of these how many the reference lacks, and has."""

    total: int
    misspecified: int
    optimal: int


def count_mappings(plan: Any, reference: Any) -> MappingCounts:
    """Count the mappings of a plan, as in the paper's figures of aggregated plans (appendix C.2).

    A mapping is an entry that is not zero. It is optimal if the reference, the plan between the whole measures,
    has it too, and misspecified if not.

    >>> count_mappings([[0.5, 0.1], [0.0, 0.4]], [[0.5, 0.0], [0.0, 0.5]])
    MappingCounts(total=3, misspecified=1, optimal=2)
    """
    ours, theirs = as_sparse(plan), as_sparse(reference, "reference")
    if ours.shape != theirs.shape:
        raise ValueError(f"plan and reference must have one shape. Got {ours.shape} and {theirs.shape} instead.")
    both = (ours != 0).multiply(theirs != 0).sum()
    return MappingCounts(int(ours.nnz), int(ours.nnz - both), int(both))


def barycentric_map(plan: Any, y: Any, missing: Any = None) -> Any:
    r"""Where each point goes: the mean of y weighted by its row, :math:`\sum_j \pi_{ij} y_j / \sum_j \pi_{ij}`.

    Points without mass have no such mean. They get what `missing` says, an array (n, d) of places (pass x for them
    to stay where they are) or one number; without it the result is a masked array, in which they are masked.

    >>> barycentric_map([[0.5, 0.5], [0.0, 0.0]], [[1.0], [3.0]], missing=[[7.0], [7.0]])
    array([[2.],
           [7.]])
    """
    matrix, points = as_sparse(plan), open_array(y, "y")
    if points.ndim < 1 or len(points) != matrix.shape[1]:
        raise ValueError(
            f"y must hold {matrix.shape[1]} points, a column of the plan each. Got {points.shape} instead."
        )
    used = np.unique(matrix.indices)  # only these are read: y may be larger than the memory
    masses = np.asarray(matrix.sum(axis=1)).ravel()
    flat = points[used].reshape(len(used), math.prod(points.shape[1:])).astype(np.float64)
    image: Floats = (matrix[:, used] @ flat) / np.where(masses > 0, masses, 1.0)[:, None]
    image = image.reshape(-1, *points.shape[1:])
    unmatched = ~(masses > 0)
    if missing is None:
        mask = np.broadcast_to(unmatched.reshape(-1, *[1] * (image.ndim - 1)), image.shape)
        return np.ma.MaskedArray(image, mask=mask)
    fill = np.asarray(to_numpy(missing))
    if fill.ndim and fill.shape != image.shape:
        raise ValueError(f"missing must be a number or have the shape {image.shape}. Got {fill.shape} instead.")
    image[unmatched] = fill if not fill.ndim else fill[unmatched]
    return image


def sample_pairs(plan: Any, size: int, seed: int | None = 0) -> tuple[Indices, Indices]:
    """Pairs of a row and a column, drawn with their mass as probability.

    >>> sample_pairs([[0.0, 0.5], [0.5, 0.0]], 3, seed=0)
    (array([1, 0, 0]), array([0, 1, 1]))
    """
    matrix, size = as_sparse(plan), check_count(size, "size", least=0)
    if not matrix.nnz:
        raise ValueError("plan must carry some mass to draw pairs from. Got none.")
    rng = np.random.default_rng(seed)
    totals = np.cumsum(matrix.data)
    picked = np.searchsorted(totals, rng.random(size) * totals[-1], side="right").clip(max=matrix.nnz - 1)
    rows = np.searchsorted(matrix.indptr, picked, side="right") - 1
    return rows.astype(np.int64), matrix.indices[picked].astype(np.int64)


def row_masses(plan: Any) -> NDArray[np.float64]:
    return np.asarray(plan.sum(axis=1), dtype=np.float64).ravel()


def column_masses(plan: Any) -> NDArray[np.float64]:
    return np.asarray(plan.sum(axis=0), dtype=np.float64).ravel()
