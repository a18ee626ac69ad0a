"""Figures: accuracy over stages and over budgets, accuracy matrices, synthetic images side by side.

The colours are after Okabe and Ito, suitable for colour-blind readers, and differ from the page by
a contrast of 3 at least; markers repeat the distinction. matplotlib is imported when a figure is
drawn, and draws into memory, not on a display.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.text import epsilon_text
from fedsynth.report.summary import SummaryRow, stages_of
from fedsynth.storage.pictures import grey_or_colour

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_PER_ROW = 3
MATRICES_PER_ROW = 4
MAX_CLASSES = 20
MAX_TITLE = 11  # letters of a class name above an image
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Theme:
    """Colours for a light or a dark background."""

    page: str  # behind the figure
    text: str
    axis: str
    grid: str
    methods: tuple[str, ...]
    references: tuple[str, ...]

    @property
    def colours(self) -> tuple[str, ...]:
        """The colours that figures are drawn with, all different."""
        return (self.text, self.axis, self.grid, *self.methods, *self.references)


LIGHT = Theme(
    page="#ffffff",
    text="#1f2328",
    axis="#57606a",
    grid="#d8dee4",
    methods=("#0072B2", "#D55E00", "#008A63", "#B8478F", "#A86F00", "#332288"),
    references=("#4d4d4d", "#808080", "#6b5b00"),
)
DARK = Theme(
    page="#14171b",
    text="#e6e8eb",
    axis="#a3acb5",
    grid="#3a4048",
    methods=("#56B4E9", "#F0803C", "#2BC79A", "#E3A1C6", "#E6B84D", "#8FA8FF"),
    references=("#c4c4c4", "#8f8f8f", "#b8a94a"),
)


def accuracy_over_stages(
    rows: Sequence[SummaryRow], theme: Theme = LIGHT, *, narrow: bool = False, accuracy: str
) -> Figure | None:
    """One panel per epsilon, one line per method; references dashed in every panel.

    Error bars are standard deviations over seeds. `narrow` puts the panels below each other. None
    if nothing was measured. `accuracy` names the vertical axis.
    """
    stages = stages_of(rows)
    if not stages:
        return None
    from matplotlib.ticker import MaxNLocator

    epsilons = sorted({row.epsilon for row in rows if row.private}) or [math.inf]
    private = {row.method for row in rows if row.private}
    styles = _styles(private, {row.method for row in rows} - private, theme)
    columns = 1 if narrow else min(len(epsilons), PANELS_PER_ROW)
    width = 4.0 if columns > 1 or narrow else 5.0
    figure, panels = grid(len(epsilons), columns, (width, 3.5), theme)
    for panel, epsilon in zip(panels, epsilons, strict=True):
        for row in rows:
            if row.accuracy and (row.epsilon == epsilon or not row.private):
                _line(panel, row, styles[row.method])
        panel.set_title(f"ε = {epsilon_text(epsilon)}", fontweight="bold")
        panel.set_xlabel("training stage")
        panel.set_ylim(0.0, 1.03)
        panel.set_xlim(min(stages) - 0.25, max(stages) + 0.25)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(nbins=6))
        panel.grid(color=theme.grid, linewidth=0.8)
        panel.set_axisbelow(True)
    for panel in panels[::columns]:
        panel.set_ylabel(f"{accuracy}, all classes seen")
    _legend_below(figure, panels, columns, theme)
    return figure


def _legend_below(figure: Figure, panels: Sequence[Axes], columns: int, theme: Theme) -> None:
    """One legend for all panels, below them, where it covers nothing."""
    handles: dict[str, Artist] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), {1: 2, 2: 3}.get(columns, 5)),
        frameon=False,
        labelcolor=theme.text,
    )


def accuracy_over_budgets(
    rows: pd.DataFrame,
    theme: Theme = LIGHT,
    references: Mapping[str, float] | None = None,
    *,
    accuracy: str,
) -> Figure | None:
    """One panel per data set, one line per method, over epsilon; references are dashed lines.

    `rows` are those of a study (`fedsynth.cli.study.table`), with deviations over draws as bars, or
    have intervals from `low` to `high`; `accuracy` names the axis. None below two budgets."""
    rows = rows[np.isfinite(rows["epsilon"])]
    if rows["epsilon"].nunique() < 2:
        return None
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    names = list(dict.fromkeys(rows["data"]))
    references = references or {}
    styles = _styles(set(rows["method"]), set(references), theme)
    columns = min(len(names), PANELS_PER_ROW)
    figure, panels = grid(len(names), columns, (4.4, 3.4), theme)
    for panel, data in zip(panels, names, strict=True):
        panel_rows = rows[rows["data"] == data].sort_values("epsilon")
        for name, value in references.items():
            panel.axhline(value, label=f"{plain_text(name)} (not private)", **styles[name])
        for method in sorted(set(rows["method"])):
            line = panel_rows[panel_rows["method"] == method]
            panel.errorbar(
                line["epsilon"],
                line["accuracy"],
                yerr=_bars(line),
                label=plain_text(method),
                capsize=3,
                **styles[method],
            )
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(sorted(set(panel_rows["epsilon"]))))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: epsilon_text(x)))
        panel.set_title(plain_text(data), fontweight="bold")
        panel.set_xlabel("ε")
        panel.grid(color=theme.grid, linewidth=0.8)
        panel.set_axisbelow(True)
    panels[0].set_ylabel(accuracy)
    if len(styles) > 1:
        _legend_below(figure, panels, columns, theme)
    return figure


def cumulative_shares(
    samples: Mapping[str, np.ndarray], limit: float, axis: str, title: str, theme: Theme = LIGHT
) -> Figure:
    """One line per sample: the share of its numbers up to each value, which is on a logarithmic
    axis with this name. A dashed line marks `limit`."""
    figure, (panel,) = grid(1, 1, (5.6, 3.6), theme)
    styles = _styles(set(samples), set(), theme)
    for name, numbers in samples.items():
        shares = np.arange(1, len(numbers) + 1) / len(numbers)
        every = max(1, len(numbers) // 6)
        panel.plot(
            np.sort(numbers), shares, label=plain_text(name), markevery=every, **styles[name]
        )
    panel.axvline(limit, color=theme.axis, linestyle="--", linewidth=1.2)
    panel.set_xscale("log")
    panel.set_title(plain_text(title), fontsize=10)
    panel.set_xlabel(axis)
    panel.set_ylabel("share up to this value")
    panel.grid(color=theme.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    _legend_below(figure, [panel], 2, theme)
    return figure


def _bars(line: pd.DataFrame) -> np.ndarray:
    """Lengths of error bars below and above, zero where there are none."""
    if "low" in line:
        ends = [line["accuracy"] - line["low"], line["high"] - line["accuracy"]]
    else:
        ends = [line["over_draws"], line["over_draws"]]
    bars: np.ndarray = np.nan_to_num(np.array(ends, dtype=float))
    return bars


def accuracy_matrices(
    metrics: pd.DataFrame, theme: Theme = LIGHT, *, narrow: bool = False
) -> Figure | None:
    """A heat map per method and epsilon: accuracy after each stage (down) on the classes of each
    stage (across), means over seeds. `narrow` puts one beside another only. None if nothing was
    measured."""
    matrices = accuracy_matrix_tables(metrics)
    if not matrices:
        return None
    columns = min(len(matrices), 2 if narrow else MATRICES_PER_ROW)
    figure, panels = grid(len(matrices), columns, (2.6, 2.75), theme)
    for panel, ((method, epsilon), matrix) in zip(panels, matrices.items(), strict=True):
        heat_map(panel, matrix.to_numpy(), 8 if len(matrix.columns) <= 6 else 5)
        panel.set_title(f"{plain_text(method)}, ε = {epsilon_text(epsilon)}", fontsize=9)
        panel.set_xticks(range(len(matrix.columns)), [str(c) for c in matrix.columns])
        panel.set_yticks(range(len(matrix.index)), [str(r) for r in matrix.index])
        panel.tick_params(length=0)
        panel.set_frame_on(False)
        panel.set_xlabel("classes of stage", fontsize=8)
    for panel in panels[::columns]:
        panel.set_ylabel("after stage", fontsize=8)
    return figure


def heat_map(panel: Axes, shares: np.ndarray, size: float) -> None:
    """Shares as blue fields with their numbers, for matrices of at most 12 columns.

    Light is low and dark is high on every background; a number is black or white, whichever stands
    out more from its field."""
    image = panel.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.05, aspect="equal")
    for (i, j), value in np.ndenumerate(shares):
        if shares.shape[1] <= 12 and not math.isnan(value):
            ink = "white" if luminance(image.to_rgba(value)[:3]) < 0.179 else "black"
            panel.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=size)


def luminance(colour: Iterable[float]) -> float:
    """The relative luminance of a colour by WCAG; 0.179 is as far from black as from white.

    >>> luminance((1.0, 1.0, 1.0)), luminance((0.0, 0.0, 0.0))
    (1.0, 0.0)
    """
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def accuracy_matrix_tables(metrics: pd.DataFrame) -> dict[tuple[str, float], pd.DataFrame]:
    """The accuracy matrix per method and epsilon, from stage trained up to and stage tested."""
    prefix = "accuracy_of_stage_"
    cells = metrics[metrics["metric"].str.fullmatch(prefix + r"\d+")]
    cells = cells.assign(of=cells["metric"].str.removeprefix(prefix).astype(int))
    return {
        (str(method), float(epsilon)): group.pivot_table(
            index="stage", columns="of", values="value", aggfunc="mean"
        )
        for (method, epsilon), group in sorted(
            cells.groupby(["method", "epsilon"]), key=lambda item: (item[0][1], item[0][0])
        )
    }


def images_by_method(
    sets: Mapping[tuple[str, float], SyntheticSet],
    theme: Theme = LIGHT,
    names: Sequence[str] = (),
) -> Figure | None:
    """The first image of each class: one row per method and epsilon, one column per class.

    Classes are shown by `names` where there are any."""
    sets = {key: images for key, images in sets.items() if len(images.labels)}
    classes = sorted({int(c) for images in sets.values() for c in images.labels.unique()})
    classes = classes[:MAX_CLASSES]
    if not classes:
        return None
    count = len(sets) * len(classes)
    figure, panels = grid(count, len(classes), (0.72, 0.72), theme)
    figure.set_size_inches(0.72 * len(classes) + 1.5, 0.76 * len(sets) + 0.3)
    for position, panel in enumerate(panels):
        row, column = divmod(position, len(classes))
        (method, epsilon), images = list(sets.items())[row]
        indices = (images.labels == classes[column]).nonzero()
        if len(indices):
            picture = grey_or_colour(images.images[indices[0]])[0]
            panel.imshow(picture.squeeze(-1), cmap="gray", vmin=0.0, vmax=1.0)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_frame_on(False)
        if row == 0:
            title = names[classes[column]] if names else str(classes[column])
            panel.set_title(plain_text(title[:MAX_TITLE]), fontsize=7 if names else 9)
        if column == 0:
            panel.set_ylabel(
                f"{plain_text(method)}\nε = {epsilon_text(epsilon)}",
                rotation=0,
                ha="right",
                va="center",
                fontsize=8,
            )
    return figure


def render(figure: Figure, kind: str) -> bytes:
    """The figure as `png` (for slides), `svg` (for the page) or `pdf` (for papers); equal figures,
    equal bytes. The first kind that is drawn decides the layout, which is kept for others."""
    import matplotlib as mpl
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg

    buffer = io.BytesIO()
    figure.set_dpi(180)
    figure.patch.set_visible(kind == "png")  # the page shows through the others
    with mpl.rc_context({"svg.hashsalt": "fedsynth", "pdf.fonttype": 42}):
        if kind == "png":
            backend_agg.FigureCanvasAgg(figure).print_png(buffer)
        elif kind == "svg":
            backend_svg.FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
        else:
            backend_pdf.FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None})
    figure.set_layout_engine("none")
    return buffer.getvalue()


def recoloured(svg: bytes, before: Theme, after: Theme) -> bytes:
    """An SVG of `render` that was drawn with one theme, in the colours of another."""
    colours = {
        old.lower().encode(): new.lower().encode()
        for old, new in zip(before.colours, after.colours, strict=True)
    }
    return re.sub(rb"#[0-9a-f]{6}\b", lambda found: colours.get(found[0], found[0]), svg)


def grid(
    count: int, columns: int, size: tuple[float, float], theme: Theme
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, `columns` per row, each about `size` inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = math.ceil(count / columns)
    with mpl.rc_context(
        {
            "text.color": theme.text,
            "axes.labelcolor": theme.text,
            "axes.edgecolor": theme.axis,
            "xtick.color": theme.text,
            "ytick.color": theme.text,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.facecolor": "none",
            "font.size": 10,
        }
    ):
        figure = Figure(
            figsize=(size[0] * columns + 0.5, size[1] * rows + 0.6),
            layout=ConstrainedLayoutEngine(h_pad=0.09),
        )
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _styles(private: set[str], others: set[str], theme: Theme) -> dict[str, dict[str, Any]]:
    """A colour and a marker per method, equal in all panels."""
    styles: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(sorted(private)):
        colour, marker = theme.methods[i % len(theme.methods)], MARKERS[i % len(MARKERS)]
        styles[name] = {"color": colour, "marker": marker, "linewidth": 2.0, "zorder": 3}
    for i, name in enumerate(sorted(others)):
        colour = theme.references[i % len(theme.references)]
        dashes = ("--", "-.", ":")[i % 3]
        styles[name] = {"color": colour, "linestyle": dashes, "linewidth": 1.6, "zorder": 2}
    return styles


def _line(panel: Axes, row: SummaryRow, style: Mapping[str, Any]) -> None:
    stages = sorted(row.accuracy)
    points = [row.accuracy[stage] for stage in stages]
    bars = [point.deviation or 0.0 for point in points] if row.seeds > 1 else None
    panel.errorbar(
        stages,
        [point.mean for point in points],
        yerr=bars,
        label=plain_text(row.method) if row.private else f"{plain_text(row.method)} (not private)",
        capsize=3,
        markersize=5.5,
        **style,
    )


def plain_text(text: str) -> str:
    """Text that matplotlib shows unchanged: no mathematics, no label hidden by an underscore."""
    return text.replace("$", r"\$").removeprefix("_") or " "
