"""Words for many methods: whom they stand for, and that nobody is left out in silence."""

from __future__ import annotations

from unittest import mock

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment import method_groups as groups
from fedsynth.experiment.config import Config, budget, parse_overrides, resolve
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_files import scenario_files
from fedsynth.experiment.warnings import warnings
from fedsynth.methods.registry import all_methods, method

BASE = ("scenario=classification", "data=shapes", "epsilon=10", "delta=1e-3", "accounting=rdp")


def run_of(*words: str) -> Config:
    return resolve(parse_overrides([*BASE, *words]))


def rounds(config: Config, name: str) -> int:
    """How often the method asks, by its own plan."""
    settings, stage = config.methods[name], scenario_stages(config.world)[0]
    return method(name).plan(settings, stage, budget(config, name, 10.0)).rounds


@pytest.fixture(scope="module")
def benchmark() -> Config:
    return run_of("method=one_shot")


def test_one_shot_is_every_method_that_asks_once(benchmark: Config) -> None:
    everything = run_of("method=all")
    assert set(everything.methods) == set(everything.run.method)
    once = {name for name in everything.methods if rounds(everything, name) == 1}
    assert set(benchmark.run.method) == set(benchmark.methods) == once
    assert {"psg", "ldpdc", "dp_merf", "upper_bound"} <= once
    assert "psg_joint" not in once


@pytest.mark.parametrize("word", groups.GROUPS)
def test_whoever_is_not_in_it_is_named_with_the_reason(word: str, benchmark: Config) -> None:
    config = benchmark if word == groups.ONE_SHOT else run_of(f"method={word}")
    left = set(all_methods()) - set(config.run.method)
    said = warnings(config)
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


def test_what_is_written_down_names_the_methods(benchmark: Config) -> None:
    """A resumed run has the methods it was started with, whatever is added meanwhile."""
    written = benchmark.as_dict()
    assert written["method"] == list(benchmark.run.method)
    assert not set(written["method"]) & set(groups.GROUPS)


def test_the_benchmark_scenario_judges_all_alike() -> None:
    assert "benchmark" in scenario_files()
    config = resolve(parse_overrides(["scenario=benchmark", "accounting=rdp"]))
    assert config.evaluation.quality
    assert len(config.run.method) > 10
