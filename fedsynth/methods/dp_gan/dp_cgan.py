"""DP-CGAN: a conditional GAN per party whose discriminator is trained by DP-SGD, and released.

Torkzadehmahani, Kairouz, Paten: "DP-CGAN: Differentially Private Synthetic Data and Label
Generation", 2019. Two small perceptrons. The discriminator's gradient on real records is clipped
per record and noised; its gradient on generated images contains no record and needs no noise. All
that the generator learns from the discriminator is post-processing.

Departures. The published program multiplies its noise multiplier by the clipping bound and accounts
for neither (2.1 and 30,000 steps cost 4.1, not 10; 1.1 times 1.12 would cost 9.6); here noise is
calibrated to the budget. Batches are Poisson samples. The generator's labels are drawn from public
randomness, not taken from the private batch, whose labels would leak through its update. The steps
are those published elsewhere (GS-WGAN's and PSG's baselines): 30,000 at epsilon 10; its authors
exclude epsilon 1. The published program clips each of the four tensors of weights to C by itself,
so that a record moves them together by up to 2 C against noise for C; here C bounds them together.

Labels. A one-hot label has norm 1 beside pixels of norm 9, so the discriminator overlooks it for
thousands of steps: digits come first, of any class, and only then those of the class asked for.
`label_scale` enlarges it; the published value is 1, and 10 was chosen on a hold-out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Shape, Stage
from fedsynth.methods.common.generator_release import (
    GeneratorRelease,
    held_classes,
    uniform_inputs,
)
from fedsynth.methods.common.poisson_plan import record_rate, sampled_party_plan, step_event
from fedsynth.methods.method import PartyContext
from fedsynth.nn import optimizers
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator, rows_with_labels
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP, clipped_gradient_sum
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum

# The discriminator's learning rate falls linearly from the first to the last value.
FIRST_LEARNING_RATE, LAST_LEARNING_RATE, DECAY_STEPS = 0.1, 0.052, 10_000
COST_AS_CONVNET_WIDTH = 8  # a discriminator step takes as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPCGANConfig:
    """Settings of DP-CGAN; the defaults are the published ones."""

    steps: int = setting(30_000, "steps of discriminator and generator", at_least=1)
    batch: int = setting(600, "expected size of a batch", at_least=1)
    clip: float = setting(
        1.1, "bound C on a record's gradient", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    noise: float | None = setting(
        None, "noise multiplier; default: what the budget allows", above=0
    )
    learning_rate: float = setting(
        1e-3, "Adam's learning rate of the generator", above=0, formerly="rate"
    )
    discriminator_factor: float = setting(
        1.0, "factor on the discriminator's learning rate (.1, falling to .052)", above=0,
        formerly="pace",
    )  # fmt: skip
    label_scale: float = setting(
        1.0, "factor on the one-hot labels that the discriminator sees", above=0
    )
    latent: int = setting(100, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(128, "hidden units of both networks", at_least=1)
    spc: int = setting(
        6000, "images per class drawn from the generators", at_least=1, at_most=1_000_000
    )

    def discriminator_learning_rate(self, step: int) -> float:
        """The discriminator's learning rate in a step."""
        fraction = min(1.0, step / DECAY_STEPS)
        fall = (LAST_LEARNING_RATE - FIRST_LEARNING_RATE) * fraction
        return self.discriminator_factor * (FIRST_LEARNING_RATE + fall)

    def generator(self, classes: int, shape: Shape) -> MLPGenerator:
        """A generator of images of this many classes."""
        return MLPGenerator(self.latent, classes, shape, (self.hidden,))


class DPCGAN(GeneratorRelease[DPCGANConfig]):
    """One generator per party, released once."""

    name = "dp_cgan"
    summary = "A conditional GAN with a discriminator trained with DP-SGD"
    source = "Torkzadehmahani et al. 2019, DP-CGAN"
    presets = {
        "smoke": {"steps": 300, "spc": 200},
        "laptop": {"steps": 5000, "label_scale": 10.0, "spc": 1000},
    }

    def plan(self, cfg: DPCGANConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(
            sampled_party_plan(
                info,
                budget,
                sampling_rate=record_rate(cfg.batch, info),
                steps=cfg.steps,
                noise=cfg.noise,
                bytes_up=4 * _weights(cfg, stage, info),
                cost=(
                    ComputeCost(
                        "train", COST_AS_CONVNET_WIDTH, min(cfg.batch, info.records), cfg.steps
                    ),
                ),
            )
            for info in stage.parties
        )
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def network(self, cfg: DPCGANConfig, plan: Plan, party: int, *key: object) -> nn.Module:
        with default_seed(*key):
            return cfg.generator(len(plan.info(party).class_counts), plan.stage.data.shape)

    def party(self, ctx: PartyContext[DPCGANConfig], request: Request) -> Release:
        """Train both networks on Poisson samples of the party's records; release the generator."""
        cfg, party_plan, key = ctx.config, ctx.party_plan, ctx.random_key(request)
        gan = _ConditionalGAN(ctx, self.network(cfg, ctx.plan, ctx.party, *key, "g"), key)
        mechanism = ClippedGradientSum(
            model=gan.discriminator,
            inputs=gan.rows,
            loss=real_loss,
            clip=cfg.clip,
            noise_multiplier=party_plan.noise_multiplier,
            sampling_rate=party_plan.sampling_rate,
        )
        expected_batch = party_plan.sampling_rate * ctx.info.records
        with ctx.guard.reserve(step_event(party_plan), cfg.steps):
            for step in ctx.data.rounds(cfg.steps, gan.state):
                sums = ctx.guard.apply(mechanism, ctx.data, call=step)
                gan.step(step, [total / expected_batch for total in sums])
        return self.release_generator(ctx.guard, gan.generator)


class _ConditionalGAN:
    """Generator and discriminator of one party."""

    def __init__(
        self, ctx: PartyContext[DPCGANConfig], generator: nn.Module, key: tuple[object, ...]
    ) -> None:
        self.cfg, self.key, self.device = ctx.config, key, ctx.device
        held, class_indices = held_classes(ctx.plan, ctx.party)
        self.classes, self.class_indices = len(held), class_indices.to(ctx.device)
        inputs = math.prod(ctx.dataset.shape) + self.classes
        with default_seed(*key, "d"):
            discriminator = mlp_discriminator(inputs, (self.cfg.hidden,))
        self.discriminator = discriminator.to(ctx.device)
        self.generator = generator.to(ctx.device)
        self.adam = optimizers.Adam(self.generator.parameters(), self.cfg.learning_rate)

    @property
    def state(self) -> dict[str, object]:
        """The state that a checkpoint holds."""
        return {"g": self.generator, "d": self.discriminator, "adam": self.adam}

    def rows(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """The discriminator's inputs for records."""
        return self._rows(pixels, self.class_indices[labels])

    def _rows(self, pixels: Tensor, indices: Tensor) -> Tensor:
        return rows_with_labels(pixels, indices, self.classes, self.cfg.label_scale)

    def step(self, number: int, real_gradient: list[Tensor]) -> None:
        """Update the discriminator with its noised mean gradient on records, then the generator."""
        cfg = self.cfg
        inputs = uniform_inputs(cfg.batch, cfg.latent, self.classes, *self.key, number)
        latents, labels = (value.to(self.device) for value in inputs)
        rows = self._rows(self.generator(latents, labels), labels)
        fake_gradient = clipped_gradient_sum(
            self.discriminator, rows.detach(), labels, clip=cfg.clip, loss=fake_loss
        )
        fake_gradient = [value.to(rows.dtype) for value in fake_gradient]
        weights: list[Tensor] = list(self.discriminator.parameters())
        with torch.no_grad():
            gradient = torch._foreach_add(real_gradient, fake_gradient, alpha=1 / cfg.batch)
            learning_rate = cfg.discriminator_learning_rate(number)
            torch._foreach_add_(weights, gradient, alpha=-learning_rate)
        self.adam.zero_grad()
        real_loss(self.discriminator(rows), labels).mean().backward()
        self.adam.step()


def real_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """Cross-entropy of each score with the class "real"."""
    return F.softplus(-scores).squeeze(1)


def fake_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """Cross-entropy of each score with the class "generated"."""
    return F.softplus(scores).squeeze(1)


def _weights(cfg: DPCGANConfig, stage: Stage, info: PartyInfo) -> int:
    with torch.device("meta"):
        net = cfg.generator(len(info.class_counts), stage.data.shape)
    return sum(p.numel() for p in net.parameters())
