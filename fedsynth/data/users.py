"""Data whose records belong to users, each of whom may be a party.

Such a data set gives one `UserRecords` per split: the images and labels of all users, and their
assignment. The arrays may be memory maps that all processes of a machine share; only the records of
a user are copied when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator

Folder = str | Path | None
UserTransform = Callable[[int, np.ndarray], np.ndarray]  # a user's number and images -> images


@dataclass(frozen=True, eq=False)
class UserRecords:
    """The records of all users of one split; user k holds `order[offsets[k]:offsets[k + 1]]`."""

    images: np.ndarray  # uint8 [n, c, h, w], perhaps a memory map
    labels: np.ndarray  # int64 [n]
    offsets: np.ndarray  # int64 [users + 1]
    order: np.ndarray | None = None  # int64 [n]; None: the records are sorted by user
    transform: UserTransform | None = None  # of the images of a user

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.offsets) - 1

    def of(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of one user: views where the records are adjacent."""
        if not 0 <= user < self.users:
            raise UserError(f"there is no user {user}. Allowed: 0 to {self.users - 1}.")
        which = slice(int(self.offsets[user]), int(self.offsets[user + 1]))
        chosen = which if self.order is None else self.order[which]
        images = self.images[chosen]
        return images if self.transform is None else self.transform(user, images), self.labels[
            chosen
        ]

    def counts(self, classes: int) -> np.ndarray:
        """The number of records of each class and user: int64 [users, classes]."""
        owners = np.repeat(np.arange(self.users), np.diff(self.offsets))
        labels = np.asarray(self.labels if self.order is None else self.labels[self.order])
        flat = np.bincount(owners * classes + labels, minlength=self.users * classes)
        return flat.reshape(self.users, classes)


@dataclass(frozen=True)
class UserIndex:
    """The users of a data set.

    `read(parties, data_dir)` gives the training records, and `counts` their number per user and
    class, without reading an image where public facts suffice. Sets whose users are drawn are cut
    into `parties` users; for sets with real users `parties` is ignored."""

    read: Callable[[int, Folder], UserRecords]
    counts: Callable[[int, Folder], np.ndarray]
    max_users: int | None = None  # that can be drawn; None: the users are real


def group_by_user(owners: np.ndarray, labels: np.ndarray, images: np.ndarray) -> UserRecords:
    """Records with the number of their user (0, 1, 2, ... without gaps) as `UserRecords`."""
    order = np.argsort(owners, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners))])
    return UserRecords(images, labels, offsets, order)


def select_users(
    counts: np.ndarray, parties: int, seed: int, holdout: float, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Select the users that are parties and those that are held out.

    Users are held out as a whole, since the user is the unit of privacy: in a public random order,
    until they hold `holdout` records. The parties are the next users in this order.

    Args:
        counts: Records of each class, [users, classes].
        parties: Number of parties; 0 for all remaining users.
        seed: Determines the order.
        holdout: Number of records to hold out; below 1 a share of all, 0 for none.
        name: The data set, for the order and for errors.

    Returns:
        The users that are parties, in the order of the parties, and the users that are held out.
    """
    users = np.flatnonzero(counts.sum(1))
    order = numpy_generator(name, "users", seed).permutation(users)
    sizes = np.cumsum(counts[order].sum(1))
    target = holdout * sizes[-1] if holdout < 1 else holdout
    held = int(np.searchsorted(sizes, target)) + 1 if holdout else 0
    remaining = len(order) - held
    if remaining < 1:
        raise UserError(
            f"holdout={holdout:g} leaves no user of {name}, which has {sizes[-1]:,} records in all."
        )
    if parties > remaining:
        without = f" ({held} more are held out)" if held else ""
        raise UserError(
            f"parties={parties}: {name} has {remaining:,} users with records{without}, and a party "
            f"is one user. Allowed: 1 to {remaining}, or parties=0 for all of them."
        )
    return order[held : held + (parties or remaining)], order[:held]
