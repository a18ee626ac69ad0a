"""DP-MERF on the latent vectors of an autoencoder that each party trains privately first.

The variant that the authors of GS-WGAN compare with (DP-MERF+AE). A party trains a small
autoencoder with DP-SGD, embeds the latent vectors of its records, and releases both; the server
trains a generator of latent vectors and decodes what it draws. Latent vectors of different parties
are not comparable, so the server trains one generator per party.

The division of the budget is not published: `ae_share` of epsilon pays for the autoencoder, and the
embedding gets what the composition of both leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Relation
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.one_shot import PARTY_CLASSES, PARTY_RECORDS
from fedsynth.methods.mean_embedding.base import (
    COST_AS_CONVNET_WIDTH,
    PAPER_CONVENTION,
    FeatureMap,
    GeneratorTrainer,
    calibrated_noise,
    embedding_event,
    noised_embedding,
    normalized_weights,
    paper_embedding_event,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERFConfig, RandomFourier
from fedsynth.methods.mean_embedding.output_space import OutputSpace
from fedsynth.methods.method import Method, PartyContext, ServerContext, ServerWork
from fedsynth.nn import optimizers
from fedsynth.nn.autoencoder import (
    Autoencoder,
    autoencoder_from_state,
    make_autoencoder,
    reconstruction_loss,
)
from fedsynth.nn.gan.tabular_generator import TabularGenerator
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum

PREFIX = "autoencoder."  # of the autoencoder's weights in a release
LATENT_SCALE = 1.0  # squared length scale of the kernel of latent vectors, which have norm one


@dataclass(frozen=True)
class DPMERFAEConfig(DPMERFConfig):
    """DP-MERF's settings and those of the autoencoder; batch and steps are from GS-WGAN's
    authors."""

    ae_latent: int = setting(
        16, "length of an image's latent vector", at_least=2, formerly="ae_code"
    )
    ae_hidden: int = setting(64, "units of the hidden layer on either side", at_least=1)
    ae_steps: int = setting(2040, "private steps of the autoencoder's training", at_least=1)
    ae_batch: int = setting(500, "expected size of a batch", at_least=1)
    ae_clip: float = setting(
        1.0, "bound on a record's gradient", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    ae_learning_rate: float = setting(0.003, "Adam's learning rate", above=0, formerly="ae_rate")
    ae_share: float = setting(0.5, "share of epsilon for the autoencoder", above=0, at_most=0.99)

    def ae_sampling_rate(self, info: PartyInfo) -> float:
        """The probability that a record enters a batch."""
        return min(1.0, self.ae_batch / info.records)

    def ae_step(self, info: PartyInfo, budget: Budget) -> tuple[float, DpEvent]:
        """The noise multiplier of a step of the autoencoder, and the event of the step."""
        rate = self.ae_sampling_rate(info)
        sigma = poisson_gaussian_multiplier(
            rate,
            self.ae_steps,
            self.ae_share * budget.epsilon,
            budget.delta,
            budget.accounting,
            relation=budget.relation,
        )
        return sigma, poisson(rate, gaussian(sigma))


class DPMERFAE(Method[DPMERFAEConfig]):
    """One request, an autoencoder and an embedding per party, a generator per party."""

    name = "dp_merf_ae"
    summary = "DP-MERF on the latent vectors of a privately trained autoencoder"
    source = "Harder et al. 2021, as compared with by Chen et al. 2020 (DP-MERF+AE)"
    paper_convention = PAPER_CONVENTION
    paper_relation = Relation.REPLACE_ONE
    presets = {
        "smoke": {"spc": 200, "steps": 250, "ae_steps": 40, "ae_learning_rate": 0.01},
        "laptop": {"spc": 1000, "steps": 1000, "ae_steps": 300, "ae_learning_rate": 0.01},
    }

    def plan(self, cfg: DPMERFAEConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        steps = cfg.steps * len(parties)
        cost = ComputeCost("train", COST_AS_CONVNET_WIDTH, cfg.gen_batch, steps)
        assumes = (PARTY_RECORDS, PARTY_CLASSES)
        return Plan(self.name, stage, budget, parties, server_cost=(cost,), assumes=assumes)

    def _party_plan(
        self, cfg: DPMERFAEConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        _, step = cfg.ae_step(info, budget)
        training = repeated(step, cfg.ae_steps)
        noise = calibrated_noise(cfg, budget, [training])
        with torch.device("meta"):
            net = Autoencoder(stage.data.shape, cfg.ae_latent, cfg.ae_hidden)
        floats = (cfg.features // 2 * 2 + cfg.noised_weights) * len(info.class_counts)
        return PartyPlan(
            info.party,
            info.records,
            event=composed([training, embedding_event(cfg, noise)]),
            sampling_rate=cfg.ae_sampling_rate(info),
            steps=cfg.ae_steps,
            noise_multiplier=noise,
            paper_event=composed([training, paper_embedding_event(cfg, noise)]),
            bytes_up=4 * (floats + sum(p.numel() for p in net.parameters())),
            cost=(ComputeCost("gradient", COST_AS_CONVNET_WIDTH, cfg.ae_batch, cfg.ae_steps),),
        )

    def party(self, ctx: PartyContext[DPMERFAEConfig], request: Request) -> Release:
        key = (*ctx.random_key(request), "autoencoder")
        net = _trained_autoencoder(ctx, key)
        features = latent_features(self.name, ctx.config, net, request.scalar("seed"))
        weights = {PREFIX + name: value for name, value in net.state_dict().items()}
        return ctx.guard.release({**noised_embedding(ctx, features), **weights})

    def serve(self, ctx: ServerContext[DPMERFAEConfig]) -> SyntheticSet:
        releases = ctx.ask(ctx.parties, Request(scalars={"seed": ctx.seed}))
        return ctx.compute(self.trained_set, releases)

    def trained_set(
        self, work: ServerWork[DPMERFAEConfig], releases: Sequence[Release]
    ) -> SyntheticSet:
        """Train a generator per party; needs nothing but what was released."""
        steps = work.config.steps
        generators = [PartyGenerator(work, release) for release in releases]
        state = {
            f"{i} {name}": value
            for i, generator in enumerate(generators)
            for name, value in generator.trainer.state.items()
        }
        for step in work.rounds(steps * len(generators), state):
            generators[step // steps].step(step % steps)
        return SyntheticSet.join([generator.sample() for generator in generators])


def _trained_autoencoder(ctx: PartyContext[DPMERFAEConfig], key: tuple[object, ...]) -> Autoencoder:
    """An autoencoder trained with DP-SGD on the records of a party."""
    cfg, data = ctx.config, ctx.dataset
    net = make_autoencoder(data, cfg.ae_latent, cfg.ae_hidden, *key).to(ctx.device)
    adam = optimizers.Adam(net.parameters(), cfg.ae_learning_rate)
    sigma, step_event = cfg.ae_step(ctx.info, ctx.plan.budget)
    sampling_rate = cfg.ae_sampling_rate(ctx.info)
    expected = sampling_rate * ctx.info.records
    scale = Normalizer((0.0,) * data.shape[0], (1.0,) * data.shape[0])  # pixels as they are
    mechanism = ClippedGradientSum(
        model=net,
        inputs=lambda pixels, _: scale.to_network(pixels),
        clip=cfg.ae_clip,
        noise_multiplier=sigma,
        sampling_rate=sampling_rate,
        loss=reconstruction_loss,
    )
    with ctx.guard.reserve(step_event, cfg.ae_steps, "autoencoder"):
        for step in ctx.data.rounds(cfg.ae_steps, {"net": net, "adam": adam}):
            sums = ctx.guard.apply(mechanism, ctx.data, call=step)
            for weight, total in zip(net.parameters(), sums, strict=True):
                weight.grad = total / expected
            adam.step()
    return net


class LatentFourier(FeatureMap):
    """Random Fourier features of an autoencoder's latent vectors: norm one."""

    def __init__(self, net: Autoencoder, fourier: RandomFourier) -> None:
        self.net, self.fourier, self.width = net, fourier, fourier.width

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        return self.fourier(self.net.encode(pixels))

    def of_generated(self, outputs: Tensor) -> Tensor:
        return self.fourier(on_sphere(outputs))


def latent_features(
    method: str, cfg: DPMERFAEConfig, net: Autoencoder, seed: object
) -> LatentFourier:
    """The feature map of a party, from public randomness and its autoencoder."""
    key, scale = (seed, method, "frequencies"), cfg.scale or LATENT_SCALE
    return LatentFourier(net, RandomFourier(cfg.ae_latent, cfg.features, scale, key))


class PartyGenerator:
    """The generator that the server trains on one party's release."""

    def __init__(self, ctx: ServerWork[DPMERFAEConfig], release: Release) -> None:
        cfg, plan, arrays = ctx.config, ctx.plan, release.arrays
        weights_of_net = {
            name.removeprefix(PREFIX): value
            for name, value in arrays.items()
            if name.startswith(PREFIX)
        }
        net = autoencoder_from_state(plan.stage.data, cfg.ae_latent, cfg.ae_hidden, weights_of_net)
        self.features = latent_features(plan.method, cfg, net, ctx.seed)
        self.target = arrays["embedding"].to(ctx.device)
        self.classes = sorted(plan.info(release.party).class_counts)
        weights = torch.full((len(self.classes),), 1 / len(self.classes))
        if cfg.noised_weights:
            weights = normalized_weights(arrays["weights"])
        space = OutputSpace(
            lambda latent, classes: TabularGenerator(latent, classes, cfg.ae_latent),
            lambda outputs: net.decode(on_sphere(outputs)),
        )
        key = plan.random_key(ctx.seed, release.party)
        self.trainer = GeneratorTrainer(cfg, space, weights, key, ctx.device)

    def step(self, number: int) -> None:
        """Take one step of the generator's training."""
        self.trainer.step(number, self.features, self.target)

    def sample(self) -> SyntheticSet:
        """Draw this party's images."""
        return self.trainer.sample(self.classes)


def on_sphere(outputs: Tensor) -> Tensor:
    """Outputs of a generator, in (0, 1), as latent vectors of norm one."""
    return torch.nn.functional.normalize(2 * outputs - 1, dim=1)
