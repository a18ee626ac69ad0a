"""Values computed once under a lock and kept on disk, for all processes of a machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from fedsynth.core.tensor_bytes import tensor_bytes
from fedsynth.storage.files import atomic_write

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    import torch

log = logging.getLogger(__name__)

T = TypeVar("T")

SOURCE_NOTE = "made-from.json"


def get_or_compute(
    path: Path,
    compute: Callable[[], T],
    *,
    read: Callable[[bytes], T],
    write: Callable[[T], bytes],
    damage: tuple[type[Exception], ...] = (),
) -> T:
    """Return the value stored at `path`, or compute and store it.

    A process that needs the same value meanwhile waits for it. Where the folder cannot be written,
    the value is computed every time.

    Args:
        path: The file of this value. Its name must tell everything that the value depends on.
        compute: Computes the value.
        read: Decodes the content of the file.
        write: Encodes a value.
        damage: Exceptions of `read` after which the value is computed anew.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{path}.lock"))
        except OSError as error:
            log.warning("%s is not kept: %s", path.name, error)
        with contextlib.suppress(OSError, *damage):
            return read(path.read_bytes())
        value = compute()
        with contextlib.suppress(OSError):
            atomic_write(path, write(value), durable=False)
    return value


def build_once(folder: Path, made_from: Mapping[str, Any], build: Callable[[Path], None]) -> None:
    """Make sure that `folder` holds what `build` writes into an empty folder.

    The folder appears complete or not at all, and is built anew when `made_from`, a JSON mapping
    that is stored with it, has changed. Other processes wait meanwhile.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if _source_note(folder) == made_from:
            return
        draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        try:
            build(draft)
            (draft / SOURCE_NOTE).write_text(json.dumps(made_from), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            draft.replace(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _source_note(folder: Path) -> object:
    try:
        return json.loads((folder / SOURCE_NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def file_stem(name: str, tensors: Iterable[torch.Tensor], *info: object) -> str:
    """A readable file name with a checksum of everything that a stored value depends on."""
    sha = hashlib.sha256(repr(info).encode())
    for tensor in tensors:
        sha.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        sha.update(tensor_bytes(tensor))
    readable = "".join(c if c.isalnum() or c == "-" else "_" for c in name)[-60:]
    return f"{readable}-{sha.hexdigest()[:20]}"
