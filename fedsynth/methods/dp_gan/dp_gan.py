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

from fedsynth.core.model import Budget, PartyFacts, PartyPlan, Plan, Release, Request, Task, Work
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.methods.common.generator_release import GeneratorRelease, uniform_codes
from fedsynth.nn.gan.conv_generators import Shape
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private
from fedsynth.privacy.subsets import OfClass

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
    code: int = setting(100, "length of codes", at_least=1)
    hidden: int = setting(1024, "units of the generator's widest layer", at_least=8)
    spc: int = setting(6000, "images a class drawn from the generators", at_least=1)

    def sampling_rate(self, records: int) -> float:
        """Probability that a record enters a batch, for a class of so many: a power of 1.41."""
        return float(min(1.0, 2 ** (math.ceil(2 * math.log2(self.batch / records)) / 2)))

    def steps(self, facts: PartyFacts) -> int:
        """Critic steps for every class of a party."""
        mean = facts.records // len(facts.class_counts)
        return self.epochs * max(1, mean // self.batch)

    def generator(self, shape: Shape) -> nn.Module:
        """A generator for one class."""
        sizes = tuple(self.hidden // part for part in (8, 4, 2, 1))
        return MLPGenerator(self.code, 1, shape, sizes, norm=True)


class DPGAN(GeneratorRelease):
    """One-shot: a generator a class and party."""

    name = "dp_gan"
    summary = "One Wasserstein GAN a class, its critic trained by DP-SGD"
    source = "Xie et al. 2018, DP-GAN, as in DP-MERF's comparison"
    Config = DPGANConfig
    paper_convention = "rdp_classic"
    presets = {
        "test": {"hidden": 16, "code": 4, "batch": 8, "rate": 1e-3, "critic_steps": 1},
        "smoke": {"hidden": 128, "epochs": 1, "spc": 200, "rate": 1e-3},
        "laptop": {"hidden": 256, "epochs": 5, "spc": 1000, "rate": 5e-4},
        "paper": {},
    }

    def plan(self, cfg: DPGANConfig, task: Task, budget: Budget) -> Plan:
        with torch.device("meta"):
            weights = sum(p.numel() for p in cfg.generator(task.data.shape).parameters())
        parties = tuple(self._share(cfg, task, facts, budget, weights) for facts in task.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, task, budget, parties, assumes=assumes)

    @staticmethod
    def _share(
        cfg: DPGANConfig, task: Task, facts: PartyFacts, budget: Budget, weights: int
    ) -> PartyPlan:
        steps = cfg.steps(facts)
        of_all = {c: _step(cfg, facts, c, budget) for c in sorted(facts.class_counts)}
        published = [
            repeated(poisson(q, gaussian(noise / 2)), steps) for q, noise in of_all.values()
        ]
        return PartyPlan(
            facts.party,
            facts.records,
            composed(
                [repeated(_event(task, c, q, noise), steps) for c, (q, noise) in of_all.items()]
            ),
            sampling_rate=max(q for q, _ in of_all.values()),
            steps=steps * len(of_all),
            noise_multiplier=max(noise for _, noise in of_all.values()),
            paper_event=composed(published),
            bytes_up=4 * weights * len(of_all),
            work=(Work("train", AS_WIDE, cfg.batch, steps * len(of_all)),),
        )

    def network(self, cfg: DPGANConfig, plan: Plan, party: int, *key: object) -> OneAClass:
        shape, held = plan.task.data.shape, plan.facts(party).class_counts
        with default_seed(*key):
            return OneAClass([cfg.generator(shape) for _ in held])

    def party(
        self, cfg: DPGANConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        facts, task = private.facts, plan.task
        steps, device = cfg.steps(facts), guard.device
        key = (request.numbers["seed"], self.name, task.stage, facts.party)
        whole = self.network(cfg, plan, facts.party, *key, "generators").to(device)
        for net, name in zip(whole.nets, sorted(facts.class_counts), strict=True):
            pair = _Pair(cfg, task, net, (*key, name), device)
            q, noise = _step(cfg, facts, name, plan.budget)
            event = _event(task, name, q, noise)
            with guard.reserve(event, steps, f"class {name}"):
                for step in private.rounds(steps, pair.state, f"class-{name}"):
                    sums = guard.noisy_loss_gradient(
                        private,
                        pair.critic,
                        lambda pixels, _: pixels.flatten(1),
                        real_loss,
                        clip=cfg.clip,
                        noise_multiplier=noise,
                        sampling_rate=q,
                        of_class=OfClass(name, task.data.classes),
                        call=step,
                    )
                    expected = q * facts.class_counts[name]
                    pair.step(step, [total / expected for total in sums])
        return self.released(guard, whole)


class OneAClass(nn.Module):
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
        task: Task,
        generator: nn.Module,
        key: tuple[object, ...],
        device: torch.device,
    ) -> None:
        self.cfg, self.generator, self.key, self.device = cfg, generator, key, device
        sizes = (cfg.hidden // 2, cfg.hidden // 4)
        with default_seed(*key, "critic"):
            self.critic = mlp_discriminator(math.prod(task.data.shape), sizes).to(device)
        self.of_critic = torch.optim.RMSprop(self.critic.parameters(), cfg.rate)
        self.of_generator = torch.optim.RMSprop(generator.parameters(), cfg.rate)

    @property
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep."""
        optimisers = {"of critic": self.of_critic, "of generator": self.of_generator}
        return {"critic": self.critic, "generator": self.generator, **optimisers}

    def _images(self, number: int, *purpose: object) -> Tensor:
        cfg = self.cfg
        codes = uniform_codes(cfg.batch, cfg.code, torch_generator(*self.key, number, *purpose))
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


def _step(cfg: DPGANConfig, facts: PartyFacts, name: int, budget: Budget) -> tuple[float, float]:
    """Sampling rate and noise multiplier of one step on one class."""
    q = cfg.sampling_rate(facts.class_counts[name])
    return q, cfg.noise or poisson_gaussian_multiplier(
        q,
        cfg.steps(facts),
        budget.epsilon,
        budget.delta,
        budget.accounting,
        relation=budget.relation,
    )


def _event(task: Task, name: int, q: float, noise: float) -> DpEvent:
    return OfClass(name, task.data.classes).event(poisson(q, gaussian(noise)))
