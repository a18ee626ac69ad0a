"""The report: one HTML file that opens without a network and holds results, privacy and costs.

`write_report` is the last step of a run; `RunDirectory.finished` looks for its file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedsynth.report.elements import ReportContext, Section
from fedsynth.report.rendering import facts_of, render_page
from fedsynth.report.report_data import ReportData
from fedsynth.report.sections.classes import class_section
from fedsynth.report.sections.classifiers import classifier_section
from fedsynth.report.sections.costs import cost_section
from fedsynth.report.sections.environment import environment_section, method_section
from fedsynth.report.sections.finding import finding_section
from fedsynth.report.sections.glossary import glossary_section
from fedsynth.report.sections.images import image_section
from fedsynth.report.sections.inversion import inversion_section
from fedsynth.report.sections.paper_comparison import comparison_section
from fedsynth.report.sections.parties import party_section
from fedsynth.report.sections.privacy import privacy_section
from fedsynth.report.sections.results import result_section, stage_section
from fedsynth.report.sections.table_quality import table_quality_section
from fedsynth.report.sections.timeline import timeline_section
from fedsynth.report.sections.worth import worth_section
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.run_directory import REPORT, RunDirectory

SECTIONS: tuple[Callable[[ReportContext], Section | None], ...] = (
    finding_section,
    result_section,
    worth_section,
    table_quality_section,
    class_section,
    classifier_section,
    comparison_section,
    inversion_section,
    party_section,
    privacy_section,
    image_section,
    stage_section,
    cost_section,
    timeline_section,
    method_section,
    environment_section,
    glossary_section,
)


def render_report(data: ReportData, sections: Sequence[Section]) -> str:
    """The page of a run."""
    return render_page(data.title, facts_of(data), sections, data.noise_seed)


def sections_of(context: ReportContext) -> list[Section]:
    """The sections of a report in order; draws the figures and writes them."""
    return [section for build in SECTIONS if (section := build(context)) is not None]


def write_report(run: RunDirectory, data: ReportData) -> Path:
    """Compact the metrics, draw the figures and write `report.html`.

    Args:
        run: a run with at least its configuration; figures are written into its directory.
        data: texts and privacy figures that the numbers of the run do not hold.

    Returns:
        The path of the page.
    """
    run.compact_metrics()
    metrics = frame(run.metrics())
    context = ReportContext(run, data, metrics, summarise(metrics))
    return run.write_text(REPORT, render_report(data, sections_of(context)))
