"""Evaluate what was released by another protocol or other classifiers: no noise, no budget.

`fedsynth evaluate RUN` trains classifiers on the releases of a run and writes their results below
it; with `sets=intermediate` also on the sets that were released on the way, as epsilon grew;
`fedsynth evaluate RUN real=100,1000` trains them on so many real records, as a reference that
is not private; `fedsynth evaluate FILE.npz data=NAME` prints the results of one released file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.api.evaluation import (
    EVALUATION_KEYS,
    evaluate_real_records,
    evaluate_release,
    evaluate_run,
)
from fedsynth.core.errors import UserError, exit_code
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.experiment.config import parse_overrides
from fedsynth.experiment.intermediate_sets import CURVE, read_curve
from fedsynth.experiment.real_records import PREFIX
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import RunDirectory

OWN_KEYS = ("stages", "sets", "real")  # of this command, beside those of an evaluation
CURVE_COLUMNS = ("method", "ε", "seed", "steps", "ε PLD by then", "classifier", "accuracy")
COLUMNS = ("method", "ε", "seed", "stage", "protocol and classifier", "accuracy")


def evaluation_words(words: Sequence[str]) -> list[str]:
    """Words in which `protocol=P` is written as `evaluation.protocol=P`, and so all such keys."""
    return [
        f"evaluation.{word}" if word.partition("=")[0] in EVALUATION_KEYS else word
        for word in words
    ]


def results_table(metrics: Path) -> str:
    """The accuracies of a metrics file as a Markdown table."""
    table = frame(MetricsFile(metrics).read())
    named = table[table["metric"].str.match(r"accuracy_([A-Z]|none)_")]
    return markdown_table(
        COLUMNS,
        [
            [
                f"`{row.method}`",
                epsilon_text(row.epsilon),
                str(row.seed),
                str(row.stage),
                row.metric.removeprefix("accuracy_").replace("_", ", ", 1),
                f"{row.value:.4f}",
            ]
            for row in named.itertuples()
        ],
    )


def curve_table(path: Path) -> str:
    """The accuracies of intermediate sets as a Markdown table."""
    return markdown_table(
        CURVE_COLUMNS,
        [
            [
                f"`{row.method}`",
                epsilon_text(row.epsilon),
                str(row.seed),
                f"{row.steps:,}",
                epsilon_text(row.epsilon_pld),
                row.classifier,
                f"{row.accuracy:.4f} ± {row.deviation:.4f}",
            ]
            for row in read_curve(path)
        ],
    )


def real_records_table(metrics: Path) -> str:
    """The accuracies with some of the real records as a Markdown table."""
    rows = MetricsFile(metrics).read()
    found = sorted((int(row.metric.removeprefix(PREFIX)), row.seed, row.value) for row in rows)
    lines = [[f"{count:,}", str(seed), f"{value:.4f}"] for count, seed, value in found]
    return markdown_table(("real records", "seed", "accuracy"), lines)


def _numbers(text: str) -> list[int]:
    """The numbers of records in a list with commas."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"real={text} must be whole numbers of records, as real=100,1000.")
    return [int(part) for part in parts]


def release_table(path: Path, overrides: Mapping[str, Any]) -> str:
    """Evaluate one released file; returns a Markdown table."""
    rows = evaluate_release(path, overrides)
    shown = pd.Series(rows)[lambda values: values.index.str.match(r"accuracy_([A-Z]|none)_")]
    return markdown_table(
        ("protocol and classifier", "accuracy"),
        [
            [name.removeprefix("accuracy_").replace("_", ", ", 1), f"{value:.4f}"]
            for name, value in shown.items()
        ],
    )


def _evaluate(words: Sequence[str]) -> None:
    place, *rest = words
    own = {key: [w.partition("=")[2] for w in rest if w.startswith(f"{key}=")] for key in OWN_KEYS}
    counts = own.pop("real")
    rest = [word for word in rest if word.partition("=")[0] not in OWN_KEYS]
    overrides = parse_overrides(evaluation_words(rest))
    if counts:
        metrics = evaluate_real_records(RunDirectory.read(place), _numbers(counts[-1]), overrides)
        print(real_records_table(metrics))
        print(
            f"\nnumbers: {metrics}; not private. `fedsynth report {place}` says what releases "
            "are worth."
        )
        return
    if Path(place).is_file():
        print(release_table(Path(place), overrides))
        return
    last = {key: values[-1] for key, values in own.items() if values}
    metrics = evaluate_run(RunDirectory.read(place), overrides, **last)
    print(curve_table(metrics) if metrics.name == CURVE else results_table(metrics))
    print(f"\nnumbers: {metrics}")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; exit code 2 after an error of the user."""
    arguments = list(sys.argv[1:] if words is None else words)
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        print(
            "error: name a run directory or a released file: "
            "fedsynth evaluate RUN|FILE.npz [KEY=VALUE ...]",
            file=sys.stderr,
        )
        return 2
    return exit_code(lambda: _evaluate(arguments))


if __name__ == "__main__":
    sys.exit(main())
