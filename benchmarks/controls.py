"""A table of positive controls: without noise, with the published noise, at epsilon 10 and 1.

    python benchmarks/controls.py RUNS METHOD ... [key=value ...]

Each method is run by `scenario=controls` in its laptop preset, into RUNS/METHOD; finished runs
are read. The table says of every private method how it stands; those without a run are named.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd

import fedsynth
from fedsynth.core.text import MISSING, markdown_table
from fedsynth.experiment.config import parse_overrides
from fedsynth.methods.registry import WITHOUT_NOISE, all_methods

# The noise multiplier of the publication, and a budget that it stays below.
PUBLISHED = {
    "dp_gan": 2.82,
    "dp_sinkhorn": 1.1,
    "gs_wgan": 1.07,
    "ldpdc": 1.0,
    "ndpdc": 1.0,
}
ENOUGH = 1e4  # the largest epsilon of a run


def control(method: str, folder: Path, keys: dict[str, Any]) -> dict[str, float]:
    """The accuracy of a method by column; runs what is not there yet."""
    parts = {"budgets": {"method": [method, method + WITHOUT_NOISE], "epsilon": [1, 10]}}
    if method in PUBLISHED:
        noise = {**keys.get(method, {}), "noise": PUBLISHED[method]}
        parts["published"] = {"method": method, "epsilon": ENOUGH, method: noise}
    found = {}
    for name, own in parts.items():
        out = folder / method / name
        if not (out / "metrics.csv").is_file():
            fedsynth.run("controls", out=str(out), engine="inprocess", **{**keys, **own})
        for row in _rows(out, "accuracy").itertuples():
            found[_column(name, row.epsilon)] = row.value
        if name == "published":
            found["epsilon"] = _rows(out, "epsilon_pld")["value"].max()
    return found


def _rows(out: Path, metric: str) -> pd.DataFrame:
    metrics = pd.read_csv(out / "metrics.csv")
    return metrics[metrics["metric"] == metric]


def _column(part: str, epsilon: float) -> str:
    if part == "published":
        return "published"
    return "none" if math.isinf(epsilon) else f"{epsilon:g}"


def table(found: dict[str, dict[str, float]]) -> str:
    """One row per method, and the methods without a run."""
    columns = ("none", "published", "10", "1")
    rows = []
    for method, values in sorted(found.items()):
        cells = [f"{values[c]:.3f}" if c in values else MISSING for c in columns]
        if "epsilon" in values:
            cells[1] += f" (noise {PUBLISHED[method]:g}: ε = {values['epsilon']:.4g})"
        rows.append([f"`{method}`", *cells])
    heads = ("method", "without noise", "published noise", "ε = 10", "ε = 1")
    private = {name for name, some in all_methods().items() if some.private}
    missing = ", ".join(f"`{name}`" for name in sorted(private - set(found)))
    return f"{markdown_table(heads, rows)}\n\nNot run: {missing or 'none'}."


def main(words: list[str]) -> None:
    """Run the methods that are named and print the table of all that have been run."""
    folder, names = Path(words[0]), [word for word in words[1:] if "=" not in word]
    keys = parse_overrides([word for word in words[1:] if "=" in word])
    known = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    print(table({name: control(name, folder, keys) for name in sorted(known | set(names))}))


if __name__ == "__main__":
    main(sys.argv[1:])
