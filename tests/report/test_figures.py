"""Figures say what the numbers say; what a report makes of them is tested with its page."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedsynth.report.figures import accuracy_over_budgets, render


def rows(*epsilons: float) -> pd.DataFrame:
    found = [
        {"data": data, "method": method, "epsilon": e, "accuracy": base + e / 100, "over_draws": d}
        for data, base in (("mnist", 0.6), ("fashion_$mnist", 0.5))
        for method, d in (("_a", 0.01), ("b", math.nan))
        for e in epsilons
    ]
    return pd.DataFrame(found)


def test_every_budget_is_a_point_with_its_deviation() -> None:
    figure = accuracy_over_budgets(rows(10, 0.2, 1))
    assert figure is not None
    left, right = figure.axes
    assert [panel.get_title() for panel in (left, right)] == ["mnist", r"fashion_\$mnist"]
    assert left.get_xscale() == "log"
    assert left.get_xticks().tolist() == [0.2, 1, 10]
    first, second = left.containers
    assert first.lines[0].get_xdata().tolist() == [0.2, 1, 10]
    assert first.lines[0].get_ydata().tolist() == pytest.approx([0.602, 0.61, 0.7])
    (bars,) = first.lines[2]
    spans = [segment[:, 1] for segment in bars.get_segments()]
    assert [float(b - a) for a, b in spans] == pytest.approx([0.02] * 3)
    (none,) = second.lines[2]
    assert all(float(s[0, 1]) == float(s[1, 1]) for s in none.get_segments())
    assert right.get_legend() is not None
    assert render(figure, "png").startswith(b"\x89PNG")


def test_one_budget_makes_no_line() -> None:
    assert accuracy_over_budgets(rows(1)) is None
    assert accuracy_over_budgets(rows(1, math.inf)) is None
