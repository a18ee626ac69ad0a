"""Jinja2 rendering of the report. Autoescape is on: every text that comes in is escaped."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

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


def facts_of(data: ReportData) -> dict[str, str]:
    """The short facts below the title of a report."""
    return {"Scenario": data.scenario, "Data": data.dataset, "Preset": data.preset}


def render_page(
    title: str,
    facts: Mapping[str, str],
    sections: Sequence[Section],
    noise_seed: int | None = None,
) -> str:
    """Render a whole page; it fetches nothing, and its one script sorts tables.

    Args:
        title: The title.
        facts: Short facts below it, by name.
        sections: The sections in order.
        noise_seed: Of reproducible noise, which a banner names.
    """
    template = _environment().get_template("report.html.j2")
    return template.render(
        title=title, facts=facts, sections=sections, noise_seed=noise_seed, widths=BUCKETS
    )


def render_section(section: Section) -> str:
    """Render one section as it stands in the page."""
    return _environment().get_template("section.html.j2").render(section=section)
