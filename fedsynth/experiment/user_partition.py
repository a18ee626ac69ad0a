"""Users as parties: a world's data side where every party is one user (partition=users)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import emnist_users
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.users import UserIndex, UserRecords, select_users
from fedsynth.evaluation.deployed_model import deployed_accuracy
from fedsynth.experiment.client_selection import (
    ALL,
    HIDDEN,
    ClientSelectionConfig,
    SelectedClients,
    describe_selection,
)
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.privacy.party_data import Records

PARTITION = "users"


def is_by_users(scenario: ScenarioConfig) -> bool:
    """Whether the parties of this world are users of its data."""
    return scenario.partition == PARTITION and datasets.find(scenario.data).owners is not None


def resolve_source(scenario: ScenarioConfig) -> tuple[ScenarioConfig, tuple[str, ...]]:
    """The world with the data set that was really found and the number of parties that there are;
    and what a reader must be told about it."""
    said: list[str] = []
    if scenario.data == emnist_users.NAME:
        name, tried = emnist_users.find(scenario.source, scenario.data_dir)
        scenario = dataclasses.replace(scenario, data=name, source=emnist_users.AUTO)
        said += [f"data={emnist_users.NAME}: not found: {line}" for line in tried]
        said.append(f"data={emnist_users.NAME}: TAKEN IS {name}: {datasets.find(name).about}.")
    elif scenario.source != emnist_users.AUTO:
        raise UserError(f"source={scenario.source} is for data={emnist_users.NAME} only.")
    if is_by_users(scenario) and not scenario.parties:
        scenario = dataclasses.replace(scenario, parties=len(_selected(scenario).parties))
    return scenario, tuple(said)


def _user_index(scenario: ScenarioConfig) -> UserIndex:
    owners = datasets.find(scenario.data).owners
    if owners is None:
        raise UserError(f"the records of data={scenario.data} have no users.")
    return owners


def _number_of_virtual_users(scenario: ScenarioConfig) -> int:
    """Into how many users a set of virtual users is cut: parties, and others to be held out."""
    most = _user_index(scenario).max_users
    if most is None:
        return 0
    if scenario.parties > most:
        raise UserError(f"parties={scenario.parties}: {scenario.data} has at most {most:,} users.")
    some_are_left_out = scenario.holdout or ClientSelectionConfig.of(scenario.options).chosen != ALL
    return most if some_are_left_out or not scenario.parties else scenario.parties


@functools.lru_cache(maxsize=8)
def _counts(scenario: ScenarioConfig) -> np.ndarray:
    return _user_index(scenario).counts(_number_of_virtual_users(scenario), scenario.data_dir)


@functools.lru_cache(maxsize=8)
def _selected(scenario: ScenarioConfig) -> SelectedClients:
    """Who the parties are. Where a deployed model decides, this reads everybody's records, as the
    simulation of what happens at every user's home."""
    asked, seed = ClientSelectionConfig.of(scenario.options), scenario.partition_seed
    number = scenario.parties if asked.chosen == ALL else 0
    users, held = select_users(_counts(scenario), number, seed, scenario.holdout, scenario.data)
    if asked.chosen == ALL:
        return SelectedClients(users, np.zeros(len(users), bool), held)
    teachers, judges, others = asked.split(users, scenario.data)
    if not asked.chooses:
        both = np.concatenate([teachers, judges])
        parties = np.resize(both, scenario.parties or len(both))
        return SelectedClients(parties, np.zeros(len(parties), bool), held, volunteers=len(both))
    accuracies = _accuracies(scenario, teachers, judges, others)
    threshold = asked.threshold(accuracies[: len(judges)])
    joins = asked.takes_part(accuracies[len(judges) :], threshold)
    here = f"of the {len(others):,} users of {scenario.data} that are asked"
    by = f"options.chosen={asked.chosen}, accuracy {threshold:.4g}"
    if not joins.any():
        raise UserError(f"{by}: {here} nobody is chosen. Give another options.accuracy.")
    parties = others if asked.joins == HIDDEN else others[joins]
    if scenario.parties > len(parties):
        raise UserError(
            f"parties={scenario.parties}: {here} {len(parties):,} take part ({by}). "
            f"Allowed: 1 to {len(parties)}, or parties=0 for all of them."
        )
    silent = ~joins if asked.joins == HIDDEN else np.zeros(len(parties), bool)
    number = scenario.parties or len(parties)
    volunteers = len(teachers) + len(judges)
    return SelectedClients(
        parties[:number],
        silent[:number],
        held,
        len(others),
        int(joins.sum()),
        volunteers,
        threshold,
    )


def _accuracies(
    scenario: ScenarioConfig, teachers: np.ndarray, judges: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """How often the teachers' model is right for each judge and for each of the others, of whom
    some are flipped."""
    people = all_users(scenario)
    taught = _joined([people.of(int(user)) for user in teachers])
    users = [_as_records(people.of(int(user))) for user in judges]
    coins = _inversion_coins(scenario, others)
    users += [
        _as_records(people.of(int(user)), bool(coin))
        for user, coin in zip(others, coins, strict=True)
    ]
    folder = data_directory(scenario.data_dir) / "deployed"
    return deployed_accuracy(folder, taught, users, datasets.find(scenario.data).info).accuracies


def _as_records(raw: tuple[np.ndarray, np.ndarray], invert: bool = False) -> Records:
    images, labels = raw
    return Records(torch.from_numpy(255 - images if invert else images), torch.from_numpy(labels))


def _joined(raw: Sequence[tuple[np.ndarray, np.ndarray]]) -> Records:
    images, labels = (np.concatenate(part) for part in zip(*raw, strict=True))
    return _as_records((images, labels))


def all_users(scenario: ScenarioConfig) -> UserRecords:
    """The records of all users, of whom the parties are some."""
    return _user_index(scenario).read(_number_of_virtual_users(scenario), scenario.data_dir)


def shares(scenario: ScenarioConfig) -> np.ndarray:
    """How many records of each class every party holds: int64 [parties, classes]. Those of a party
    that says nothing are counted like others', so that the number tells nobody apart."""
    return _counts(scenario)[_selected(scenario).parties]


def _inversion_coins(scenario: ScenarioConfig, users: np.ndarray) -> np.ndarray:
    """Which of these users have ink and paper exchanged: a public coin for each, thrown with chance
    `flip`. Known to the simulation, not to its curator."""
    coins = numpy_generator(scenario.partition_seed, "flip").random(int(users.max()) + 1)
    return coins[users] < ClientSelectionConfig.of(scenario.options).flip


def inverted_parties(scenario: ScenarioConfig) -> np.ndarray:
    """Which parties are flipped: bool [parties]."""
    return _inversion_coins(scenario, _selected(scenario).parties)


def contributing_parties(scenario: ScenarioConfig) -> np.ndarray:
    """Which parties' records are used: all, but for those who take part in appearance only."""
    return ~_selected(scenario).silent


def inversion_possible(scenario: ScenarioConfig) -> bool:
    """Whether some users of this world may be flipped, so that there is something to find."""
    return is_by_users(scenario) and ClientSelectionConfig.of(scenario.options).flip > 0


def reference_scenario(scenario: ScenarioConfig, flip: float) -> ScenarioConfig | None:
    """A world of as many parties, all of them volunteers who are upright (`flip` 0) or flipped (1):
    public data, on which the same conversation may be had to see what comes of it. None where
    nobody volunteered, or nobody asked for it."""
    asked = ClientSelectionConfig.of(scenario.options)
    if not (asked.chooses and asked.rehearse):
        return None
    return dataclasses.replace(scenario, options=asked.reference_options(flip))


def describe(scenario: ScenarioConfig) -> list[str]:
    """What a reader must be told of who takes part."""
    return (
        describe_selection(ClientSelectionConfig.of(scenario.options), _selected(scenario))
        if is_by_users(scenario)
        else []
    )


def records(scenario: ScenarioConfig, party: int) -> Records:
    """The records of one party, and of nobody else; none of one that says nothing."""
    images, labels = all_users(scenario).of(int(_selected(scenario).parties[party]))
    if not contributing_parties(scenario)[party]:
        images, labels = images[:0], labels[:0]
    return _as_records((images, labels), bool(inverted_parties(scenario)[party]))


def held_out(scenario: ScenarioConfig) -> Records:
    """The records of the users that are held out to choose settings on; none of them is flipped."""
    people = all_users(scenario)
    return _joined([people.of(int(user)) for user in _selected(scenario).held])
