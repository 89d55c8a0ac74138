"""Plans of pairs of batches, and the sparse plan that they add up to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.batches import Indices
from spadeful.files import opened_npz, reading, replacing
from spadeful.transport import barycentric_map, column_masses, row_masses, sample_pairs

#: Entries of plans that are collected before they are added up.
FOLD = 1 << 22


class Part(NamedTuple):
    """The plans of some pairs of batches, in their order; of several masses, all of one before those of the next."""

    values: Floats
    objectives: Floats
    converged: NDArray[np.bool_]
    sizes: Indices  # entries of each plan
    rows: NDArray[Any]
    cols: NDArray[Any]
    masses: Floats

    def of_mass(self, number: int, masses: int) -> Part:
        """The plans of one of so many masses."""
        pairs = len(self.sizes) // masses
        plans = slice(number * pairs, (number + 1) * pairs)
        start = int(self.sizes[: plans.start].sum())
        entries = slice(start, start + int(self.sizes[plans].sum()))
        return Part(*(numbers[plans if at < 4 else entries] for at, numbers in enumerate(self)))

    @staticmethod
    def join(parts: list[Part], masses: int) -> Part:
        """One of several, pair after pair for each of so many masses."""
        if len(parts) == 1:
            return parts[0]
        each = [part.of_mass(number, masses) for number in range(masses) for part in parts]
        return Part(*map(np.concatenate, zip(*each, strict=True)))


class PlanSum:
    """Adds up plans in the order of their pairs, so that the sum does not depend on how they arrive."""

    def __init__(self, shape: tuple[int, int], per_pair: int):
        self.shape = shape
        self._sums: list[Any] = []  # of earlier folds, each at least twice the next
        self.fold = max(1, FOLD // per_pair)  # after so many pairs
        self._waiting: list[tuple[NDArray[Any], NDArray[Any], Floats]] = []
        self._pairs = 0

    def add(self, part: Part, weights: Floats) -> None:
        """Add the plans of some pairs, which must not go beyond the next fold."""
        self._waiting.append((part.rows, part.cols, part.masses * np.repeat(weights, part.sizes)))
        self._pairs += len(weights)
        if self._pairs % self.fold == 0:
            self._add_up()

    def _add_up(self) -> None:
        rows, cols, masses = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting.clear()
        self._sums.append(scipy.sparse.coo_array((masses, (rows, cols)), shape=self.shape).tocsr())
        # Like is added to like: an entry is copied as often as sums double, not with every fold.
        while len(self._sums) > 1 and self._sums[-2].nnz < 2 * self._sums[-1].nnz:
            self._join()

    def _join(self) -> None:
        last = self._sums.pop()
        self._sums[-1] = self._sums[-1] + last

    def finish(self) -> Any:
        if self._waiting:
            self._add_up()
        while len(self._sums) > 1:
            self._join()
        total = self._sums[0] if self._sums else scipy.sparse.csr_array(self.shape)
        total.sum_duplicates()
        return total


@dataclass(frozen=True, eq=False)
class MiniBatchPlan:
    r"""The mini-batch plan between two clouds, and what it costs.

    With weights :math:`w` of the pairs of batches (1/k each, if paired), `value` is :math:`\sum_p w_p
    \langle C_p, \pi_p\rangle`, `objective` the same of what each problem minimised (penalties and entropy
    included), and `plan` is :math:`\sum_p w_p \pi_p`, each padded with zeros to all points.
    """

    plan: Any  # scipy.sparse CSR (n_x, n_y)
    values: Floats
    objectives: Floats
    weights: Floats
    settings: dict[str, Any]

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.plan.shape))
        mass = f"mass={self.mass:.6g}" if self.settings.get("keep_plan", True) else "no plan"
        return f"MiniBatchPlan({shape}, value={self.value:.6g} ± {self.standard_error:.2g}, {mass})"

    @property
    def kept(self) -> Any:
        """The plan, unless it was not kept."""
        if not self.settings.get("keep_plan", True):
            raise ValueError("The plan must have been kept for that. It was not: leave keep_plan=False out.")
        return self.plan

    @property
    def value(self) -> float:
        return float((self.weights * self.values).sum())

    @property
    def objective(self) -> float:
        return float((self.weights * self.objectives).sum())

    @property
    def standard_error(self) -> float:
        """Of `value` as an estimate of the mean over all batches; infinite where one cannot tell.

        Pairs that share a batch are not independent: with all k*k pairs it is the spread of the rows' and
        columns' means that counts.
        """
        if min(self.values.shape) < 2 or self.settings["pairing"] not in ("paired", "all"):
            return 0.0 if self.settings["pairing"] == "full" else math.inf
        unit = float(abs(self.values).max()) or 1.0  # squares of large values would overflow
        values = self.values / unit
        means = [values] if values.ndim == 1 else [values.mean(axis=0), values.mean(axis=1)]
        return unit * float(math.sqrt(sum(m.var(ddof=1) / len(m) for m in means)))

    @property
    def mass(self) -> float:
        return float(self.kept.sum())

    @property
    def row_mass(self) -> Floats:
        """The mass that each x sends."""
        return row_masses(self.kept)

    @property
    def col_mass(self) -> Floats:
        """The mass that each y receives."""
        return column_masses(self.kept)

    def map(self, y: Any, missing: Any = None) -> Any:
        """The barycentric image of every x; those without mass are masked, or get `missing`. See `barycentric_map`."""
        return barycentric_map(self.kept, y, missing)

    def sample(self, size: int, seed: int | None = 0) -> tuple[Indices, Indices]:
        """Pairs of a row and a column, drawn with their mass as probability."""
        return sample_pairs(self.kept, size, seed)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write everything to a `.npz` file."""
        with replacing(path, force) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                data=self.plan.data,
                indices=self.plan.indices,
                indptr=self.plan.indptr,
                shape=np.array(self.plan.shape),
                values=self.values,
                objectives=self.objectives,
                weights=self.weights,
                settings=np.array(json.dumps(self.settings)),
            )

    @staticmethod
    def load(path: str | Path) -> MiniBatchPlan:
        """Read what `save` wrote. Nothing in the file can run code."""
        with reading(path, "a plan that spadeful saved"), opened_npz(path) as file:
            plan = scipy.sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
            plan.check_format(full_check=True)  # indices beyond the shape would be read beyond the memory
            numbers = [file[name] for name in ("values", "objectives", "weights")]
            settings = dict(json.loads(str(file["settings"])))
            settings["pairing"]  # what no plan is without
        values, objectives, weights = numbers
        whole = all(np.isfinite(each).all() for each in (plan.data, *numbers)) and (plan.data >= 0).all()
        if not (whole and values.shape == objectives.shape == weights.shape):
            raise ValueError(f"{path} must be a plan that spadeful saved. Its masses or values are damaged.")
        return MiniBatchPlan(plan, values, objectives, weights, settings)
