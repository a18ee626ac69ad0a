"""The first section: the finding in words, its cost in privacy, what is uncertain, its origin."""

from __future__ import annotations

from fedsynth.report.elements import ReportContext, Section
from fedsynth.report.estimates import final_results
from fedsynth.report.finding import (
    finding_sentences,
    number_text,
    privacy_sentences,
    smallest_class,
    uncertainties,
    worth_sentence,
)
from fedsynth.report.summary import stages_of
from fedsynth.report.surprises import surprises
from fedsynth.report.worth import real_records_curve
from fedsynth.storage.run_directory import FAILED, LOG, SERVER, RunDirectory

MAX_NAMED = 6  # failed jobs


def finding_section(context: ReportContext) -> Section:
    """The finding of the run, also where nothing was measured."""
    data = context.data
    results = final_results(context.metrics)
    content = {
        "finding": [
            *finding_sentences(results, data, len(stages_of(context.rows))),
            *worth_sentence(results, real_records_curve(context.run)),
            *smallest_class(results, context.metrics, data),
        ],
        "failed": _failed(context.run),
        "surprises": surprises(results, context.metrics, data),
        "privacy": privacy_sentences(data, context.metrics),
        "uncertain": uncertainties(results, data),
        "setting": data.setting,
        "origin": _origin(context.run),
    }
    return Section("finding", "Finding", content)


def _failed(run: RunDirectory) -> str:
    """The jobs that failed, whose numbers are missing; empty if there are none."""
    names = sorted(path.parent.name for path in (run.path / SERVER).glob(f"*/{FAILED}"))
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    jobs = "job" if len(names) == 1 else "jobs"
    return (
        f"{number_text(len(names))} {jobs} failed ({', '.join(names[:MAX_NAMED])}{more}). "
        "What they would have shown is missing from this page; the reasons are under Reproduce."
    )


def _origin(run: RunDirectory) -> str:
    """When the run started, and with which version."""
    parts = []
    log = run.path / LOG
    if log.is_file() and (day := log.read_text(encoding="utf-8")[:10]):
        parts.append(f"Run started on {day}")
    environment = run.read_environment()
    packages, git = environment.get("packages"), environment.get("git")
    if isinstance(packages, dict) and "fedsynth" in packages:
        parts.append(f"fedsynth {packages['fedsynth']}")
    if isinstance(git, dict) and git.get("commit"):
        changed = " with local changes" if git.get("changed") else ""
        parts.append(f"commit {str(git['commit'])[:10]}{changed}")
    return ", ".join(parts)
