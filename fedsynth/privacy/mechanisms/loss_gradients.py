"""Gradients of any loss a record has of its own: those of a discriminator on real records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from fedsynth.nn.per_example.gradients import Loss
from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.charging import CURATOR, Charger
from fedsynth.privacy.clipping import clipped_gradient_sum
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.party_data import PartyData, open_for_guard
from fedsynth.privacy.subsets import ClassSubset


class LossGradientMechanisms(Charger):
    """The mechanism for gradients that are not those of a classifier."""

    if TYPE_CHECKING:  # of the guard
        device: torch.device

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_loss_gradient(
        self,
        private: PartyData,
        model: nn.Module,
        inputs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        loss: Loss,
        *,
        clip: float,
        noise_multiplier: float,
        sampling_rate: float,
        of_class: ClassSubset | None = None,
        call: int = 0,
    ) -> list[torch.Tensor]:
        """Clipped gradient sum of a Poisson sample plus N(0, (noise_multiplier clip)^2).

        `inputs` turns pixels [n, c, h, w] in [0, 1] and class names [n] into what the model reads,
        row i a function of record i alone; `loss` turns outputs and class names into one number a
        record. Every record enters independently with probability `sampling_rate`, and its gradient
        over all parameters is clipped to `clip` in L2, so adding or removing one moves the sum by
        at most `clip`. With `of_class` only the records of that class take part, and only they are
        charged: losses of different classes compose in parallel. A sum, in the order of
        `model.parameters()`; divide by a public constant."""
        event = poisson(sampling_rate, gaussian(noise_multiplier))
        records = private.records
        if of_class is not None:
            event = of_class.event(event)
            records = of_class.records(private)
        streams = self._pay(event, call, CURATOR)
        mine = open_for_guard(records)
        chosen = streams("sample").poisson_sample(len(mine.labels), sampling_rate)
        names = mine.labels[chosen].to(self.device)
        rows = inputs(mine.pixels(chosen).to(self.device), names)
        sums = clipped_gradient_sum(model, rows, names, clip=clip, loss=loss)
        return self._noised("party", sums, clip, noise_multiplier, streams)
