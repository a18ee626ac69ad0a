"""DP-CGAN: a conditional GAN whose discriminator learns by DP-SGD, trained at home and released.

Torkzadehmahani, Kairouz, Paten: "DP-CGAN: Differentially Private Synthetic Data and Label
Generation", 2019. Two small perceptrons. The discriminator's gradient on real records is clipped
record by record and noised; on generated images it needs no noise, as no record is in it. Whatever
the generator learns from the discriminator is post-processing.

Put right: the published program multiplies its noise multiplier by the clipping bound and counts
neither (2.1 and 30,000 steps cost 4.1, not 10; 1.1 times 1.12 would cost 9.6). Here noise is
calibrated to the budget. Samples are Poisson samples. The generator's labels are drawn, not taken
from the private batch, whose labels would leak through its update. As published elsewhere
(GS-WGAN's and PSG's baselines), 30,000 steps at epsilon 10; at epsilon 1 its authors exclude it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.generator_release import GeneratorRelease, held_classes, uniform_inputs
from fedsynth.methods.common.poisson_plan import sampled_party_plan, step_event
from fedsynth.methods.method import PartyContext
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator, rows_with_labels
from fedsynth.privacy.clipping import clipped_gradient_sum
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum

FIRST_RATE, LAST_RATE, FALLS_FOR = 0.1, 0.052, 10_000  # of the discriminator, step by step
AS_WIDE = 8  # a step of the discriminator takes as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPCGANConfig:
    """DP-CGAN's settings; the defaults are the published ones."""

    steps: int = setting(30_000, "steps of discriminator and generator", at_least=1)
    batch: int = setting(600, "expected size of a batch", at_least=1)
    clip: float = setting(1.1, "bound C on a record's gradient", above=0)
    noise: float | None = setting(None, "noise multiplier; none: what the budget allows", above=0)
    rate: float = setting(1e-3, "Adam's learning rate of the generator", above=0)
    pace: float = setting(
        1.0, "factor on the discriminator's learning rate (.1, falling to .052)", above=0
    )
    latent: int = setting(100, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(128, "hidden units of both networks", at_least=1)
    spc: int = setting(6000, "images a class drawn from the generators", at_least=1)

    def sampling_rate(self, info: PartyInfo) -> float:
        """Probability that a record enters a batch."""
        return min(1.0, self.batch / info.records)

    def pace_at(self, step: int) -> float:
        """The discriminator's learning rate."""
        done = min(1.0, step / FALLS_FOR)
        return self.pace * (FIRST_RATE + (LAST_RATE - FIRST_RATE) * done)


class DPCGAN(GeneratorRelease[DPCGANConfig]):
    """One-shot: a generator a party."""

    name = "dp_cgan"
    summary = "A conditional GAN whose discriminator learns by DP-SGD"
    source = "Torkzadehmahani et al. 2019, DP-CGAN"
    Config = DPCGANConfig
    paper_convention = "rdp_classic"
    presets = {
        "test": {"hidden": 8, "latent": 4},
        "smoke": {"steps": 300, "spc": 200},
        "laptop": {"steps": 5000, "spc": 1000},
        "paper": {},
    }

    def plan(self, cfg: DPCGANConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(
            sampled_party_plan(
                info,
                budget,
                sampling_rate=cfg.sampling_rate(info),
                steps=cfg.steps,
                noise=cfg.noise,
                bytes_up=4 * _weights(cfg, stage, info),
                cost=(ComputeCost("train", AS_WIDE, min(cfg.batch, info.records), cfg.steps),),
            )
            for info in stage.parties
        )
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def network(self, cfg: DPCGANConfig, plan: Plan, party: int, *key: object) -> nn.Module:
        classes = len(plan.info(party).class_counts)
        with default_seed(*key):
            return MLPGenerator(cfg.latent, classes, plan.stage.data.shape, (cfg.hidden,))

    def party(self, ctx: PartyContext[DPCGANConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, share = private.info, plan.of(private.info.party)
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        pair = _Pair(cfg, plan, info.party, self.network(cfg, plan, info.party, *key, "g"), key)
        pair.to(guard.device)
        expected = share.sampling_rate * info.records
        mechanism = ClippedGradientSum(
            model=pair.discriminator,
            inputs=pair.rows,
            loss=real_loss,
            clip=cfg.clip,
            noise_multiplier=share.noise_multiplier,
            sampling_rate=share.sampling_rate,
        )
        with guard.reserve(step_event(share), cfg.steps):
            for step in private.rounds(cfg.steps, pair.state):
                sums = guard.apply(mechanism, private, call=step)
                pair.step(step, [total / expected for total in sums])
        return self.release_generator(guard, pair.generator)


class _Pair:
    """Generator and discriminator of one party."""

    def __init__(
        self, cfg: DPCGANConfig, plan: Plan, party: int, generator: nn.Module, key: tuple
    ) -> None:
        self.cfg, self.key, self.generator = cfg, key, generator
        held, self.places = held_classes(plan, party)
        self.classes = len(held)
        channels, height, width = plan.stage.data.shape
        inputs = channels * height * width + self.classes
        with default_seed(*key, "d"):
            self.discriminator = mlp_discriminator(inputs, (cfg.hidden,))
        self.adam = torch.optim.Adam(generator.parameters(), cfg.rate)

    def to(self, device: torch.device) -> None:
        """Compute there."""
        self.generator.to(device)
        self.discriminator.to(device)
        self.places = self.places.to(device)

    @property
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep."""
        return {"g": self.generator, "d": self.discriminator, "adam": self.adam}

    def rows(self, pixels: Tensor, names: Tensor) -> Tensor:
        """What the discriminator reads of records."""
        return rows_with_labels(pixels, self.places[names], self.classes)

    def step(self, number: int, real: list[Tensor]) -> None:
        """One step of the discriminator, given its noised mean gradient on real records, and one
        of the generator."""
        cfg = self.cfg
        codes, labels = uniform_inputs(cfg.batch, cfg.latent, self.classes, *self.key, number)
        codes, labels = codes.to(self.places.device), labels.to(self.places.device)
        images = self.generator(codes, labels)
        rows = rows_with_labels(images, labels, self.classes)
        fake = clipped_gradient_sum(
            self.discriminator, rows.detach(), labels, clip=cfg.clip, loss=fake_loss
        )
        weights: list[Tensor] = list(self.discriminator.parameters())
        with torch.no_grad():
            slopes = torch._foreach_add(real, fake, alpha=1 / cfg.batch)
            torch._foreach_add_(weights, slopes, alpha=-cfg.pace_at(number))
        self.adam.zero_grad()
        real_loss(self.discriminator(rows), labels).mean().backward()
        self.adam.step()


def real_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """How little each score says "real"."""
    return F.softplus(-scores).squeeze(1)


def fake_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """How little each score says "made"."""
    return F.softplus(scores).squeeze(1)


def _weights(cfg: DPCGANConfig, stage: Stage, info: PartyInfo) -> int:
    with torch.device("meta"):
        net = MLPGenerator(cfg.latent, len(info.class_counts), stage.data.shape, (cfg.hidden,))
    return sum(p.numel() for p in net.parameters())
