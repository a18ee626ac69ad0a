"""Files of tensors and plain values: checksummed, read without pickle, written without a copy.

A file is a magic line, a JSON text, the bytes of every tensor at a multiple of 64, and the SHA-256
of all that. The text holds the value as a tree. Its leaves are none, bool, int, float, text, bytes
or a tensor (type, shape, strides, device); its inner nodes are lists, tuples, dictionaries and
objects with a `state_dict`.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.device import CPU, moved
from fedsynth.storage.files import atomic_file

_MAGIC = f"fedsynth state 2 {sys.byteorder}\n".encode()
_ALIGNMENT = 64
_SUM = hashlib.sha256().digest_size


class DamagedState(ValueError):
    """A state file whose content is not what `write_state` writes."""


@dataclass(frozen=True)
class ObjectState:
    """The `state_dict` of an object, as a state file returns it."""

    state: Any


def write_state(
    path: Path, value: Any, *, durable: bool = True, previous: Path | None = None
) -> None:
    """Write `value` to `path`, complete or not at all; see `files.atomic_file`.

    Raises:
        TypeError: The value holds an object that a file cannot hold; nothing was written.
    """
    blocks = _blocks(value)
    head = next(blocks)
    with atomic_file(path, durable=durable, previous=previous) as file:
        sha = hashlib.sha256(head)
        file.write(head)
        for block in blocks:
            sha.update(block)
            file.write(block)
        file.write(sha.digest())


def read_state(path: Path, *, mapped: bool = False) -> Any:
    """Read the value in a file of `write_state`.

    Args:
        path: The file.
        mapped: Whether tensors are views of the file, which take no memory until they are used
            and hold the file open; else they are copies.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedState: Its checksum does not match.
    """
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except ValueError as error:
            raise DamagedState("it is empty") from error
    return _parsed(memoryview(content), copy=not mapped)


def state_to_bytes(value: Any) -> bytes:
    """Write `value` as the content of a state file."""
    content = b"".join(_blocks(value))
    return content + hashlib.sha256(content).digest()


def state_from_bytes(content: bytes) -> Any:
    """Read the value in the content of a state file.

    Raises:
        DamagedState: The checksum does not match.
    """
    return _parsed(memoryview(bytearray(content)), copy=True)


def _parsed(content: memoryview, *, copy: bool) -> Any:
    body = content[: max(0, len(content) - _SUM)]
    if body[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != content[len(body) :]:
        raise DamagedState("its checksum does not match")
    length = int.from_bytes(body[len(_MAGIC) : len(_MAGIC) + 8], "little")
    offset = len(_MAGIC) + 8
    try:
        tree = json.loads(bytes(body[offset : offset + length]))
        return _decoded(tree, _Tensors(content, _aligned(offset + length), copy))
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
        raise DamagedState("it holds what is never written") from error


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _blocks(value: Any) -> Iterator[bytes | memoryview]:
    """The content of a file in pieces; an error of the value comes before the first one."""
    tensors: list[torch.Tensor] = []
    tree = json.dumps(_encoded(value, "", tensors), separators=(",", ":")).encode()
    head = _MAGIC + len(tree).to_bytes(8, "little") + tree
    yield head.ljust(_aligned(len(head)), b"\0")
    flat_views = [tensor.as_strided((tensor.numel(),), (1,)) for tensor in tensors]
    for flat in moved(flat_views, torch.device(CPU)):
        block = flat.view(torch.uint8).numpy().data
        yield block
        yield bytes(_aligned(block.nbytes) - block.nbytes)


def _encoded(value: Any, name: str, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        # The order of numbers in memory is kept, as results of matrix products depend on it.
        dense = value.detach() if value.is_contiguous() else value.detach().clone()
        tensors.append(dense)
        dtype = str(dense.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(dense.shape), list(dense.stride()), str(dense.device)]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        keys = [_key(key, name) for key in value]
        items = [_encoded(item, f"{name}.{key}", tensors) for key, item in value.items()]
        return {"dict": list(zip(keys, items, strict=True))}
    if isinstance(value, list | tuple):
        items = [_encoded(item, f"{name}[{i}]", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {"object": _encoded(value.state_dict(), name, tensors)}
    raise TypeError(f"{name[1:]} is {type(value).__name__}: a state file cannot hold it")


def _key(key: Any, name: str) -> Any:
    if type(key) not in (bool, int, str):
        raise TypeError(f"{name[1:]} has the key {key!r}: a state file cannot hold it")
    return key


class _Tensors:
    """The tensors of a file, in order."""

    def __init__(self, content: memoryview, offset: int, copy: bool) -> None:
        self._content, self._offset, self._copy = content, offset, copy

    def next(self, dtype: str, shape: list[int], stride: list[int], device: str) -> torch.Tensor:
        kind: torch.dtype = getattr(torch, dtype)
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=kind)
        tensor = torch.frombuffer(self._content, dtype=kind, count=count, offset=self._offset)
        self._offset = _aligned(self._offset + count * kind.itemsize)
        on = device if torch.cuda.is_available() else "cpu"
        return tensor.as_strided(shape, stride).to(on, copy=self._copy)


def _decoded(tree: Any, tensors: _Tensors) -> Any:
    if isinstance(tree, list):
        return [_decoded(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    decoders: dict[str, Callable[[Any], Any]] = {
        "tensor": lambda fields: tensors.next(*fields),
        "bytes": bytes.fromhex,
        "dict": lambda items: {key: _decoded(item, tensors) for key, item in items},
        "tuple": lambda items: tuple(_decoded(item, tensors) for item in items),
        "object": lambda state: ObjectState(_decoded(state, tensors)),
    }
    return decoders[kind](content)
