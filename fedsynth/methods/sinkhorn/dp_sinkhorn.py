"""DP-Sinkhorn: a generator that descends the noised gradient of an optimal transport to records.

Cao, Bie, Vahdat, Fidler, Kreis, "Don't Generate Me: Training Differentially Private Generative
Models with Sinkhorn Divergence", 2021. In every step the entropic transport cost between a Poisson
sample and a batch of generated images has a gradient at all those images together; it is one
vector, clipped to C, and Gaussian noise is added. The generator, which never leaves its party,
follows it. The loss is semi-debiased: the cost of transporting the images to themselves is
subtracted, with part of them replaced by extra images, which depend on no record.

Claim: any record may turn the whole vector round, so the noise is made for a sensitivity of 2 C. A
replaced record moves it no further (`events.gaussian_in_ball`).

Departures from the paper: its program lets the number of records in the sample decide how many
images are generated, which reveals that number; here it is always the same, and an empty sample
releases noise instead of nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import class_indices
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.common.one_shot import OneShotMethod, set_bytes
from fedsynth.methods.common.poisson_plan import record_rate, sampled_party_plan, step_event
from fedsynth.methods.method import PartyContext
from fedsynth.methods.sinkhorn.transport import PointCloud, transport_gradient
from fedsynth.nn import optimizers
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.deconv_generator import DeconvGenerator
from fedsynth.privacy.accounting.events import gaussian_in_ball
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP, clip_rows
from fedsynth.privacy.mechanisms.sample_function import SampleFunction

COST_AS_CONVNET_WIDTH = 20  # a step on an image takes about as long as one of such a ConvNet


@dataclass(frozen=True)
class DPSinkhornConfig:
    """DP-Sinkhorn's settings; the defaults are the published ones for MNIST."""

    spc: int = setting(
        6000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )
    batch: int = setting(50, "expected records in a step's sample", at_least=1)
    images: int = setting(50, "generated images per step", at_least=2)
    steps: int = setting(3446400, "steps (2,872 passes of 1,200 steps)", at_least=1)
    clip: float = setting(
        0.5,
        "bound C on the gradient at all images together",
        at_least=LEAST_CLIP,
        at_most=MOST_CLIP,
    )
    noise: float | None = setting(
        None,
        "noise over sensitivity (2 C; published: 1.1); default: what the budget allows",
        above=0,
    )
    debiased: float = setting(0.2, "share of images replaced by extra ones", at_least=0, at_most=1)
    l1: float = setting(1.0, "weight of the L1 distance beside the squared L2", at_least=0)
    blur: float = setting(0.05, "entropic regularisation", above=0)
    latent: int = setting(
        16, "length of the generator's latent vectors", at_least=1, formerly="code"
    )
    depth: int = setting(256, "channels of the generator's first planes", at_least=1)
    learning_rate: float = setting(1e-5, "Adam's learning rate", above=0, formerly="rate")
    weight_decay: float = setting(1e-5, "Adam's weight decay", at_least=0, formerly="decay")

    @property
    def extra(self) -> int:
        """The number of images of a step besides those whose gradient is private."""
        return int(self.debiased * self.images)


class DPSinkhorn(OneShotMethod[DPSinkhornConfig]):
    """The party trains a generator by itself and releases its images."""

    name = "dp_sinkhorn"
    summary = "A generator trained in the party on noised gradients of an optimal transport"
    source = "Cao et al. 2021, Don't Generate Me: DP Generative Modeling with Sinkhorn Divergence"
    paper_convention = "rdp_classic_sparse"
    presets = {
        "smoke": {"spc": 200, "images": 20, "steps": 60, "depth": 32, "learning_rate": 1e-3},
        "laptop": {"spc": 1000, "steps": 2500, "depth": 64, "learning_rate": 1e-4},
    }

    def check(self, cfg: DPSinkhornConfig, data: DatasetInfo) -> None:
        with torch.device("meta"):
            DeconvGenerator(cfg.latent, data.classes, data.shape, cfg.depth)

    def party_plan(
        self, cfg: DPSinkhornConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        images = cfg.images + cfg.extra
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=record_rate(cfg.batch, info),
            steps=cfg.steps,
            noise=cfg.noise,
            event=gaussian_in_ball,
            bytes_up=set_bytes(stage, len(info.class_counts), cfg.spc),
            cost=(ComputeCost("train", COST_AS_CONVNET_WIDTH, images, cfg.steps),),
        )

    def synthesize(self, ctx: PartyContext[DPSinkhornConfig], request: Request) -> SyntheticSet:
        cfg, plan, key = ctx.config, ctx.party_plan, ctx.random_key(request)
        classes = sorted(ctx.info.class_counts)
        indices = class_indices(torch.arange(ctx.dataset.classes), classes)
        net = make_generator(
            partial(DeconvGenerator, depth=cfg.depth),
            cfg.latent,
            len(classes),
            ctx.dataset,
            *key,
            "generator",
        ).to(ctx.device)
        learner = LearningGenerator(
            net,
            optimizers.Adam(net.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay),
            latent=cfg.latent,
            weights=torch.full((len(classes),), 1 / len(classes)),
            key=key,
            device=ctx.device,
            uniform=True,
        )
        with ctx.guard.reserve(step_event(plan), cfg.steps):
            for step in ctx.data.rounds(cfg.steps, learner.state):
                images, labels = learner.batch(step, cfg.images + cfg.extra)
                points = images.flatten(1) * 2 - 1
                clouds = StepClouds(cfg, points.detach(), labels.to(points.device))
                mechanism = SampleFunction(
                    function=partial(clouds.private_gradient, indices),
                    shape=(cfg.images, math.prod(ctx.dataset.shape)),
                    clip=cfg.clip,
                    noise_multiplier=plan.noise_multiplier,
                    sampling_rate=plan.sampling_rate,
                )
                (gradient,) = ctx.guard.apply(mechanism, ctx.data, call=step)
                gradients = torch.cat([gradient, clouds.extra_gradient()])
                learner.descend_gradients(points, gradients)
        return learner.sample(classes, cfg.spc)


class StepClouds:
    """The generated images of a step as point clouds.

    The first images have a private gradient. The extra ones take the place of part of them where
    images are transported to images, and their gradient depends on no record."""

    def __init__(self, cfg: DPSinkhornConfig, points: Tensor, labels: Tensor) -> None:
        self.cfg, n = cfg, cfg.images
        self.fake = PointCloud(points[:n], labels[:n])
        shifted = PointCloud(points[cfg.extra :], labels[cfg.extra :])
        self.self_gradient = torch.zeros_like(points)  # of W(fake, shifted), at every image
        self.self_gradient[:n] += transport_gradient(self.fake, shifted, cfg.blur, cfg.l1)
        self.self_gradient[cfg.extra :] += transport_gradient(shifted, self.fake, cfg.blur, cfg.l1)

    def private_gradient(self, indices: Tensor, pixels: Tensor, labels: Tensor) -> Tensor:
        """The gradient of 2 W(fake, real) - W(fake, shifted) at the fake images.

        Args:
            indices: The class index of each label.
            pixels: The records of a sample.
            labels: Their labels.

        Returns:
            The gradient, [images, values of an image].
        """
        cfg, points = self.cfg, pixels.flatten(1) * 2 - 1
        real = PointCloud(points, indices[labels].to(pixels.device))
        towards = transport_gradient(self.fake, real, cfg.blur, cfg.l1)
        return 2 * towards - self.self_gradient[: cfg.images]

    def extra_gradient(self) -> Tensor:
        """The gradient of the same loss at the extra images, clipped in the same way."""
        rest = -self.self_gradient[self.cfg.images :]
        return clip_rows(rest.reshape(1, -1), self.cfg.clip).view_as(rest)
