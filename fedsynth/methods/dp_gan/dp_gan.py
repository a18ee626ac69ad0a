"""DP-GAN: one Wasserstein GAN a class, its critic trained by DP-SGD at home, all of them released.

Xie et al.: "Differentially Private Generative Adversarial Network", 2018, in the form of DP-MERF's
repository: a generator and a critic for every class, critic weights clipped to .01, the gradient of
a record clipped to .01 and noised, RMSprop, five critic steps a generator step.

Put right: classes are disjoint, so a record pays for its own class alone (the published count adds
up all classes: `paper_event`). Published noise is relative to 2C, for neighbours that swap a
record; with one added or removed a sum moves by C, so the same noise is twice the multiplier. The
critics' gradients on generated images have no record in them and no noise. Samples are Poisson
samples of the class, whose number of records is taken for public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Shape, Stage
from fedsynth.methods.common.generator_release import GeneratorRelease
from fedsynth.methods.common.generator_training import uniform_latents
from fedsynth.methods.method import PartyContext
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.subsets import ClassSubset

AS_WIDE = 16  # a step of a critic takes as long as one of a ConvNet of this width


@dataclass(frozen=True)
class DPGANConfig:
    """DP-GAN's settings; the defaults are the published ones."""

    epochs: int = setting(20, "passes of a critic over the records of a class", at_least=1)
    batch: int = setting(
        64, "expected size of a batch, up to a factor of 1.41 (few rates, few noises)", at_least=1
    )
    clip: float = setting(0.01, "bound C on a record's gradient", above=0)
    weights: float = setting(0.01, "bound on every weight of a critic", above=0)
    noise: float | None = setting(
        None, "noise multiplier (published: 2.82); none: what the budget allows", above=0
    )
    rate: float = setting(5e-5, "RMSprop's learning rate", above=0)
    critic_steps: int = setting(5, "critic steps a generator step", at_least=1)
    latent: int = setting(100, "length of a latent vector", at_least=1, formerly="code")
    hidden: int = setting(1024, "units of the generator's widest layer", at_least=8)
    spc: int = setting(6000, "images a class drawn from the generators", at_least=1)

    def sampling_rate(self, records: int) -> float:
        """Probability that a record enters a batch, for a class of so many: a power of 1.41."""
        return float(min(1.0, 2 ** (math.ceil(2 * math.log2(self.batch / records)) / 2)))

    def steps(self, info: PartyInfo) -> int:
        """Critic steps for every class of a party."""
        mean = info.records // len(info.class_counts)
        return self.epochs * max(1, mean // self.batch)

    def generator(self, shape: Shape) -> nn.Module:
        """A generator for one class."""
        sizes = tuple(self.hidden // part for part in (8, 4, 2, 1))
        return MLPGenerator(self.latent, 1, shape, sizes, norm=True)


class DPGAN(GeneratorRelease[DPGANConfig]):
    """One-shot: a generator a class and party."""

    name = "dp_gan"
    summary = "One Wasserstein GAN a class, its critic trained by DP-SGD"
    source = "Xie et al. 2018, DP-GAN, as in DP-MERF's comparison"
    Config = DPGANConfig
    paper_convention = "rdp_classic"
    presets = {
        "test": {"hidden": 16, "latent": 4, "batch": 8, "rate": 1e-3, "critic_steps": 1},
        "smoke": {"hidden": 128, "epochs": 1, "spc": 200, "rate": 1e-3},
        "laptop": {"hidden": 256, "epochs": 5, "spc": 1000, "rate": 5e-4},
        "paper": {},
    }

    def plan(self, cfg: DPGANConfig, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):
            weights = sum(p.numel() for p in cfg.generator(stage.data.shape).parameters())
        parties = tuple(self._share(cfg, stage, info, budget, weights) for info in stage.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    @staticmethod
    def _share(
        cfg: DPGANConfig, stage: Stage, info: PartyInfo, budget: Budget, weights: int
    ) -> PartyPlan:
        steps = cfg.steps(info)
        of_all = {c: _step(cfg, info, c, budget) for c in sorted(info.class_counts)}
        published = [
            repeated(poisson(q, gaussian(noise / 2)), steps) for q, noise in of_all.values()
        ]
        return PartyPlan(
            info.party,
            info.records,
            composed(
                [repeated(_event(stage, c, q, noise), steps) for c, (q, noise) in of_all.items()]
            ),
            sampling_rate=max(q for q, _ in of_all.values()),
            steps=steps * len(of_all),
            noise_multiplier=max(noise for _, noise in of_all.values()),
            paper_event=composed(published),
            bytes_up=4 * weights * len(of_all),
            cost=(ComputeCost("train", AS_WIDE, cfg.batch, steps * len(of_all)),),
        )

    def network(self, cfg: DPGANConfig, plan: Plan, party: int, *key: object) -> PerClassGenerators:
        shape, held = plan.stage.data.shape, plan.info(party).class_counts
        with default_seed(*key):
            return PerClassGenerators([cfg.generator(shape) for _ in held])

    def party(self, ctx: PartyContext[DPGANConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, stage = private.info, plan.stage
        steps, device = cfg.steps(info), guard.device
        key = (request.numbers["seed"], self.name, stage.index, info.party)
        whole = self.network(cfg, plan, info.party, *key, "generators").to(device)
        for net, name in zip(whole.nets, sorted(info.class_counts), strict=True):
            pair = _Pair(cfg, stage, net, (*key, name), device)
            q, noise = _step(cfg, info, name, plan.budget)
            event = _event(stage, name, q, noise)
            mechanism = ClippedGradientSum(
                model=pair.critic,
                inputs=lambda pixels, _: pixels.flatten(1),
                loss=real_loss,
                clip=cfg.clip,
                noise_multiplier=noise,
                sampling_rate=q,
                subset=ClassSubset(name, stage.data.classes),
            )
            with guard.reserve(event, steps, f"class {name}"):
                for step in private.rounds(steps, pair.state, f"class-{name}"):
                    sums = guard.apply(mechanism, private, call=step)
                    expected = q * info.class_counts[name]
                    pair.step(step, [total / expected for total in sums])
        return self.release_generator(guard, whole)


class PerClassGenerators(nn.Module):
    """Generators of single classes as one: labels (positions) say whose turn it is."""

    def __init__(self, nets: list[nn.Module]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels."""
        chosen = [torch.nonzero(labels == place).flatten() for place in range(len(self.nets))]
        parts = [
            net(codes[mine], labels[mine]) for net, mine in zip(self.nets, chosen, strict=True)
        ]
        images = torch.cat(parts)
        return torch.empty_like(images).index_copy_(0, torch.cat(chosen), images)


class _Pair:
    """Generator and critic of one class."""

    def __init__(
        self,
        cfg: DPGANConfig,
        stage: Stage,
        generator: nn.Module,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        self.cfg, self.generator, self.key, self.device = cfg, generator, key, device
        sizes = (cfg.hidden // 2, cfg.hidden // 4)
        with default_seed(*key, "critic"):
            self.critic = mlp_discriminator(math.prod(stage.data.shape), sizes).to(device)
        self.of_critic = torch.optim.RMSprop(self.critic.parameters(), cfg.rate)
        self.of_generator = torch.optim.RMSprop(generator.parameters(), cfg.rate)

    @property
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep."""
        optimisers = {"of critic": self.of_critic, "of generator": self.of_generator}
        return {"critic": self.critic, "generator": self.generator, **optimisers}

    def _images(self, number: int, *purpose: object) -> Tensor:
        cfg = self.cfg
        codes = uniform_latents(cfg.batch, cfg.latent, torch_generator(*self.key, number, *purpose))
        labels = torch.zeros(cfg.batch, dtype=torch.int64)
        images: Tensor = self.generator.train()(codes.to(self.device), labels.to(self.device))
        return images.flatten(1)

    def step(self, number: int, real: list[Tensor]) -> None:
        """One step of the critic, given its noised mean gradient on real records; and, every so
        often, one of the generator."""
        cfg = self.cfg
        weights: list[Tensor] = list(self.critic.parameters())
        with torch.no_grad():
            images = self._images(number)
        fake = torch.autograd.grad(self.critic(images).mean(), weights)
        for weight, one, other in zip(weights, real, fake, strict=True):
            weight.grad = one + other
        self.of_critic.step()
        with torch.no_grad():
            torch._foreach_clamp_min_(weights, -cfg.weights)
            torch._foreach_clamp_max_(weights, cfg.weights)
        if (number + 1) % cfg.critic_steps == 0:
            self.of_generator.zero_grad()
            (-self.critic(self._images(number, "generator")).mean()).backward()
            self.of_generator.step()


def real_loss(scores: Tensor, _labels: Tensor) -> Tensor:
    """A critic's scores of real records shall rise."""
    return -scores.squeeze(1)


def _step(cfg: DPGANConfig, info: PartyInfo, name: int, budget: Budget) -> tuple[float, float]:
    """Sampling rate and noise multiplier of one step on one class."""
    q = cfg.sampling_rate(info.class_counts[name])
    return q, cfg.noise or poisson_gaussian_multiplier(
        q,
        cfg.steps(info),
        budget.epsilon,
        budget.delta,
        budget.accounting,
        relation=budget.relation,
    )


def _event(stage: Stage, name: int, q: float, noise: float) -> DpEvent:
    return ClassSubset(name, stage.data.classes).event(poisson(q, gaussian(noise)))
