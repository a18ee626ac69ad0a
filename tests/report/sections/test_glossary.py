"""The glossary explains the words of the page and the protocols that were used."""

from __future__ import annotations

from pathlib import Path

from report_pages import Page, classifier_metrics, context, finished

from fedsynth.evaluation.protocols import PROTOCOLS
from fedsynth.report.page import write_report
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.glossary import WORDS, glossary_section


def test_it_ends_the_page_and_explains_its_terms(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    page = write_report(run, context(run).data).read_text()
    assert page.rindex("<section ") == page.index('<section id="glossary"')
    words = Page(page).text
    for word in ("ε (epsilon)", "δ (delta)", "View", "PLD", "RDP", "class-incremental"):
        assert any(word in name for name in WORDS), word
    assert all(f"{name} {meaning}" in words for name, meaning in WORDS.items())
    assert "Protocol G" not in words


def test_only_protocols_of_the_run_are_explained(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    run.add_metrics(classifier_metrics(("lda", "gbm")))
    words = Page(render_section(glossary_section(context(run)))).text
    assert "Protocol G A fixed way of training a classifier on a release before it is " in words
    assert PROTOCOLS["G"].summary in words
    assert "Protocol P" not in words
