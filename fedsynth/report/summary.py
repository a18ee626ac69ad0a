"""Summary of a run, one row per method and epsilon, and its table for the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.experiment.evaluation_data import TEST_DATA, EvaluationData
from fedsynth.experiment.progress import duration
from fedsynth.report.guarantees import Meaning
from fedsynth.storage.metrics import COLUMNS, Metric

_ACCURACY_METRIC = re.compile(r"accuracy_([A-Z])_(\w+)")


@dataclass(frozen=True)
class MeanStd:
    """A mean with its standard deviation, which a single value does not have."""

    mean: float
    deviation: float | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """Mean and deviation with three digits; the latter empty if there is none."""
        if self.deviation is None or math.isnan(self.deviation):
            return f"{self.mean:.3f}", ""
        return f"{self.mean:.3f}", f"± {self.deviation:.3f}"

    def __str__(self) -> str:
        return " ".join(self.texts).rstrip()


@dataclass(frozen=True)
class SummaryRow:
    """Results of one method at one epsilon over all seeds. None: not measured."""

    method: str
    epsilon: float
    seeds: int
    accuracy: dict[int, MeanStd]  # after each stage, on all classes seen
    average: MeanStd | None
    forgetting: MeanStd | None
    epsilon_pld: float | None
    epsilon_rdp: float | None
    epsilon_paper: float | None
    seconds: float | None  # for all releases of one seed
    classifiers: tuple[str, ...] = ()  # protocol and name, "P convnet"
    calibrated: MeanStd | None = None  # accuracy relative to real data, last stage
    optimistic: MeanStd | None = None  # best epoch by its own test, last stage
    meaning: str = ""  # of the epsilons: delta, unit, relation and view, where recorded

    @property
    def private(self) -> bool:
        """False for a reference, which has no privacy guarantee."""
        return math.isfinite(self.epsilon)


def frame(metrics: Iterable[Metric]) -> pd.DataFrame:
    """The tidy metrics as a data frame."""
    return pd.DataFrame(list(metrics), columns=list(COLUMNS))


def summarise(metrics: pd.DataFrame) -> list[SummaryRow]:
    """Summarise per method and epsilon; references, whose epsilon is infinite, come last.

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
    over_nets = of("accuracy_std").groupby("stage")["value"].mean().to_dict()
    accuracy = {
        int(stage): _mean_std(values["value"], over_nets.get(stage))
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
        classifiers=tuple(
            sorted({" ".join(m.groups()) for m in map(_ACCURACY_METRIC.fullmatch, names) if m})
        ),
        calibrated=_last(of("calibrated_accuracy")),
        optimistic=_last(of("accuracy_optimistic_max")),
        meaning=_meaning(of("epsilon_pld")),
    )


def _meaning(rows: pd.DataFrame) -> str:
    """What the epsilons of these rows mean; empty where earlier versions did not record it."""
    found = {
        f"{Meaning(unit, relation, delta).text}, view {view}"
        for unit, relation, delta, view in zip(
            rows["unit"], rows["relation"], rows["delta"], rows["view"], strict=True
        )
        if unit and relation
    }
    return " or ".join(sorted(found))


def meaning_text(rows: Sequence[SummaryRow]) -> str:
    """What the epsilons of these rows mean, by method where they do not mean the same."""
    by_meaning: dict[str, list[str]] = {}
    for row in rows:
        if row.private and row.meaning:
            by_meaning.setdefault(row.meaning, []).append(row.method)
    if len(by_meaning) == 1:
        return f"ε: {next(iter(by_meaning))}"
    parts = [f"{', '.join(dict.fromkeys(m))}: {text}" for text, m in by_meaning.items()]
    return f"ε of {'; of '.join(parts)}" if parts else ""


def _mean_std(values: pd.Series, over_nets: float | None = None) -> MeanStd:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else over_nets
    return MeanStd(float(values.mean()), deviation)


def _last(rows: pd.DataFrame) -> MeanStd | None:
    if rows.empty:
        return None
    return _mean_std(rows[rows["stage"] == rows["stage"].max()]["value"])


def _largest(rows: pd.DataFrame) -> float | None:
    return None if rows.empty else float(rows["value"].max())


def stages_of(rows: Sequence[SummaryRow]) -> list[int]:
    """All stages with an accuracy in any row."""
    return sorted({stage for row in rows for stage in row.accuracy})


def protocol_text(rows: Sequence[SummaryRow], tested: EvaluationData) -> str:
    """Protocols and classifiers of these rows, and the averages that only some protocols have."""
    by_protocol: dict[str, list[str]] = {}
    for classifier in sorted({classifier for row in rows for classifier in row.classifiers}):
        protocol, _, name = classifier.partition(" ")
        by_protocol.setdefault(protocol, []).append(name)
    parts = [
        f"protocol {protocol}, "
        + (", ".join(names) if len(names) < 4 else f"mean over {len(names)} classifiers")
        for protocol, names in by_protocol.items()
    ]
    for label, attribute in (
        ("calibrated average", "calibrated"),
        (f"best epoch on {tested.name} (optimistic)", "optimistic"),
    ):
        averages = [
            f"{row.method} {epsilon_text(row.epsilon)} {value.mean:.3f}"
            for row in rows
            if (value := getattr(row, attribute)) is not None
        ]
        if averages:
            parts.append(f"{label}: {', '.join(averages)}")
    return "; ".join(parts)


def table_note(rows: Sequence[SummaryRow], tested: EvaluationData) -> str:
    """Protocols and classifiers of these rows, and the meaning of ±."""
    over = "classifiers (one seed)"
    if any(row.seeds > 1 for row in rows):
        over = "seeds (over classifiers if there is one seed)"
    deviation = f"± is the standard deviation over {over}"
    return "; ".join(filter(None, [protocol_text(rows, tested), deviation, meaning_text(rows)]))


def _cells(row: SummaryRow, stages: Sequence[int]) -> list[MeanStd | str]:
    return [
        *(row.accuracy.get(stage, MISSING) for stage in stages),
        row.average or MISSING,
        row.forgetting or MISSING,
        epsilon_text(row.epsilon_pld),
        epsilon_text(row.epsilon_rdp),
        epsilon_text(row.epsilon_paper),
        MISSING if row.seconds is None else duration(row.seconds),
    ]


def rich_table(
    rows: Sequence[SummaryRow], tested: EvaluationData, title: str = "", width: int = 120
) -> Table:
    """The summary for a terminal of this width; a narrow one has fewer columns, not cut words.

    Deviations are on a second line, which keeps the columns narrow.
    """
    full = _terminal_table(rows, tested, title, full=True)
    needed = Measurement.get(wide := Console(width=10_000), wide.options, full).maximum
    return full if needed <= width else _terminal_table(rows, tested, title, full=False)


def _terminal_table(
    rows: Sequence[SummaryRow], tested: EvaluationData, title: str, *, full: bool
) -> Table:
    stages = stages_of(rows)
    measures = ("mean", "forget", "ε PLD", "ε RDP", "ε paper", "release")
    columns: Sequence[str] = measures if full else ("forget", "ε PLD")
    heads, accuracy = [f"stage\n{stage}" for stage in stages], "accuracy after each stage"
    if tested != TEST_DATA:
        accuracy += f" on {tested.name}"
    if len(stages) == 1:  # nothing to average, and nothing to forget
        columns = tuple(name for name in columns if name not in measures[:2])
        heads, accuracy = ["accuracy"], f"accuracy on {tested.name}"
    table = Table(
        title=Text(title) if title else None,
        caption=f"{accuracy}; {table_note(rows, tested)}",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    table.add_column("method", no_wrap=True)
    for name in ("ε", *heads, *columns):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(cell).replace(" ± ", "\n±") for cell in _cells(row, stages)]
        tail = dict(zip(measures, cells[len(stages) :], strict=True))
        texts = [row.method, epsilon_text(row.epsilon), *cells[: len(stages)]]
        texts += [tail[name] for name in columns]
        table.add_row(*map(Text, texts), style="" if row.private else "yellow")
    return table
