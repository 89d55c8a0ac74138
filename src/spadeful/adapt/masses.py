"""Which classes transport goes between: the mass that each class of the source sends to each of the target."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from spadeful.adapt.call import predict
from spadeful.adapt.classes import numbered_alike
from spadeful.adapt.domain import Domain
from spadeful.adapt.methods.base import Method
from spadeful.adapt.methods.transport import Transport
from spadeful.adapt.methods.two_stage import TwoStage
from spadeful.arrays import Floats
from spadeful.batches import sampled
from spadeful.files import replacing
from spadeful.problems import at_iteration
from spadeful.solve import solve

#: Columns of a file of masses before those for the classes of the target.
LEADING = 3


@dataclass(frozen=True, eq=False)
class ClassMasses:
    """The mean plan between classes: `matrix[c, d]` goes from source class c to target class d.

    `present` says which classes the target has; a class that it lacks should send little. Where the target has no
    labels, both are by the network's predictions, `predicted`, and may be wrong.
    """

    matrix: Floats
    classes: tuple[str, ...]
    present: NDArray[np.bool_]
    predicted: bool = False

    @property
    def sent(self) -> Floats:
        """The mass that each class of the source sends; all in all the mass of the plan."""
        total: Floats = self.matrix.sum(axis=1)
        return total

    @property
    def absent(self) -> float:
        """The share of all mass that classes send which the target lacks."""
        return float(self.sent[~self.present].sum() / self.sent.sum())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of a file, which say whether the target's classes are known."""
        word = "predicted " if self.predicted else ""
        return ("class", f"{word}in the target", "sent", *(f"to {word}{name}" for name in self.classes))

    def write(self, path: str | Path, force: bool = False) -> None:
        with replacing(path, force) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            for name, has, sent, row in zip(self.classes, self.present, self.sent, self.matrix, strict=True):
                writer.writerow([name, "yes" if has else "no", float(sent), *map(float, row)])

    @classmethod
    def read(cls, path: str | Path) -> ClassMasses:
        with Path(path).open(newline="", encoding="utf-8") as file:
            names, *rows = csv.reader(file)
        matrix = np.array([row[LEADING:] for row in rows], dtype=np.float64)
        present = np.array([row[1] == "yes" for row in rows])
        return cls(matrix, tuple(row[0] for row in rows), present, names[1].startswith("predicted"))


def class_masses(
    network: nn.Module,
    source: Domain,
    target: Domain,
    method: Method,
    *,
    batch_size: int = 500,
    n_problems: int = 10,
    iteration: int | None = None,
    seed: int = 0,
    device: Any = "cpu",
) -> ClassMasses:
    """The mass between classes in the plans of a network as it is, in evaluation mode, over some mini-batches.

    Parameters
    ----------
    network : nn.Module
        It gives features and logits, and is left as it was.
    source, target : Domain
        Columns are the true classes of the target where it has labels, else the classes that the network predicts.
    method : Transport or TwoStage
        Its problem and its cost; two stages have problems of `n_batches * batch_size` points.
    batch_size : int
        Of the source all classes alike, as in training.
    n_problems : int
        Plans to take the mean of.
    iteration : int, optional
        The one to take the mass of, where the method has a schedule; the mass of its problem if not given.
    """
    if not isinstance(method, (Transport, TwoStage)):
        raise TypeError(f"method must be one that transports, Transport or TwoStage. Got {method!r} instead.")
    if source.y is None:
        raise ValueError(f"The source must have labels. Got none for {source.name!r}.")
    target = numbered_alike(target, source)
    problem = at_iteration(method.problem, method.schedule if iteration is not None else None, iteration or 0)
    size = batch_size * (method.n_batches if isinstance(method, TwoStage) else 1)
    draws = [
        sampled(len(domain), size, n_problems, True, seed, side, labels, domain.name).draw(np.arange(n_problems))
        for side, (domain, labels) in enumerate(((source, source.y), (target, None)))
    ]
    matrix, seen = np.zeros((len(source.classes), len(source.classes))), []
    for rows, columns in zip(*draws, strict=True):
        features, _ = predict(network, source.take(rows), device)
        others, logits = predict(network, target.take(columns), device)
        labels = source.labels(rows)
        reached = logits.argmax(dim=1).numpy() if target.y is None else target.y[columns]
        plan = solve(method.cost.whole(features, others, labels, logits), problem)
        starts, ends, masses = (part.numpy() for part in plan.triplets)
        np.add.at(matrix, (labels.numpy()[starts], reached[ends]), masses / n_problems)
        seen.append(reached)
    found = np.concatenate(seen) if target.y is None else target.y
    return ClassMasses(matrix, source.classes, np.isin(np.arange(len(matrix)), found), target.y is None)
