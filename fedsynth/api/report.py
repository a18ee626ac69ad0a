"""Reports of runs in several formats, and an index over a folder of runs."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsynth.api.launch import experiment_in, load_started_config
from fedsynth.core.errors import UserError, unknown
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.server_session import dropout_notes
from fedsynth.experiment.warnings import warnings
from fedsynth.report.elements import ReportContext, Section
from fedsynth.report.latex import latex_page, latex_tables
from fedsynth.report.markdown import markdown_page
from fedsynth.report.page import sections_of
from fedsynth.report.pdf import browser, print_page
from fedsynth.report.rendering import facts_of, render_page
from fedsynth.report.report_data import build_report_data
from fedsynth.report.run_index import index_sections, runs_below
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.files import write_file
from fedsynth.storage.run_directory import CONFIG, FAILED, SERVER, RunDirectory

FORMATS: dict[str, tuple[str, ...]] = {
    "html": ("svg", "pdf"),
    "md": ("svg",),
    "latex": ("pdf",),
    "pdf": (),
}
"""The formats, each with the kinds of files that its figures are written as."""

FOLDER = "report"  # below a run


@dataclass(frozen=True)
class Document:
    """A report in no particular format."""

    name: str  # of its file, without ending
    title: str
    facts: Mapping[str, str]
    sections: Sequence[Section]
    noise_seed: int | None = None


def write_report_as(folder: Path, form: str, out: Path | None = None) -> Path:
    """Write the report of a run, or the index of a folder of runs, in a format.

    The run itself stays as it is: its own `report.html` is one of the files that its seal covers.

    Args:
        folder: A run directory, or a folder that holds some.
        form: One of `FORMATS`.
        out: The folder of what is written; None: `report` below the run, or the folder of runs.

    Returns:
        The file to read first.

    Raises:
        UserError: There is no run with numbers, its data are gone, the format is unknown, or a PDF
            is wanted and no browser is installed.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if form == "pdf":
        browser()  # before any work
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}: name a run directory, or a folder of runs.")
    if (folder / CONFIG).is_file():
        return _write(lambda place: _report(folder, form, place), form, out or folder / FOLDER)
    target = out or folder
    document = _index(folder, target)
    return _write(lambda _place: document, form, target)


def _index(folder: Path, target: Path) -> Document:
    """The index of a folder of runs, for a page in another folder."""
    runs = runs_below(folder)
    way = Path(os.path.relpath(folder, target)).as_posix()
    return Document(
        "index",
        f"Runs in {folder.resolve().name}",
        {"Runs": f"{len(runs):,}"},
        index_sections(runs, "" if way == "." else f"{way}/"),
    )


def _report(folder: Path, form: str, place: Path) -> Document:
    """The report of a run, with its figures written into a folder."""
    run = RunDirectory.read(folder)
    if not run.metrics():
        raise UserError(f"{folder} has no numbers yet: its metrics.csv is missing or empty.")
    experiment = experiment_in(load_started_config(folder, {}), folder)
    command = str(run.read_environment().get("command", ""))
    data = build_report_data(experiment, command, _notes(experiment, run))
    metrics = frame(run.metrics())
    context = ReportContext(
        run, data, metrics, summarise(metrics), place, FORMATS[form], links=form != "pdf"
    )
    name = "paper" if form == "latex" else "report"  # LaTeX makes a PDF of the same name
    return Document(name, data.title, facts_of(data), sections_of(context), data.noise_seed)


def _notes(experiment: Experiment, run: RunDirectory) -> list[str]:
    """Remarks for the reader, as far as they are on disk."""
    notes = list(warnings(experiment))
    for path in sorted((run.path / SERVER).glob(f"*/{FAILED}")):
        reason = json.loads(path.read_text(encoding="utf-8")).get("reason", "")
        notes.append(f"{path.parent.name} failed: {reason}")
    if not run.finished:
        notes.append("The run is not finished: this report has what was measured so far.")
    return [*notes, *(text for job in experiment.jobs for text in dropout_notes(job))]


def _write(make: Callable[[Path], Document], form: str, target: Path) -> Path:
    """Write a document, which is made for a folder, into it; returns its file."""
    if form == "pdf":
        with tempfile.TemporaryDirectory() as folder:
            page = _write(make, "html", Path(folder))
            return print_page(page, target / f"{page.stem}.pdf")
    document = make(target)
    title, facts, sections = document.title, document.facts, document.sections
    if form == "html":
        text = render_page(title, facts, sections, document.noise_seed)
    elif form == "md":
        text = markdown_page(title, facts, sections)
    else:
        text = latex_page(title, facts, sections)
        for name, table in latex_tables(sections).items():
            write_file(target / "tables" / f"{name}.tex", table.encode())
    ending = "tex" if form == "latex" else form
    return write_file(target / f"{document.name}.{ending}", text.encode())
