"""DP-GAN: a Wasserstein GAN per party and class, its critic trained by DP-SGD, and released.

Xie et al.: "Differentially Private Generative Adversarial Network", 2018, in the form of DP-MERF's
repository: a generator and a critic for every class, critic weights clipped to .01, the gradient of
a record clipped and noised, RMSprop, five critic steps per generator step.

The published bound of .01 is on a record's part of the mean over 64 records, so on .64 for a
record's own gradient, which is what `clip` bounds here. The critic's gradients on generated images
are clipped to the same bound, each image's by itself, also as published: if they were not, they
would outweigh those on records, and the generator would learn to flee its own images only.

Departures. Classes are disjoint, so a record is charged for its own class only (the published count
adds up all classes: `paper_event`). Published noise is relative to 2C, for neighbours that replace
a record; if one is added or removed a sum moves by C, so the same noise is twice the multiplier.
Gradients on generated images contain no record and get no noise. Batches are Poisson
samples of the class, whose number of records is assumed to be public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import PARTY_CLASS_COUNTS, PartyPlan, Plan
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Shape, Stage
from fedsynth.methods.common.generator_release import GeneratorRelease
from fedsynth.methods.common.generator_training import normal_latents
from fedsynth.methods.method import PartyContext
from fedsynth.nn import optimizers
from fedsynth.nn.gan.wasserstein_mlp import WassersteinGenerator, critic_rows, wasserstein_critic
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP, clipped_gradient_sum
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.subsets import ClassSubset

COST_AS_CONVNET_WIDTH = 16  # a critic step takes as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPGANConfig:
    """Settings of DP-GAN; the defaults are the published ones."""

    epochs: int = setting(20, "passes of a critic over the records of its class", at_least=1)
    batch: int = setting(
        64, "expected size of a batch, up to a factor of 1.41 (few different sampling rates)",
        at_least=1,
    )  # fmt: skip
    clip: float = setting(
        0.64,
        "bound C on a record's gradient (published: .01 on its part of a mean of 64)",
        at_least=LEAST_CLIP,
        at_most=MOST_CLIP,
    )
    weights: float = setting(0.01, "bound on every weight of a critic", above=0)
    noise: float | None = setting(
        None, "noise multiplier (published: 2.82); default: what the budget allows", above=0
    )
    learning_rate: float = setting(5e-5, "RMSprop's learning rate", above=0, formerly="rate")
    critic_steps: int = setting(5, "critic steps per generator step", at_least=1)
    latent: int = setting(100, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(1024, "units of the generator's widest layer", at_least=8)
    spc: int = setting(
        6000, "images per class drawn from the generators", at_least=1, at_most=1_000_000
    )

    def sampling_rate(self, records: int) -> float:
        """The probability that a record of a class of this size enters a batch: a power of 1.41."""
        return float(min(1.0, 2 ** (math.ceil(2 * math.log2(self.batch / records)) / 2)))

    def steps(self, info: PartyInfo) -> int:
        """The number of critic steps for every class of a party."""
        mean = info.records // len(info.class_counts)
        return self.epochs * max(1, mean // self.batch)

    def generator(self, shape: Shape) -> nn.Module:
        """A generator for one class."""
        sizes = tuple(self.hidden // part for part in (8, 4, 2, 1))
        return WassersteinGenerator(self.latent, shape, sizes)


class DPGAN(GeneratorRelease[DPGANConfig]):
    """One generator per class and party, released once."""

    name = "dp_gan"
    summary = "One Wasserstein GAN per class, its critic trained with DP-SGD"
    source = "Xie et al. 2018, DP-GAN, as in DP-MERF's comparison"
    paper_relation = Relation.REPLACE_ONE
    presets = {
        "smoke": {"hidden": 128, "epochs": 1, "spc": 200, "learning_rate": 1e-3},
        "laptop": {"hidden": 256, "epochs": 7, "spc": 1000, "learning_rate": 5e-4},
    }

    def plan(self, cfg: DPGANConfig, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):
            weights = sum(p.numel() for p in cfg.generator(stage.data.shape).parameters())
        parties = tuple(_party_plan(cfg, stage, info, budget, weights) for info in stage.parties)
        return Plan(self.name, stage, budget, parties, assumes=(PARTY_CLASS_COUNTS,))

    def network(self, cfg: DPGANConfig, plan: Plan, party: int, *key: object) -> PerClassGenerators:
        shape, held = plan.stage.data.shape, plan.info(party).class_counts
        with default_seed(*key):
            return PerClassGenerators([cfg.generator(shape) for _ in held])

    def latents(self, count: int, cfg: DPGANConfig, generator: torch.Generator) -> Tensor:
        return normal_latents(count, cfg.latent, generator)

    def party(self, ctx: PartyContext[DPGANConfig], request: Request) -> Release:
        """Train one GAN per class on Poisson samples of its records; release the generators."""
        cfg, key, counts = ctx.config, ctx.random_key(request), ctx.info.class_counts
        steps = cfg.steps(ctx.info)
        generators = self.network(cfg, ctx.plan, ctx.party, *key, "generators").to(ctx.device)
        for generator, label in zip(generators.nets, sorted(counts), strict=True):
            gan = _ClassGAN(cfg, ctx.dataset.shape, generator, (*key, label), ctx.device)
            q, noise = _rate_and_noise(cfg, ctx.info, label, ctx.plan.budget)
            mechanism = ClippedGradientSum(
                model=gan.critic,
                inputs=lambda pixels, _: critic_rows(pixels),
                loss=real_loss,
                clip=cfg.clip,
                noise_multiplier=noise,
                sampling_rate=q,
                subset=ClassSubset(label, ctx.dataset.classes),
            )
            event = _step_event(ctx.plan.stage, label, q, noise)
            with ctx.guard.reserve(event, steps, f"class {label}"):
                for step in ctx.data.rounds(steps, gan.state, f"class-{label}"):
                    sums = ctx.guard.apply(mechanism, ctx.data, call=step)
                    expected_batch = q * counts[label]
                    gan.step(step, [total / expected_batch for total in sums])
        return self.release_generator(ctx.guard, generators)


class PerClassGenerators(nn.Module):
    """Generators of single classes as one generator: class indices select among them."""

    def __init__(self, nets: list[nn.Module]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, latents: Tensor, class_indices: Tensor) -> Tensor:
        """The images of these latents and class indices."""
        rows = [torch.nonzero(class_indices == c).flatten() for c in range(len(self.nets))]
        parts = [
            net(latents[chosen], class_indices[chosen])
            for net, chosen in zip(self.nets, rows, strict=True)
        ]
        images = torch.cat(parts)
        return torch.empty_like(images).index_copy_(0, torch.cat(rows), images)


class _ClassGAN:
    """Generator and critic of one class."""

    def __init__(
        self,
        cfg: DPGANConfig,
        shape: Shape,
        generator: nn.Module,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        self.cfg, self.generator, self.key, self.device = cfg, generator, key, device
        sizes = (cfg.hidden // 2, cfg.hidden // 4)
        with default_seed(*key, "critic"):
            self.critic = wasserstein_critic(math.prod(shape), sizes).to(device)
        self.critic_optimiser = optimizers.RMSprop(self.critic.parameters(), cfg.learning_rate)
        self.generator_optimiser = optimizers.RMSprop(generator.parameters(), cfg.learning_rate)

    @property
    def state(self) -> dict[str, object]:
        """The state that a checkpoint holds."""
        return {
            "critic": self.critic,
            "generator": self.generator,
            "of critic": self.critic_optimiser,
            "of generator": self.generator_optimiser,
        }

    def step(self, number: int, real_gradient: list[Tensor]) -> None:
        """Update the critic with its noised mean gradient on records and, every `critic_steps`, the
        generator."""
        cfg = self.cfg
        weights: list[Tensor] = list(self.critic.parameters())
        with torch.no_grad():
            rows, labels = self._rows(number)
        fake_gradient = clipped_gradient_sum(
            self.critic, rows, labels, clip=cfg.clip, loss=fake_loss
        )
        for weight, real, fake in zip(weights, real_gradient, fake_gradient, strict=True):
            weight.grad = real + fake.to(real.dtype) / cfg.batch
        self.critic_optimiser.step()
        with torch.no_grad():
            torch._foreach_clamp_min_(weights, -cfg.weights)
            torch._foreach_clamp_max_(weights, cfg.weights)
        if (number + 1) % cfg.critic_steps == 0:
            self.generator_optimiser.zero_grad()
            rows, labels = self._rows(number, "generator")
            real_loss(self.critic(rows), labels).mean().backward()
            self.generator_optimiser.step()

    def _rows(self, number: int, *purpose: object) -> tuple[Tensor, Tensor]:
        """Generated images as inputs of the critic, and their class indices: all zero."""
        cfg, generator = self.cfg, torch_generator(*self.key, number, *purpose)
        latents = normal_latents(cfg.batch, cfg.latent, generator).to(self.device)
        labels = torch.zeros(cfg.batch, dtype=torch.int64, device=self.device)
        return critic_rows(self.generator.train()(latents, labels)), labels


def real_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """The critic's loss on records: it raises their scores; the generator's on its images."""
    return -scores.squeeze(1)


def fake_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """The critic's loss on generated images: it lowers their scores."""
    return scores.squeeze(1)


def _party_plan(
    cfg: DPGANConfig, stage: Stage, info: PartyInfo, budget: Budget, weights: int
) -> PartyPlan:
    steps = cfg.steps(info)
    classes = {c: _rate_and_noise(cfg, info, c, budget) for c in sorted(info.class_counts)}
    published = [repeated(poisson(q, gaussian(noise / 2)), steps) for q, noise in classes.values()]
    return PartyPlan(
        info.party,
        info.records,
        composed(
            [repeated(_step_event(stage, c, q, noise), steps) for c, (q, noise) in classes.items()]
        ),
        sampling_rate=max(q for q, _ in classes.values()),
        steps=steps * len(classes),
        noise_multiplier=max(noise for _, noise in classes.values()),
        paper_event=composed(published),
        bytes_up=4 * weights * len(classes),
        cost=(ComputeCost("train", COST_AS_CONVNET_WIDTH, cfg.batch, steps * len(classes)),),
    )


def _rate_and_noise(
    cfg: DPGANConfig, info: PartyInfo, label: int, budget: Budget
) -> tuple[float, float]:
    """Sampling rate and noise multiplier of one step on one class."""
    q = cfg.sampling_rate(info.class_counts[label])
    return q, cfg.noise or poisson_gaussian_multiplier(
        q,
        cfg.steps(info),
        budget.epsilon,
        budget.delta,
        budget.accounting,
        relation=budget.relation,
    )


def _step_event(stage: Stage, label: int, q: float, noise: float) -> DpEvent:
    part = ClassSubset(label, stage.data.classes)
    return part.event(poisson(q, gaussian(noise)), Unit.RECORD)  # DP-GAN protects no other unit
