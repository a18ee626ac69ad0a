"""What an evaluation computes from real data once and keeps on disk: anchors and scorers."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import torch
from filelock import FileLock

from fedsynth.storage.files import atomic_write

log = logging.getLogger(__name__)

Kept = TypeVar("Kept")


def kept(
    path: Path,
    make: Callable[[], Kept],
    *,
    read: Callable[[bytes], Kept],
    write: Callable[[Kept], bytes],
    damage: tuple[type[Exception], ...],
) -> Kept:
    """What lies at `path`, or else `make()`, which is put there.

    Whoever needs the same thing meanwhile waits. A file that `read` cannot read (it raises one of
    `damage`) is made anew; a folder that cannot be written costs the making each time and nothing
    else.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{path}.lock"))
        except OSError as error:
            log.warning("%s is not kept: %s", path.name, error)
        with contextlib.suppress(OSError, *damage):
            return read(path.read_bytes())
        made = make()
        with contextlib.suppress(OSError):
            atomic_write(path, write(made), durable=False)
    return made


def file_stem(name: str, tensors: Iterable[torch.Tensor], *info: object) -> str:
    """A readable name with a checksum of everything that the kept thing depends on."""
    sha = hashlib.sha256(repr(info).encode())
    for tensor in tensors:
        sha.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        sha.update(tensor.contiguous().numpy().tobytes())
    readable = "".join(c if c.isalnum() or c == "-" else "_" for c in name)[-60:]
    return f"{readable}-{sha.hexdigest()[:20]}"
