"""Our numbers beside the papers': `python -m fedsynth.report.paper_comparison.table RUN [RUN ...]`.

Every report has this table as a section, and the run directory as `comparison.md`. A printed number
stands beside one of ours only for the same data and method; where anything else differs (epsilon,
protocol, classifier, epoch, parties), the line says in what. How a run departs from the published
settings stands below the table.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedsynth.core.errors import UserError
from fedsynth.core.text import MISSING, epsilon_text, markdown_table
from fedsynth.report.paper_comparison.matching import ALONE, Comparison, Measured, of_a_run
from fedsynth.report.paper_comparison.numbers import paper_numbers
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory

COMPARISON = "comparison.md"
HEADINGS = ("method", "ε", "judged by", "ours", "paper", "printed in", "differs in", "doubt")
_JUDGED = re.compile(r"accuracy_(?P<protocol>[A-Z]|none)_(?P<name>\w+)")
AVERAGE = "average"


def our_numbers(metrics: Sequence[Metric], config: Mapping[str, Any]) -> list[Measured]:
    """What a run reached after its last stage, in the words the papers' numbers are kept in."""
    data, table = config.get("data"), frame(metrics)
    if not isinstance(data, str) or table.empty:
        return []
    found = []
    for (method, epsilon), group in table.groupby(["method", "epsilon"], sort=True):
        last = group[group["stage"] == group["stage"].max()]
        wide = last.pivot_table(index="seed", columns="metric", values="value")
        spc = _images_a_class(group, data)
        for protocol, classifier, metric, values in _columns(wide, config):
            found.append(
                Measured(
                    data,
                    str(method),
                    float(epsilon),
                    parties_in_words(config),
                    classifier,
                    protocol,
                    metric,
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else None,
                    spc,
                )
            )
    return found


def _columns(
    wide: pd.DataFrame, config: Mapping[str, Any]
) -> list[tuple[str, str, str, pd.Series]]:
    """(protocol, classifier, metric, a value a seed) of everything that papers print, too."""
    found = []
    judges = [match for name in wide.columns if (match := _JUDGED.fullmatch(str(name)))]
    protocols = {match["protocol"] for match in judges}
    for match in judges:
        protocol, name = match["protocol"], match["name"]
        found.append((protocol, name, "accuracy", wide[match[0]]))
        if (real := f"real_{protocol}_{name}") in wide:
            found.append((protocol, name, "calibrated_accuracy", wide[match[0]] / wide[real]))
    if not judges and "accuracy" in wide:  # runs from before each classifier had its own line
        judged = config.get("evaluation") or {}
        protocol = str(judged.get("protocol", "P")) if "images" in wide else "none"
        found.append(
            (protocol, str(judged.get("classifier", "convnet")), "accuracy", wide["accuracy"])
        )
    named = {
        "accuracy": ("G", AVERAGE) if protocols == {"G"} and "classifiers" in wide else None,
        "calibrated_accuracy": ("G", AVERAGE) if "classifiers" in wide else None,
        "accuracy_optimistic_max": ("L", "keras_cnn") if protocols == {"L"} else None,
        "inception_score": ("none", ""),
        "fid": ("none", ""),
    }
    for metric, place in named.items():
        if place and metric in wide:
            found.append((*place, metric, wide[metric].dropna()))
    return [column for column in found if len(column[3].dropna())]


def _images_a_class(group: pd.DataFrame, data: str) -> float | None:
    """Released images a class, over all stages."""
    from fedsynth.data import registry as datasets

    images = group[group["metric"] == "images"]
    try:
        classes = datasets.find(data).info.classes
    except UserError:
        return None
    return None if images.empty else float(images.groupby("seed")["value"].sum().mean()) / classes


def parties_in_words(config: Mapping[str, Any]) -> str:
    """Who holds the data, for a reader of a table about one party."""
    parties = config.get("parties", 1)
    if parties == 1:
        return ALONE
    return f"{parties} parties {'in turn' if config.get('stages') == 'in_turn' else 'together'}"


def departures(config: Mapping[str, Any]) -> list[str]:
    """How a run departs from what was published: evaluation, test data, methods' settings."""
    judged = config.get("evaluation") or {}
    said = []
    words = {
        "width": ("ConvNet of width {}", 128),
        "nets": ("{} nets of each kind", 0),
        "epochs": ("E={}", 0),
        "max_images": ("at most {:,} image passes a training", 0),
        "batch": ("batches of {}", 0),
        "suite_images": ("classifiers fitted on at most {:,} images", 0),
        "dtype": ("products in {}", "float32"),
    }
    for key, (text, published) in words.items():
        if judged.get(key, published) != published:
            said.append(text.format(judged[key]))
    lines = [f"Evaluation: {', '.join(said)}."] if said else []
    if judged.get("quality"):
        scorer = f"VGG11-BN of width {judged.get('scorer_width')}"
        lines.append(f"Inception Score by our own {scorer}; the papers' are by other networks.")
    if config.get("holdout"):
        lines.append("Tested on a hold-out of the training data, not on the test data.")
    if (counted := config.get("accounting", "pld")) != "paper":
        lines.append(
            f"Noise calibrated by {str(counted).upper()}; the papers' epsilons are by their own "
            "counts (accounting=paper calibrates to those)."
        )
    return [*lines, *_settings(config)]


def _settings(config: Mapping[str, Any]) -> list[str]:
    """Each method's settings that are not its published defaults."""
    from fedsynth.methods.registry import is_method, method

    lines = []
    for name in filter(is_method, config):
        mine = config[name]
        published = {f.name: f.default for f in dataclasses.fields(method(name).Config)}
        changed = [
            f"{k}={v}" for k, v in mine.items() if k in published and not _same(v, published[k])
        ]
        if changed:
            lines.append(f"{name}: {', '.join(changed)} instead of the published settings.")
    return lines


def _same(one: object, other: object) -> bool:
    """Equal, whether a list or a tuple."""
    plain = [list(v) if isinstance(v, tuple) else v for v in (one, other)]
    return plain[0] == plain[1]


def pairs_of(run: RunDirectory) -> list[Comparison]:
    """What of a run has something to be compared with."""
    return of_a_run(our_numbers(run.metrics(), run.read_config()), paper_numbers())


def cells(pair: Comparison) -> tuple[str, ...]:
    """One line of the table."""
    ours, paper = pair.ours, pair.paper
    judged = ours.metric.replace("_", " ")
    if ours.classifier:
        judged = f"{ours.classifier}, protocol {ours.protocol}"
        judged += "" if ours.metric == "accuracy" else f", {ours.metric.replace('_', ' ')}"
    spc = "" if paper.spc is None else f", {paper.spc:,} a class"
    setting = f", {paper.setting}" if paper.setting else ""
    return (
        ours.method if math.isfinite(ours.epsilon) else f"{ours.method} (not private)",
        epsilon_text(ours.epsilon),
        judged,
        _value(ours.value, ours.deviation),
        _value(paper.value, paper.deviation),
        f"{paper.place}: {paper.printed_method}{spc}{setting}",
        "; ".join(pair.differs) or "nothing",
        paper.flag or MISSING,
    )


def _value(value: float, deviation: float | None) -> str:
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return text if deviation is None else f"{text} ± {deviation:.3f}"


NOTE = (
    "Ours: after the last stage, mean and deviation over seeds. A doubt is a reason not to take "
    "the printed number for a target."
)


def markdown(pairs: Sequence[Comparison], config: Mapping[str, Any]) -> str:
    """The table with what departs from the papers; one line where there is nothing to compare."""
    if not pairs:
        return "The papers print no number for this data and these methods.\n"
    table = markdown_table(HEADINGS, map(cells, pairs))
    return "\n".join([table, "", NOTE, *(f"* {line}" for line in departures(config))]) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Print the comparison of each run named."""
    arguments = list(sys.argv[1:] if words is None else words)
    if not arguments or {"-h", "--help"} & set(arguments):
        print("Usage: python -m fedsynth.report.paper_comparison.table RUN [RUN ...]")
        return 0 if arguments else 2
    try:
        for word in arguments:
            run = RunDirectory.read(word)
            if not run.metrics():
                raise UserError(f"{word} has no numbers yet: its metrics.csv is missing or empty.")
            if len(arguments) > 1:
                print(f"# {word}\n")
            print(markdown(pairs_of(run), run.read_config()))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
