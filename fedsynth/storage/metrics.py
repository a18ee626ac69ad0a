"""The tidy table of numbers: method, epsilon, seed, stage, metric, value, and what epsilon means.

During a run rows are appended; `compact` puts the file into its one final form (one row per key,
the last one written wins, sorted), so that runs with equal numbers have equal files, however often
they were interrupted. Files of earlier versions end with the value; they are read, and extended by
empty columns as soon as they are written.
"""

from __future__ import annotations

import csv
import io
import numbers
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedsynth.core.errors import UserError
from fedsynth.storage.files import atomic_write, disk_errors, durable_append


class Metric(NamedTuple):
    """One number. `epsilon` is the budget asked for, infinity for non-private references.

    It protects one `unit` under `relation` at `delta`, towards the observer `view`; in a row whose
    metric is an epsilon, this is what the value means. Empty: not recorded.
    """

    method: str
    epsilon: float
    seed: int
    stage: int
    metric: str
    value: float
    unit: str = ""
    relation: str = ""
    delta: float | None = None
    view: str = ""


COLUMNS = Metric._fields
FORMER_COLUMNS = COLUMNS[:6]


class MetricsFile:
    """`metrics.csv`; a row that was acknowledged survives kill -9, a torn one disappears."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows, all or none, and wait until they are on the disk."""
        lines = [_canonical(Metric(*row)) for row in rows]
        if not lines:
            return
        with self._lock, disk_errors(self.path):
            if not self.path.exists():
                atomic_write(self.path, _csv([COLUMNS]))
            elif self._is_former():
                atomic_write(self.path, _csv([COLUMNS, *self._rows(self.path.read_bytes())]))
            durable_append(self.path, _csv(lines))

    def compact(self) -> None:
        """Rewrite the file in its final form; does nothing when it is already in it."""
        with self._lock, disk_errors(self.path):
            if not self.path.exists():
                return
            before = self.path.read_bytes()
            latest = {row[:5]: row for row in self._rows(before)}
            after = _csv([COLUMNS, *sorted(latest.values(), key=_order)])
            if after != before:
                atomic_write(self.path, after)

    def read(self) -> list[Metric]:
        """All metrics, one per key (the last one written), sorted."""
        if not self.path.exists():
            return []
        latest = {row[:5]: row for row in self._rows(self.path.read_bytes())}
        return [
            Metric(
                m,
                float(e),
                int(seed),
                int(stage),
                name,
                float(value),
                unit,
                relation,
                float(delta) if delta else None,
                view,
            )
            for m, e, seed, stage, name, value, unit, relation, delta, view in sorted(
                latest.values(), key=_order
            )
        ]

    def _is_former(self) -> bool:
        with self.path.open("rb") as file:
            return file.readline() == _csv([FORMER_COLUMNS])

    def _rows(self, data: bytes) -> list[tuple[str, ...]]:
        whole = data[: data.rfind(b"\n") + 1]  # a line without its end was never acknowledged
        try:
            rows = [tuple(row) for row in csv.reader(io.StringIO(whole.decode(), newline=""))]
            columns = COLUMNS if rows and rows[0] != FORMER_COLUMNS else FORMER_COLUMNS
            for row in rows[1:]:
                _order(row)
                float(row[5])
                if len(row) != len(columns):
                    raise ValueError(f"a row of {len(row)} columns")
                if any(row[8:9]):
                    float(row[8])
        except (ValueError, IndexError, csv.Error) as error:
            raise UserError(f"{self.path} is damaged: {error}.") from error
        if rows and rows[0] != columns:
            raise UserError(
                f"{self.path} is not a metrics file: its first line should be {','.join(COLUMNS)}."
            )
        return [row + ("",) * (len(COLUMNS) - len(columns)) for row in rows[1:]]


def _canonical(row: Metric) -> tuple[str, ...]:
    for name in (row.method, row.metric):
        if not name or not name.isprintable():
            raise ValueError(f"not a name for a method or metric: {name!r}")
    for text in (row.unit, row.relation, row.view):
        if not text.isprintable():
            raise ValueError(f"not the meaning of an epsilon: {text!r}")
    return (
        row.method,
        repr(float(row.epsilon)),
        str(int(row.seed)),
        str(int(row.stage)),
        row.metric,
        _number(row.value),
        str(row.unit),
        str(row.relation),
        "" if row.delta is None else repr(float(row.delta)),
        row.view,
    )


def _number(value: float) -> str:
    """The shortest text that reads back as this number; whole numbers stay whole."""
    return str(int(value)) if isinstance(value, numbers.Integral) else repr(float(value))


def _order(row: Sequence[str]) -> tuple[str, float, int, int, str]:
    return row[0], float(row[1]), int(row[2]), int(row[3]), row[4]


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
