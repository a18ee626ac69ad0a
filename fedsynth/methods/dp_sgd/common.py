"""The settings, the private gradient and the first model that both forms of DP-SGD share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.settings import setting
from fedsynth.methods.common.private_gradient import batch_gradient_sum
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.compute_dtype import DTYPES
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum, gradient_sensitivity
from fedsynth.privacy.sparsification import RULES, Sparsification


@dataclass(frozen=True)
class PrivateSGDConfig:
    """Settings of DP-SGD; the defaults are those of the PSG paper's baseline."""

    epochs: int = setting(10, "passes over the records", at_least=1)
    batch: int = setting(256, "expected size of a batch", at_least=1)
    clip: float = setting(0.1, "bound C on a record's gradient", above=0)
    learning_rate: float = setting(0.01, "learning rate", above=0, formerly="rate")
    topk: str = setting(
        "none",
        "reduce each clipped gradient to its largest coordinates: up to the share `keep` of its "
        "squared norm (noise falls by the root of it), or that share of all coordinates",
        choices=("none", *RULES),
    )
    keep: float = setting(0.6, "share that topk keeps (k)", above=0, at_most=1)
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: str = setting("float32", "arithmetic of the gradient", choices=DTYPES)

    def sampling_rate(self, records: int) -> float:
        """The probability that a record enters a batch."""
        return min(1.0, self.batch / records)

    def steps(self, records: int) -> int:
        """The number of steps over `records` records: whole batches per epoch, times epochs."""
        return self.epochs * max(1, int(1 / self.sampling_rate(records)))

    @property
    def sparsification(self) -> Sparsification | None:
        """The rule that reduces gradients to their largest coordinates, if any."""
        return None if self.topk == "none" else Sparsification(self.topk, self.keep)

    @property
    def bound(self) -> float:
        """The L2 bound of one record's part of a sum, to which noise is relative."""
        return gradient_sensitivity(self.clip, self.sparsification)


S = TypeVar("S", bound=PrivateSGDConfig)


class ModelTraining(Method[S]):
    """A method that trains the model of the stage before further."""

    presets = {
        "smoke": {"width": 32, "epochs": 1, "learning_rate": 1.0},
        "laptop": {"width": 32, "epochs": 1, "learning_rate": 1.0},
    }

    def inherits(self, cfg: S) -> bool:
        return True


def clipped_gradient_sum(ctx: PartyContext[S], model: nn.Module) -> ClippedGradientSum:
    """The mechanism of one step of DP-SGD."""
    return batch_gradient_sum(ctx, model, ctx.config.sparsification)


def first_model(ctx: ServerContext[S], method: str) -> ReleasedModel:
    """The model of the stage before, or a fresh one over all classes of the data."""
    if ctx.inherited and isinstance(ctx.inherited[-1], ReleasedModel):
        return ctx.inherited[-1]
    data, width = ctx.plan.stage.data, ctx.config.width
    net = make_convnet(width, data, data.classes, ctx.seed, method, "model")
    return ReleasedModel(net.state_dict(), width)
