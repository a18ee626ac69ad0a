"""Writing to disk so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedsynth.core.errors import UserError

TEMPORARY_SUFFIX = ".part"

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk refuses inside this block into one `UserError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {_advice(error)}") from error


def _advice(error: OSError) -> str:
    if error.errno in _FULL:
        return "no space is left on the disk. Free some, or choose another directory with out=."
    if error.errno in _FORBIDDEN:
        return "this place is not writable. Choose another directory with out=."
    if error.errno in _IN_THE_WAY:
        return "a file is where a directory should be. Choose another directory with out=."
    return f"{error.strerror or error}. Choose another directory with out=."


def atomic_write(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put `data` at `path`: complete or not at all, and on disk when this returns if `durable`.

    A failure leaves what was there before and no temporary file.
    """
    temporary = path.with_name(
        f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY_SUFFIX}"
    )
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def durable_append(path: Path, data: bytes) -> None:
    """Append `data` and fsync; when the disk refuses, cut the file back to what it was."""
    with open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            os.ftruncate(file.fileno(), before)
            raise


def make_directories(path: Path) -> list[Path]:
    """Create `path` and its parents; returns the new ones, innermost first. All or none."""
    made: list[Path] = []
    missing = []
    here = path
    while not os.path.lexists(here):
        missing.append(here)
        here = here.parent
    try:
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            made.insert(0, directory)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    except OSError:
        remove_directories(made)
        raise
    return made


def remove_directories(directories: Sequence[Path]) -> None:
    """Remove these directories, innermost first, as far as they are empty."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def sync_directory(path: Path) -> None:
    """Make the renames inside a directory survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
