"""DP-kernel: a generator that follows the slopes of a private function, the sample's embedding.

Jiang, Sun, Yu: "Functional Renyi Differential Privacy for Generative Modeling" (2023). In every
step the kernel mean embedding of a Poisson sample is released as a function, with Gaussian process
noise of the kernel's own covariance, and the generator, which stays at home, takes a step on the
MMD between its images and that function. Labels enter by a product kernel, so classes are disjoint
and one record moves one of the class functions by norm one.

The published program evaluates the noised function at the generated images, but what its generator
learns from are slopes, and those it takes of the function without noise (the noise is a constant to
automatic differentiation); it also evaluates the function at the private images and scales every
step by the result. Here slopes are what is released, with the noise that the process has in its
slopes (`_rkhs`), and nothing else is. The norm seen through few slopes is far below one, so that
records may be clipped further. The paper counts a swapped record, sqrt(2) of the norm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.dpdc.distribution_matching import class_rates, expected_records
from fedsynth.methods.kernel.gradient_process import SlopeNoise, mean_kernel_slopes
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import ConvCondGen
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.mechanisms.sums import ClassSums

AS_WIDE = 20  # a step on an image takes about as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPKernelConfig:
    """DP-kernel's settings; the defaults are the published ones, but for the generator, which is
    DP-MERF's, and for the length scales, which are for pixels between -1 and 1."""

    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)
    group: int = setting(6, "expected records of a class in a step", at_least=1)
    images: int = setting(6, "generated images of a class in a step", at_least=2)
    steps: int = setting(200000, "steps", at_least=1)
    shortest: float = setting(1.0, "shortest length scale of the kernel", above=0)
    lengths: int = setting(5, "length scales, each twice the one before", at_least=1)
    clip: float = setting(
        1.0, "bound on a record's whitened slopes, which never exceed 1", above=0, at_most=1
    )
    noise: float | None = setting(
        None, "noise over sensitivity (add/remove); none: what the budget allows", above=0
    )
    code: int = setting(10, "length of the generator's codes", at_least=1)
    rate: float = setting(5e-5, "RMSprop's learning rate", above=0)

    @property
    def scales(self) -> list[float]:
        """The length scales."""
        return [self.shortest * 2**k for k in range(self.lengths)]


class DPKernel(Method[DPKernelConfig]):
    """One-shot: the party trains a generator at home and releases its images."""

    name = "dp_kernel"
    summary = "A generator trained at home on noised slopes of the records' kernel embedding"
    source = "Jiang et al. 2023, Functional Renyi Differential Privacy for Generative Modeling"
    paper_convention = "rdp"
    Config = DPKernelConfig
    presets = {
        "smoke": {"spc": 200, "group": 50, "steps": 30, "clip": 0.05, "rate": 3e-3},
        "laptop": {"spc": 1000, "group": 200, "steps": 500, "clip": 0.05, "rate": 3e-3},
        "paper": {},
        "test": {"images": 3, "shortest": 4.0, "lengths": 2, "rate": 1e-3},
    }

    def plan(self, cfg: DPKernelConfig, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            ConvCondGen(cfg.code, len(stage.classes), stage.data.shape)
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: DPKernelConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        held = len(info.class_counts)
        images = held * (cfg.images + cfg.group // 3)  # records only meet the kernel
        share = sampled_share(
            info,
            budget,
            rate=max(class_rates(cfg.group, info).values()),
            steps=cfg.steps,
            noise=cfg.noise,
            bytes_up=set_bytes(stage, held, cfg.spc),
            cost=(ComputeCost("train", AS_WIDE, images, cfg.steps),),
        )
        swapped = gaussian(share.noise_multiplier / math.sqrt(2))
        counted = repeated(poisson(share.sampling_rate, swapped), cfg.steps)
        return dataclasses.replace(share, paper_event=counted)

    def party(self, ctx: PartyContext[DPKernelConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, share = private.info, plan.of(private.info.party)
        rates = class_rates(cfg.group, info)
        expected = expected_records(rates, info)
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        held = list(rates)
        net = make_generator(ConvCondGen, cfg.code, len(held), plan.stage.data, *key, "generator")
        net = net.to(guard.device)
        learner = LearningGenerator(
            net,
            torch.optim.RMSprop(net.parameters(), cfg.rate),
            code=cfg.code,
            weights=torch.full((len(held),), 1 / len(held)),
            key=key,
            device=guard.device,
        )
        labels = torch.arange(len(held)).repeat_interleave(cfg.images)
        with guard.reserve(step_event(share), cfg.steps):
            for step in private.rounds(cfg.steps, learner.state):
                images, _ = learner.batch(step, labels)
                points = images.flatten(1) * 2 - 1
                embedding = ClassEmbeddings(held, points.detach(), cfg)
                mechanism = ClassSums(
                    contribution=embedding.rows,
                    width=embedding.width,
                    clip=cfg.clip,
                    noise_multiplier=share.noise_multiplier,
                    sampling_rates=rates,
                )
                (released,) = guard.apply(mechanism, private, call=step)
                learner.follow(points, embedding.slopes(released, expected))
        made = learner.sample(held, cfg.spc)
        return guard.release(made)

    def serve(self, ctx: ServerContext[DPKernelConfig]) -> Outcome:
        return pooled(ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed})))


class ClassEmbeddings:
    """The generated images of a step, class by class, and the embeddings' slopes at them."""

    def __init__(self, classes: Sequence[int], points: Tensor, cfg: DPKernelConfig) -> None:
        """`points` [classes x images, d] in [-1, 1], class after class."""
        self.cfg, self.points = cfg, points.view(len(classes), cfg.images, -1)
        noise = [SlopeNoise(mine, cfg.scales) for mine in self.points]
        self.noise = dict(zip(classes, noise, strict=True))
        self.width = noise[0].width

    def rows(self, pixels: Tensor, names: Tensor) -> Tensor:
        """What each record adds to its class's release: norm at most one."""
        x = pixels.flatten(1) * 2 - 1
        rows = x.new_zeros(len(x), self.width)
        for name, noise in self.noise.items():
            mine = torch.nonzero(names == name).flatten().to(x.device)
            if len(mine):
                rows[mine] = noise.rows(x[mine])
        return rows

    def slopes(self, released: Tensor, expected: Tensor) -> Tensor:
        """The slope of MMD^2, summed over classes, at every point; `expected` are the numbers of
        records that each class's sum holds on average."""
        found = [
            mean_kernel_slopes(mine, self.cfg.scales)
            - 2 / (self.cfg.images * n) * noise.slopes(row)
            for mine, noise, row, n in zip(
                self.points, self.noise.values(), released, expected.tolist(), strict=True
            )
        ]
        return torch.cat(found)
