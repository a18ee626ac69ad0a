"""Jinja2 rendering of the report. Autoescape is on: every text that comes in is escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jinja2

from fedsynth.core.text import epsilon_text
from fedsynth.report.elements import BUCKETS, Section
from fedsynth.report.report_data import ReportData


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedsynth.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["epsilon"] = epsilon_text
    return environment


def render_page(data: ReportData, sections: Sequence[Section]) -> str:
    """Render the whole page; it fetches nothing, and its one script sorts tables."""
    return (
        _environment()
        .get_template("report.html.j2")
        .render(data=data, sections=sections, widths=BUCKETS)
    )


def render_section(section: Section) -> str:
    """Render one section as it stands in the page."""
    return _environment().get_template("section.html.j2").render(section=section)
