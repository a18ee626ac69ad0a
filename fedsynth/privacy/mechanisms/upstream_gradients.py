"""Gradients of a private critic at public images, sanitised: what a generator may learn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from fedsynth.core.messages import Release
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.charging import CURATOR, Charger
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.party_data import PartyData, Records, open_for_guard
from fedsynth.privacy.subsets import Subset


class ImageGradientMechanisms(Charger):
    """The mechanism for upstream gradients."""

    if TYPE_CHECKING:  # of the guard

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_image_gradients(
        self,
        private: PartyData,
        gradients: Callable[[Records], torch.Tensor],
        *,
        part: Subset,
        bound: float,
        noise_multiplier: float,
        call: int = 0,
    ) -> torch.Tensor:
        """Rows [images, ...], each clipped to `bound` in L2, plus Gaussian noise.

        `gradients` is given the records of `part` and nothing else; between calls it may keep what
        it likes (a critic, say), as long as that comes from this part alone. How a record moves
        the rows is not looked at: any change of the part may turn every row round, so all rows
        together move by at most 2 bound sqrt(images), under add/remove and under replace-one, and
        also if all records of the part are another's. The noise has `noise_multiplier` times that
        as its deviation in every number. All rows share one look at the part: this is one Gaussian
        mechanism, charged to this part (unit "user": to the whole party). The number of rows must
        be public.
        """
        event = part.event(gaussian(noise_multiplier), self._ledger.budget.unit)
        streams = self._pay(event, call, CURATOR)
        rows = clip_rows(gradients(open_for_guard(part.records(private))), bound)
        reach = 2 * bound * math.sqrt(len(rows))
        return self._noised("party", [rows], reach, noise_multiplier, streams)[0]

    def acknowledge(self) -> Release:
        """An answer that says nothing but that the work asked for is done and lies at home."""
        return Release(self._plan.party, {}, ())
