"""What a party keeps beyond a run, to save work: as private as its records, and never sent.

A vault is a folder of mode 0700 in the party's own data directory. What lies in it is named by a
keyed digest of everything it depends on (records included), under a secret of the vault, so that a
file's name says nothing; a checksum tells a damaged file, which counts as none. Removing the folder
costs nothing but the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from fedsynth.privacy.noise import NoiseKey
from fedsynth.storage.disk_cache import get_or_compute

FOLDER = "private"
_SUM = hashlib.sha256().digest_size


class PrivateCache:
    """The vault of one party."""

    def __init__(self, data_directory: Path, party: int) -> None:
        self._top = data_directory / FOLDER
        self._folder = self._top / f"party-{party}"

    def recall(self, depends_on: tuple[bytes, ...], compute: Callable[[], bytes]) -> bytes:
        """`compute()`, or what it returned when it depended on the same before, in whatever run.

        Processes that want the same wait for the one that computes it. Where the disk keeps
        nothing, it is computed every time."""
        try:
            for folder in (self._top, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            name = NoiseKey.of_owner(self._folder, "vault", None).fingerprint(*depends_on)
        except OSError:
            return compute()
        return get_or_compute(
            self._folder / name,
            compute,
            read=_checked,
            write=lambda value: hashlib.sha256(value).digest() + value,
            damage=(ValueError,),
        )


def _checked(data: bytes) -> bytes:
    body = data[_SUM:]
    if hashlib.sha256(body).digest() != data[:_SUM]:
        raise ValueError("its checksum does not match")
    return body
