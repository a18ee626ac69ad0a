"""Scenarios: the parties hold what was planned from public counts."""

from __future__ import annotations

import csv
import dataclasses

import pytest
import torch
from own_files import visits, write_visits

from fedsynth.core.enums import StageOrder
from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.partition import ORDER_OF_TEN
from fedsynth.data.tables import to_csv
from fedsynth.experiment import scenario
from fedsynth.experiment.scenario import (
    ScenarioConfig,
    party_records,
    scenario_stages,
    setting_in_words,
)

SCENARIOS = [
    ScenarioConfig(data="shapes", parties=5),
    ScenarioConfig(data="shapes", parties=2, options={"order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]}),
    ScenarioConfig(data="shapes", partition="iid", parties=3, stages="together"),
    ScenarioConfig(
        data="shapes", partition="dirichlet", options={"alpha": 1.0}, parties=4, holdout=0.1
    ),
    ScenarioConfig(data="shapes", partition="shards", parties=6, stages="together", holdout=100),
    ScenarioConfig(data="shapes", partition="single", parties=1),
]
each_scenario = pytest.mark.parametrize(
    "config", SCENARIOS, ids=lambda c: f"{c.partition}-{c.stages}"
)


@each_scenario
def test_parties_hold_what_was_planned_and_nobody_holds_it_twice(config):
    info = [f for stage in scenario_stages(config) for f in stage.parties]
    held = [party_records(config, f.party) for f in info]
    for public, records in zip(info, held, strict=True):
        assert len(records.labels) == public.records == sum(public.class_counts.values())
        for name in range(10):
            assert int((records.labels == name).sum()) == public.class_counts.get(name, 0)
    images, _ = datasets.load("shapes", "train")
    all_held = torch.cat([records.images for records in held]).flatten(1)
    assert len(torch.unique(all_held, dim=0)) == len(all_held)
    known = {image.numpy().tobytes() for image in images.flatten(1)}
    assert {image.numpy().tobytes() for image in all_held} <= known


@each_scenario
def test_the_tasks_are_known_without_data(config, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("data was read")

    expected = scenario_stages(config)
    scenario_stages.cache_clear()
    monkeypatch.setattr(scenario, "_read", refuse)
    monkeypatch.setattr(datasets, "load", refuse)
    assert scenario_stages(config) == expected


@each_scenario
def test_stages_name_their_classes_in_order(config):
    stages = scenario_stages(config)
    assert len(stages) == (config.parties if config.stages == "in_turn" else 1)
    seen: list[int] = []
    for number, stage in enumerate(stages):
        assert (stage.index, stage.count) == (number, len(stages))
        assert set(stage.classes) == {c for f in stage.parties for c in f.class_counts}
        seen += [c for c in stage.classes if c not in seen]
        assert stage.seen == tuple(seen)
    if config.partition == "classes":
        assert tuple(seen) == tuple((config.options or {}).get("order", ORDER_OF_TEN))


@pytest.mark.parametrize("holdout", [0.25, 300])
def test_a_holdout_takes_the_place_of_the_test_data(holdout):
    """Settings are chosen on records that no party holds and that are not test data."""
    config = ScenarioConfig(data="shapes", parties=2, holdout=holdout)
    held = scenario.test_records(config)
    assert len(held.labels) == (300 if holdout == 300 else 500)
    kept = [party_records(config, party) for party in range(2)]
    mine = {image.numpy().tobytes() for r in kept for image in r.images}
    theirs = {image.numpy().tobytes() for image in held.images}
    assert not mine & theirs
    assert len(mine) + len(theirs) == 2000
    assert "hold-out" in setting_in_words(config)
    plain = dataclasses.replace(config, holdout=0.0)
    assert len(scenario.test_records(plain).labels) == 400
    assert "test data" in setting_in_words(plain)


def test_the_setting_in_words_counts_the_parties():
    config = ScenarioConfig(data="shapes", partition="iid", parties=2, stages=StageOrder.TOGETHER)
    assert setting_in_words(config).startswith("2 parties together, one head")
    alone = dataclasses.replace(config, parties=1)
    assert setting_in_words(alone).startswith("one party, one head")


def test_the_partition_seed_deals_anew_and_the_same_seed_the_same():
    config = ScenarioConfig(data="shapes", partition="iid", parties=2)
    other = dataclasses.replace(config, partition_seed=1)
    first, again = party_records(config, 0), party_records(dataclasses.replace(config), 0)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, party_records(other, 0).images[: len(first.images)])


def test_worlds_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="without records"):
        scenario_stages(ScenarioConfig(data="shapes", partition="iid", parties=3000))
    with pytest.raises(UserError, match="fraction between 0 and 1"):
        scenario_stages(ScenarioConfig(data="shapes", parties=2, holdout=5000))


@pytest.mark.parametrize("holdout", [0.0, 0.25])
def test_parties_that_the_data_name_hold_their_own_records(tmp_path, holdout):
    path = write_visits(tmp_path)
    config = ScenarioConfig(
        data=f"file:{path}", partition="parties", parties=3, stages="together", holdout=holdout
    )
    (stage,) = scenario_stages(config)
    assert [party.name for party in stage.parties] == ["city", "lake", "hill"]
    total = 0
    for party in stage.parties:
        mine = {(row[0], row[1], row[2]) for row in visits() if row[3] == party.name}
        records = party_records(config, party.party)
        lines = to_csv(stage.data, records.images, records.labels).splitlines()[1:]
        held = [(int(age), ward, outcome) for age, ward, outcome in csv.reader(lines)]
        assert set(held) <= mine
        assert len(held) == party.records == sum(party.class_counts.values())
        total += len(held)
    assert total == (48 if not holdout else 36)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parties": 2}, "has 3: city, lake, hill. Allowed: 3"),
        ({"data": "shapes"}, "data=shapes names no parties"),
    ],
)
def test_parties_that_the_data_do_not_name_are_refused(tmp_path, changes, message):
    config = ScenarioConfig(data=f"file:{write_visits(tmp_path)}", partition="parties", parties=3)
    with pytest.raises(UserError, match=message):
        scenario_stages(dataclasses.replace(config, **changes))
