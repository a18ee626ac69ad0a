"""Published numbers, as they ship with the package, with caveats.

`paper_numbers.csv` holds every accuracy, score and epsilon of the tables of five papers, under the
names that this project uses for data, methods, classifiers and protocols. Accuracies are fractions.
`protocol` is "none" if no classifier was trained on a released set, and "original" where a table
repeats a number of the method's own paper, which was measured as that paper measures. `flag` is the
reason why a number is not a target: it contradicts another cell, its epsilon is not the one spent,
or it was selected on test data. Values are as printed, flagged or not.
`paper_relations.csv` names the neighbours that each method's authors count, and where they say so.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.enums import Relation, Unit
from fedsynth.report.guarantees import Meaning

FILE = Path(__file__).with_name("paper_numbers.csv")
RELATIONS = Path(__file__).with_name("paper_relations.csv")


@dataclass(frozen=True)
class Published:
    """A published number."""

    source: str
    table: str
    data: str
    method: str
    printed_method: str  # its name in the paper
    setting: str  # other conditions of this row
    epsilon: float | None  # infinity: not private; None: not printed
    delta: float | None
    spc: int | None  # images per class
    classifier: str
    protocol: str
    metric: str
    value: float
    deviation: float | None
    flag: str

    @property
    def meaning(self) -> Meaning:
        """What the printed epsilon protects: a record, with the neighbours of the method's
        authors. Empty if the number has no epsilon."""
        if self.epsilon is None or math.isinf(self.epsilon):
            return Meaning()
        return Meaning(Unit.RECORD.value, paper_relations().get(self.method, ""), self.delta)

    @property
    def place(self) -> str:
        """Paper and table."""
        table = self.table if self.table.startswith("text") else f"table {self.table}"
        return f"{self.source}, {table}"


@functools.cache
def paper_numbers() -> tuple[Published, ...]:
    """All published numbers, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_number(row) for row in csv.DictReader(file))


@functools.cache
def paper_relations() -> dict[str, str]:
    """The neighbouring relation that the authors of each method count."""
    with RELATIONS.open(encoding="utf-8", newline="") as file:
        return {row["method"]: Relation(row["relation"]).value for row in csv.DictReader(file)}


def _number(row: dict[str, str]) -> Published:
    return Published(
        row["source"],
        row["table"],
        row["data"],
        row["method"],
        row["printed_method"],
        row["setting"],
        _float(row["epsilon"]),
        _float(row["delta"]),
        int(row["spc"]) if row["spc"] else None,
        row["classifier"],
        row["protocol"],
        row["metric"],
        float(row["value"]),
        _float(row["deviation"]),
        row["flag"],
    )


def _float(text: str) -> float | None:
    value = float(text) if text else None
    if value is not None and math.isnan(value):
        raise ValueError("a paper number may not be nan")
    return value
