"""What the relay and the joint form of DP-SGD share: their settings and one private gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.plan import PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.method import ServerContext
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.compute_dtype import DTYPES
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.sparsification import RULES, Sparsification


@dataclass(frozen=True)
class PrivateSGDConfig:
    """DP-SGD's settings; the defaults are those of the PSG paper's baseline."""

    epochs: int = setting(10, "passes over the records", at_least=1)
    batch: int = setting(256, "expected size of a batch", at_least=1)
    clip: float = setting(0.1, "bound C on a record's gradient", above=0)
    rate: float = setting(0.01, "learning rate", above=0)
    topk: str = setting(
        "none",
        "cut each clipped gradient down to its largest coordinates: up to the share `keep` of its "
        "squared norm (noise falls by the root of it), or that share of all coordinates",
        choices=("none", *RULES),
    )
    keep: float = setting(0.6, "what topk keeps (k)", above=0, at_most=1)
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: str = setting("float32", "arithmetic of the gradient", choices=DTYPES)

    def sampling_rate(self, records: int) -> float:
        """Probability that a record enters a batch."""
        return min(1.0, self.batch / records)

    def steps(self, records: int) -> int:
        """Steps over so many records: whole batches of an epoch times epochs."""
        return self.epochs * max(1, int(1 / self.sampling_rate(records)))

    @property
    def sparsification(self) -> Sparsification | None:
        """The rule by which gradients are cut down, if any."""
        return None if self.topk == "none" else Sparsification(self.topk, self.keep)

    @property
    def bound(self) -> float:
        """The L2 bound of one record's part of a sum, to which noise is relative."""
        return self.sparsification.l2_bound(self.clip) if self.sparsification else self.clip


def private_gradient(
    cfg: PrivateSGDConfig,
    guard: Guard,
    private: PartyData,
    net: nn.Module,
    *,
    data: DatasetInfo,
    share: PartyPlan,
    call: int,
    noise_at: NoisePlacement = NoisePlacement.PARTY,
) -> list[torch.Tensor]:
    """The noised sum of the clipped, perhaps cut down gradients of a Poisson batch."""
    scale = Normalizer.standard(data)
    mechanism = ClippedGradientSum(
        model=net,
        inputs=lambda pixels, _: scale.to_network(pixels),
        clip=cfg.clip,
        noise_multiplier=share.noise_multiplier,
        sampling_rate=share.sampling_rate,
        dtype=cfg.dtype,
        sparsification=cfg.sparsification,
    )
    return guard.apply(mechanism, private, call=call, noise_at=noise_at)


def first_model(
    cfg: PrivateSGDConfig, data: DatasetInfo, parties: ServerContext[Any], *key: str
) -> ReleasedModel:
    """The model of the stage before, or a fresh one over all classes of the data."""
    if parties.inherited and isinstance(parties.inherited[-1], ReleasedModel):
        return parties.inherited[-1]
    net = make_convnet(cfg.width, data, data.classes, parties.seed, *key)
    return ReleasedModel(net.state_dict(), cfg.width)
