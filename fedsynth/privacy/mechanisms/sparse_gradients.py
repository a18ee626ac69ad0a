"""Noised sums of per-record gradients that were cut down to their largest coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from fedsynth.data.normalization import Normalizer
from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.charging import Charger
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.party_data import PartyData, open_for_guard
from fedsynth.privacy.sparsification import reach, sparse_gradient_sum


class SparseGradientMechanisms(Charger):
    """The mechanism for sparsified gradients."""

    if TYPE_CHECKING:  # of the guard

        def _view(self, at: str) -> str: ...

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_sparse_gradient(
        self,
        private: PartyData,
        model: nn.Module,
        scale: Normalizer,
        *,
        clip: float,
        rule: str,
        keep: float,
        noise_multiplier: float,
        sampling_rate: float,
        call: int = 0,
        dtype: str = "float32",
        at: str = "party",
    ) -> list[torch.Tensor]:
        """As `noisy_gradient`, but of every clipped gradient only the largest coordinates count.

        `rule="norm"`: for as long as their squares add up to at most `keep` of the whole; one
        record moves the sum by at most sqrt(keep) clip. `rule="dimension"`: the share `keep` of
        all coordinates; one record moves the sum by at most clip. Add/remove; what is kept is
        clipped again to that bound, and the noise is `noise_multiplier` times it. Which
        coordinates a record keeps is a function of that record alone."""
        streams = self._pay(
            poisson(sampling_rate, gaussian(noise_multiplier)), call, self._view(at)
        )
        records = open_for_guard(private.records)
        device = next(model.parameters()).device
        chosen = streams("sample").poisson_sample(len(records.labels), sampling_rate)
        sums = sparse_gradient_sum(
            model,
            scale.to_network(records.pixels(chosen)).to(device),
            records.labels[chosen].to(device),
            clip=clip,
            rule=rule,
            keep=keep,
            dtype=dtype,
        )
        return self._noised(at, sums, reach(rule, keep, clip), noise_multiplier, streams)
