"""The inversion section claims only what released images support, next to the truth."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from report_pages import Page, context

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.inversion import inversion_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory

TRUTH = {"affected_users_true": 8.0, "affected_share_true": 0.8, "users_heard_true": 10.0}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run without any number."""
    return RunDirectory.create(tmp_path / "run")


def rows(epsilon: float, **values: float) -> list[Metric]:
    return [Metric("gs_wgan", epsilon, 0, 1, name, value) for name, value in values.items()]


def page_of(run: RunDirectory) -> Page:
    section = inversion_section(context(run))
    assert section is not None
    return Page(render_section(section))


def test_the_section_shows_estimate_truth_and_images(run: RunDirectory) -> None:
    bright = torch.ones(30, 1, 12, 12)
    images = torch.cat([bright, 1 - bright[:20], bright[:10] / 2])
    name = release_name("gs_wgan", 10.0, 0)
    run.releases.save(name, 1, SyntheticSet(images, torch.zeros(60, dtype=torch.long)))
    estimate = {"inverted_share": 0.6, "inverted_share_rehearsed": 0.72, "inverted_told": 5 / 6}
    run.add_metrics(rows(10.0, affected_users=7.2, accuracy=0.1, **estimate, **TRUTH))
    page = page_of(run)
    assert "83% 60% 72% more than half inverted 7 of 10 8 of 10 (80%)" in page.text
    assert "30 inverted, 20 upright, 10 undecided. Rows from the top: upright" in page.text
    assert len(page.all("img")) == 1
    assert (run.path / f"figures/inverted-{name}.png").is_file()


def test_a_truth_that_was_not_written_is_said_to_be_unpublished(run: RunDirectory) -> None:
    run.add_metrics(rows(10.0, accuracy=0.1, inverted_share=0.6, inverted_told=0.9))
    assert "not published" in page_of(run).text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"inverted_share": 0.5, "inverted_told": 0.2}, "20% – – about half, or undecided –"),
        ({"inverted_share": 0.1, "inverted_told": 1.0}, "100% 10% – fewer than half inverted –"),
        (
            {"inverted_share": 1.0, "inverted_told": 0.8, "inverted_share_rehearsed": 0.55},
            "80% 100% 55% about half inverted –",
        ),
        (
            {"inverted_share": 0.5, "inverted_told": 0.0, "inverted_share_rehearsed": 0.2},
            "0% – 20% fewer than half inverted –",
        ),
    ],
)
def test_a_verdict_claims_no_more_than_the_images_support(
    run: RunDirectory, estimate: dict[str, float], text: str
) -> None:
    run.add_metrics(rows(1.0, **estimate, **TRUTH))
    assert f"{text} 8 of 10 (80%)" in page_of(run).text


def test_other_runs_have_no_section(run: RunDirectory) -> None:
    assert inversion_section(context(run)) is None
    run.add_metrics(rows(1.0, accuracy=0.5))
    assert inversion_section(context(run)) is None
