"""Data that come with their owners: every record belongs to a user, and a user may be a party.

A data set with owners hands over one `UserRecords` a split: the images and labels of all users, and
who holds which. Nothing is copied until a party reads its own records, and then only those: the
arrays may be memory maps that all processes of a machine share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator

Folder = str | Path | None
UserTransform = Callable[
    [int, np.ndarray], np.ndarray
]  # a user's number and images -> as that user writes


@dataclass(frozen=True, eq=False)
class UserRecords:
    """The records of all users of one split; user k holds `order[offsets[k]:offsets[k + 1]]`."""

    images: np.ndarray  # uint8 [n, c, h, w], perhaps a memory map
    labels: np.ndarray  # int64 [n]
    offsets: np.ndarray  # int64 [users + 1]
    order: np.ndarray | None = None  # int64 [n]; none: the records lie user after user
    hand: UserTransform | None = None  # applied to what a user reads

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.offsets) - 1

    def of(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of one user: views where the records lie together."""
        if not 0 <= user < self.users:
            raise UserError(f"there is no user {user}: there are {self.users:,}.")
        which = slice(int(self.offsets[user]), int(self.offsets[user + 1]))
        chosen = which if self.order is None else self.order[which]
        images = self.images[chosen]
        return images if self.hand is None else self.hand(user, images), self.labels[chosen]

    def counts(self, classes: int) -> np.ndarray:
        """How many records of each class every user holds: int64 [users, classes]."""
        owners = np.repeat(np.arange(self.users), np.diff(self.offsets))
        labels = np.asarray(self.labels if self.order is None else self.labels[self.order])
        flat = np.bincount(owners * classes + labels, minlength=self.users * classes)
        return flat.reshape(self.users, classes)


@dataclass(frozen=True)
class UserIndex:
    """How a data set tells who owns its records.

    `read(parties, data_dir)` gives the training records; `counts` the same without reading an
    image, where that is possible from what is public. Sets whose users are drawn and not collected
    are cut into `parties` users; of others `parties` is ignored, since their users are who they
    are."""

    read: Callable[[int, Folder], UserRecords]
    counts: Callable[[int, Folder], np.ndarray]
    most: int | None = None  # users that can be drawn; none: as many as were collected


def in_order(owners: np.ndarray, labels: np.ndarray, images: np.ndarray) -> UserRecords:
    """Records with their owners' numbers (0, 1, 2, ...; none may be missing), as `UserRecords`."""
    order = np.argsort(owners, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners))])
    return UserRecords(images, labels, offsets, order)


def chosen_users(
    counts: np.ndarray, parties: int, seed: int, holdout: float, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """The users that are the parties, in the order of the parties, and those that are held out.

    Whole users are held out, for a user is what is to be protected: in a public random order, until
    they hold `holdout` records (below 1: that share of all). The parties are the next ones."""
    users = np.flatnonzero(counts.sum(1))
    order = numpy_generator(name, "users", seed).permutation(users)
    sizes = np.cumsum(counts[order].sum(1))
    wanted = holdout * sizes[-1] if holdout < 1 else holdout
    held = int(np.searchsorted(sizes, wanted)) + 1 if holdout else 0
    left = len(order) - held
    if left < 1:
        raise UserError(
            f"holdout={holdout:g} leaves no user of {name}, who hold {sizes[-1]:,} records in all."
        )
    if parties > left:
        without = f" ({held} more are held out)" if held else ""
        raise UserError(
            f"parties={parties}: {name} has {left:,} users with records{without}, and a party is "
            f"one user. Allowed: 1 to {left}, or parties=0 for all of them."
        )
    return order[held : held + (parties or left)], order[:held]
