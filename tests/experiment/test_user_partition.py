"""Users as parties: whose records a party has, who is flipped, who is held out, what is refused."""

import dataclasses

import numpy as np
import pytest
from made_users import forget

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import emnist_users
from fedsynth.data.registry import DataSet
from fedsynth.data.users import UserIndex, UserRecords
from fedsynth.experiment import scenario, user_partition
from fedsynth.experiment.config import resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages

SIZES = [4, 0, 6, 3, 5, 7, 2, 9]  # of eight users; one has nothing


def made() -> UserRecords:
    """User u's images are all of brightness 10 u, in two classes."""
    owners = np.repeat(np.arange(len(SIZES)), SIZES)
    images = np.broadcast_to((10 * owners).astype(np.uint8)[:, None, None, None], (36, 1, 28, 28))
    return UserRecords(images.copy(), np.arange(36) % 2, np.concatenate([[0], np.cumsum(SIZES)]))


@pytest.fixture
def people(monkeypatch):
    """A data set of eight users."""
    known = DataSet(
        DatasetInfo("made_people", (1, 28, 28), 2, (0.5,), (0.5,)),
        train=(), test=(), about="made-up people", made=True,
        reader=lambda *_: (made().images, made().labels),
        owners=UserIndex(lambda *_: made(), lambda *_: made().counts(2)),
    )  # fmt: skip
    monkeypatch.setitem(datasets._registry, "made_people", known)

    forget()
    yield ScenarioConfig(data="made_people", partition="users", parties=7, stages="together")
    forget()


def user_of(records) -> int:
    brightness = records.images[0, 0, 0, 0].item()
    return min(brightness, 255 - brightness) // 10


def test_every_party_is_one_user_with_all_that_user_has(people):
    stage = scenario_stages(people)[0]
    found = []
    for info in stage.parties:
        records = party_records(people, info.party)
        found.append(user_of(records))
        assert len(records.labels) == info.records == SIZES[found[-1]]
        assert (records.images == records.images[0]).all()
        counts = np.bincount(records.labels, minlength=2)
        assert info.class_counts == {c: n for c, n in enumerate(counts) if n}
    assert sorted(found) == [0, 2, 3, 4, 5, 6, 7]


def test_all_users_where_no_number_is_given(people):
    config, said = user_partition.resolve_source(dataclasses.replace(people, parties=0))
    assert config.parties == 7
    assert said == ()


def test_a_coin_for_each_user_says_who_is_flipped(people):
    config = dataclasses.replace(people, options={"flip": 0.5})
    flipped = user_partition.inverted_parties(config)
    assert 0 < flipped.sum() < 7
    for party in range(7):
        user = user_of(party_records(people, party))
        brightness = party_records(config, party).images.unique().tolist()
        assert brightness == [255 - 10 * user if flipped[party] else 10 * user]
    fewer = dataclasses.replace(config, parties=3)
    assert (user_partition.inverted_parties(fewer) == flipped[:3]).all(), (
        "a user is flipped or is not"
    )
    assert not user_partition.inverted_parties(people).any()
    assert user_partition.inverted_parties(dataclasses.replace(config, options={"flip": 1})).all()


def test_whole_users_are_held_out_and_they_are_as_they_are(people):
    config = dataclasses.replace(people, parties=0, holdout=8, options={"flip": 1.0})
    config, _ = user_partition.resolve_source(config)
    held = scenario.test_records(config)
    away = {int(b) // 10 for b in held.images.unique()}
    parties = {user_of(party_records(config, p)) for p in range(config.parties)}
    assert away | parties == {0, 2, 3, 4, 5, 6, 7}
    assert not away & parties
    assert len(held.labels) == sum(SIZES[user] for user in away) >= 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parties": 8}, r"parties=8: made_people has 7 users with records.* Allowed: 1 to 7"),
        ({"holdout": 36.0}, "leaves no user of made_people"),
        ({"options": {"flop": 1}}, r"unknown key 'options\.flop'\. Did you mean 'flip'\?"),
        ({"options": {"flip": 2}}, r"options\.flip=2\.0 must be at most 1"),
        ({"data": "shapes"}, "partition=users is for data with users"),
        ({"partition": "iid"}, "class counts of made_people are not published"),
    ],
)
def test_what_cannot_be_is_told(people, change, message):
    with pytest.raises(UserError, match=message):
        scenario_stages(dataclasses.replace(people, **change))


def test_the_configuration_names_the_set_that_was_found(people, monkeypatch):
    monkeypatch.setattr(emnist_users, "find", lambda *_: ("made_people", ("leaf: nothing there",)))
    config = resolve(
        {"scenario": "emnist_users", "preset": "smoke", "parties": 5, "users_per_round": 2}
    )
    values = config.as_dict()
    assert (values["data"], values["source"], values["parties"]) == ("made_people", "auto", 5)
    assert any("USING made_people" in line for line in config.found)
    assert any("leaf: nothing there" in line for line in config.found)
    assert config.methods["gs_wgan"].per_round == 2
    assert scenario_stages(config.scenario)[0].data.name == "made_people"


def test_a_source_is_for_the_set_that_has_sources(people):
    with pytest.raises(UserError, match="source=leaf is for data=emnist_users only"):
        user_partition.resolve_source(dataclasses.replace(people, source="leaf"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"users_per_round": 8}, r"users_per_round=8: there are 7 parties.*Allowed: 1 to 7"),
        ({"method": ["psg_joint"]}, r"unit=user: psg_joint protects a record.*: .*gs_wgan"),
        ({"unit": "person"}, r"unit='person' is unknown.* Allowed: record, user"),
        ({"parties": 9}, r"parties=9: made_people has 7 users"),
    ],
)
def test_a_run_that_cannot_be_is_refused(people, keys, message):
    plain = {"scenario": "emnist_users", "preset": "smoke", "data": "made_people"}
    with pytest.raises(UserError, match=message):
        resolve({**plain, "parties": 0, "users_per_round": 2, **keys})


def test_a_users_budget_says_so(people):
    keys = {"scenario": "emnist_users", "preset": "smoke", "data": "made_people", "parties": 4}
    config = resolve({**keys, "users_per_round": 2, "method": ["gs_wgan", "upper_bound"]})
    jobs = Experiment.of(config, "nowhere").jobs
    assert {job.budget.unit for job in jobs} == {"user"}
    assert Job.parse(jobs[0].text()).budget == jobs[0].budget
