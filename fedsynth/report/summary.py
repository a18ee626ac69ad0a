"""The summary: one row a method and epsilon, from the tidy metrics, for terminal and page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedsynth.experiment.progress import duration
from fedsynth.storage.metrics import COLUMNS, Metric

MISSING = "–"
_JUDGED = re.compile(r"accuracy_([A-Z])_(\w+)")


@dataclass(frozen=True)
class MeanStd:
    """A mean with its standard deviation; no deviation where there is nothing to compare."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        if self.deviation is None or math.isnan(self.deviation):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.deviation:.3f}"


@dataclass(frozen=True)
class SummaryRow:
    """What one method reached at one epsilon, over all seeds. None: not measured."""

    method: str
    epsilon: float
    seeds: int
    accuracy: dict[int, MeanStd]  # after each stage, on the test data of all classes seen
    average: MeanStd | None
    forgetting: MeanStd | None
    epsilon_pld: float | None
    epsilon_rdp: float | None
    epsilon_paper: float | None
    seconds: float | None  # to make all releases of one seed
    judges: tuple[str, ...] = ()  # "P convnet": protocol and classifier, of each kind
    calibrated: MeanStd | None = None  # accuracy in shares of that on real data, last stage
    optimistic: MeanStd | None = None  # best epoch on the test data, last stage

    @property
    def private(self) -> bool:
        """False for a reference, which promises nothing."""
        return math.isfinite(self.epsilon)


def frame(metrics: Iterable[Metric]) -> pd.DataFrame:
    """The tidy metrics as a data frame."""
    return pd.DataFrame(list(metrics), columns=list(COLUMNS))


def summarise(metrics: pd.DataFrame) -> list[SummaryRow]:
    """One row a method and epsilon: private ones by epsilon and method, then the references.

    The deviation is over seeds (n - 1); with one seed it is `accuracy_std`, over classifiers.
    """
    rows = [
        _row(str(method), float(epsilon), group)
        for (method, epsilon), group in metrics.groupby(["method", "epsilon"], sort=True)
    ]
    return sorted(rows, key=lambda row: (row.epsilon, row.method))


def _row(method: str, epsilon: float, group: pd.DataFrame) -> SummaryRow:
    def of(metric: str) -> pd.DataFrame:
        return group[group["metric"] == metric]

    names = group["metric"].unique()
    nets = of("accuracy_std").groupby("stage")["value"].mean().to_dict()
    accuracy = {
        int(stage): _spread(values["value"], nets.get(stage))
        for stage, values in of("accuracy").groupby("stage")
    }
    seconds = of("seconds_release")
    return SummaryRow(
        method=method,
        epsilon=epsilon,
        seeds=int(group["seed"].nunique()),
        accuracy=accuracy,
        average=_last(of("average_accuracy")),
        forgetting=_last(of("forgetting")),
        epsilon_pld=_largest(of("epsilon_pld")),
        epsilon_rdp=_largest(of("epsilon_rdp")),
        epsilon_paper=_largest(of("epsilon_paper")),
        seconds=None if seconds.empty else float(seconds.groupby("seed")["value"].sum().mean()),
        judges=tuple(sorted({" ".join(m.groups()) for m in map(_JUDGED.fullmatch, names) if m})),
        calibrated=_last(of("calibrated_accuracy")),
        optimistic=_last(of("accuracy_optimistic_max")),
    )


def _spread(values: pd.Series, over_nets: float | None = None) -> MeanStd:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else over_nets
    return MeanStd(float(values.mean()), deviation)


def _last(rows: pd.DataFrame) -> MeanStd | None:
    if rows.empty:
        return None
    return _spread(rows[rows["stage"] == rows["stage"].max()]["value"])


def _largest(rows: pd.DataFrame) -> float | None:
    return None if rows.empty else float(rows["value"].max())


def stages_of(rows: Sequence[SummaryRow]) -> list[int]:
    """All stages that any row has an accuracy for."""
    return sorted({stage for row in rows for stage in row.accuracy})


def judged_words(rows: Sequence[SummaryRow]) -> str:
    """Under which protocols, and by whom, these rows were judged; and the averages that only some
    protocols have."""
    judges = sorted({judge for row in rows for judge in row.judges})
    by_protocol: dict[str, list[str]] = {}
    for judge in judges:
        protocol, _, name = judge.partition(" ")
        by_protocol.setdefault(protocol, []).append(name)
    said = [
        f"protocol {protocol}, "
        + (", ".join(names) if len(names) < 4 else f"mean over {len(names)} classifiers")
        for protocol, names in by_protocol.items()
    ]
    for label, attribute in (
        ("calibrated average", "calibrated"),
        ("best epoch on the test data (optimistic)", "optimistic"),
    ):
        found = [
            f"{row.method} {epsilon_words(row.epsilon)} {value.mean:.3f}"
            for row in rows
            if (value := getattr(row, attribute)) is not None
        ]
        if found:
            said.append(f"{label}: {', '.join(found)}")
    return "; ".join(said)


def spread_words(rows: Sequence[SummaryRow]) -> str:
    """Who judged these rows, and what their ± means."""
    judged = judged_words(rows)
    return f"{judged}; {_deviation_words(rows)}" if judged else _deviation_words(rows)


def _deviation_words(rows: Sequence[SummaryRow]) -> str:
    if any(row.seeds > 1 for row in rows):
        return "± is the standard deviation over seeds (over classifiers where there is one seed)"
    return "± is the standard deviation over classifiers (one seed)"


def epsilon_words(epsilon: float | None) -> str:
    """An epsilon for a reader: four digits, the sign for infinity, a dash for none."""
    if epsilon is None or math.isnan(epsilon):
        return MISSING
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


def _cells(row: SummaryRow, stages: Sequence[int]) -> list[MeanStd | str]:
    return [
        *(row.accuracy.get(stage, MISSING) for stage in stages),
        row.average or MISSING,
        row.forgetting or MISSING,
        epsilon_words(row.epsilon_pld),
        epsilon_words(row.epsilon_rdp),
        epsilon_words(row.epsilon_paper),
        MISSING if row.seconds is None else duration(row.seconds),
    ]


def rich_table(rows: Sequence[SummaryRow], title: str = "", width: int = 120) -> Table:
    """The summary for a terminal of this width; a narrow one gets fewer columns, never cut words.

    Deviations stand on a second line, so that the columns stay narrow.
    """
    full = _terminal_table(rows, title, full=True)
    needed = Measurement.get(wide := Console(width=10_000), wide.options, full).maximum
    return full if needed <= width else _terminal_table(rows, title, full=False)


def _terminal_table(rows: Sequence[SummaryRow], title: str, *, full: bool) -> Table:
    stages = stages_of(rows)
    measures = ("mean", "forget", "ε PLD", "ε RDP", "ε paper", "release")
    shown = measures if full else ("forget", "ε PLD")
    table = Table(
        title=Text(title) if title else None,
        caption=f"accuracy after each stage; {spread_words(rows)}",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    table.add_column("method", no_wrap=True)
    for name in ("ε", *(f"stage\n{stage}" for stage in stages), *shown):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(cell).replace(" ± ", "\n±") for cell in _cells(row, stages)]
        tail = dict(zip(measures, cells[len(stages) :], strict=True))
        words = [row.method, epsilon_words(row.epsilon), *cells[: len(stages)]]
        words += [tail[name] for name in shown]
        table.add_row(*map(Text, words), style="" if row.private else "yellow")
    return table


def html_table(rows: Sequence[SummaryRow], setting: str = "") -> str:
    """The summary as an HTML table; references carry the class `reference`."""
    stages = stages_of(rows)
    best = {
        (row.epsilon, stage): max(
            other.accuracy[stage].mean
            for other in rows
            if other.epsilon == row.epsilon and stage in other.accuracy
        )
        for row in rows
        if row.private
        for stage in row.accuracy
    }
    head = "".join(f'<th scope="col" class="number">{stage}</th>' for stage in stages)
    lines = [
        f"<table><caption>{escape(setting[:1].upper() + setting[1:])}{'. ' if setting else ''}"
        "Accuracy on the test data of all classes seen, after each stage; "
        f"{spread_words(rows)}. Bold: best private method at this epsilon.</caption><thead>",
        '<tr><th scope="col" rowspan="2">Method</th>'
        '<th scope="col" rowspan="2" class="number">Budget ε</th>'
        + (f'<th scope="colgroup" colspan="{len(stages)}">After stage</th>' if stages else "")
        + '<th scope="col" rowspan="2" class="number">Average</th>'
        '<th scope="col" rowspan="2" class="number">Forgetting</th>'
        '<th scope="colgroup" colspan="3">ε spent</th>'
        '<th scope="col" rowspan="2" class="number">Time to<br>release</th></tr>',
        f'<tr>{head}<th scope="col" class="number">PLD</th><th scope="col" class="number">RDP</th>'
        '<th scope="col" class="number">paper</th></tr></thead><tbody>',
    ]
    for row in rows:
        cells = [_html(cell) for cell in _cells(row, stages)]
        for column, stage in enumerate(stages):
            mine = row.accuracy.get(stage)
            if mine is not None and best.get((row.epsilon, stage)) == mine.mean:
                cells[column] = f"<strong>{cells[column]}</strong>"
        kind = "" if row.private else ' class="reference"'
        lines.append(
            f'<tr{kind}><th scope="row">{escape(row.method)}</th>'
            f'<td class="number">{epsilon_words(row.epsilon)}</td>'
            + "".join(f'<td class="number">{cell}</td>' for cell in cells)
            + "</tr>"
        )
    lines.append("</tbody></table>")
    return "".join(lines)


def _html(cell: MeanStd | str) -> str:
    mean, plus_minus, deviation = str(cell).partition(" ± ")
    return f'{mean} <span class="spread">± {deviation}</span>' if plus_minus else mean
