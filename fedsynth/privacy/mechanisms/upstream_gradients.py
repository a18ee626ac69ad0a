"""Sanitised gradients of a private critic at public images, from which a generator learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian_in_ball
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import PartyData, Sealed
from fedsynth.privacy.subsets import Subset


@dataclass(frozen=True, kw_only=True, eq=False)
class UpstreamGradients(Mechanism[PartyData, Records]):
    """Rows [images, ...] computed from one subset, each clipped to `clip` in L2: one tensor.

    Claim: any change of the subset may replace every row, so all rows together move by at most
    2 clip sqrt(images), because each lies in a ball of radius `clip` before and after the change.
    This holds under add/remove, under replace-one, and if all records of the subset change, so that
    a replacement within the subset costs no more than a removal, and one that moves a record to
    another subset costs one change of each. All rows are one Gaussian mechanism, charged to this
    subset (with unit "user" to the whole party).
    Assumption: `gradients` uses no records but those of `subset`. State that it keeps between
    calls, such as a critic, comes from this subset alone.

    Attributes:
        gradients: Maps the records of `subset` to rows.
        shape: The public shape [images, ...] of all rows together; the sensitivity is computed
            from it, and rows of another shape are refused.
        subset: The subset of the party's records that is used and charged.
        clip: The L2 bound of one row.
    """

    units = (Unit.RECORD, Unit.USER)

    gradients: Callable[[Records], Tensor]
    shape: Sequence[int]
    subset: Subset
    clip: float

    def unit_event(self, unit: Unit) -> DpEvent:
        return self.subset.event(gaussian_in_ball(self.noise_multiplier), unit)

    def select(self, data: PartyData) -> Sealed[Records]:
        return self.subset.records(data)

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        rows = self.gradients(value)
        if rows.shape != tuple(self.shape):
            raise ValueError(f"the gradients must have the shape {tuple(self.shape)}")
        sensitivity = 2 * self.clip * math.sqrt(self.shape[0])
        return BoundedValues([clip_rows(rows, self.clip)], sensitivity)
