"""Images and tables: who can release which, and what a scenario for images does with a table."""

from __future__ import annotations

import pytest
import tiny_runs as tiny

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data import tables
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.data_kinds import able
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.warnings import warnings
from fedsynth.methods.registry import all_methods
from fedsynth.report.page import write_report
from fedsynth.report.report_data import ReportData

IMAGES, TABLES = datasets.find("shapes").info, datasets.find("made_table").info


def run_of(*words: str):
    return resolve(parse_overrides(words))


def test_a_method_asked_for_a_table_it_cannot_do_says_which_can():
    with pytest.raises(UserError, match=r"method=psg cannot .* image data only.*: .*ldpdc") as told:
        run_of("scenario=classification", "data=made_table", "method=ldpdc,psg")
    assert "sketch_teach" not in str(told.value)


def test_every_method_names_kinds_there_are():
    for name, some in all_methods().items():
        assert some.kinds, name
        assert set(some.kinds) <= {DataKind.IMAGE, DataKind.TABLE}
    assert set(able(IMAGES)) | set(able(TABLES)) == set(all_methods())


def test_a_scenario_leaves_out_what_it_cannot_do_and_says_so():
    config = run_of("scenario=classification", "data=made_table", "preset=smoke")
    assert set(config.methods) == {
        name for name in run_of("scenario=classification").run.method if name in able(TABLES)
    }
    assert any(note.startswith("psg is left out") for note in warnings(config))
    assert not run_of("scenario=classification").left_out


def test_a_run_on_a_table_ends_with_rows_scores_and_a_report(here, tmp_path):
    """Two methods, one private: CSV beside npz, no picture, and the raw records are gone."""
    jobs = [tiny.tiny_job(name, tmp_path / "run", "table") for name in ("ldpdc", "upper_bound")]
    run = tiny.release_and_judge(jobs, here)
    accuracy = {m.method: m.value for m in run.metrics() if m.metric == "accuracy"}
    assert set(accuracy) == {"ldpdc", "upper_bound"}
    folder = run.path / "releases" / jobs[0].name
    assert sorted(p.name for p in folder.iterdir()) == ["stage-1.csv", "stage-1.npz"]
    released = run.load_release(jobs[0].name, 1)
    columns = scenario_stages(jobs[0].world)[0].data.columns
    header, *lines = (folder / "stage-1.csv").read_text().splitlines()
    assert header.split(",") == [*(c.name for c in columns), "label"]
    wards = [line.split(",")[4] for line in lines]
    assert wards == tables.decoded(columns[4], released.images[:, 4].flatten())
    assert not (run.path / "disclosed").exists()
    run.write_config({"data": "made_table"})
    words = ReportData("t", "s", "p", "made_table", "x", (), "record", "add_remove", "rdp", 1e-3)
    page = write_report(run, words).read_text()
    assert "rows of a table, so there are no pictures" in page
    assert f"releases/{jobs[0].name}/stage-*.csv" in page
    assert not (run.path / "figures" / "synthetic_images.png").exists()
