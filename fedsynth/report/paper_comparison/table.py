"""Comparison with published numbers: `python -m fedsynth.report.paper_comparison.table RUN ...`.

It is a section of every report, and `comparison.md` in the run directory. A published number is
compared only with one for the same data and method; every other difference (epsilon, protocol,
classifier, epoch, parties, images per class, settings) is named. Departures of the run from the
published settings follow below the table.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedsynth.core.errors import UserError, exit_code
from fedsynth.core.text import MISSING, epsilon_text, markdown_table
from fedsynth.experiment.evaluation_data import TEST_DATA, evaluation_data
from fedsynth.report.guarantees import difference, guarantees
from fedsynth.report.paper_comparison.matching import (
    ALONE,
    Comparison,
    Measured,
    select_comparisons,
)
from fedsynth.report.paper_comparison.numbers import paper_numbers
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory

HEADINGS = ("method", "ε", "measured by", "ours", "paper", "source", "differs in", "caveat")
_ACCURACY_METRIC = re.compile(r"accuracy_(?P<protocol>[A-Z]|none)_(?P<name>\w+)")
AVERAGE = "average"
MAX_SETTINGS = 3  # changed settings that a line of the table names


def measured_numbers(metrics: Sequence[Metric], config: Mapping[str, Any]) -> list[Measured]:
    """The results of a run after its last stage, under the names of the published numbers."""
    data, table = config.get("data"), frame(metrics)
    if not isinstance(data, str) or table.empty:
        return []
    numbers = []
    for (method, epsilon), group in table.groupby(["method", "epsilon"], sort=True):
        last = group[group["stage"] == group["stage"].max()]
        wide = last.pivot_table(index="seed", columns="metric", values="value")
        spc = _images_per_class(group, data)
        for protocol, classifier, metric, values in _columns(wide, config):
            numbers.append(
                Measured(
                    data,
                    str(method),
                    float(epsilon),
                    describe_parties(config),
                    classifier,
                    protocol,
                    metric,
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else None,
                    spc,
                    _changed(config, str(method)),
                    evaluation_data(config),
                )
            )
    return numbers


def _columns(
    wide: pd.DataFrame, config: Mapping[str, Any]
) -> list[tuple[str, str, str, pd.Series]]:
    """Protocol, classifier, metric and values by seed of the metrics that papers publish."""
    columns = []
    accuracies = [
        match for name in wide.columns if (match := _ACCURACY_METRIC.fullmatch(str(name)))
    ]
    protocols = {match["protocol"] for match in accuracies}
    for match in accuracies:
        protocol, name = match["protocol"], match["name"]
        columns.append((protocol, name, "accuracy", wide[match[0]]))
        if (real := f"real_{protocol}_{name}") in wide:
            columns.append((protocol, name, "calibrated_accuracy", wide[match[0]] / wide[real]))
    if not accuracies and "accuracy" in wide:  # runs without metrics per classifier
        evaluation = config.get("evaluation") or {}
        protocol = str(evaluation.get("protocol", "P")) if "images" in wide else "none"
        columns.append(
            (protocol, str(evaluation.get("classifier", "convnet")), "accuracy", wide["accuracy"])
        )
    names = {
        "accuracy": ("G", AVERAGE) if protocols == {"G"} and "classifiers" in wide else None,
        "calibrated_accuracy": ("G", AVERAGE) if "classifiers" in wide else None,
        "accuracy_optimistic_max": ("L", "keras_cnn") if protocols == {"L"} else None,
        "inception_score": ("none", ""),
        "fid": ("none", ""),
    }
    for metric, protocol_and_classifier in names.items():
        if protocol_and_classifier and metric in wide:
            columns.append((*protocol_and_classifier, metric, wide[metric].dropna()))
    return [column for column in columns if len(column[3].dropna())]


def _images_per_class(group: pd.DataFrame, data: str) -> float | None:
    """Released images per class over all stages."""
    from fedsynth.data import registry as datasets

    images = group[group["metric"] == "images"]
    try:
        classes = datasets.find(data).info.classes
    except UserError:
        return None
    return None if images.empty else float(images.groupby("seed")["value"].sum().mean()) / classes


def describe_parties(config: Mapping[str, Any]) -> str:
    """Number of parties and order of stages in words."""
    parties = config.get("parties", 1)
    if parties == 1:
        return ALONE
    return f"{parties} parties {'in turn' if config.get('stages') == 'in_turn' else 'together'}"


def departures(config: Mapping[str, Any]) -> list[str]:
    """Departures of a run from the published evaluation, test data and settings of methods."""
    evaluation = config.get("evaluation") or {}
    changes = _evaluation_changes(evaluation)
    lines = [f"Evaluation: {', '.join(changes)}."] if changes else []
    if evaluation.get("quality"):
        scorer = f"VGG11-BN of width {evaluation.get('scorer_width')}"
        lines.append(f"Inception Score by {scorer} of our own; the papers use other networks.")
    if (tested := evaluation_data(config)) != TEST_DATA:
        lines.append(f"Tested on {tested.name} instead of {TEST_DATA.name}.")
    if (accounting := config.get("accounting", "pld")) != "paper":
        lines.append(
            f"Noise calibrated by {str(accounting).upper()}; the papers use their own accounting "
            "(accounting=paper calibrates to that)."
        )
    for name in filter(_is_method, config):
        if changed := _method_changes(config, name):
            lines.append(f"{name}: {', '.join(changed)} instead of the published settings.")
    return lines


def _changed(config: Mapping[str, Any], method: str) -> str:
    """The settings of a method and its evaluation that differ from the published ones, in short."""
    changed = [*_method_changes(config, method), *_evaluation_changes(config.get("evaluation"))]
    if evaluation_data(config) != TEST_DATA:
        changed.append("tested on a hold-out")
    more = len(changed) - MAX_SETTINGS
    shown = changed[:MAX_SETTINGS] if more > 1 else changed
    return ", ".join([*shown, *([f"{more} more below"] if more > 1 else [])])


def _evaluation_changes(evaluation: Mapping[str, Any] | None) -> list[str]:
    changes = []
    texts = {
        "width": ("ConvNet of width {}", 128),
        "nets": ("{} networks of each kind", 0),
        "epochs": ("E={}", 0),
        "max_images": ("at most {:,} image passes per training", 0),
        "batch": ("batches of {}", 0),
        "suite_images": ("classifiers fitted on at most {:,} images", 0),
        "dtype": ("products in {}", "float32"),
    }
    for key, (text, published) in texts.items():
        value = (evaluation or {}).get(key, published)
        if value != published:
            changes.append(text.format(value))
    return changes


def _is_method(name: str) -> bool:
    from fedsynth.methods.registry import is_method

    return is_method(name)


def _method_changes(config: Mapping[str, Any], name: str) -> list[str]:
    """Settings of a method that differ from its published defaults, as `key=value`."""
    from fedsynth.methods.registry import method

    if not isinstance(config.get(name), Mapping) or not _is_method(name):
        return []
    published = {f.name: f.default for f in dataclasses.fields(method(name).Config)}
    return [
        f"{k}={v}" for k, v in config[name].items() if k in published and not _same(v, published[k])
    ]


def _same(one: object, other: object) -> bool:
    """True if two values are equal, with lists equal to tuples."""
    plain = [list(v) if isinstance(v, tuple) else v for v in (one, other)]
    return plain[0] == plain[1]


def compare_run(run: RunDirectory) -> list[Comparison]:
    """Comparisons of all results of a run that have a published counterpart."""
    found = guarantees(run)
    pairs = select_comparisons(measured_numbers(run.metrics(), run.read_config()), paper_numbers())
    return [
        dataclasses.replace(
            pair,
            meaning=difference(found[pair.ours.method, pair.ours.epsilon], pair.paper.meaning),
        )
        if math.isfinite(pair.ours.epsilon)
        else pair
        for pair in pairs
    ]


def cells(pair: Comparison) -> tuple[str, ...]:
    """One line of the table."""
    ours, paper = pair.ours, pair.paper
    metric = ours.metric.replace("_", " ")
    if ours.classifier:
        suffix = "" if ours.metric == "accuracy" else f", {metric}"
        metric = f"{ours.classifier}, protocol {ours.protocol}{suffix}"
    spc = "" if paper.spc is None else f", {paper.spc:,} per class"
    setting = f", {paper.setting}" if paper.setting else ""
    return (
        ours.method if math.isfinite(ours.epsilon) else f"{ours.method} (not private)",
        epsilon_text(ours.epsilon),
        metric,
        _value(ours.value, ours.deviation),
        _value(paper.value, paper.deviation),
        f"{paper.place}: {paper.printed_method}{spc}{setting}",
        "; ".join([*pair.differs, *filter(None, [pair.meaning])]) or "nothing",
        paper.flag or MISSING,
    )


def _value(value: float, deviation: float | None) -> str:
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return text if deviation is None else f"{text} ± {deviation:.3f}"


NOTE = (
    "Ours: after the last stage, mean and deviation over seeds. A caveat is a reason not to take "
    "the published number as a target. Where unit, relation or delta differ, the epsilon of our "
    "releases is also counted as the paper's is."
)


def markdown(pairs: Sequence[Comparison], config: Mapping[str, Any]) -> str:
    """The table and the departures as Markdown; a single line if there is nothing to compare."""
    if not pairs:
        return "No published numbers for this data and these methods.\n"
    table = markdown_table(HEADINGS, map(cells, pairs))
    return "\n".join([table, "", NOTE, *(f"* {line}" for line in departures(config))]) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Print the comparison of each run named."""
    arguments = list(sys.argv[1:] if words is None else words)
    if {"-h", "--help"} & set(arguments):
        print("Usage: python -m fedsynth.report.paper_comparison.table RUN [RUN ...]")
        return 0
    return exit_code(lambda: _print_comparisons(arguments))


def _print_comparisons(names: Sequence[str]) -> None:
    if not names:
        raise UserError("name at least one run directory: fedsynth compare RUN [RUN ...].")
    for name in names:
        run = RunDirectory.read(name)
        if not run.metrics():
            raise UserError(f"{name} has no numbers yet: its metrics.csv is missing or empty.")
        if len(names) > 1:
            print(f"# {name}\n")
        print(markdown(compare_run(run), run.read_config()))


if __name__ == "__main__":
    sys.exit(main())
