"""DP-MERF on the codes of an autoencoder that each party trains under privacy first.

The variant that GS-WGAN's authors compare with (DP-MERF+AE). A party trains a small autoencoder
with DP-SGD, embeds the codes of its records, and releases both; the curator trains a generator of
codes and decodes what it draws. Nobody published how the budget is divided: `ae_share` of epsilon
goes to the autoencoder, and the embedding gets what the composition of both leaves. Parties' codes
are not comparable, so the curator trains one generator a party.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.mean_embedding.base import (
    AS_WIDE,
    FeatureMap,
    GeneratorTrainer,
    event,
    label_shares,
    paper_event,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERF, DPMERFConfig, RandomFourier
from fedsynth.methods.mean_embedding.output_space import OutputSpace
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.nn.autoencoder import (
    Autoencoder,
    autoencoder_from_state,
    make_autoencoder,
    reconstruction_loss,
)
from fedsynth.nn.gan.tabular_generator import TabularGenerator
from fedsynth.privacy.accounting.calibration import noise_multiplier, poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum

NET = "autoencoder."  # what its weights are called in a release
CODE_SCALE = 1.0  # squared length scale of the kernel of codes, whose length is one


@dataclass(frozen=True)
class DPMERFAEConfig(DPMERFConfig):
    """DP-MERF's settings and those of the autoencoder; batch and steps are GS-WGAN's authors'."""

    ae_code: int = setting(16, "numbers an image is encoded by", at_least=2)
    ae_hidden: int = setting(64, "units of the hidden layer on either side", at_least=1)
    ae_steps: int = setting(2040, "private steps of its training", at_least=1)
    ae_batch: int = setting(500, "expected size of a batch", at_least=1)
    ae_clip: float = setting(1.0, "bound on a record's gradient", above=0)
    ae_rate: float = setting(0.003, "Adam's learning rate", above=0)
    ae_share: float = setting(0.5, "share of epsilon for the autoencoder", above=0, at_most=0.99)

    def ae_rate_of(self, info: PartyInfo) -> float:
        """Probability that a record enters a batch."""
        return min(1.0, self.ae_batch / info.records)

    def ae_step(self, info: PartyInfo, budget: Budget) -> tuple[float, DpEvent]:
        """The noise multiplier of a step of the autoencoder, and what the step costs."""
        rate = self.ae_rate_of(info)
        sigma = poisson_gaussian_multiplier(
            rate, self.ae_steps, self.ae_share * budget.epsilon, budget.delta, budget.accounting
        )
        return sigma, poisson(rate, gaussian(sigma))


class DPMERFAE(DPMERF):
    """One question, an autoencoder and an embedding a party, a generator a party."""

    name = "dp_merf_ae"
    summary = "DP-MERF on the codes of a privately trained autoencoder"
    source = "Harder et al. 2021, as compared with by Chen et al. 2020 (DP-MERF+AE)"
    kinds = (DataKind.IMAGE,)
    Config = DPMERFAEConfig
    presets = {
        "smoke": {"spc": 200, "steps": 250, "ae_steps": 40, "ae_rate": 0.01},
        "laptop": {"spc": 1000, "steps": 1000, "ae_steps": 300, "ae_rate": 0.01},
        "paper": {},
        "test": {"ae_hidden": 4, "ae_code": 3, "ae_steps": 3, "ae_batch": 60},
    }

    def plan(self, cfg: Any, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        work = (ComputeCost("train", AS_WIDE, cfg.gen_batch, cfg.steps * len(parties)),)
        return Plan(self.name, stage, budget, parties, server_cost=work, assumes=assumes)

    def _party_plan(
        self, cfg: DPMERFAEConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        _, step = cfg.ae_step(info, budget)
        training = repeated(step, cfg.ae_steps)
        counted = paper_event if budget.accounting == self.paper_convention else event
        noise = cfg.noise or noise_multiplier(
            lambda sigma: composed([training, counted(cfg, sigma)]),
            budget.epsilon,
            budget.delta,
            budget.accounting,
        )
        with torch.device("meta"):
            net = Autoencoder(stage.data.shape, cfg.ae_code, cfg.ae_hidden)
        floats = (cfg.features // 2 * 2 + (cfg.labels == "noised")) * len(info.class_counts)
        return PartyPlan(
            info.party,
            info.records,
            event=composed([training, event(cfg, noise)]),
            sampling_rate=cfg.ae_rate_of(info),
            steps=cfg.ae_steps,
            noise_multiplier=noise,
            paper_event=composed([training, paper_event(cfg, noise)]),
            bytes_up=4 * (floats + sum(p.numel() for p in net.parameters())),
            cost=(ComputeCost("gradient", AS_WIDE, cfg.ae_batch, cfg.ae_steps),),
        )

    def party(self, ctx: PartyContext[Any], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        data, info, share = plan.stage.data, private.info, plan.of(private.info.party)
        seed = request.numbers["seed"]
        key = (seed, self.name, plan.stage.index, info.party, "autoencoder")
        net = make_autoencoder(data, cfg.ae_code, cfg.ae_hidden, *key).to(guard.device)
        adam = torch.optim.Adam(net.parameters(), cfg.ae_rate)
        sigma, step_event = cfg.ae_step(info, plan.budget)
        expected = cfg.ae_rate_of(info) * info.records
        pixels = Normalizer((0.0,) * data.shape[0], (1.0,) * data.shape[0])
        mechanism = ClippedGradientSum(
            model=net,
            inputs=lambda images, _: pixels.to_network(images),
            clip=cfg.ae_clip,
            noise_multiplier=sigma,
            sampling_rate=cfg.ae_rate_of(info),
            loss=reconstruction_loss,
        )
        with guard.reserve(step_event, cfg.ae_steps, "autoencoder"):
            for step in private.rounds(cfg.ae_steps, {"net": net, "adam": adam}):
                sums = guard.apply(mechanism, private, call=step)
                for weight, total in zip(net.parameters(), sums, strict=True):
                    weight.grad = total / expected
                adam.step()
        features = self.of_codes(cfg, net, seed)
        arrays = self.embedded(cfg, share, private, guard, features)
        weights = {NET + name: value for name, value in net.state_dict().items()}
        return guard.release({**arrays, **weights})

    def of_codes(self, cfg: DPMERFAEConfig, net: Autoencoder, seed: object) -> FeatureMap:
        """Random Fourier features of codes."""
        key = (seed, self.name, "frequencies")
        return CodeFourier(
            net, RandomFourier(cfg.ae_code, cfg.features, cfg.scale or CODE_SCALE, key)
        )

    def serve(self, ctx: ServerContext[Any]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        releases = ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed}))
        shares = [Share(self, cfg, plan, ctx, release) for release in releases]
        state = {f"{i} {name}": v for i, s in enumerate(shares) for name, v in s.state.items()}
        for step in ctx.rounds(cfg.steps * len(shares), state):
            shares[step // cfg.steps].step(step % cfg.steps)
        return SyntheticSet.join([share.sample() for share in shares])


class CodeFourier(FeatureMap):
    """Random Fourier features of an autoencoder's codes: norm one."""

    def __init__(self, net: Autoencoder, fourier: RandomFourier) -> None:
        self.net, self.fourier, self.width = net, fourier, fourier.width

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        return self.fourier(self.net.encode(pixels))

    def of_drawn(self, drawn: Tensor) -> Tensor:
        return self.fourier(on_sphere(drawn))


class Share:
    """What the curator makes of one party's release."""

    def __init__(
        self, method: DPMERFAE, cfg: Any, plan: Plan, parties: ServerContext[Any], release: Release
    ) -> None:
        data: DatasetInfo = plan.stage.data
        stored = {n[len(NET) :]: v for n, v in release.arrays.items() if n.startswith(NET)}
        self.net = autoencoder_from_state(data, cfg.ae_code, cfg.ae_hidden, stored)
        self.features = method.of_codes(cfg, self.net, parties.seed)
        self.wanted = release.arrays["embedding"].to(parties.device)
        self.classes: Sequence[int] = sorted(plan.info(release.party).class_counts)
        weights = torch.full((len(self.classes),), 1 / len(self.classes))
        if cfg.labels == "noised":
            weights = label_shares(release.arrays["weights"])
        key = (parties.seed, method.name, plan.stage.index, release.party)
        where = OutputSpace(
            lambda code, classes: TabularGenerator(code, classes, cfg.ae_code),
            lambda drawn: self.net.decode(on_sphere(drawn)),
        )
        self.trainer = GeneratorTrainer(cfg, where, weights, key, parties.device)
        self.state = self.trainer.state

    def step(self, number: int) -> None:
        """One step of this party's generator."""
        self.trainer.step(number, self.features, self.wanted)

    def sample(self) -> SyntheticSet:
        """This party's images."""
        return self.trainer.sample(self.classes)


def on_sphere(drawn: Tensor) -> Tensor:
    """What a generator draws in (0, 1) as codes of length one."""
    return torch.nn.functional.normalize(2 * drawn - 1, dim=1)
