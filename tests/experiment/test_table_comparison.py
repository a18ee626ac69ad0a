"""Every run over a table compares its releases with the test records; images and models do not."""

from __future__ import annotations

from pathlib import Path

import tiny_runs as tiny

from fedsynth.engine.base import Engine
from fedsynth.experiment.stage_extension import load_extensions
from fedsynth.experiment.table_comparison import EXTENSION, compare_tables


def test_a_released_table_is_compared(tmp_path: Path, here: Engine) -> None:
    job = tiny.tiny_job("ldpdc", tmp_path, "table", {})
    assert EXTENSION.applies(job)
    assert EXTENSION in load_extensions(())
    tiny.release(job, here)
    rows = EXTENSION.metrics(here, job, 0)
    columns = len(job.plans[0].stage.data.columns) + 1
    assert set(rows) == {
        "column_shapes", "pair_trends", *(f"shape_of_column_{i + 1}" for i in range(columns))
    }  # fmt: skip
    assert all(0 <= value <= 1 for value in rows.values())


def test_raw_records_are_more_alike_than_noised_ones(tmp_path: Path, here: Engine) -> None:
    found = {}
    for name in ("upper_bound", "ldpdc"):
        job = tiny.tiny_job(name, tmp_path / name, "table", {})
        tiny.release(job, here)
        found[name] = compare_tables(job.text(), 0)
    assert found["upper_bound"]["column_shapes"] > max(0.8, found["ldpdc"]["column_shapes"])


def test_images_are_not_compared(tmp_path: Path) -> None:
    assert not EXTENSION.applies(tiny.tiny_job("ldpdc", tmp_path, "together", {}))
