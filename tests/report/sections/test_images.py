"""Released sets are shown as contact sheets, released tables as file names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from report_pages import Page, context, finished, metrics, report_data

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.types import Column
from fedsynth.data.tables import table_info
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.images import image_section
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory


def test_every_released_set_has_a_sheet_and_models_have_none(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    section = image_section(context(run))
    assert section is not None
    page = Page(render_section(section))
    assert len(page.all("img")) == 2
    assert "psg, ε = 1 seed 0 Stage 1: 4 images of classes 5, 6 psg, ε = 10 seed 0" in page.text
    assert (run.path / "figures/synthetic_images.png").is_file()


def test_a_run_of_released_models_has_no_section(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.add_metrics(metrics())
    run.releases.save(release_name("psg", 1.0, 0), 1, ReleasedModel({"w": torch.ones(2)}, 8))
    assert image_section(context(run)) is None


def test_released_rows_are_shown_in_their_units(tmp_path: Path) -> None:
    info = table_info("x", [Column("age", 0, 100, whole=True)], 2, class_names=("ill", "well"))
    run = RunDirectory.create(tmp_path / "run")
    run.add_metrics(metrics())
    rows = SyntheticSet(torch.tensor([[0.25], [0.5]])[:, :, None, None], torch.tensor([1, 0]))
    run.releases.save(release_name("psg", 1.0, 0), 1, rows, table="age,label")
    section = image_section(context(run, replace(report_data(), info=info)))
    assert section is not None
    page = Page(render_section(section))
    assert "releases/psg-eps1-seed0/stage-*.csv" in page.text
    assert "age class 25 well 50 ill" in page.text
