"""What a run has measured on the way, and which of its checkpoints is the best."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from spadeful.files import replacing


class Rule(NamedTuple):
    """Which measure counts, and whether most or least of it is best: 1 or -1."""

    measure: str
    sign: int
    meaning: str


def chosen(rows: Sequence[Mapping[str, Any]], rule: Rule) -> dict[str, Any]:
    """The first of the best evaluations by a rule; empty if none has its measure, which NaN is not.

    >>> rows = [{"iteration": 1, "entropy": 0.5}, {"iteration": 2, "entropy": 0.3}]
    >>> chosen(rows, Rule("entropy", -1, ""))["iteration"], chosen(rows, Rule("accuracy", 1, ""))
    (2, {})
    """
    able = [row for row in rows if not math.isnan(row.get(rule.measure, math.nan))]
    return dict(max(able, key=lambda row: rule.sign * row[rule.measure])) if able else {}


def phases(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where each phase begins: with a name of its own, or by counting iterations anew.

    >>> phases([{"phase": "a", "iteration": 10}, {"phase": "b", "iteration": 25}, {"phase": "b", "iteration": 25}])
    [0, 1, 2]
    """
    pairs = enumerate(pairwise(rows), 1)
    begins = [at for at, (a, b) in pairs if a["phase"] != b["phase"] or a["iteration"] >= b["iteration"]]
    return [0, *begins]


def last_phase(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return rows[phases(rows)[-1] :]


@dataclass
class Record:
    """What a run has been through: the measures at each evaluation, and which of them it calls the best."""

    rows: list[dict[str, Any]]
    select: str
    rules: Mapping[str, Rule]

    def chosen(self, rule: str) -> dict[str, Any]:
        """The best evaluation of the last phase by the rule of a name; empty if it cannot be told."""
        return chosen(last_phase(self.rows), self.rules[rule])

    @property
    def best(self) -> dict[str, Any]:
        return self.chosen(self.select)

    def write(self, folder: Path) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with replacing(folder / "log.csv", force=True) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self.rows)
        with replacing(folder / "log.json", force=True) as temporary:
            temporary.write_text(json.dumps({"best": self.best, "rows": self.rows}, indent=1) + "\n")
