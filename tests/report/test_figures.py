"""Figures show the numbers, and equal numbers give equal figures."""

from __future__ import annotations

import math
import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from report_pages import metrics

from fedsynth.report.figures import (
    DARK,
    LIGHT,
    Theme,
    accuracy_matrices,
    accuracy_matrix_tables,
    accuracy_over_budgets,
    accuracy_over_stages,
    cumulative_shares,
    grid,
    heat_map,
    images_by_method,
    luminance,
    recoloured,
    render,
)
from fedsynth.report.summary import frame, summarise


def rows(*epsilons: float) -> pd.DataFrame:
    found = [
        {"data": data, "method": method, "epsilon": e, "accuracy": base + e / 100, "over_draws": d}
        for data, base in (("mnist", 0.6), ("fashion_$mnist", 0.5))
        for method, d in (("_a", 0.01), ("b", math.nan))
        for e in epsilons
    ]
    return pd.DataFrame(found)


def test_every_budget_is_a_point_with_its_deviation() -> None:
    figure = accuracy_over_budgets(rows(10, 0.2, 1), accuracy="hold-out accuracy")
    assert figure is not None
    left, right = figure.axes
    assert [panel.get_title() for panel in (left, right)] == ["mnist", r"fashion_\$mnist"]
    assert (left.get_xscale(), left.get_ylabel()) == ("log", "hold-out accuracy")
    assert left.get_xticks().tolist() == [0.2, 1, 10]
    first, second = left.containers
    assert first.lines[0].get_xdata().tolist() == [0.2, 1, 10]
    assert first.lines[0].get_ydata().tolist() == pytest.approx([0.602, 0.61, 0.7])
    (bars,) = first.lines[2]
    spans = [segment[:, 1] for segment in bars.get_segments()]
    assert [float(b - a) for a, b in spans] == pytest.approx([0.02] * 3)
    (none,) = second.lines[2]
    assert all(float(s[0, 1]) == float(s[1, 1]) for s in none.get_segments())
    assert right.get_legend() is left.get_legend() is None  # a panel's legend may cover a line
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert render(figure, "png").startswith(b"\x89PNG")


def test_a_line_rises_by_the_share_of_each_number() -> None:
    samples = {"b": np.array([4.0, 1.0, 2.0, 1.0]), "_a": np.array([0.5])}
    figure = cumulative_shares(samples, 2.0, "norm", "private")
    (panel,) = figure.axes
    first, second, limit = panel.get_lines()
    assert first.get_xdata().tolist() == [1, 1, 2, 4]
    assert first.get_ydata().tolist() == [0.25, 0.5, 0.75, 1]
    assert second.get_ydata().tolist() == [1]
    assert limit.get_xdata() == [2.0, 2.0]
    assert (panel.get_xscale(), panel.get_xlabel(), panel.get_title()) == ("log", "norm", "private")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["b", "a"]
    assert render(figure, "svg").startswith(b"<?xml")


def test_one_budget_makes_no_line() -> None:
    assert accuracy_over_budgets(rows(1), accuracy="test accuracy") is None
    assert accuracy_over_budgets(rows(1, math.inf), accuracy="test accuracy") is None


def test_equal_runs_draw_equal_figures() -> None:
    def drawn() -> list[bytes]:
        table = frame(metrics())
        figures = (
            accuracy_over_stages(summarise(table), accuracy="test accuracy"),
            accuracy_matrices(table),
        )
        return [render(f, kind) for f in figures if f for kind in ("png", "svg")]

    assert drawn() == drawn()
    assert len(drawn()) == 4


def test_lines_and_bars_are_the_numbers() -> None:
    seeds = [m._replace(seed=s, value=m.value - s / 5) for m in metrics() for s in (0, 1)]
    figure = accuracy_over_stages(summarise(frame(seeds)), accuracy="test accuracy")
    assert figure is not None
    assert [axis.get_title() for axis in figure.axes] == ["ε = 1", "ε = 10"]
    for axis in figure.axes:
        _, labels = axis.get_legend_handles_labels()
        assert labels == ["psg", "upper (not private)"]
        drawn = [c for c in axis.containers if isinstance(c, ErrorbarContainer)]
        assert len(drawn) == 2
        for container in drawn:
            line, _, (bars,) = container.lines
            assert isinstance(bars, LineCollection)
            assert line.get_xdata() == pytest.approx([1, 2, 3])
            assert line.get_ydata() == pytest.approx([0.8, 0.8, 0.8])
            low, high = bars.get_segments()[0][:, 1]
            assert high - low == pytest.approx(2 * 0.2 / math.sqrt(2))
        dashed = [container.lines[0].get_linestyle() for container in drawn]
        assert dashed == ["-", "--"]


def test_matrices_hold_stage_by_tested_stage() -> None:
    matrix = accuracy_matrix_tables(frame(metrics()))[("psg", 10.0)]
    for stage in (1, 2, 3):
        for tested in (1, 2, 3):
            value = matrix.loc[stage, tested]
            assert math.isnan(value) if tested > stage else value == 1 / (stage + tested)


def test_no_images_and_no_accuracy_mean_no_figure() -> None:
    assert images_by_method({}) is None
    assert accuracy_over_stages([], accuracy="test accuracy") is None
    assert accuracy_matrices(frame([])) is None


def test_intervals_are_bars_and_references_dashed_lines() -> None:
    table = rows(1, 10).drop(columns="over_draws")
    table = table[table["data"] == "mnist"].assign(low=0.5, high=[0.9, 0.9, math.nan, math.nan])
    figure = accuracy_over_budgets(table, references={"upper": 0.97}, accuracy="test accuracy")
    assert figure is not None
    (panel,) = figure.axes
    assert panel.get_legend_handles_labels()[1] == ["upper (not private)", "a", "b"]
    (line,) = [one for one in panel.lines if one.get_linestyle() == "--"]
    assert set(line.get_ydata()) == {0.97}
    (bars,) = panel.containers[0].lines[2]
    assert [tuple(s[:, 1]) for s in bars.get_segments()] == [
        pytest.approx((0.5, 0.9)),
        pytest.approx((0.5, 0.9)),
    ]
    (half,) = panel.containers[1].lines[2]
    assert [float(s[1, 1]) for s in half.get_segments()] == pytest.approx([0.61, 0.7])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours by WCAG."""
    low, high = sorted(luminance(to_rgb(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_lines_and_words_stand_out_from_the_page(theme: Theme) -> None:
    assert contrast(theme.text, theme.page) >= 4.5
    for colour in (theme.axis, *theme.methods, *theme.references):
        assert contrast(colour, theme.page) >= 3.0, colour


def test_the_figures_know_the_colour_of_the_page() -> None:
    style = files("fedsynth.report").joinpath("templates/report.css").read_text()
    assert re.findall(r"--paper: (#\w{6})", style) == [LIGHT.page, DARK.page]


@pytest.mark.parametrize("narrow", [False, True])
def test_another_themes_colours_give_the_figure_drawn_with_them(narrow: bool) -> None:
    assert len(set(LIGHT.colours)) == len(LIGHT.colours)

    def drawn(theme: Theme) -> list[bytes]:
        table = frame(metrics())
        lines = accuracy_over_stages(
            summarise(table), theme, narrow=narrow, accuracy="test accuracy"
        )
        figures = (lines, accuracy_matrices(table, theme, narrow=narrow))
        return [render(figure, "svg") for figure in figures if figure]

    def without_names(svg: bytes) -> bytes:
        """Names of shapes, which matplotlib makes from their colours."""
        return re.sub(rb"[mp][0-9a-f]{10}", b"", svg)

    for light, dark in zip(drawn(LIGHT), drawn(DARK), strict=True):
        assert light != dark
        assert without_names(recoloured(light, LIGHT, DARK)) == without_names(dark)


def test_numbers_in_a_heat_map_stand_out_from_their_fields() -> None:
    _, (panel,) = grid(1, 1, (3, 3), LIGHT)
    heat_map(panel, np.linspace(0, 1, 12).reshape(3, 4), 8)
    (image,) = panel.images
    assert len(panel.texts) == 12
    for text in panel.texts:
        field = to_hex(image.to_rgba(float(text.get_text()))[:3])
        assert contrast(to_hex(text.get_color()), field) >= 4.5


def test_narrow_figures_have_their_panels_below_each_other() -> None:
    table = summarise(frame(metrics()))
    wide, narrow = (
        accuracy_over_stages(table, narrow=narrow, accuracy="hold-out accuracy")
        for narrow in (False, True)
    )
    assert wide is not None
    assert narrow is not None
    assert len(wide.axes) == len(narrow.axes) == 2
    assert wide.axes[0].get_ylabel() == "hold-out accuracy, all classes seen"
    assert narrow.get_figwidth() < 4.6 < wide.get_figwidth()
    assert narrow.get_figheight() > wide.get_figheight()
    many = accuracy_matrices(frame(metrics()), narrow=True)
    assert many is not None
    assert many.get_figwidth() < 6


def test_a_legend_covers_no_interval() -> None:
    table = rows(1, 10).drop(columns="over_draws").assign(low=0.0, high=1.0)
    figure = accuracy_over_budgets(table[table["data"] == "mnist"], accuracy="test accuracy")
    assert figure is not None
    render(figure, "svg")  # lays it out
    (panel,), (legend,) = figure.axes, figure.legends
    assert legend.get_window_extent().y1 <= panel.get_window_extent().y0
