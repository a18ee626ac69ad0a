"""The name of what a run is tested on follows the records that the run in fact reads for it."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.experiment.evaluation_data import HOLD_OUT, TEST_DATA, evaluation_data
from fedsynth.experiment.scenario import setting_in_words, test_records
from fedsynth.experiment.scenario_config import ScenarioConfig

test_records.__test__ = False  # not a test


@pytest.mark.parametrize("holdout", [0.0, 0.25, 300])
def test_the_name_follows_the_records(holdout: float) -> None:
    """The test split of the shapes has 400 records, which a hold-out of 2,000 never happens to."""
    config = ScenarioConfig(data="shapes", parties=2, holdout=holdout)
    named = evaluation_data(dataclasses.asdict(config))
    of_test_split = len(test_records(config).labels) == 400
    assert (named == TEST_DATA) == of_test_split
    assert (named == HOLD_OUT) == (not of_test_split)
    assert named.name in setting_in_words(config)


def test_a_configuration_without_the_key_is_tested_on_the_test_data() -> None:
    """Configurations of the first version lack it."""
    assert evaluation_data({}) == evaluation_data({"holdout": None}) == TEST_DATA


def test_no_name_of_a_hold_out_speaks_of_tests() -> None:
    assert all("test" in text for text in dataclasses.astuple(TEST_DATA))
    assert not any("test" in text for text in dataclasses.astuple(HOLD_OUT))
