"""Instruments that record the mechanisms of a run, or end it at a chosen moment."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsynth.experiment.server_session import StageConnection
from fedsynth.privacy import guard as guard_module
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.ledger_file import LedgerFile
from fedsynth.privacy.mechanisms import gradients
from fedsynth.privacy.noise import NoiseKey, NoiseStream
from fedsynth.storage import checkpoint
from fedsynth.storage.run_directory import RunDirectory

FEW = 12  # records in a sample, so that the many calls stay cheap


class Transcript:
    """The inputs and outputs of the mechanisms of a run, by the purpose of the noise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: dict[object, list[torch.Tensor]] = {}
        self.after: dict[object, list[torch.Tensor]] = {}
        self.bound: dict[object, float] = {}
        self.full: dict[object, int] = {}
        self.models: list[torch.nn.Module] = []
        self._multiplier = threading.local()
        self._replayed: Transcript | None = None
        stream_of = NoiseKey.stream

        def stream(key: NoiseKey, *purpose: object) -> NoiseStream:
            made = stream_of(key, *purpose)
            made.purpose = (key.secret, *purpose)  # type: ignore[attr-defined]
            return made

        monkeypatch.setattr(NoiseKey, "stream", stream)
        monkeypatch.setattr(NoiseKey, "fingerprint", lambda *_: "whatever the data is")
        monkeypatch.setattr(
            NoiseStream, "poisson_sample", lambda stream, n, _rate: self._sample(stream, n)
        )
        for owner in (Guard, CentralNoise):
            for name, member in inspect.getmembers(owner, inspect.isfunction):
                if "noise_multiplier" in inspect.signature(member).parameters:
                    monkeypatch.setattr(owner, name, self._told(member))
        self._noised = guard_module.noised
        self._add_noise = guard_module.add_noise
        self._add_share = guard_module.add_share
        self._clipped = gradients.clipped_gradient_sum
        monkeypatch.setattr(guard_module, "noised", self._noise)
        monkeypatch.setattr(guard_module, "add_noise", self._central)
        monkeypatch.setattr(guard_module, "add_share", self._share)
        monkeypatch.setattr(gradients, "clipped_gradient_sum", self._gradient)

    def replay(self) -> Transcript:
        """Start over: the mechanisms now return what they returned before, whatever they got."""
        old = object.__new__(Transcript)
        old.before, old.after, old.bound, old.full = self.before, self.after, self.bound, self.full
        self.before, self.after, self.bound, self._replayed = {}, {}, {}, old
        return old

    def _sample(self, stream: Any, records: int) -> torch.Tensor:
        """A few records, always with the one that will be missing."""
        last = (self._replayed or self).full.setdefault(stream.purpose, records) - 1
        chosen = [*range(min(records, FEW)), *([last] if FEW <= last < records else [])]
        return torch.tensor(chosen, dtype=torch.int64)

    def _told(self, mechanism: Callable[..., Any]) -> Callable[..., Any]:
        def tell(*arguments: Any, noise_multiplier: float, **named: Any) -> Any:
            self._multiplier.value = noise_multiplier
            return mechanism(*arguments, noise_multiplier=noise_multiplier, **named)

        return tell

    def _noise(
        self, values: list[torch.Tensor], *, sensitivity: float, stream: Any, **named: Any
    ) -> list[torch.Tensor]:
        assert stream.purpose not in self.before, "the same noise was drawn twice"
        self.before[stream.purpose] = [value.float() for value in values]
        self.bound[stream.purpose] = sensitivity
        if self._replayed is None:
            result = self._noised(values, sensitivity=sensitivity, stream=stream, **named)
        else:
            result = self._replayed.after[stream.purpose]
        self.after[stream.purpose] = [value.clone() for value in result]
        return [value.clone() for value in result]

    def _central(
        self, placed: list[torch.Tensor], grid: FixedPointGrid, *, stream: Any, **named: Any
    ) -> list[torch.Tensor]:
        """The noise of a trusted aggregator, on the grid."""
        assert stream.purpose not in self.before, "the same noise was drawn twice"
        self.before[stream.purpose] = [grid.read(value) for value in placed]
        self.bound[stream.purpose] = grid.bound
        if self._replayed is None:
            result = self._add_noise(placed, grid, stream=stream, **named)
        else:
            result = self._replayed.after[stream.purpose]
        self.after[stream.purpose] = [value.clone() for value in result]
        return [value.clone() for value in result]

    def _share(self, values: list[torch.Tensor], *, stream: Any, **named: Any) -> list[Any]:
        """A share of the noise: what counts is the bound, whatever part of the noise it is."""
        assert stream.purpose not in self.before, "the same noise was drawn twice"
        grid = FixedPointGrid.of(named["sensitivity"], sum(value.numel() for value in values))
        self.before[stream.purpose] = [grid.read(grid.place(value)) for value in values]
        self.bound[stream.purpose] = grid.bound
        if self._replayed is None:
            result = self._add_share(values, stream=stream, **named)
        else:
            result = self._replayed.after[stream.purpose]
        self.after[stream.purpose] = [value.clone() for value in result]
        return [value.clone() for value in result]

    def _gradient(self, model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
        self.models.append(model)
        return self._clipped(model, *arguments, **named)


class Crash(BaseException):
    """The process is gone; nothing in it may notice."""


class Fuse:
    """Counts the moments at which a crash would hurt, and crashes at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None = None) -> None:
        self.count, self._at = 0, at
        self._lock = threading.Lock()
        for owner, name in (
            (LedgerFile, "append"),
            (checkpoint._Files, "save"),
            (RunDirectory, "write_bytes"),
            (StageConnection, "ask"),
            (StageConnection, "ask_sum"),
            (NoiseStream, "rounded_gaussian"),
        ):
            patch.setattr(owner, name, self._around(getattr(owner, name)))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def around(*arguments: Any, **named: Any) -> Any:
            self._burn()
            result = function(*arguments, **named)
            self._burn()
            return result

        return around

    def _burn(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == self._at:
                raise Crash
