"""The identity of a disk: whether two nodes see the same files under the path of a folder.

A folder has an identity of its own on each disk, made on first use. A copy of a folder has the
identity of the original, so identity alone proves nothing: the driver of a run also makes a file of
a random name, which only a node that shares its disk can see.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.storage.files import atomic_write, disk_errors, read_or_create

IDENTITY = ".disk"
_TOKEN = ".probe-"
_BYTES = 16


def disk_identity(folder: Path) -> str:
    """The identity of the disk that holds `folder`, made on first use, with the folder.

    Raises:
        UserError: The folder cannot be written.
    """
    path = folder / IDENTITY
    with disk_errors(path):
        return read_or_create(path, _create).decode()


def _create(path: Path) -> None:
    atomic_write(path, secrets.token_hex(_BYTES).encode())


@dataclass(frozen=True)
class DiskProbe:
    """The question whether a process sees the disk of the driver; sent to workers.

    Attributes:
        folder: The folder on the driver's disk.
        identity: The identity of the driver's disk.
        token: The name of a file in the folder, which exists as long as the driver works.
    """

    folder: str
    identity: str
    token: str

    def find(self) -> str:
        """The identity of the disk that this process sees under the path of the folder.

        Raises:
            UserError: The folder cannot be written here, or is a copy of the driver's.
        """
        folder = Path(self.folder)
        if (folder / self.token).exists():
            return self.identity
        found = disk_identity(folder)
        if found == self.identity:
            raise UserError(
                f"{folder} is here a copy of the driver's folder, on another disk: parties would "
                "begin their ledgers anew in it. Remove the copy, or share the driver's disk."
            )
        return found


@contextlib.contextmanager
def disk_probe(folder: Path) -> Iterator[DiskProbe]:
    """Make a probe for a folder of this process; the driver's file is removed at the end.

    Raises:
        UserError: The folder cannot be written.
    """
    identity = disk_identity(folder)
    for left in folder.glob(f"{_TOKEN}*"):  # by a driver that was killed
        left.unlink(missing_ok=True)
    token = folder / f"{_TOKEN}{secrets.token_hex(_BYTES)}"
    with disk_errors(token):
        token.touch()
    try:
        yield DiskProbe(os.path.abspath(folder), identity, token.name)
    finally:
        with contextlib.suppress(OSError):
            token.unlink()
