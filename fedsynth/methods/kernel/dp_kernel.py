"""DP-kernel: a generator that descends the MMD to a noised kernel embedding of the records.

Jiang, Sun, Yu, "Functional Renyi Differential Privacy for Generative Modeling", 2023. In every step
the kernel mean embedding of a Poisson sample is released as a function, with Gaussian process noise
of the kernel's own covariance, and the generator, which never leaves its party, takes a step on the
MMD between its images and that function. Labels enter by a product kernel, so classes are disjoint
and one record changes one of the class functions by norm one.

Departures from the paper:
- Its program evaluates the noised function at the generated images, but its generator learns from
  gradients, and it takes those of the function without noise (the noise is a constant to automatic
  differentiation). It also evaluates the function at the private images and scales every step by
  the result. Here the gradients are released, with the noise that the process has in its gradients
  (`gradient_process`), and nothing else is.
- The norm of a record in few gradients is far below one, so records may be clipped further.
- The paper counts a replaced record, sqrt(2) of the norm; `event` counts an added or removed one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.enums import Relation
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PARTY_CLASS_COUNTS, PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.common.one_shot import OneShotMethod, set_bytes
from fedsynth.methods.common.poisson_plan import (
    class_rates,
    expected_records,
    sampled_party_plan,
    step_event,
)
from fedsynth.methods.kernel.gradient_process import GradientNoise, mean_kernel_gradients
from fedsynth.methods.method import PartyContext
from fedsynth.nn import optimizers
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import ConvCondGen
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.clipping import LEAST_CLIP
from fedsynth.privacy.mechanisms.sums import ClassSums

COST_AS_CONVNET_WIDTH = 20  # a step on an image takes about as long as one of such a ConvNet


@dataclass(frozen=True)
class DPKernelConfig:
    """DP-kernel's settings; the defaults are the published ones, but for the generator, which is
    DP-MERF's, and for the length scales, which are for pixels between -1 and 1."""

    spc: int = setting(
        6000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )
    group: int = setting(6, "expected records per class and step", at_least=1)
    images: int = setting(6, "generated images per class and step", at_least=2)
    steps: int = setting(200000, "steps", at_least=1)
    min_length_scale: float = setting(
        1.0, "shortest length scale of the kernel", above=0, formerly="shortest"
    )
    length_scales: int = setting(
        5, "number of length scales, each twice the one before", at_least=1, formerly="lengths"
    )
    clip: float = setting(
        1.0,
        "bound on a record's whitened gradients, which never exceed 1",
        at_least=LEAST_CLIP,
        at_most=1,
    )
    noise: float | None = setting(
        None, "noise over sensitivity (add/remove); default: what the budget allows", above=0
    )
    latent: int = setting(
        10, "length of the generator's latent vectors", at_least=1, formerly="code"
    )
    learning_rate: float = setting(5e-5, "RMSprop's learning rate", above=0, formerly="rate")

    @property
    def scales(self) -> list[float]:
        """The length scales."""
        return [self.min_length_scale * 2**k for k in range(self.length_scales)]


class DPKernel(OneShotMethod[DPKernelConfig]):
    """The party trains a generator by itself and releases its images."""

    name = "dp_kernel"
    summary = "A generator trained in the party on noised gradients of the kernel embedding"
    source = "Jiang et al. 2023, Functional Renyi Differential Privacy for Generative Modeling"
    paper_convention = "rdp"
    paper_relation = Relation.REPLACE_ONE
    assumes = (PARTY_CLASS_COUNTS,)
    presets = {
        "smoke": {"spc": 200, "group": 50, "steps": 30, "clip": 0.05, "learning_rate": 3e-3},
        "laptop": {"spc": 1000, "group": 200, "steps": 500, "clip": 0.05, "learning_rate": 3e-3},
    }

    def check(self, cfg: DPKernelConfig, data: DatasetInfo) -> None:
        with torch.device("meta"):
            ConvCondGen(cfg.latent, data.classes, data.shape)

    def party_plan(
        self, cfg: DPKernelConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        classes = len(info.class_counts)
        images = classes * (cfg.images + cfg.group // 3)  # records pass through the kernel only
        plan = sampled_party_plan(
            info,
            budget,
            sampling_rate=max(class_rates(cfg.group, info).values()),
            steps=cfg.steps,
            noise=cfg.noise,
            bytes_up=set_bytes(stage, classes, cfg.spc),
            cost=(ComputeCost("train", COST_AS_CONVNET_WIDTH, images, cfg.steps),),
        )
        replaced = gaussian(plan.noise_multiplier / math.sqrt(2))
        published = repeated(poisson(plan.sampling_rate, replaced), cfg.steps)
        return dataclasses.replace(plan, paper_event=published)

    def synthesize(self, ctx: PartyContext[DPKernelConfig], request: Request) -> SyntheticSet:
        cfg, plan, key = ctx.config, ctx.party_plan, ctx.random_key(request)
        rates = class_rates(cfg.group, ctx.info)
        expected = expected_records(rates, ctx.info)
        classes = list(rates)
        net = make_generator(
            ConvCondGen, cfg.latent, len(classes), ctx.dataset, *key, "generator"
        ).to(ctx.device)
        learner = LearningGenerator(
            net,
            optimizers.RMSprop(net.parameters(), cfg.learning_rate),
            latent=cfg.latent,
            weights=torch.full((len(classes),), 1 / len(classes)),
            key=key,
            device=ctx.device,
        )
        labels = torch.arange(len(classes)).repeat_interleave(cfg.images)
        with ctx.guard.reserve(step_event(plan), cfg.steps):
            for step in ctx.data.rounds(cfg.steps, learner.state):
                images, _ = learner.batch(step, labels)
                points = images.flatten(1) * 2 - 1
                embedding = ClassEmbeddings(classes, points.detach(), cfg)
                mechanism = ClassSums(
                    contribution=embedding.rows,
                    width=embedding.width,
                    clip=cfg.clip,
                    noise_multiplier=plan.noise_multiplier,
                    sampling_rates=rates,
                )
                (released,) = ctx.guard.apply(mechanism, ctx.data, call=step)
                learner.descend_gradients(points, embedding.gradients(released, expected))
        return learner.sample(classes, cfg.spc)


class ClassEmbeddings:
    """The generated images of a step, class by class, and the gradients of embeddings at them."""

    def __init__(self, classes: Sequence[int], points: Tensor, cfg: DPKernelConfig) -> None:
        """`points` [classes x images, d] in [-1, 1], class after class."""
        self.cfg, self.points = cfg, points.view(len(classes), cfg.images, -1)
        noise = [GradientNoise(of_class, cfg.scales) for of_class in self.points]
        self.noise = dict(zip(classes, noise, strict=True))
        self.width = noise[0].width

    def rows(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """The contribution of each record to its class's release: norm at most one."""
        x = pixels.flatten(1) * 2 - 1
        rows = x.new_zeros(len(x), self.width)
        for label, noise in self.noise.items():
            indices = torch.nonzero(labels == label).flatten().to(x.device)
            if len(indices):
                rows[indices] = noise.rows(x[indices])
        return rows

    def gradients(self, released: Tensor, expected: Tensor) -> Tensor:
        """The gradient of MMD^2, summed over classes, at every point.

        Args:
            released: The noised sum of rows of each class.
            expected: The expected number of records in the sum of each class.
        """
        gradients = [
            mean_kernel_gradients(points, self.cfg.scales)
            - 2 / (self.cfg.images * n) * noise.gradients(row)
            for points, noise, row, n in zip(
                self.points, self.noise.values(), released, expected.tolist(), strict=True
            )
        ]
        return torch.cat(gradients)
