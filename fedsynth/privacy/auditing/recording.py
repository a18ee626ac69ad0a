"""The record of a run's mechanisms: the values before noise, the noise, and the outputs.

An attacker who knows all but one record, the program and the public randomness can compute the
values before noise in both worlds, for the outputs that were published. `Recording` notes them in a
run; `replay` runs the same program again with other records and the same outputs, and notes what
the values would have been. From both follows the likelihood ratio of the outputs, the best score
there is, where the noise is Gaussian as claimed. A record that is sampled with probability q enters
as the mixture (1 - q) + q exp(ratio if sampled).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.enums import NoisePlacement
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.noise import NoiseStream

FARTHEST = 1e6  # log of a likelihood ratio


class AllUsed(Exception):
    """All mechanisms of a run have been used; what follows is post-processing."""


@dataclass
class Use:
    """One use of a mechanism: flat float64 values before noise, and the outputs.

    Of a sum with distributed noise it is the sum over parties."""

    before: Tensor
    outputs: list[Tensor]
    deviation: float  # of the noise that was claimed
    sampling_rate: float = 1.0  # with which the canary enters
    share_noise: list[Tensor] = field(default_factory=list)  # of distributed noise, per party
    shares: int = 1  # of which the claimed noise consists

    def seen_with(self, colluding: int) -> tuple[Tensor, float]:
        """The outputs without the noise that the last `colluding` parties tell the server, and the
        deviation of the noise that is left."""
        known = sum(self.share_noise[len(self.share_noise) - colluding :]) if colluding else 0.0
        left = max(1, self.shares - colluding) / self.shares
        return _flat(self.outputs) - known, self.deviation * math.sqrt(left)


class Recording:
    """The uses of mechanisms in one run, in their order.

    Args:
        replayed: A recording whose outputs the mechanisms return.
        forced: A recording of the same run without the canary, which here is the last record of
            every sample that it could be in.
        stop: The number of uses after which the run ends with `AllUsed`; none: it goes on.
    """

    def __init__(
        self,
        replayed: Recording | None = None,
        forced: Recording | None = None,
        stop: int | None = None,
    ) -> None:
        self.uses: list[Use] = []
        self.samples: list[int] = []  # the numbers of records that were sampled from
        self._replayed, self._without, self._stop = replayed, forced, stop
        self._rate = 1.0  # of the canary in the present use
        self._shares: list[_Share] = []

    @contextmanager
    def running(self) -> Iterator[Recording]:
        """Note all uses in this process inside."""
        with ExitStack() as patches:
            for owner, name, around in (
                (Guard, "_add_noise", self._guarded),
                (CentralNoise, "add", self._central),
                (NoiseStream, "poisson_sample", self._sampled),
            ):
                patches.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))
            yield self

    def replay(self, without: Recording | None = None) -> Recording:
        """A recording in which the mechanisms return what they returned in this one. With `without`
        of the run without the canary, the canary is in every sample."""
        return Recording(self, without, self._stop)

    def reveal(self, sums: list[Tensor], grid: FixedPointGrid) -> list[Tensor]:
        """The sums over parties of shares on this grid, as an observer sees them."""
        shares, self._shares = self._shares, []
        use = Use(
            torch.stack([share.before for share in shares]).sum(0),
            [grid.read(value) for value in sums],
            shares[0].deviation,
            share_noise=[share.noise for share in shares],
            shares=shares[0].shares,
        )
        return self._noted(use)

    def _noted(self, use: Use) -> list[Tensor]:
        """The mechanism's answer, after a note of its use."""
        if self._replayed is not None:
            seen = self._replayed.uses[len(self.uses)]
            use.outputs, use.share_noise = seen.outputs, seen.share_noise
        use.outputs, use.sampling_rate = [o.clone() for o in use.outputs], self._rate
        self._rate = 1.0
        self.uses.append(use)
        if len(self.uses) == self._stop:
            raise AllUsed
        return [output.clone() for output in use.outputs]

    def _guarded(self, honest: Any) -> Any:
        def add_noise(guard: Guard, bounded: Any, **named: Any) -> list[Tensor]:
            outputs: list[Tensor] = honest(guard, bounded, **named)
            before = _flat(bounded.values)
            deviation = named["noise_multiplier"] * bounded.sensitivity
            match named["noise_at"]:
                case NoisePlacement.AGGREGATE:  # seen by the aggregator only
                    return outputs
                case NoisePlacement.DISTRIBUTED:  # seen in the sum only
                    grid = FixedPointGrid.of(bounded.sensitivity, len(before))
                    placed = _flat(grid.place(value) for value in bounded.values)
                    noise = (_flat(outputs) - placed) * grid.step
                    self._shares.append(_Share(before, noise, deviation, guard._plan.shares))
                    return outputs
            return self._noted(Use(before, outputs, deviation))

        return add_noise

    def _central(self, honest: Any) -> Any:
        def add(centre: CentralNoise, sums: Any, **named: Any) -> list[Tensor]:
            outputs: list[Tensor] = honest(centre, sums, **named)
            grid = FixedPointGrid.of(named["sensitivity"], sum(s.numel() for s in sums))
            before = _flat(grid.read(value) for value in sums)
            deviation = named["noise_multiplier"] * named["sensitivity"]
            return self._noted(Use(before, outputs, deviation))

        return add

    def _sampled(self, honest: Any) -> Any:
        def sample(stream: NoiseStream, records: int, sampling_rate: float) -> Tensor:
            chosen: Tensor = honest(stream, records, sampling_rate)
            without, place = self._without, len(self.samples)
            self.samples.append(records)
            if without is not None and records == without.samples[place] + 1:
                self._rate = min(1.0, sampling_rate)
                if records - 1 not in chosen[-1:]:
                    chosen = torch.cat([chosen, torch.tensor([records - 1])])
            return chosen

        return sample


@dataclass(frozen=True)
class _Share:
    """One party's part of a sum with distributed noise."""

    before: Tensor
    noise: Tensor
    deviation: float  # of the whole noise
    shares: int


def log_likelihood_ratio(without: Recording, with_canary: Recording, colluding: int = 0) -> float:
    """The log likelihood ratio of the outputs of both recordings, with the canary over without.

    Args:
        without: The recording without the canary.
        with_canary: The recording with it.
        colluding: The number of parties whose shares of the noise the server knows.
    """
    total = 0.0
    for a, b in zip(without.uses, with_canary.uses, strict=True):
        shift = b.before - a.before
        if a.deviation == 0 or not bool(shift.any()):
            continue
        seen, deviation = a.seen_with(colluding)
        ratio = float(((seen - a.before) @ shift - shift @ shift / 2) / deviation**2)
        q = b.sampling_rate
        mixed = ratio if q >= 1 else float(np.logaddexp(math.log1p(-q), math.log(q) + ratio))
        total += mixed
    return max(-FARTHEST, min(FARTHEST, total))


def fine_bits(without: Recording, with_canary: Recording) -> float:
    """The number of outputs with bits that float32 noise can have alone, and not on a number.

    Where the value is exactly 0 without the canary and m with it, an output that is much smaller
    than m and has bits below the last one of m is noise alone."""
    found = 0
    for a, b in zip(without.uses, with_canary.uses, strict=True):
        values = b.before.abs().float()
        outputs = _flat(a.outputs).abs()
        last = torch.exp2(torch.floor(torch.log2(values.double())) - 24)
        units = outputs / last
        small = (a.before == 0) & (values > 0) & (outputs < values / 4)
        found += int((small & (units != units.round())).sum())
    return float(found)


def distance(without: Recording, with_canary: Recording, colluding: int = 0) -> float:
    """How far the values before noise lie apart, in deviations of the claimed noise that the server
    does not know: the mu of these outputs, if the canary is never sampled away."""
    squares = (
        float(((b.before - a.before) ** 2).sum()) / a.seen_with(colluding)[1] ** 2
        for a, b in zip(without.uses, with_canary.uses, strict=True)
        if a.deviation
    )
    return math.sqrt(sum(squares))


def _flat(values: Iterable[Tensor]) -> Tensor:
    return torch.cat([value.detach().cpu().double().flatten() for value in values])


@dataclass(frozen=True)
class ComparedRuns:
    """The values of one run in either of two worlds, for its outputs.

    Where records are sampled, the canaries are in every sample and `without` has none of them."""

    first: Recording
    second: Recording
    without: Recording | None = None

    def ratio(self, colluding: int = 0) -> float:
        """The log likelihood ratio of the outputs, the second world over the first."""
        if self.without is None:
            return log_likelihood_ratio(self.first, self.second, colluding)
        ratio = log_likelihood_ratio(self.without, self.second, colluding)
        if self.first is not self.without:
            ratio -= log_likelihood_ratio(self.without, self.first, colluding)
        return ratio

    def bits(self) -> float:
        """The number of outputs that are noise alone: see `fine_bits`."""
        return fine_bits(self.first, self.second)

    def distance(self, colluding: int = 0) -> float:
        """The distance of the values: see `distance`."""
        return distance(self.first, self.second, colluding)

    def with_outputs(self, use: Use) -> ComparedRuns:
        """The same with the outputs of another run of a single use."""
        for recording in (self.first, self.second, self.without):
            if recording is not None:
                (mine,) = recording.uses
                changed = replace(mine, outputs=use.outputs, share_noise=use.share_noise)
                recording.uses = [changed]
        return self
