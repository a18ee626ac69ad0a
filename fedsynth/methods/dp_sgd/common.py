"""The settings, the private gradient and the first model that both forms of DP-SGD share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, DatasetInfo
from fedsynth.methods.common.private_gradient import batch_gradient_sum
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.classifiers.registry import classifier, classifier_from_state, empty_classifier
from fedsynth.nn.compute_dtype import ComputeDtype
from fedsynth.privacy.accounting.calibration import poisson_gaussian_steps
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum, gradient_sensitivity
from fedsynth.privacy.sparsification import Rule, Sparsification


class TopK(StrEnum):
    """The reduction of a gradient to its largest coordinates."""

    NONE = "none"
    NORM = Rule.NORM.value
    NORM_PER_TENSOR = Rule.NORM_PER_TENSOR.value
    DIMENSION = Rule.DIMENSION.value


class Network(StrEnum):
    """The model that is trained: one without a layer that mixes records."""

    AUTO = "auto"  # see `PrivateSGDConfig.network_on`
    CONVNET = "convnet"
    OPACUS_CNN = "opacus_cnn"
    LINEAR = "linear"


_COST_AS_CONVNET = {Network.OPACUS_CNN: 12, Network.LINEAR: 1}
"""The width of the ConvNet whose step takes as long as one of these networks on images."""


@dataclass(frozen=True)
class PrivateSGDConfig:
    """Settings of DP-SGD; the defaults are those of the PSG paper's baseline."""

    network: Network = setting(
        Network.AUTO, "the model that is trained; auto: a ConvNet, or a linear layer on a table"
    )
    epochs: int | None = setting(
        10,
        "passes over the records; null: as many steps as the budget allows at the given noise",
        at_least=1,
    )
    steps: int | None = setting(None, "steps; null: those of the epochs", at_least=1)
    noise: float | None = setting(
        None, "noise multiplier; default: what the budget allows", above=0
    )
    batch: int = setting(256, "expected size of a batch", at_least=1)
    clip: float = setting(
        0.1, "bound C on a record's gradient", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    learning_rate: float = setting(0.01, "learning rate", above=0, formerly="rate")
    topk: TopK = setting(
        TopK.NONE,
        "reduce each clipped gradient to its largest coordinates: up to the share `keep` of its "
        "squared norm, or of that of each tensor of weights (noise falls by the root of it), or "
        "that share of all coordinates",
    )
    keep: float = setting(0.6, "share that topk keeps (k)", above=0, at_most=1)
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: ComputeDtype = setting(ComputeDtype.FLOAT32, "arithmetic of the gradient")

    def sampling_rate(self, records: int) -> float:
        """The probability that a record enters a batch."""
        return min(1.0, self.batch / records)

    def number_of_steps(self, records: int, budget: Budget) -> int:
        """The number of steps over `records` records: as set, or whole batches per epoch, times
        epochs; with `epochs=null`, as many as the budget allows at the given noise.

        Raises:
            UserError: Neither epochs nor noise are given, or the budget is below one step.
        """
        rate = self.sampling_rate(records)
        if self.steps is not None:
            return self.steps
        if self.epochs is not None:
            return self.epochs * max(1, int(1 / rate))
        if self.noise is None:
            raise UserError(
                "epochs=null means as many steps as the budget allows at the given noise, and "
                "noise is null too. Allowed: a number of epochs, or of noise."
            )
        return poisson_gaussian_steps(
            rate,
            self.noise,
            budget.epsilon,
            budget.delta,
            budget.accounting,
            relation=budget.relation,
        )

    def network_on(self, data: DatasetInfo) -> Network:
        """The network by name; records of a table have no neighbouring pixels to convolve."""
        if self.network != Network.AUTO:
            return self.network
        return Network.LINEAR if data.kind == DataKind.TABLE else Network.CONVNET

    def released(self, data: DatasetInfo, state: Mapping[str, Tensor]) -> ReleasedModel:
        """A model of the configured network with these weights."""
        return ReleasedModel(state, self.width, self.network_on(data))

    def empty_model(self, data: DatasetInfo) -> nn.Module:
        """The model without memory or values, on the meta device."""
        return empty_classifier(self.network_on(data), self.width, data)

    def model(
        self, data: DatasetInfo, state: Mapping[str, Tensor], device: torch.device
    ) -> nn.Module:
        """The model with a copy of these weights."""
        return classifier_from_state(self.network_on(data), self.width, data, state, device)

    def cost_width(self, data: DatasetInfo) -> int:
        """The width of the ConvNet whose step takes about as long."""
        return _COST_AS_CONVNET.get(self.network_on(data), self.width)

    @property
    def sparsification(self) -> Sparsification | None:
        """The rule that reduces gradients to their largest coordinates, if any."""
        return None if self.topk == TopK.NONE else Sparsification(self.topk, self.keep)

    @property
    def bound(self) -> float:
        """The L2 bound of one record's part of a sum, to which noise is relative."""
        return gradient_sensitivity(self.clip, self.sparsification)


S = TypeVar("S", bound=PrivateSGDConfig)


class ModelTraining(Method[S]):
    """A method that trains the model of the stage before further."""

    kinds = (DataKind.IMAGE, DataKind.TABLE)
    presets = {
        "smoke": {"width": 32, "epochs": 1, "learning_rate": 1.0},
        "laptop": {"width": 32, "epochs": 1, "learning_rate": 1.0},
    }

    def inherits(self, cfg: S) -> bool:
        return True


def clipped_gradient_sum(ctx: PartyContext[S], model: nn.Module) -> ClippedGradientSum:
    """The mechanism of one step of DP-SGD."""
    return batch_gradient_sum(ctx, model, ctx.config.sparsification)


def requested_model(ctx: PartyContext[S], request: Request) -> nn.Module:
    """The model with the weights of a request.

    Raises:
        Refused: The arrays of the request are not the weights of this model.
    """
    arrays = request.exact_arrays(ctx.config.empty_model(ctx.dataset).state_dict())
    return ctx.config.model(ctx.dataset, arrays, ctx.device)


def first_model(ctx: ServerContext[S], method: str) -> ReleasedModel:
    """The model of the stage before, or a fresh one over all classes of the data."""
    if ctx.inherited and isinstance(ctx.inherited[-1], ReleasedModel):
        return ctx.inherited[-1]
    data, cfg = ctx.plan.stage.data, ctx.config
    with default_seed(ctx.seed, method, "model"):
        net = classifier(cfg.network_on(data), data.shape, data.classes, cfg.width)
    return cfg.released(data, net.state_dict())
