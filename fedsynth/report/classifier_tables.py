"""Tables of single classifiers and of image quality, for the terminal, the page and Markdown.

Both hold the metrics of the last stage, means over seeds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text, markdown_table
from fedsynth.evaluation.classical_classifiers import SUITE

_ACCURACY_METRIC = re.compile(r"accuracy_([A-Z])_(\w+)")
QUALITY = {
    "inception_score": "Inception Score",
    "inception_score_std": "± over splits",
    "fid_lite": "FID-lite",
    "fid": "FID",
    "fid_torchvision": "FID (torchvision)",
    "scorer_accuracy": "accuracy of scorer",
    "quality_images": "images",
    "quality_real_images": "real images",
}


@dataclass(frozen=True)
class TableData:
    """A table in no particular format; the first two cells of a row are method and budget."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def last_stage(metrics: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds after the last stage: a row per method and budget, a column per metric."""
    if metrics.empty:
        return pd.DataFrame()
    final = metrics[metrics["stage"] == metrics["stage"].max()]
    wide = final.pivot_table(index=["epsilon", "method"], columns="metric", values="value")
    return wide.sort_index()


def by_classifier(metrics: pd.DataFrame) -> TableData | None:
    """The accuracy of each classifier, with averages; None for a single classifier.

    If there are baselines on real data, also the calibrated average and the baselines themselves.
    """
    wide = last_stage(metrics)
    accuracies = {str(c): m for c in wide.columns if (m := _ACCURACY_METRIC.fullmatch(str(c)))}
    if "classifiers" not in wide or len(accuracies) < 2:
        return None
    protocols = sorted({m[1] for m in accuracies.values()})
    calibrated = "calibrated_accuracy" in wide
    rows = [
        (
            *_method_and_budget(index),
            *(_text(row.get(column)) for column in accuracies),
            _text(row["accuracy"]),
            *([_text(row.get("calibrated_accuracy"))] if calibrated else []),
        )
        for index, row in wide[wide["classifiers"].notna()].iterrows()
    ]
    real = [f"real_{m[1]}_{m[2]}" for m in accuracies.values()]
    if calibrated and all(column in wide for column in real):
        baselines = [float(wide[column].mean()) for column in real]
        mean = sum(baselines) / len(baselines)
        rows.append(("real data", MISSING, *map(_text, baselines), _text(mean), _text(1.0)))
    number = int(wide["classifiers"].max())
    caption = (
        f"Protocol {', '.join(protocols)}: accuracy after the last stage, means over seeds; the "
        f"average is over these {number} classifiers"
    )
    names = {m[2] for m in accuracies.values()}
    if protocols == ["G"] and (without := [name for name in SUITE if name not in names]):
        caption += f" (of {len(SUITE)}, without {', '.join(without)})"
    if calibrated:
        caption += (
            "; the calibrated average is the mean ratio of each accuracy to that of the same "
            "classifier trained on real data"
        )
    headings = ("method", "ε", *(m[2].replace("_", " ") for m in accuracies.values()), "average")
    return TableData(
        caption, (*headings, *(["calibrated average"] if calibrated else [])), tuple(rows)
    )


def by_quality(metrics: pd.DataFrame) -> TableData | None:
    """Inception Score and distances; None if they were not measured."""
    wide = last_stage(metrics)
    known = [name for name in QUALITY if name in wide]
    if "inception_score" not in known:
        return None
    rows = [
        (*_method_and_budget(index), *(_text(row.get(name)) for name in known))
        for index, row in wide[wide["inception_score"].notna()].iterrows()
    ]
    caption = (
        "Images of all stages, means over seeds. Inception Score and FID-lite are computed with a "
        "scorer of our own, trained on the real records of the parties for evaluation only: "
        "comparable between runs with the same scorer, not with published numbers"
    )
    return TableData(caption, ("method", "ε", *(QUALITY[name] for name in known)), tuple(rows))


def _method_and_budget(index: Any) -> tuple[str, str]:
    return str(index[1]), epsilon_text(float(index[0]))


def _text(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def markdown(listing: TableData) -> str:
    """The table as Markdown with its caption below."""
    return f"{markdown_table(listing.headings, listing.rows)}\n\n{listing.caption}."
