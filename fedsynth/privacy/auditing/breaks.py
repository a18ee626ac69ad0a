"""Deliberate errors that an audit must find: replacements of parts of the guard, in this process.

Consequence: inside `broken` nothing is private. No configuration, message or environment variable
leads here; a test on the sources sees to it that the audit alone imports this module.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any
from unittest import mock

import torch

from fedsynth.core.enums import NoisePlacement
from fedsynth.data.records import Records
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.mechanisms.votes import VoteBounds
from fedsynth.privacy.noise import NoiseKey, NoiseStream, Streams

UNCLIPPED = 2.0**20  # times the clipping bound
BIAS = 4.0  # times the stated sampling rate
_DIGEST = 32  # characters or more: of an entry, of the data, of a request


class Break(StrEnum):
    """A deliberate error."""

    NO_NOISE = "no_noise"  # nothing is added
    HALF_NOISE = "half_noise"  # half of the noise that was charged
    NO_CLIP = "no_clip"  # contributions are as large as they like
    FIXED_SEED = "fixed_seed"  # the noise comes from a seed that everybody knows
    BIASED_SAMPLING = "biased_sampling"  # records are sampled four times as often as was charged
    WRONG_DENOMINATOR = "wrong_denominator"  # sums are divided by the true number of records
    FLOAT32 = "float32"  # float32 noise is added to float32 sums, as until version 0.1


@contextmanager
def broken(choice: Break | None) -> Iterator[None]:
    """Everything inside runs with this error; with none, as it is."""
    with ExitStack() as patches:
        match choice:
            case None:
                pass
            case Break.NO_NOISE | Break.HALF_NOISE:
                share = 0.0 if choice == Break.NO_NOISE else 0.5
                for owner, name in ((Guard, "_add_noise"), (CentralNoise, "add")):
                    patches.enter_context(_with_noise(owner, name, share))
            case Break.FIXED_SEED:
                patches.enter_context(mock.patch.object(NoiseKey, "stream", _known_stream))
            case Break.FLOAT32:
                patches.enter_context(mock.patch.object(Guard, "_add_noise", _in_float32))
                patches.enter_context(mock.patch.object(CentralNoise, "add", _centre_in_float32))
            case _:
                patches.enter_context(_with_mechanisms(choice))
                if choice == Break.NO_CLIP:
                    patches.enter_context(mock.patch.object(VoteBounds, "valid", _anything))
        yield


def _with_noise(owner: type, name: str, share: float) -> Any:
    honest = getattr(owner, name)

    def weak(self: Any, *arguments: Any, noise_multiplier: float, **named: Any) -> Any:
        return honest(self, *arguments, noise_multiplier=share * noise_multiplier, **named)

    return mock.patch.object(owner, name, weak)


def _known_stream(_key: NoiseKey, *purpose: object) -> NoiseStream:
    """The stream of this purpose, whatever the secret, the ledger and the data are."""
    public = [str(p) for p in purpose if not (isinstance(p, str) and len(p) >= _DIGEST)]
    return NoiseStream(hmac.digest(b"fixed seed", repr(public).encode(), hashlib.sha256))


def _float32_noise(values: list[torch.Tensor], deviation: float, stream: NoiseStream) -> Any:
    scale = 2.0**36
    for value in values:
        units = torch.from_numpy(stream.rounded_gaussian(value.numel(), scale))
        noise = (units.double() * (deviation / scale)).float()
        yield value.cpu().float() + noise.reshape(value.shape)


def _in_float32(
    guard: Guard,
    bounded: BoundedValues,
    *,
    noise_multiplier: float,
    noise_at: NoisePlacement,
    streams: Streams,
) -> list[torch.Tensor]:
    if noise_at != NoisePlacement.PARTY:  # what aggregators and shares add up was always whole
        return _HONEST_NOISE(
            guard, bounded, noise_multiplier=noise_multiplier, noise_at=noise_at, streams=streams
        )
    deviation = noise_multiplier * bounded.sensitivity
    return list(_float32_noise(bounded.values, deviation, streams("noise")))


_HONEST_NOISE = Guard._add_noise


def _centre_in_float32(
    centre: CentralNoise,
    sums: Any,
    *,
    sensitivity: float,
    noise_multiplier: float,
    request: Any,
) -> list[torch.Tensor]:
    grid = FixedPointGrid.of(sensitivity, sum(value.numel() for value in sums))
    stream = centre._key.stream("aggregate", centre._job, centre._stage, request.digest())
    values = [grid.read(value) for value in sums]
    return list(_float32_noise(values, noise_multiplier * sensitivity, stream))


def _anything(_bounds: VoteBounds, ballots: torch.Tensor) -> torch.Tensor:
    return torch.ones(*ballots.shape[:-1], 1, dtype=torch.bool)


# Errors of mechanisms: the guard gets a replacement of each


def _with_mechanisms(choice: Break) -> Any:
    honest = Guard.apply

    def apply(guard: Guard, mechanism: Any, data: Any, **named: Any) -> Any:
        replaced = _Replaced(mechanism, choice, max(1, guard._plan.records))
        return honest(guard, replaced, data, **named)

    return mock.patch.object(Guard, "apply", apply)


class _Replaced(Mechanism[Any, Any]):
    """A mechanism with the event of another one, and with an error in its evaluation."""

    def __init__(self, honest: Any, choice: Break, public_count: int) -> None:
        for name, value in (
            ("noise_multiplier", honest.noise_multiplier),
            ("_honest", honest),
            ("_choice", choice),
            ("_public_count", public_count),
        ):
            object.__setattr__(self, name, value)

    _honest: Any
    _choice: Break
    _public_count: int

    def event(self, unit: Any) -> Any:
        return self._honest.event(unit)

    def unit_event(self, unit: Any) -> Any:
        return self._honest.unit_event(unit)

    def select(self, data: Any) -> Any:
        return self._honest.select(data)

    def evaluate(self, value: Any, streams: Streams, device: torch.device) -> BoundedValues:
        if self._choice == Break.NO_CLIP:
            return self._unclipped(value, streams, device)
        factor = BIAS if self._choice == Break.BIASED_SAMPLING else 1.0
        watched = _Sampling(streams, factor)
        bounded: BoundedValues = self._honest.evaluate(value, watched, device)
        if self._choice == Break.BIASED_SAMPLING:
            return bounded
        return self._mean(bounded, value, watched)

    def _unclipped(self, value: Any, streams: Streams, device: torch.device) -> BoundedValues:
        """The values under a bound that nothing reaches, with the sensitivity of the stated one."""
        if not hasattr(self._honest, "clip"):
            bounded: BoundedValues = self._honest.evaluate(value, streams, device)
            return bounded
        free = dataclasses.replace(self._honest, clip=self._honest.clip * UNCLIPPED)
        values = free.evaluate(value, streams, device)
        return BoundedValues(values.values, values.sensitivity / UNCLIPPED)

    def _mean(self, bounded: BoundedValues, value: Any, watched: _Sampling) -> BoundedValues:
        """The sums divided by the true number of their records, times the expected one: means of
        private size, with noise for sums. Without records, and for votes, they stay."""
        records = value[0] if isinstance(value, tuple) else value
        if not isinstance(records, Records):
            return bounded
        count = watched.chosen if watched.asked else len(records.labels)
        sampling_rate = watched.sampling_rate if watched.asked else 1.0
        if not count:
            return bounded
        factor = sampling_rate * self._public_count / count
        return BoundedValues([v * factor for v in bounded.values], bounded.sensitivity)


class _Sampling:
    """Streams whose Poisson samples are counted and may have another rate than was stated."""

    def __init__(self, streams: Streams, factor: float) -> None:
        self._streams, self._factor = streams, factor
        self.chosen, self.sampling_rate, self.asked = 0, 0.0, False

    def __call__(self, *purpose: object) -> NoiseStream:
        stream = self._streams(*purpose)
        honest = stream.poisson_sample

        def sample(records: int, sampling_rate: float) -> torch.Tensor:
            chosen = honest(records, min(1.0, self._factor * sampling_rate))
            self.asked = True
            self.chosen += len(chosen)
            self.sampling_rate = max(self.sampling_rate, sampling_rate)
            return chosen

        stream.poisson_sample = sample  # type: ignore[method-assign]
        return stream


def applies(choice: Break, sampling: bool) -> bool:
    """True if a run with or without sampling can have this error."""
    return sampling or choice != Break.BIASED_SAMPLING
