"""One process at a time works in a run directory: two would ask the same parties twice over."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.storage.files import disk_errors

LOCK = ".in-use"


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Hold the run directory for this process, or say which process holds it.

    The lock is the kernel's and ends with its holder, however that ends; the text in the file only
    tells who it is. It is not inherited by the processes a run starts."""
    path = folder / LOCK
    with disk_errors(path):
        descriptor = _opened(path)
    try:
        with disk_errors(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_describe_me()).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _opened(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise UserError(
                f"{path.parent} is in use by {holder}. Wait for its end or stop it, then go on "
                f"with --resume {path.parent}."
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its holder took the file away just now: make a new one


def _describe_me() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }


def _holder(descriptor: int) -> str:
    try:
        known = json.loads(os.pread(descriptor, 1 << 16, 0))
        return "process {pid} on {host} since {since} ({command})".format(**known)
    except (ValueError, KeyError):
        return "another process, which has just begun"
