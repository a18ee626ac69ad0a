"""DP-Sinkhorn: a generator that follows the noised slope of an optimal transport to real samples.

Cao, Bie, Vahdat, Fidler, Kreis (2021). In every step a Poisson sample meets a batch of generated
images; the gradient of the entropic transport cost at all those images together is one vector,
clipped to C, and Gaussian noise is added; the generator, which stays at home, goes where it points.
The loss is semi-debiased: the cost of transporting the images to themselves is taken off, part of
them replaced by extra images, which touch no record.

Any record may turn the whole vector round, so the noise is made for 2 C. Where the published
program lets the number of records in the sample decide how many images are generated, which tells
that number, this generates always as many; and an empty sample releases noise instead of nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.methods.sinkhorn.transport import PointCloud, slope
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.deconv_generator import DeconvGenerator
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.mechanisms.sample_function import SampleFunction

AS_WIDE = 20  # a step on an image takes about as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPSinkhornConfig:
    """DP-Sinkhorn's settings; the defaults are the published ones for MNIST."""

    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)
    batch: int = setting(50, "expected records in a step's sample", at_least=1)
    images: int = setting(50, "generated images in a step", at_least=2)
    steps: int = setting(3446400, "steps (2,872 passes of 1,200 steps)", at_least=1)
    clip: float = setting(0.5, "bound C on the gradient at all images together", above=0)
    noise: float | None = setting(
        None, "noise over sensitivity (2 C; published: 1.1); none: what the budget allows", above=0
    )
    debiased: float = setting(0.2, "share of images replaced by extra ones", at_least=0, at_most=1)
    l1: float = setting(1.0, "weight of the L1 distance beside the squared L2", at_least=0)
    blur: float = setting(0.05, "entropic regularisation", above=0)
    code: int = setting(16, "length of the generator's codes", at_least=1)
    depth: int = setting(256, "channels of the generator's first planes", at_least=1)
    rate: float = setting(1e-5, "Adam's learning rate", above=0)
    decay: float = setting(1e-5, "weight decay", at_least=0)

    @property
    def extra(self) -> int:
        """How many images a step draws besides those whose gradient is private."""
        return int(self.debiased * self.images)

    def sampling_rate(self, info: PartyInfo) -> float:
        """Probability that a record enters a sample."""
        return min(1.0, self.batch / info.records)


class DPSinkhorn(Method[DPSinkhornConfig]):
    """One-shot: the party trains a generator at home and releases its images."""

    name = "dp_sinkhorn"
    summary = "A generator trained at home on noised slopes of an optimal transport"
    source = "Cao et al. 2021, Don't Generate Me: DP Generative Modeling with Sinkhorn Divergence"
    paper_convention = "rdp_classic_sparse"
    Config = DPSinkhornConfig
    presets = {
        "smoke": {"spc": 200, "images": 20, "steps": 60, "depth": 32, "rate": 1e-3},
        "laptop": {"spc": 1000, "steps": 2500, "depth": 64, "rate": 1e-4},
        "paper": {},
        "test": {"depth": 8, "images": 6, "rate": 1e-3},
    }

    def plan(self, cfg: DPSinkhornConfig, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            DeconvGenerator(cfg.code, len(stage.classes), stage.data.shape, cfg.depth)
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: DPSinkhornConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        return sampled_share(
            info,
            budget,
            rate=cfg.sampling_rate(info),
            steps=cfg.steps,
            noise=cfg.noise,
            bytes_up=set_bytes(stage, len(info.class_counts), cfg.spc),
            cost=(ComputeCost("train", AS_WIDE, cfg.images + cfg.extra, cfg.steps),),
        )

    def party(self, ctx: PartyContext[DPSinkhornConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, share, data = private.info, plan.of(private.info.party), plan.stage.data
        held = sorted(info.class_counts)
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        build = partial(DeconvGenerator, depth=cfg.depth)
        net = make_generator(build, cfg.code, len(held), data, *key, "generator").to(guard.device)
        learner = LearningGenerator(
            net,
            torch.optim.Adam(net.parameters(), cfg.rate, weight_decay=cfg.decay),
            code=cfg.code,
            weights=torch.full((len(held),), 1 / len(held)),
            key=key,
            device=guard.device,
            uniform=True,
        )
        places = torch.full((data.classes,), -1)
        places[held] = torch.arange(len(held))
        with guard.reserve(step_event(share), cfg.steps):
            for step in private.rounds(cfg.steps, learner.state):
                images, labels = learner.batch(step, cfg.images + cfg.extra)
                points = images.flatten(1) * 2 - 1
                clouds = StepClouds(cfg, points.detach(), labels.to(points.device))
                mechanism = SampleFunction(
                    function=partial(clouds.towards, places),
                    shape=(cfg.images, math.prod(data.shape)),
                    clip=cfg.clip,
                    noise_multiplier=share.noise_multiplier,
                    sampling_rate=share.sampling_rate,
                )
                (slopes,) = guard.apply(mechanism, private, call=step)
                learner.follow(points, torch.cat([slopes, clouds.of_extra()]))
        made = learner.sample(held, cfg.spc)
        return guard.release(made)

    def serve(self, ctx: ServerContext[DPSinkhornConfig]) -> Outcome:
        return pooled(ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed})))


class StepClouds:
    """The generated images of a step as the transport sees them: those whose slope is private, and
    the extra ones that take part of their place where the images are compared with themselves."""

    def __init__(self, cfg: DPSinkhornConfig, points: Tensor, labels: Tensor) -> None:
        self.cfg, n = cfg, cfg.images
        self.fake = PointCloud(points[:n], labels[:n])
        others = PointCloud(points[cfg.extra :], labels[cfg.extra :])
        self.among = torch.zeros_like(points)  # the slope of W(fake, others) at every image
        self.among[:n] += slope(self.fake, others, cfg.blur, cfg.l1)
        self.among[cfg.extra :] += slope(others, self.fake, cfg.blur, cfg.l1)

    def towards(self, places: Tensor, pixels: Tensor, names: Tensor) -> Tensor:
        """The slope of 2 W(fake, real) - W(fake, others) at the fake images, [images, numbers];
        `places` are the generator's labels for the classes' names."""
        cfg, real = self.cfg, PointCloud(pixels.flatten(1) * 2 - 1, places[names].to(pixels.device))
        return 2 * slope(self.fake, real, cfg.blur, cfg.l1) - self.among[: cfg.images]

    def of_extra(self) -> Tensor:
        """The slope of the same loss at the extra images, clipped alike; it needs no record."""
        rest = -self.among[self.cfg.images :]
        return clip_rows(rest.reshape(1, -1), self.cfg.clip).view_as(rest)
