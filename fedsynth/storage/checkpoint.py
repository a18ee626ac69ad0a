"""Loops over rounds that are saved now and then and continue after a crash.

Guarantees: a checkpoint is written to a temporary file, synced and renamed, and carries a checksum,
so a crash at any moment leaves a complete one and a damaged one is noticed; the two newest are
kept, so a damaged file loses rounds but never the run; and the rounds a loop yields after a crash
are exactly those after the last saved one, with the state as it was then. Results are the same as
without a crash if everything that changes is in `state` and randomness is keyed by the round.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.errors import UserError
from fedsynth.storage.state_file import DamagedState, ObjectState, read_state, write_state

_PAUSE = 20  # between two saves, in multiples of the time that a save takes


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

    Args:
        n: Number of rounds.
        state: Tensors, plain values, containers of them and objects with a `state_dict`.
        path: The checkpoint; a second file beside it holds the one before.
        fingerprint: Names what the state belongs to.
        every_seconds: Least time between two saves.
        on_step: Called with (done, n) after each round, and once when a loop continues.

    Raises:
        UserError: The checkpoint belongs to something else, or cannot be written.
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
            pause = max(every_seconds, _PAUSE * (ended - begun))
            due = ended + (pause if every_seconds else 0)
        if on_step is not None:
            on_step(step + 1, n)


class _Files:
    """The two newest checkpoints of one loop: `path`, and before it `path` plus `.previous`."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._newest = path
        self._previous = path.with_name(path.name + ".previous")
        self._fingerprint = fingerprint

    def save(self, done: int, state: dict[str, Any]) -> None:
        """Write a checkpoint; after a crash or on a full disk the earlier ones remain."""
        content = {"fingerprint": self._fingerprint, "done": done, "state": state}
        try:
            self._newest.parent.mkdir(parents=True, exist_ok=True)
            write_state(self._newest, content, previous=self._previous)
        except OSError as error:
            raise UserError(
                f"the checkpoint {self._newest} cannot be written: {error.strerror}. The earlier "
                "one is still good; run again to continue from it."
            ) from error

    def restore(self, state: dict[str, Any]) -> int:
        """Load the newest good checkpoint into `state`; returns how many rounds it holds."""
        for file in (self._newest, self._previous):
            try:
                content = read_state(file)
            except FileNotFoundError:
                continue
            except (OSError, DamagedState) as error:
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


def _fill(live: dict[Any, Any], saved: dict[Any, Any], file: str) -> None:
    """Give `live` the saved values, in place where a value has an identity."""
    for key in [key for key in live if key not in saved]:
        del live[key]
    for key, value in saved.items():
        live[key] = _restored(live.get(key), value, f"{file}: {key}")


def _restored(live: Any, saved: Any, name: str) -> Any:
    if isinstance(saved, ObjectState):
        if not hasattr(live, "load_state_dict"):
            raise UserError(f"{name} was an object and is not one now; remove the file to restart")
        live.load_state_dict(saved.state)
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
    """True if a saved tensor can be copied into a live one; if not, its owner had replaced it."""
    tensors = isinstance(live, torch.Tensor) and isinstance(saved, torch.Tensor)
    return tensors and live.shape == saved.shape and live.dtype == saved.dtype
