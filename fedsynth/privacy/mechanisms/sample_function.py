"""Gaussian mechanism for non-decomposable functions of a sample: a transport plan, a kernel
matrix, a batch loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian_in_ball, poisson
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.mechanisms.base import BoundedValues, SampledMechanism
from fedsynth.privacy.noise import Streams


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleFunction(SampledMechanism):
    """Any function of a Poisson sample, clipped to `clip` in L2 as a whole: one tensor.

    Claim: one record more or less may change the result arbitrarily within a ball of radius
    `clip`, so it moves by at most 2 clip. So does a replaced record: the results for a sample with
    the record, with its replacement and with neither lie in the same ball
    (`events.gaussian_in_ball`).
    Assumption: none about `function`; a result that is not finite becomes zero.
    Consequence: the noise is twice that of a sum of rows clipped to `clip`.

    Attributes:
        function: Maps pixels [n, c, h, w] in [0, 1] and labels [n] to a tensor of `shape`; n may
            be 0.
        shape: The public shape of the result.
        clip: The L2 bound of the whole result.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    shape: Sequence[int]
    clip: float

    def unit_event(self, unit: Unit) -> DpEvent:
        return poisson(self.sampling_rate, gaussian_in_ball(self.noise_multiplier))

    @property
    def sensitivity(self) -> float:
        """The diameter of the ball to which the result is clipped."""
        return 2 * self.clip

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        chosen = self.sample(value, streams)
        result = self.function(value.pixels(chosen).to(device), value.labels[chosen])
        if result.shape != tuple(self.shape):
            shape = tuple(self.shape)
            raise ValueError(f"the function must return the shape {shape}, sample or none")
        clipped = clip_rows(result.detach().flatten().unsqueeze(0), self.clip).view(result.shape)
        return BoundedValues([clipped], self.sensitivity)
