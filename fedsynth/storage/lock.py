"""Exclusive use of a run directory: two processes in it would ask the same parties twice."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from fedsynth.core.errors import UserError
from fedsynth.storage.files import atomic_write, disk_errors

LOCK = ".in-use.lock"
HOLDER = ".in-use"


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Hold the run directory for this process.

    The lock is the operating system's: it ends with its holder, however that ends, and is not
    inherited by processes that the holder starts. A text file beside it describes the holder.

    Raises:
        UserError: Another process holds the directory, or it cannot be written.
    """
    lock, holder = FileLock(folder / LOCK), folder / HOLDER
    with contextlib.ExitStack() as stack:
        with disk_errors(folder / LOCK):
            try:
                stack.enter_context(lock.acquire(blocking=False))
            except Timeout:
                raise UserError(
                    f"{folder} is in use by {_read_holder(holder)}. Wait for its end or stop it, "
                    f"then go on with --resume {folder}."
                ) from None
            stack.callback(_remove, folder / LOCK)  # while it is held: see `filelock`'s inode check
            stack.callback(_remove, holder)
            atomic_write(holder, json.dumps(_describe_process()).encode(), durable=False)
        yield


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows removes no open file; `filelock` does it there
        path.unlink()


def _describe_process() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }


def _read_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return "process {pid} on {host} since {since} ({command})".format(**holder)
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, which has just begun"
