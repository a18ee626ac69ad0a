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
from dataclasses import dataclass
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


@dataclass
class Use:
    """One use of a mechanism: flat float64 values before noise, and the outputs.

    Of a sum with distributed noise it is the sum over parties."""

    before: Tensor
    outputs: list[Tensor]
    deviation: float  # of the noise that was claimed
    sampling_rate: float = 1.0  # with which the canary enters


class Recording:
    """The uses of mechanisms in one run, in their order.

    Args:
        replayed: A recording whose outputs the mechanisms return.
        forced: A recording of the same run without the canary, which here is the last record of
            every sample that it could be in.
    """

    def __init__(self, replayed: Recording | None = None, forced: Recording | None = None) -> None:
        self.uses: list[Use] = []
        self.samples: list[int] = []  # the numbers of records that were sampled from
        self._replayed, self._without = replayed, forced
        self._rate = 1.0  # of the canary in the present use
        self._shares: list[tuple[Tensor, float]] = []

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

    def replay(self) -> Recording:
        """A recording in which the mechanisms return what they returned in this one."""
        return Recording(self)

    def replay_with_canary(self, without: Recording) -> Recording:
        """The same with the canary in every sample; `without` is of the run without it."""
        return Recording(self, without)

    def reveal(self, sums: list[Tensor], grid: FixedPointGrid) -> list[Tensor]:
        """The sums over parties of shares on this grid, as an observer sees them."""
        shares, self._shares = self._shares, []
        before = torch.stack([values for values, _ in shares]).sum(0)
        outputs = [grid.read(value) for value in sums]
        return self._noted(before, outputs, shares[0][1])

    def _noted(self, before: Tensor, outputs: list[Tensor], deviation: float) -> list[Tensor]:
        if self._replayed is not None:
            outputs = self._replayed.uses[len(self.uses)].outputs
        self.uses.append(Use(before, [o.clone() for o in outputs], deviation, self._rate))
        self._rate = 1.0
        return [output.clone() for output in outputs]

    def _guarded(self, honest: Any) -> Any:
        def add_noise(guard: Guard, bounded: Any, **named: Any) -> list[Tensor]:
            outputs: list[Tensor] = honest(guard, bounded, **named)
            before, deviation = _flat(bounded.values), named["noise_multiplier"]
            match named["noise_at"]:
                case NoisePlacement.AGGREGATE:  # seen by the aggregator only
                    return outputs
                case NoisePlacement.DISTRIBUTED:  # seen in the sum only
                    self._shares.append((before, deviation * bounded.sensitivity))
                    return outputs
            return self._noted(before, outputs, deviation * bounded.sensitivity)

        return add_noise

    def _central(self, honest: Any) -> Any:
        def add(centre: CentralNoise, sums: Any, **named: Any) -> list[Tensor]:
            outputs: list[Tensor] = honest(centre, sums, **named)
            grid = FixedPointGrid.of(named["sensitivity"], sum(s.numel() for s in sums))
            before = _flat(grid.read(value) for value in sums)
            return self._noted(before, outputs, named["noise_multiplier"] * named["sensitivity"])

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


def log_likelihood_ratio(without: Recording, with_canary: Recording) -> float:
    """How much likelier the outputs of both recordings are with the canary: a logarithm."""
    total = 0.0
    for a, b in zip(without.uses, with_canary.uses, strict=True):
        shift, deviation = b.before - a.before, a.deviation
        if deviation == 0 or not bool(shift.any()):
            continue
        rest = _flat(a.outputs) - a.before
        ratio = float((rest @ shift - shift @ shift / 2) / deviation**2)
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


def distance(without: Recording, with_canary: Recording) -> float:
    """How far the values before noise lie apart, in deviations of the claimed noise: the mu of
    these outputs, if the canary is never sampled away."""
    squares = (
        float(((b.before - a.before) ** 2).sum()) / a.deviation**2
        for a, b in zip(without.uses, with_canary.uses, strict=True)
        if a.deviation
    )
    return math.sqrt(sum(squares))


def _flat(values: Iterable[Tensor]) -> Tensor:
    return torch.cat([value.detach().cpu().double().flatten() for value in values])
