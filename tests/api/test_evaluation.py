"""Another evaluation of a run: what can be changed, and from where the rest comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsynth.api.evaluation import evaluate_release, other_evaluation
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import resolve
from fedsynth.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that was configured and never started."""
    words = {
        "scenario": "split_mnist",
        "data": "shapes",
        "parties": 2,
        "options": {},
        "method": ["ldpdc", "dpmix"],
        "epsilon": [1.0, 10.0],
        "evaluation": {"width": 4, "nets": 2, "batch": 16},
    }
    run = RunDirectory.create(tmp_path / "run")
    run.write_config(resolve(words).as_dict())
    return run


def test_the_rest_is_that_of_the_run(run: RunDirectory) -> None:
    changed = other_evaluation(run, {"evaluation": {"nets": 1}, "method": "dpmix", "epsilon": 10.0})
    assert changed.run.method == ("dpmix",)
    assert changed.run.epsilon == (10.0,)
    assert (changed.evaluation.nets, changed.evaluation.width, changed.evaluation.batch) == (
        1,
        4,
        16,
    )
    assert changed.scenario.data == "shapes"
    assert changed.run.out == str(run.path)


def test_a_protocol_that_is_named_starts_from_its_published_settings(run: RunDirectory) -> None:
    changed = other_evaluation(run, {"evaluation": {"protocol": "D"}}).evaluation
    assert (changed.protocol, changed.batch) == ("D", 0)
    assert changed.width != 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"delta": 1e-6}, r"delta= is not a key of an evaluation"),
        ({"evalution": {}}, r"Did you mean 'evaluation'\?"),
        ({"method": "psg"}, r"unknown method of this run 'psg'.*dpmix, ldpdc"),
        ({"epsilon": [10.0, 2.0]}, r"unknown epsilon of this run 2\.0"),
        ({"evaluation": "D"}, r"evaluation='D': write evaluation\.KEY=VALUE"),
        ({"evaluation": {"nets": -1}}, r"nets=-1"),
    ],
)
def test_what_cannot_be_changed_is_named(
    run: RunDirectory, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        other_evaluation(run, overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({}, r"name the data set with data=NAME"),
        ({"data": "shapes", "method": "psg"}, r"method= is not a key for a released file"),
        ({"data": "shapes", "seed": -1}, r"seed=-1 must be a whole number >= 0"),
        ({"data": "shapes"}, r"none\.npz cannot be read as a release"),
    ],
)
def test_a_released_file_needs_its_data_set(
    tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        evaluate_release(tmp_path / "none.npz", overrides)
