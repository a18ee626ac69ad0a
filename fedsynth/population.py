"""Users as parties: a world's data side where every party is one user (partition=users)."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedsynth.data import datasets
from fedsynth.data.sets import emnist_users
from fedsynth.data.users import Owners, UserRecords, chosen_users
from fedsynth.errors import UserError
from fedsynth.privacy.private import Records
from fedsynth.randomness import numpy_generator

if TYPE_CHECKING:
    from fedsynth.scenario import World

PARTITION = "users"


def is_one(world: World) -> bool:
    """Whether the parties of this world are users of its data."""
    return world.partition == PARTITION and datasets.info(world.data).owners is not None


def settle(world: World) -> tuple[World, tuple[str, ...]]:
    """The world with the data set that was really found and the number of parties that there are;
    and what a reader must be told about it."""
    said: list[str] = []
    if world.data == emnist_users.NAME:
        name, tried = emnist_users.find(world.source, world.data_dir)
        world = dataclasses.replace(world, data=name, source=emnist_users.AUTO)
        said += [f"data={emnist_users.NAME}: not found: {line}" for line in tried]
        said.append(f"data={emnist_users.NAME}: TAKEN IS {name}: {datasets.info(name).about}.")
    elif world.source != emnist_users.AUTO:
        raise UserError(f"source={world.source} is for data={emnist_users.NAME} only.")
    if is_one(world) and not world.parties:
        world = dataclasses.replace(world, parties=len(_chosen(world)[0]))
    return world, tuple(said)


def _owners(world: World) -> Owners:
    owners = datasets.info(world.data).owners
    if owners is None:
        raise UserError(f"the records of data={world.data} have no users.")
    return owners


def _drawn(world: World) -> int:
    """Into how many users a set of virtual users is cut: parties, and others to be held out."""
    most = _owners(world).most
    if most is None:
        return 0
    if world.parties > most:
        raise UserError(f"parties={world.parties}: {world.data} has at most {most:,} users.")
    return most if world.holdout or not world.parties else world.parties


@functools.lru_cache(maxsize=8)
def _counts(world: World) -> np.ndarray:
    return _owners(world).counts(_drawn(world), world.data_dir)


@functools.lru_cache(maxsize=8)
def _chosen(world: World) -> tuple[np.ndarray, np.ndarray]:
    seed = world.partition_seed
    return chosen_users(_counts(world), world.parties, seed, world.holdout, world.data)


def everybody(world: World) -> UserRecords:
    """The records of all users, of whom the parties are some."""
    return _owners(world).read(_drawn(world), world.data_dir)


def shares(world: World) -> np.ndarray:
    """How many records of each class every party holds: int64 [parties, classes]."""
    for option in world.options or {}:
        if option != "flip":
            raise UserError(f"partitioner users has no option {option!r}. Allowed: flip.")
    flipped(world)
    return _counts(world)[_chosen(world)[0]]


def flipped(world: World) -> np.ndarray:
    """Which parties see the world with ink and paper exchanged: a public coin for each, thrown with
    chance `flip`. Known to the simulation, not to its curator."""
    chance = (world.options or {}).get("flip", 0.0)
    number = isinstance(chance, int | float) and not isinstance(chance, bool)
    if not number or not 0 <= chance <= 1:
        raise UserError(f"flip={chance!r} of partitioner users must be a number from 0 to 1.")
    users = _chosen(world)[0]
    coins = numpy_generator(world.partition_seed, "flip").random(int(users.max()) + 1)
    return coins[users] < chance


def records(world: World, party: int) -> Records:
    """The records of one party, and of nobody else."""
    images, labels = everybody(world).of(int(_chosen(world)[0][party]))
    if flipped(world)[party]:
        images = 255 - images
    return Records(torch.from_numpy(images), torch.from_numpy(labels))


def held_out(world: World) -> Records:
    """The records of the users that are held out to choose settings on; none of them is flipped."""
    people = everybody(world)
    found = [people.of(int(user)) for user in _chosen(world)[1]]
    images, labels = (np.concatenate(part) for part in zip(*found, strict=True))
    return Records(torch.from_numpy(images), torch.from_numpy(labels))
