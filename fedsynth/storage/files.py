"""File writes after which a reader sees the old content or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from fedsynth.core.errors import UserError

TEMPORARY_SUFFIX = ".part"

OF_PARTY = "`ledger` of party.yaml (out= in a simulation)"  # names a party's own folder

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
_NOT_OFFERED = {errno.EINVAL, errno.ENOTSUP}


@contextlib.contextmanager
def disk_errors(path: Path, setting: str = "out=") -> Iterator[None]:
    """Turn an `OSError` inside this block into one `UserError` that gives advice.

    Args:
        path: What is written.
        setting: What names the directory, for the advice.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {_advice(error, setting)}") from error


def _advice(error: OSError, setting: str) -> str:
    other = f"hoose another directory with {setting}."
    if error.errno in _FULL:
        return f"no space is left on the disk. Free some, or c{other}"
    if error.errno in _FORBIDDEN:
        return f"this place is not writable. C{other}"
    if error.errno in _NOT_A_DIRECTORY:
        return f"a file is where a directory should be. C{other}"
    return f"{error.strerror or error}. C{other}"


@contextlib.contextmanager
def atomic_file(
    path: Path, *, durable: bool = True, mode: int = 0o666, previous: Path | None = None
) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` when the block ends, complete or not at all.

    A block that fails leaves `path` as it was and no temporary file.

    Args:
        path: The file to write or replace; its folder must exist.
        durable: Whether the file is on the disk (fsync) when this returns.
        mode: Permissions of the file, before the umask.
        previous: The file to which the replaced one is renamed; without it, it is lost.
    """
    temporary = path.with_name(
        f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY_SUFFIX}"
    )
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def atomic_write(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write `data` to `path`, complete or not at all; see `atomic_file`."""
    with atomic_file(path, durable=durable, mode=mode) as file:
        file.write(data)


def write_file(path: Path, data: bytes) -> Path:
    """Write a file durably, with the folders it needs.

    Raises:
        UserError: The disk refuses.
    """
    with disk_errors(path):
        make_directories(path.parent)
        atomic_write(path, data)
    return path


def read_or_create(path: Path, create: Callable[[Path], None]) -> bytes:
    """The content of a file that is made on the first use, with its folder.

    Args:
        path: The file.
        create: Writes the file; of processes that race, the first one does.

    Raises:
        OSError: The disk refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with FileLock(f"{path}.lock"):
            if not path.exists():
                create(path)
    return path.read_bytes()


def durable_append(path: Path, data: bytes) -> None:
    """Append `data` and fsync; a write that fails leaves the file at its former length."""
    with open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), before)
            raise


def make_directories(path: Path) -> list[Path]:
    """Create `path` and its missing parents, all or none; return the new ones, innermost first."""
    created: list[Path] = []
    missing = []
    directory = path
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = directory.parent
    try:
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            created.insert(0, directory)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    except OSError:
        remove_directories(created)
        raise
    return created


def remove_directories(directories: Sequence[Path]) -> None:
    """Remove those of these directories that are empty; the order is innermost first."""
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def sync_directory(path: Path) -> None:
    """Make the renames inside a directory survive a power cut.

    Does nothing where the system does not offer it: on Windows and some network file systems."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(handle)
