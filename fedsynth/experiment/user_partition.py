"""Users as parties: the data side of a scenario with `partition=users`."""

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
from fedsynth.data.records import Records
from fedsynth.data.users import UserIndex, UserRecords, select_users
from fedsynth.evaluation.deployed_model import deployed_accuracy
from fedsynth.experiment.client_selection import (
    Chosen,
    ClientSelectionConfig,
    Joins,
    SelectedClients,
    describe_selection,
)
from fedsynth.experiment.scenario_config import ScenarioConfig

PARTITION = "users"


def is_by_users(scenario: ScenarioConfig) -> bool:
    """True if the parties of this scenario are the users of its data."""
    return (
        scenario.partition == PARTITION
        and datasets.find(scenario.data, scenario.data_dir).owners is not None
    )


def resolve_source(scenario: ScenarioConfig) -> tuple[ScenarioConfig, tuple[str, ...]]:
    """Resolve the data set and the number of parties of a scenario.

    Returns:
        The scenario with the available data set and its number of parties, and remarks about them.
    """
    texts: list[str] = []
    if scenario.data == emnist_users.NAME:
        name, tried = emnist_users.find(scenario.source, scenario.data_dir)
        scenario = dataclasses.replace(scenario, data=name, source=emnist_users.AUTO)
        texts += [f"data={emnist_users.NAME}: not found: {line}" for line in tried]
        texts.append(f"data={emnist_users.NAME}: USING {name}: {datasets.find(name).about}.")
    elif scenario.source != emnist_users.AUTO:
        raise UserError(f"source={scenario.source} is for data={emnist_users.NAME} only.")
    if scenario.partition == "parties" and not scenario.parties:
        held = len(datasets.find(scenario.data, scenario.data_dir).parties)
        scenario = dataclasses.replace(scenario, parties=held)
    if is_by_users(scenario) and not scenario.parties:
        scenario = dataclasses.replace(scenario, parties=len(_selected(scenario).parties))
    return scenario, tuple(texts)


def _user_index(scenario: ScenarioConfig) -> UserIndex:
    owners = datasets.find(scenario.data, scenario.data_dir).owners
    if owners is None:
        raise UserError(f"the records of data={scenario.data} have no users.")
    return owners


def _number_of_virtual_users(scenario: ScenarioConfig) -> int:
    """The number of users that a set of virtual users is split into, held-out users included."""
    most = _user_index(scenario).max_users
    if most is None:
        return 0
    if scenario.parties > most:
        raise UserError(f"parties={scenario.parties}: {scenario.data} has at most {most:,} users.")
    some_are_left_out = (
        scenario.holdout or ClientSelectionConfig.of(scenario.options).chosen != Chosen.ALL
    )
    return most if some_are_left_out or not scenario.parties else scenario.parties


@functools.lru_cache(maxsize=8)
def _counts(scenario: ScenarioConfig) -> np.ndarray:
    return _user_index(scenario).counts(_number_of_virtual_users(scenario), scenario.data_dir)


@functools.lru_cache(maxsize=8)
def _selected(scenario: ScenarioConfig) -> SelectedClients:
    """The users that are parties.

    If a deployed model decides, this reads the records of all users, as the simulation of a
    decision on every user's device."""
    asked, seed = ClientSelectionConfig.of(scenario.options), scenario.partition_seed
    number = scenario.parties if asked.chosen == Chosen.ALL else 0
    users, held = select_users(_counts(scenario), number, seed, scenario.holdout, scenario.data)
    if asked.chosen == Chosen.ALL:
        return SelectedClients(users, np.zeros(len(users), bool), held)
    trainers, testers, others = asked.split(users, scenario.data)
    if not asked.chooses:
        both = np.concatenate([trainers, testers])
        parties = np.resize(both, scenario.parties or len(both))
        return SelectedClients(parties, np.zeros(len(parties), bool), held, volunteers=len(both))
    accuracies = _accuracies(scenario, trainers, testers, others)
    threshold = asked.threshold(accuracies[: len(testers)])
    joins = asked.takes_part(accuracies[len(testers) :], threshold)
    here = f"of the {len(others):,} users of {scenario.data} that are asked"
    by = f"options.chosen={asked.chosen}, accuracy {threshold:.4g}"
    if not joins.any():
        raise UserError(f"{by}: {here} none is chosen. Give another options.accuracy.")
    parties = others if asked.joins == Joins.HIDDEN else others[joins]
    if scenario.parties > len(parties):
        raise UserError(
            f"parties={scenario.parties}: {here} {len(parties):,} take part ({by}). "
            f"Allowed: 1 to {len(parties)}, or parties=0 for all of them."
        )
    silent = ~joins if asked.joins == Joins.HIDDEN else np.zeros(len(parties), bool)
    number = scenario.parties or len(parties)
    volunteers = len(trainers) + len(testers)
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
    scenario: ScenarioConfig, trainers: np.ndarray, testers: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """The accuracy of the deployed model for each tester and for each of the others, some of whom
    have inverted images."""
    people = all_users(scenario)
    training_data = _joined([people.of(int(user)) for user in trainers])
    users = [_as_records(people.of(int(user))) for user in testers]
    coins = _inversion_coins(scenario, others)
    users += [
        _as_records(people.of(int(user)), bool(coin))
        for user, coin in zip(others, coins, strict=True)
    ]
    folder = data_directory(scenario.data_dir) / "deployed"
    return deployed_accuracy(
        folder, training_data, users, datasets.find(scenario.data, scenario.data_dir).info
    ).accuracies


def _as_records(raw: tuple[np.ndarray, np.ndarray], invert: bool = False) -> Records:
    images, labels = raw
    return Records(torch.from_numpy(255 - images if invert else images), torch.from_numpy(labels))


def _joined(raw: Sequence[tuple[np.ndarray, np.ndarray]]) -> Records:
    images, labels = (np.concatenate(part) for part in zip(*raw, strict=True))
    return _as_records((images, labels))


def all_users(scenario: ScenarioConfig) -> UserRecords:
    """The records of all users, parties or not."""
    return _user_index(scenario).read(_number_of_virtual_users(scenario), scenario.data_dir)


def shares(scenario: ScenarioConfig) -> np.ndarray:
    """The number of records per party and class: int64 [parties, classes].

    Non-contributing parties report the same counts, so counts do not reveal participation."""
    selected: np.ndarray = _counts(scenario)[_selected(scenario).parties]
    return selected


def _inversion_coins(scenario: ScenarioConfig, users: np.ndarray) -> np.ndarray:
    """The users whose images are inverted: bool, by one coin per user with probability `flip`.

    The simulation uses it; its server does not see it."""
    coins = numpy_generator(scenario.partition_seed, "flip").random(int(users.max()) + 1)
    inverted: np.ndarray = coins[users] < ClientSelectionConfig.of(scenario.options).flip
    return inverted


def inverted_parties(scenario: ScenarioConfig) -> np.ndarray:
    """The parties whose images are inverted: bool [parties]."""
    return _inversion_coins(scenario, _selected(scenario).parties)


def contributing_parties(scenario: ScenarioConfig) -> np.ndarray:
    """The parties that contribute records and not noise alone: bool [parties]."""
    return ~_selected(scenario).silent


def inversion_possible(scenario: ScenarioConfig) -> bool:
    """True if users of this scenario may have inverted images."""
    return is_by_users(scenario) and ClientSelectionConfig.of(scenario.options).flip > 0


def reference_scenario(scenario: ScenarioConfig, flip: float) -> ScenarioConfig | None:
    """The same scenario with volunteers as parties, all upright (`flip` 0) or all inverted (1).

    The data of volunteers are public, so a job may be rehearsed on them. None if there are no
    volunteers, or no rehearsal is asked for."""
    asked = ClientSelectionConfig.of(scenario.options)
    if not (asked.chooses and asked.rehearse):
        return None
    return dataclasses.replace(scenario, options=asked.reference_options(flip))


def describe(scenario: ScenarioConfig) -> list[str]:
    """Remarks about the selection of users."""
    return (
        describe_selection(ClientSelectionConfig.of(scenario.options), _selected(scenario))
        if is_by_users(scenario)
        else []
    )


def records(scenario: ScenarioConfig, party: int) -> Records:
    """The records of one party; none if it does not contribute."""
    images, labels = all_users(scenario).of(int(_selected(scenario).parties[party]))
    if not contributing_parties(scenario)[party]:
        images, labels = images[:0], labels[:0]
    return _as_records((images, labels), bool(inverted_parties(scenario)[party]))


def held_out(scenario: ScenarioConfig) -> Records:
    """The records of the users held out for choosing settings, upright."""
    people = all_users(scenario)
    return _joined([people.of(int(user)) for user in _selected(scenario).held])
