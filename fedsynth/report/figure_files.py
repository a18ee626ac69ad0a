"""Figures of the report as pictures of the page and as files for slides and papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsynth.report.elements import Picture, ReportContext
from fedsynth.report.figures import DARK, LIGHT, Theme, recoloured, render
from fedsynth.storage.run_directory import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Theme], "Figure | None"]


def embedded(
    context: ReportContext, name: str, alt: str, draw: Draw, narrow: Draw | None = None
) -> Picture | None:
    """Draw a figure for light and dark screens, and write it as files.

    Args:
        context: Names the folder and the kinds of the files.
        name: Of the files, without ending.
        alt: The figure in words.
        draw: Draws it.
        narrow: Draws it for phones, where it is another one then.

    Returns:
        The picture; None if there is nothing to draw.
    """
    figure = draw(LIGHT)
    if figure is None:
        return None
    kinds = dict.fromkeys(("svg", *context.figure_kinds))
    rendered = {kind: render(figure, kind) for kind in kinds}
    for kind in context.figure_kinds:
        context.write(f"{FIGURES}/{name}.{kind}", rendered[kind])
    thin = None if narrow is None else narrow(LIGHT)
    thin_light = None if thin is None else render(thin, "svg")
    return Picture(
        alt,
        rendered["svg"],
        recoloured(rendered["svg"], LIGHT, DARK),
        narrow=thin_light,
        narrow_dark=None if thin_light is None else recoloured(thin_light, LIGHT, DARK),
        file=f"{FIGURES}/{name}",
    )
