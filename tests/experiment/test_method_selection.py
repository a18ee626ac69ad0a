"""Groups of methods, methods and kinds of data, and that no method is left out silently."""

from __future__ import annotations

from unittest import mock

import pytest
import tiny_runs as tiny

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data import tables
from fedsynth.experiment import method_selection as groups
from fedsynth.experiment.config import ExperimentConfig, budget, parse_overrides, resolve
from fedsynth.experiment.evaluation_data import TEST_DATA
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.method_selection import able
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_files import scenario_files
from fedsynth.experiment.warnings import warnings
from fedsynth.methods.registry import all_methods, method
from fedsynth.report.page import write_report
from fedsynth.report.report_data import ReportData

BASE = ("scenario=classification", "data=shapes", "epsilon=10", "delta=1e-3", "accounting=rdp")


def run_of(*words: str) -> ExperimentConfig:
    given = {word.partition("=")[0] for word in words}
    base = (word for word in BASE if word.partition("=")[0] not in given)
    return resolve(parse_overrides([*base, *words]))


def rounds(config: ExperimentConfig, name: str) -> int:
    """The number of requests of the method, by its own plan."""
    settings, stage = config.methods[name], scenario_stages(config.scenario)[0]
    return method(name).plan(settings, stage, budget(config, name, 10.0)).rounds


@pytest.fixture(scope="module")
def benchmark() -> ExperimentConfig:
    return run_of("method=one_shot")


def test_one_shot_is_every_method_that_asks_once(benchmark: ExperimentConfig) -> None:
    everything = run_of("method=all")
    assert set(everything.methods) == set(everything.run.method)
    once = {name for name in everything.methods if rounds(everything, name) == 1}
    assert set(benchmark.run.method) == set(benchmark.methods) == once
    assert {"psg", "ldpdc", "dp_merf", "upper_bound"} <= once
    assert "psg_joint" not in once


@pytest.mark.parametrize("word", groups.GROUPS)
def test_whoever_is_not_in_it_is_named_with_the_reason(
    word: str, benchmark: ExperimentConfig
) -> None:
    config = benchmark if word == groups.ONE_SHOT else run_of(f"method={word}")
    left = set(all_methods()) - set(config.run.method)
    said = warnings(Experiment.of(config))
    for name in left:
        assert [t for t in said if t.startswith(f"{name} is left out of method={word}: ")], name
    assert len([t for t in said if "is left out" in t]) == len(left)


def test_a_method_that_cannot_be_planned_is_left_out_unless_it_is_named() -> None:
    def refuse(*_: object) -> None:
        raise UserError("not in this test.")

    with mock.patch.object(type(method("ldpdc")), "plan", refuse):
        config = run_of("method=one_shot")
        assert "ldpdc" not in config.run.method
        assert "ldpdc is left out of method=one_shot: not in this test." in config.omitted
        named = run_of("method=ldpdc,one_shot")
    assert named.run.method[0] == "ldpdc"
    assert named.run.method.count("ldpdc") == 1
    assert not [text for text in named.omitted if text.startswith("ldpdc")]


def test_tables_and_users_have_groups_of_their_own() -> None:
    table = run_of("data=made_table", "method=one_shot")
    assert all("table" in method(name).kinds for name in table.run.method)
    users = run_of("unit=user", "parties=20", "partition=iid", "method=all")
    private = [method(name) for name in users.run.method if method(name).private]
    assert private
    assert all("user" in some.units for some in private)


def test_a_group_with_nobody_in_it_is_refused() -> None:
    with (
        mock.patch.object(groups, "_unsuited", return_value="no."),
        pytest.raises(UserError, match="method=all: no method can be planned here"),
    ):
        run_of("method=all")


def test_what_is_written_down_names_the_methods(benchmark: ExperimentConfig) -> None:
    """A resumed run has the methods it was started with, whatever is added meanwhile."""
    written = benchmark.as_dict()
    assert written["method"] == list(benchmark.run.method)
    assert not set(written["method"]) & set(groups.GROUPS)


def test_the_benchmark_scenario_judges_all_alike() -> None:
    assert "benchmark" in scenario_files()
    config = resolve(parse_overrides(["scenario=benchmark", "accounting=rdp"]))
    assert config.evaluation.quality
    assert len(config.run.method) > 10


# Images and tables

IMAGES, TABLES = datasets.find("shapes").info, datasets.find("made_table").info


def classification(*words: str) -> ExperimentConfig:
    return resolve(parse_overrides(["scenario=classification", *words]))


def test_a_method_asked_for_a_table_it_cannot_do_says_which_can():
    with pytest.raises(UserError, match=r"method=psg cannot .* image data only.*: .*ldpdc") as told:
        classification("data=made_table", "method=ldpdc,psg")
    assert "sketch_teach" not in str(told.value)


def test_every_method_names_kinds_there_are():
    for name, some in all_methods().items():
        assert some.kinds, name
        assert set(some.kinds) <= {DataKind.IMAGE, DataKind.TABLE}
    assert set(able(IMAGES)) | set(able(TABLES)) == set(all_methods())


def test_a_scenario_leaves_out_what_it_cannot_do_and_says_so():
    config = classification("data=made_table", "preset=smoke")
    assert set(config.methods) == {
        name for name in classification().run.method if name in able(TABLES)
    }
    assert any(note.startswith("psg is left out") for note in warnings(Experiment.of(config)))
    assert not classification().left_out


def test_a_run_on_a_table_ends_with_rows_scores_and_a_report(here, tmp_path):
    """Two methods, one private: CSV and certificate beside npz, no picture, no raw records."""
    jobs = [tiny.tiny_job(name, tmp_path / "run", "table") for name in ("ldpdc", "upper_bound")]
    run = tiny.release_and_judge(jobs, here)
    accuracy = {m.method: m.value for m in run.metrics() if m.metric == "accuracy"}
    assert set(accuracy) == {"ldpdc", "upper_bound"}
    folder = run.path / "releases" / jobs[0].name
    suffixes = (".csv", ".npz", ".privacy.json", ".registry.yaml")
    assert sorted(p.name for p in folder.iterdir()) == [f"stage-1{s}" for s in suffixes]
    released = run.releases.load(jobs[0].name, 1)
    columns = scenario_stages(jobs[0].scenario)[0].data.columns
    header, *lines = (folder / "stage-1.csv").read_text().splitlines()
    assert header.split(",") == [*(c.name for c in columns), "label"]
    wards = [line.split(",")[4] for line in lines]
    assert wards == tables.decode_column(columns[4], released.images[:, 4].flatten())
    assert not (run.path / "disclosed").exists()
    run.write_config({"data": "made_table"})
    words = ReportData(
        "t", "s", "p", "made_table", "x", (), "record", "add_remove", "rdp", 1e-3, TEST_DATA
    )
    page = write_report(run, words).read_text()
    assert "rows of a table, so there are no pictures" in page
    assert f"releases/{jobs[0].name}/stage-*.csv" in page
    assert not (run.path / "figures" / "synthetic_images.png").exists()
