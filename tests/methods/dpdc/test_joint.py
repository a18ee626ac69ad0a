"""Joint NDPDC: the public facts of all parties together."""

from __future__ import annotations

from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.common.poisson_plan import class_rates
from fedsynth.methods.dpdc.joint import combined

MNIST = ScenarioConfig(data="mnist", partition="iid", parties=5, stages="together")


def test_records_and_classes_of_all_parties_add_up():
    info = scenario_stages(MNIST)[0].parties
    whole = combined(info)
    assert whole.records == 60_000
    assert whole.class_counts[5] == 5421
    assert class_rates(50, whole)[5] == 50 / 5421
