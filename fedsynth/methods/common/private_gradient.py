"""The private gradient of a network on a party's records, alone and as a round of all parties."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import nn

from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.noise_placement import JointMethod, NoisePlacementConfig
from fedsynth.methods.method import PartyContext
from fedsynth.nn.classifiers.convnet import empty_convnet
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.sparsification import Sparsification


class GradientConfig(Protocol):
    """The settings of the gradient."""

    @property
    def clip(self) -> float:
        """The bound on a record's gradient."""

    @property
    def dtype(self) -> str:
        """The arithmetic of the gradient."""


G = TypeVar("G", bound=GradientConfig)


def batch_gradient_sum(
    ctx: PartyContext[G], model: nn.Module, sparsification: Sparsification | None = None
) -> ClippedGradientSum:
    """The mechanism of one step: the clipped gradients of a Poisson batch, summed up.

    Args:
        ctx: The party's context; its plan has the noise and the sampling rate.
        model: A network of images around the data set's mean, in its deviations.
        sparsification: The rule that reduces gradients to their largest coordinates, if any.
    """
    normalizer, plan = Normalizer.standard(ctx.dataset), ctx.party_plan
    return ClippedGradientSum(
        model=model,
        inputs=lambda pixels, _: normalizer.to_network(pixels),
        clip=ctx.config.clip,
        noise_multiplier=plan.noise_multiplier,
        sampling_rate=plan.sampling_rate,
        dtype=ctx.config.dtype,
        sparsification=sparsification,
    )


J = TypeVar("J", bound=NoisePlacementConfig)


class JointGradientMethod(JointMethod[J]):
    """A joint method in which every round sums a network's gradient over all parties."""

    def gradient_plan(
        self,
        cfg: J,
        stage: Stage,
        budget: Budget,
        *,
        width: int,
        sampling_rate: float,
        steps: int,
        floats: int | None = None,
        noise: float | None = None,
        server_cost: tuple[ComputeCost, ...] = (),
        assumes: tuple[str, ...],
    ) -> Plan:
        """The plan of `steps` gradients of a ConvNet of this width, or of another network of
        `floats` weights that costs as much; see `sampled_plan`."""
        if floats is None:
            floats = sum(p.numel() for p in empty_convnet(width, stage.data).parameters())
        return self.sampled_plan(
            cfg,
            stage,
            budget,
            sampling_rate=sampling_rate,
            steps=steps,
            noise=noise,
            bytes_up=4 * floats * steps,
            bytes_down=4 * floats * steps,
            party_cost=lambda info: ComputeCost(
                "gradient", width, round(sampling_rate * info.records), steps
            ),
            server_cost=server_cost,
            assumes=assumes,
        )
