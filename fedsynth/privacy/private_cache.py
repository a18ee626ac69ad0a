"""A cache that a party keeps beyond a run: as private as its records, and never sent.

It is a folder of mode 0700 in the party's data directory. The name of a file is a digest of all
inputs (records included), keyed with a secret of the cache, so that names reveal nothing. A damaged
file fails its checksum and counts as missing. Removing the folder loses nothing but the work.
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
    """The private cache of one party."""

    def __init__(self, data_directory: Path, party: int) -> None:
        self._top = data_directory / FOLDER
        self._folder = self._top / f"party-{party}"

    def get_or_compute(
        self, depends_on: tuple[bytes | memoryview, ...], compute: Callable[[], bytes]
    ) -> bytes:
        """`compute()`, or its cached value for the same inputs from any run.

        Processes that ask for the same value wait for the first. Where the folder cannot be
        written, the value is computed each time."""
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
