"""The numbers that the papers print, as they ship with the package: facts, with what is in doubt.

`paper_numbers.csv` holds every accuracy, score and epsilon of the tables of five papers under our
names for data, method, classifier and protocol. Accuracies are fractions. `protocol` is "none"
where no set of images was judged by training on it. `flag` says why a number is not to be taken as
a target: it contradicts another cell, its epsilon is not what was spent, or it was chosen on test
data. Values are as printed also where they are flagged.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("paper_numbers.csv")


@dataclass(frozen=True)
class Published:
    """One printed number."""

    source: str
    table: str
    data: str
    method: str
    printed_method: str  # as the paper calls it
    setting: str  # what the table says of this row besides
    epsilon: float | None  # infinity: not private; None: not printed
    delta: float | None
    spc: int | None  # images a class
    classifier: str
    protocol: str
    metric: str
    value: float
    deviation: float | None
    flag: str

    @property
    def place(self) -> str:
        """Where it stands."""
        where = self.table if self.table.startswith("text") else f"table {self.table}"
        return f"{self.source}, {where}"


@functools.cache
def paper_numbers() -> tuple[Published, ...]:
    """All of them, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_number(row) for row in csv.DictReader(file))


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
