"""Functions of a whole sample, in which records meet: a transport plan, a kernel matrix, a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.charging import CURATOR, Charger
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.party_data import PartyData, open_for_guard


class SampleFunctionMechanisms(Charger):
    """The mechanism for values that are no sum over records."""

    if TYPE_CHECKING:  # of the guard
        device: torch.device

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_function(
        self,
        private: PartyData,
        function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        *,
        shape: Sequence[int],
        clip: float,
        noise_multiplier: float,
        sampling_rate: float,
        call: int = 0,
    ) -> torch.Tensor:
        """Any function of a Poisson sample, clipped to `clip` in L2 as a whole, plus
        N(0, (2 clip noise_multiplier)^2) in every number.

        Every record enters independently with probability `sampling_rate`; `function` gets pixels
        [n, c, h, w] in [0, 1] and class names [n], n being 0 now and then, and returns a tensor of
        the public `shape`. It may couple records as it likes: one record more or less may turn the
        result round, so it moves by at most 2 clip, and this is what the noise is made for. A
        result that is not finite becomes zero."""
        streams = self._pay(poisson(sampling_rate, gaussian(noise_multiplier)), call, CURATOR)
        records = open_for_guard(private.records)
        chosen = streams("sample").poisson_sample(len(records.labels), sampling_rate)
        found = function(records.pixels(chosen).to(self.device), records.labels[chosen])
        if found.shape != tuple(shape):
            raise ValueError(f"the function must return the shape {tuple(shape)}, sample or none")
        clipped = clip_rows(found.detach().flatten().unsqueeze(0), clip).view(found.shape)
        return self._noised("party", [clipped], 2 * clip, noise_multiplier, streams)[0]
