"""LDPDC against its definition and its printed epsilons."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.types import Budget
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages
from fedsynth.methods.dpdc.common import GroupConfig
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.storage.run_directory import RunDirectory


@pytest.mark.usefixtures("no_noise")
def test_without_noise_and_with_whole_classes_it_is_the_class_mean(here, tmp_path):
    job = tiny.tiny_job("ldpdc", tmp_path / "run", changes={"group": 40, "spc": 3})
    tiny.release(job, here)
    for stage, this_stage in enumerate(scenario_stages(job.scenario)):
        outcome = RunDirectory(Path(job.out)).releases.load(job.name, stage + 1)
        records = party_records(job.scenario, stage)
        assert set(this_stage.parties[0].class_counts.values()) == {40}
        for name in this_stage.classes:
            mine = outcome.images[outcome.labels == name]
            assert len(mine) == 3
            mean = records.pixels()[records.labels == name].mean(0)
            for image in mine:
                torch.testing.assert_close(image, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("no_noise")
def test_a_group_is_random_and_the_denominator_is_not(here, tmp_path):
    """Sums over Poisson groups divided by L: means of brightness vary as Poisson groups do."""
    job = tiny.tiny_job("ldpdc", tmp_path / "run", changes={"group": 10, "spc": 200})
    tiny.release(job, here)
    outcome = RunDirectory(Path(job.out)).releases.load(job.name, 1)
    name = int(outcome.labels[0])
    records = party_records(job.scenario, 0)
    rows = (2 * records.pixels()[records.labels == name] - 1).flatten(1).mean(1)
    found = (2 * outcome.images[outcome.labels == name] - 1).flatten(1).mean(1)
    rate, n = 10 / 40, 40
    deviation = math.sqrt(rate * (1 - rate) * float((rows**2).sum())) / 10
    assert found.mean().item() == pytest.approx(float(rows.mean()), abs=4 * deviation / 200**0.5)
    assert found.std().item() == pytest.approx(deviation, rel=0.2)
    assert n == len(rows)


def test_the_noise_of_a_pixel_has_the_stated_size(here, tmp_path):
    """sigma sqrt(d) / L on [-1, 1], half of it on [0, 1]; twice the noise shows twice."""
    found = []
    for noise in (50.0, 100.0):
        job = tiny.tiny_job("ldpdc", tmp_path / str(noise), changes={"noise": noise, "spc": 5})
        tiny.release(job, here)
        outcome = RunDirectory(Path(job.out)).releases.load(job.name, 1)
        found.append(outcome.images.std().item())
        assert found[-1] == pytest.approx(noise * 28 / 20 / 2, rel=0.03)
    assert found[1] == pytest.approx(2 * found[0], rel=0.03)


@pytest.mark.parametrize(
    ("data", "spent", "multiplier"), [("mnist", 1.1000, 1.0388), ("fashion_mnist", 1.0588, 1.0233)]
)
def test_the_printed_numbers_come_out(data, spent, multiplier):
    """Published noise of one sensitivity costs what the paper prints; epsilon 1 needs this much."""
    (stage,) = scenario_stages(ScenarioConfig(data=data, partition="single", parties=1))
    some = method("ldpdc")
    published = Budget(10, 1e-5, accounting=some.paper_convention)
    (share,) = some.plan(GroupConfig(noise=1.0), stage, published).parties
    assert epsilon(share.event, 1e-5, some.paper_convention) == pytest.approx(spent, abs=1e-4)
    one = dataclasses.replace(published, epsilon=1.0)
    (share,) = some.plan(GroupConfig(), stage, one).parties
    assert share.noise_multiplier == pytest.approx(multiplier, abs=2e-4)
    assert share.sampling_rate == 50 / min(stage.parties[0].class_counts.values())
