"""Rounds that survive a crash: the loop of a conversation, saved now and then and taken up again.

Guarantees: a checkpoint is written to a temporary file, synced and renamed, and carries a checksum,
so a crash at any moment leaves a complete one and a damaged one is noticed; the two newest are
kept, so a damaged file loses rounds but never the run; and the rounds a loop yields after a crash
are exactly those after the last saved one, with the state as it was then. Results are the same as
without a crash if everything that changes is in `state` and randomness is keyed by the round.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.errors import UserError

_MAGIC = b"fedsynth checkpoint 1\n"
_OBJECT = "__state_dict__"
_SAVING_SHARE = 20  # a large state is saved less often: at most a twentieth of the time


def rounds(
    n: int,
    state: dict[str, Any],
    path: str | os.PathLike[str],
    *,
    fingerprint: str,
    every_seconds: float = 10.0,
    on_step: Callable[[int, int], None] | None = None,
) -> Iterator[int]:
    """Yield the rounds of 0..n-1 that are not done yet; `state` is saved between them.

    At the start the newest good checkpoint at `path` is loaded into `state` in place: tensors and
    objects with `load_state_dict` keep their identity, other values are replaced. State is saved
    after a round when the last save is `every_seconds` old (0: after each) or, where saving is
    slow, older, and always after the last round; when all rounds were done already, nothing is
    yielded but the state is as it was at the end.
    `fingerprint` says what the state belongs to: a checkpoint with another one is refused.
    `on_step(done, total)` is called after each round, and once when a loop is taken up again.
    """
    files = _Files(Path(path), fingerprint)
    done = files.restore(state)
    if done > n:
        raise UserError(
            f"{path} holds {done} rounds, and only {n} are wanted; remove it to restart"
        )
    if done and on_step is not None:
        on_step(done, n)
    due = time.monotonic() + every_seconds
    for step in range(done, n):
        yield step
        begun = time.monotonic()
        if step + 1 == n or begun >= due:
            files.save(step + 1, state)
            ended = time.monotonic()
            pause = max(every_seconds, _SAVING_SHARE * (ended - begun))
            due = ended + (pause if every_seconds else 0)
        if on_step is not None:
            on_step(step + 1, n)


class _Files:
    """The two newest checkpoints of one loop: `path`, and before it `path` plus `.previous`."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._newest = path
        self._previous = path.with_name(path.name + ".previous")
        self._unfinished = path.with_name(path.name + ".unfinished")
        self._fingerprint = fingerprint

    def save(self, done: int, state: dict[str, Any]) -> None:
        """Write a checkpoint; a crash or a full disk leaves the ones before untouched."""
        body = io.BytesIO()
        content = {
            "fingerprint": self._fingerprint,
            "done": done,
            "state": {name: _plain(value, name) for name, value in state.items()},
        }
        torch.save(content, body)
        block = body.getbuffer()
        try:
            self._newest.parent.mkdir(parents=True, exist_ok=True)
            with self._unfinished.open("wb") as file:
                file.write(_MAGIC + hashlib.sha256(block).digest())
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            if self._newest.exists():
                self._newest.replace(self._previous)
            self._unfinished.replace(self._newest)
            _sync(self._newest.parent)
        except OSError as error:
            self._unfinished.unlink(missing_ok=True)
            raise UserError(
                f"the checkpoint {self._newest} ({len(block):,} bytes) cannot be written: "
                f"{error.strerror}. What was saved before is still good; run again to go on."
            ) from error

    def restore(self, state: dict[str, Any]) -> int:
        """Load the newest good checkpoint into `state`; returns how many rounds it holds."""
        for file in (self._newest, self._previous):
            try:
                content = _read(file)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                warnings.warn(f"the checkpoint {file} is damaged ({error})", stacklevel=3)
                continue
            if content["fingerprint"] != self._fingerprint:
                raise UserError(
                    f"the checkpoint {file} belongs to another run: it was made for "
                    f"{content['fingerprint']!r}, not {self._fingerprint!r}. Choose another "
                    "directory, or remove the file."
                )
            _fill(state, content["state"], str(file))
            return int(content["done"])
        return 0


def _read(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    head = len(_MAGIC) + hashlib.sha256().digest_size
    body = memoryview(data)[head:]
    if data[:head] != _MAGIC + hashlib.sha256(body).digest():
        raise ValueError("its checksum does not match")
    where = None if torch.cuda.is_available() else "cpu"
    content = torch.load(io.BytesIO(body), map_location=where, weights_only=True)
    return dict(content)


def _sync(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(value: Any, name: str) -> Any:
    """The value as tensors, numbers, texts and containers of them, which load without pickle."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()  # a view would drag its whole storage along
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, dict):
        return {key: _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {_OBJECT: _plain(value.state_dict(), name)}
    raise TypeError(f"{name} is {type(value).__name__}: a checkpoint cannot hold it")


def _fill(live: dict[Any, Any], saved: dict[Any, Any], file: str) -> None:
    """Make `live` what was saved, changing in place whatever has an identity worth keeping."""
    for key in [key for key in live if key not in saved]:
        del live[key]
    for key, value in saved.items():
        live[key] = _restored(live.get(key), value, f"{file}: {key}")


def _restored(live: Any, saved: Any, name: str) -> Any:
    if isinstance(saved, dict) and _OBJECT in saved:
        if not hasattr(live, "load_state_dict"):
            raise UserError(f"{name} was an object and is not one now; remove the file to restart")
        live.load_state_dict(saved[_OBJECT])
    elif isinstance(saved, dict):
        live = live if isinstance(live, dict) else {}
        _fill(live, saved, name)
    elif isinstance(saved, list | tuple):
        old = list(live) if isinstance(live, list | tuple) else []
        pairs = itertools.zip_longest(old[: len(saved)], saved)
        items = [_restored(a, b, f"{name}[{i}]") for i, (a, b) in enumerate(pairs)]
        live = live if isinstance(live, list) else []
        live[:] = items
        return live if isinstance(saved, list) else tuple(items)
    elif _alike(live, saved):
        with torch.no_grad():
            live.copy_(saved)
    else:
        return saved
    return live


def _alike(live: Any, saved: Any) -> bool:
    """Whether a saved tensor fits into a live one. If not, its owner had replaced it, as a shape
    does not change in place, and so may we."""
    tensors = isinstance(live, torch.Tensor) and isinstance(saved, torch.Tensor)
    return tensors and live.shape == saved.shape and live.dtype == saved.dtype
