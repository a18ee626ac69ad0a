"""Figures of the report as pictures of the page and as files for slides and papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsynth.report.elements import Picture, ReportContext
from fedsynth.report.figures import DARK, LIGHT, Theme, render
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
    light, dark = draw(LIGHT), draw(DARK)
    if light is None or dark is None:
        return None
    rendered = {kind: render(light, kind) for kind in ("svg", *context.figure_kinds)}
    for kind in context.figure_kinds:
        context.write(f"{FIGURES}/{name}.{kind}", rendered[kind])
    thin = [None if narrow is None else narrow(theme) for theme in (LIGHT, DARK)]
    thin_light, thin_dark = (None if one is None else render(one, "svg") for one in thin)
    return Picture(
        alt,
        rendered["svg"],
        render(dark, "svg"),
        narrow=thin_light,
        narrow_dark=thin_dark,
        file=f"{FIGURES}/{name}",
    )
