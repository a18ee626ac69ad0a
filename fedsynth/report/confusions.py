"""Confusions: what classifiers predicted for the test records of each class, as shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedsynth.core.text import epsilon_text
from fedsynth.evaluation.types import EvalResult
from fedsynth.report.figures import LIGHT, Theme, grid, heat_map, plain_text
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory, evaluation_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_ROW = 3
MAX_PANELS = 12
MAX_CLASSES = 20  # in a figure
MAX_NAME = 12  # letters of a class at an axis

Confusions = dict[tuple[float, str], pd.DataFrame]


def confusions(run: RunDirectory, metrics: pd.DataFrame) -> Confusions:
    """The shares of predictions per true class after the last stage, by epsilon and method.

    Rows are true classes and add up to one; all seeds and classifiers count alike. Results of
    earlier versions, which did not count mistakes, are left out."""
    accuracies = metrics[metrics["metric"] == "accuracy"]
    last = accuracies[accuracies["stage"] == accuracies["stage"].max()]
    found: Confusions = {}
    for (epsilon, method), rows in last.groupby(["epsilon", "method"], sort=True):
        results = [
            result
            for seed in sorted(set(rows["seed"]))
            for file in _files(
                run, str(method), float(epsilon), int(seed), int(rows["stage"].max())
            )
            if (result := EvalResult.from_json(file.read_text(encoding="utf-8"))).mistakes
            is not None
        ]
        if results:
            found[float(epsilon), str(method)] = _shares(results)
    return found


def _files(run: RunDirectory, method: str, epsilon: float, seed: int, stage: int) -> list[Path]:
    pattern = evaluation_file(release_name(method, epsilon, seed), stage, "*")
    return sorted(run.path.glob(pattern))


def _shares(results: Sequence[EvalResult]) -> pd.DataFrame:
    """Rows of true classes with the share of each prediction."""
    predicted = {w for r in results for row in (r.mistakes or {}).values() for w in row}
    tested = sorted(results[0].per_class)
    table = pd.DataFrame(0.0, index=tested, columns=sorted({*tested, *predicted}))
    for result in results:
        for label, (correct, _) in result.per_class.items():
            table.loc[label, label] += correct
        for label, row in (result.mistakes or {}).items():
            for wrong, count in row.items():
                table.loc[label, wrong] += count
    return table.div(table.sum(axis=1), axis=0)


def frequent_mistakes(table: pd.DataFrame, most: int) -> list[tuple[int, int, float]]:
    """The most frequent mistakes: true class, prediction, and its share of the class."""
    pairs = [
        (int(label), int(wrong), float(share))
        for label, row in table.iterrows()
        for wrong, share in row.items()
        if label != wrong and share > 0
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:most]


def confusion_figure(
    tables: Confusions, names: Mapping[int, str], theme: Theme = LIGHT, *, narrow: bool = False
) -> Figure | None:
    """A matrix per epsilon and method: true classes down, predictions across.

    None if nothing was counted, or there are too many classes for a figure."""
    shown = dict(list(tables.items())[:MAX_PANELS])
    largest = max((len(table.columns) for table in shown.values()), default=0)
    if not largest or largest > MAX_CLASSES:
        return None
    side = 1.6 + 0.2 * max(largest, 5)
    columns = 1 if narrow else min(len(shown), PER_ROW)
    figure, panels = grid(len(shown), columns, (side, side), theme)
    for panel, ((epsilon, method), table) in zip(panels, shown.items(), strict=True):
        heat_map(panel, table.to_numpy(dtype=float), 9 if largest <= 6 else 5)
        panel.set_title(plain_text(f"{method}, ε = {epsilon_text(epsilon)}"), fontsize=9)
        across = [_short(names.get(int(c), str(c))) for c in table.columns]
        down = [_short(names.get(int(c), str(c))) for c in table.index]
        turned = 90 if max(map(len, across)) > 2 else 0
        panel.set_xticks(np.arange(len(across)), across, rotation=turned, fontsize=8)
        panel.set_yticks(np.arange(len(down)), down, fontsize=8)
        panel.tick_params(length=0)
        panel.set_frame_on(False)
        panel.set_xlabel("predicted", fontsize=8)
    for panel in panels[::columns]:
        panel.set_ylabel("true class", fontsize=8)
    return figure


def _short(name: str) -> str:
    """A class name that fits at an axis."""
    return plain_text(name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…")
