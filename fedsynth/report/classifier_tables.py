"""Where several classifiers judged, one table of them; where images were appraised, another.

Both hold what `metrics.csv` holds of the last stage, means over seeds, so that the terminal, the
page and Markdown say the same.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text, markdown_table
from fedsynth.evaluation.classical_classifiers import REMARKS, SUITE

_JUDGED = re.compile(r"accuracy_([A-Z])_(\w+)")
QUALITY = {
    "inception_score": "Inception Score",
    "inception_score_std": "± over splits",
    "fid_lite": "FID-lite",
    "fid": "FID",
    "fid_torchvision": "FID (torchvision)",
    "scorer_accuracy": "scorer's accuracy",
    "quality_images": "images",
    "quality_real_images": "real images",
}


@dataclass(frozen=True)
class TableData:
    """A table before it has a form: a caption, headings, and rows whose first two cells are the
    method and its budget."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def last_stage(metrics: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds after the last stage: a row a method and budget, a column a metric."""
    if metrics.empty:
        return pd.DataFrame()
    final = metrics[metrics["stage"] == metrics["stage"].max()]
    wide = final.pivot_table(index=["epsilon", "method"], columns="metric", values="value")
    return wide.sort_index()


def by_classifier(metrics: pd.DataFrame) -> TableData | None:
    """A column a classifier, with the average over them and, where real data were judged as well,
    the calibrated average and the real data themselves. None where one classifier judged."""
    wide = last_stage(metrics)
    judged = {str(c): m for c in wide.columns if (m := _JUDGED.fullmatch(str(c)))}
    if "classifiers" not in wide or len(judged) < 2:
        return None
    protocols = sorted({m[1] for m in judged.values()})
    calibrated = "calibrated_accuracy" in wide
    rows = [
        (
            *_who(index),
            *(_text(row.get(column)) for column in judged),
            _text(row["accuracy"]),
            *([_text(row.get("calibrated_accuracy"))] if calibrated else []),
        )
        for index, row in wide[wide["classifiers"].notna()].iterrows()
    ]
    real = [f"real_{m[1]}_{m[2]}" for m in judged.values()]
    if calibrated and all(column in wide for column in real):
        anchors = [float(wide[column].mean()) for column in real]
        mean = sum(anchors) / len(anchors)
        rows.append(("real data", MISSING, *map(_text, anchors), _text(mean), _text(1.0)))
    number = int(wide["classifiers"].max())
    caption = (
        f"Protocol {', '.join(protocols)}: accuracy after the last stage, means over seeds; the "
        f"average is over these {number} classifiers"
    )
    names = {m[2] for m in judged.values()}
    if protocols == ["G"] and (without := [name for name in SUITE if name not in names]):
        caption += f" (of {len(SUITE)}, without {', '.join(without)})"
    caption += "".join(f"; {name}: {said}" for name, said in REMARKS.items() if name in names)
    if calibrated:
        caption += (
            "; the calibrated average is the mean of each one's accuracy over its accuracy on "
            "real data"
        )
    headings = ("method", "ε", *(m[2].replace("_", " ") for m in judged.values()), "average")
    return TableData(
        caption, (*headings, *(["calibrated average"] if calibrated else [])), tuple(rows)
    )


def by_quality(metrics: pd.DataFrame) -> TableData | None:
    """Inception Score and distances; None where nobody looked."""
    wide = last_stage(metrics)
    known = [name for name in QUALITY if name in wide]
    if "inception_score" not in known:
        return None
    rows = [
        (*_who(index), *(_text(row.get(name)) for name in known))
        for index, row in wide[wide["inception_score"].notna()].iterrows()
    ]
    caption = (
        "Images of all stages after the last one, means over seeds. Inception Score and FID-lite "
        "are by our own scorer, which was trained on the parties' real records: for the evaluation "
        "only, and comparable between runs with the same scorer, not with published numbers"
    )
    return TableData(caption, ("method", "ε", *(QUALITY[name] for name in known)), tuple(rows))


def _who(index: Any) -> tuple[str, str]:
    return str(index[1]), epsilon_text(float(index[0]))


def _text(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def markdown(listing: TableData) -> str:
    """The listing as Markdown, its caption below."""
    return f"{markdown_table(listing.headings, listing.rows)}\n\n{listing.caption}."
