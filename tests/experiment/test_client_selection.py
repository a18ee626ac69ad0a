"""Client selection: against a plain recomputation, with public coins, and refusals."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_users import EACH, USERS, forget, made, world_of_users

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.data.users import select_users
from fedsynth.evaluation import deployed_model as deployed
from fedsynth.experiment import scenario, user_partition
from fedsynth.experiment.client_selection import ClientSelectionConfig
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages

quick = settings(max_examples=30, deadline=None)


@pytest.fixture
def people(monkeypatch, tmp_path):
    """A scenario of made-up users."""
    yield from world_of_users(monkeypatch, tmp_path)


def settled(config: ScenarioConfig, **options) -> ScenarioConfig:
    changed = {**(config.options or {}), **options}
    return user_partition.resolve_source(dataclasses.replace(config, options=changed))[0]


def naive(config: ScenarioConfig) -> tuple[list[int], dict[int, float], float]:
    """The selected users, the accuracy of each user and the threshold, by a plain loop."""
    people, info, options = made(), datasets.find(config.data).info, config.options or {}
    order = select_users(people.counts(2), 0, config.partition_seed, 0, config.data)[0].tolist()
    count = round(options["volunteers"] * len(order))
    teachers, judges, asked = order[: count // 2], order[count // 2 : count], order[count:]
    taught = [people.of(user) for user in teachers]
    net = deployed.train_deployed_model(
        Records(*(torch.from_numpy(np.concatenate(part)) for part in zip(*taught, strict=True))),
        info,
    )
    coins = numpy_generator(config.partition_seed, "flip").random(USERS)
    accuracy = {}
    for user in [*judges, *asked]:
        images, labels = people.of(user)
        if user in asked and coins[user] < options["flip"]:
            images = 255 - images
        pixels = (torch.from_numpy(images).float() / 255 - info.mean[0]) / info.std[0]
        accuracy[user] = float(np.mean(net(pixels).argmax(1).numpy() == labels))
    low = options["chosen"] == "low"
    quarter = np.quantile([accuracy[user] for user in judges], 0.25 if low else 0.75)
    threshold = options.get("accuracy", quarter)
    return (
        [u for u in asked if (accuracy[u] <= threshold if low else accuracy[u] >= threshold)],
        accuracy,
        float(threshold),
    )


@pytest.mark.parametrize("options", [{}, {"chosen": "high"}, {"accuracy": 0.6}])
def test_the_users_are_those_of_a_plain_recomputation(people, options):
    config = settled(people, **options)
    found = user_partition._selected(config)
    users, accuracy, threshold = naive(config)
    assert found.parties.tolist() == users
    assert len(users) == config.parties > 0
    assert found.threshold == pytest.approx(threshold)
    spread = sorted(accuracy.values())
    assert spread[0] < spread[-1], "a model that is alike for all would choose nobody in particular"
    for party, user in enumerate(users):
        images, labels = made().of(user)
        images = 255 - images if user_partition.inverted_parties(config)[party] else images
        assert (party_records(config, party).images.numpy() == images).all()
        assert (party_records(config, party).labels.numpy() == labels).all()


def test_flipped_users_are_among_those_of_low_accuracy(people):
    low, high = settled(people), settled(people, chosen="high")
    assert user_partition.inverted_parties(low).sum() > user_partition.inverted_parties(high).sum()


def test_the_coin_is_public_and_the_choice_reproducible(people):
    """From the seed alone, a process that has forgotten everything finds the same; a stored answer
    is one that is computed anew."""
    config = settled(people)
    first = user_partition._selected(config)
    flipped = user_partition.inverted_parties(config)
    coins = numpy_generator(config.partition_seed, "flip").random(USERS)
    assert flipped.tolist() == (coins[first.parties] < 0.5).tolist()
    forget()
    from_disk = user_partition._selected(config)
    kept = list(Path(config.data_dir).glob("deployed/*.json"))
    assert kept
    for path in kept:
        path.unlink()
    forget()
    anew = user_partition._selected(config)
    for other in (from_disk, anew):
        assert other.parties.tolist() == first.parties.tolist()
        assert other.threshold == first.threshold


def test_volunteers_are_no_parties_and_nobody_is_held_out_twice(people):
    config = settled(dataclasses.replace(people, holdout=30), joins="hidden")
    found = user_partition._selected(config)
    held = set(found.held.tolist())
    assert len(held) == 3
    assert not held & set(found.parties.tolist())
    assert len(held) + len(found.parties) + found.volunteers == USERS
    assert len(scenario.test_records(config).labels) == 30


def test_hidden_users_take_part_and_say_nothing(people):
    """All who are asked are parties, with the numbers of records that they have; those who are not
    chosen hand in none."""
    public, hidden = settled(people), settled(people, joins="hidden")
    chosen = set(user_partition._selected(public).parties.tolist())
    found = user_partition._selected(hidden)
    heard = user_partition.contributing_parties(hidden)
    assert set(found.parties[heard].tolist()) == chosen
    assert hidden.parties == found.asked > public.parties
    for info in scenario_stages(hidden)[0].parties:
        assert info.records == EACH
        mine = party_records(hidden, info.party)
        assert len(mine.labels) == (EACH if heard[info.party] else 0)
        assert mine.images.shape[1:] == (1, 28, 28)


def test_rehearsals_are_of_volunteers_alone_as_many_as_parties(people):
    """All upright or all flipped, and nobody else's records: a rehearsal costs no user anything."""
    config = settled(people)
    order = select_users(made().counts(2), 0, config.partition_seed, 0, config.data)[0].tolist()
    volunteers = order[:7]
    for flip in (0, 1):
        stage = user_partition.reference_scenario(dataclasses.replace(config, parties=9), flip)
        found = user_partition._selected(stage)
        assert found.parties.tolist() == [*volunteers, *volunteers[:2]]
        assert user_partition.inverted_parties(stage).tolist() == [bool(flip)] * 9
        assert user_partition.contributing_parties(stage).all()
    for options in ({"flip": 0.5}, {"chosen": "low", "rehearse": False}):
        assert (
            user_partition.reference_scenario(dataclasses.replace(people, options=options), 0)
            is None
        )
    assert "are not about users" in " ".join(user_partition.describe(stage))


def test_fewer_parties_are_the_first_of_those_chosen(people):
    everybody = user_partition._selected(settled(people)).parties
    few = settled(dataclasses.replace(people, parties=2))
    assert user_partition._selected(few).parties.tolist() == everybody[:2].tolist()


@quick
@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_volunteers_and_others_are_everybody_once(users, share):
    asked = ClientSelectionConfig(chosen="low", volunteers=share)
    order = np.random.default_rng(users).permutation(users)
    count = round(share * users)
    if not 2 <= count < users:
        with pytest.raises(
            UserError, match=r"options\.volunteers=.*at least 2, and one other user"
        ):
            asked.split(order, "made")
        return
    teachers, judges, others = asked.split(order, "made")
    assert np.concatenate([teachers, judges, others]).tolist() == order.tolist()
    assert len(teachers) + len(judges) == count
    assert min(len(teachers), len(judges), len(others)) >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chosen": "lo"}, r"options\.chosen='lo' is unknown\. Did you mean 'low'\?"),
        ({"chosen": "low", "joins": "hiden"}, r"Did you mean 'hidden'\? Allowed: public, hidden"),
        ({"chosen": "low", "acuracy": 1}, r"'options\.acuracy'\. Did you mean 'accuracy'\?"),
        ({"chosen": "low", "accuracy": 88.2}, r"options\.accuracy=88\.2 must be at most 1"),
        ({"chosen": "low", "accuracy": -0.1}, r"options\.accuracy=-0\.1 must be at least 0"),
        ({"chosen": "low", "volunteers": 0.01}, r"volunteers=0\.01 of the 24 users .* at least 2"),
        ({"chosen": "low", "volunteers": 1}, r"options\.volunteers=1\.0 must be below 1"),
        ({"chosen": "high", "accuracy": 1.0, "flip": 1}, r"none is chosen\. Give another"),
        ({"accuracy": 0.9}, r"options\.accuracy=0\.9 is for options\.chosen=low or high"),
    ],
)
def test_what_cannot_be_is_told(people, options, message):
    with pytest.raises(UserError, match=message):
        user_partition.resolve_source(dataclasses.replace(people, options=options))


def test_more_parties_than_are_chosen_are_refused(people):
    with pytest.raises(UserError, match=r"parties=24: of the 17 users of made_users .* take part"):
        scenario_stages(dataclasses.replace(people, parties=24))


def test_a_reader_is_told_what_no_epsilon_covers(people):
    public, hidden = settled(people), settled(people, joins="hidden")
    said = " ".join(user_partition.describe(public))
    assert f"{public.parties} of 17 users asked" in said
    assert "NO EPSILON HERE COVERS THAT BIT" in said
    assert "7 volunteers" in said
    said = " ".join(user_partition.describe(hidden))
    assert "of 17 users asked 17 are parties" in said
    assert str(int(user_partition.contributing_parties(hidden).sum())) not in said.replace("17", "")
    assert user_partition.describe(dataclasses.replace(people, options={"flip": 0.5})) == []
