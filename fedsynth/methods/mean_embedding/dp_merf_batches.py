"""DP-MERF in its mini-batch form: a noised mean embedding of a fresh sample per training step.

The form in which the authors of GS-WGAN compare with DP-MERF. In every step each party draws a
Poisson sample of its records, sums their random Fourier features class by class, adds noise and
divides by the public expected size of the sample; the server's generator takes one step towards
what all parties answer. Nothing else depends on records.

The noise in a step is much larger than in the one release of `dp_merf`, and is averaged by the
generator's optimiser only. The published multiplier of .588 is counted for a replaced record (2/B);
it is `noise=1.176` over the add/remove sensitivity 1/B that settings here are relative to. The
published program shuffles batches of a fixed size and counts them as samples without replacement;
here samples are Poisson samples, as counted.

The supplement of GS-WGAN does not name the generator. With DP-MERF's later one of convolutions all
classifiers come out above the printed numbers, by up to 20 points; with linear layers
(`generator=linear`) by up to 10 (results/papers/misses.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.mean_embedding.base import (
    PAPER_CONVENTION,
    ConstantFeature,
    FeatureMap,
    class_feature_sums,
    normalized_weights,
    pooled_means,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERFConfig, FourierEmbedding
from fedsynth.methods.mean_embedding.output_space import (
    ImageLayers,
    OutputSpace,
    output_space,
)
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.accounting.calibration import noise_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian, poisson, repeated

BATCH, WEIGHTS = "batch", "weights"  # kinds of requests
MEAN = "mean"  # the array that answers both


@dataclass(frozen=True)
class DPMERFBatchesConfig(DPMERFConfig):
    """DP-MERF's settings; batches and steps are those of GS-WGAN's comparison."""

    batch: int = setting(500, "expected size of a sample", at_least=1)
    steps: int = setting(600, "samples, and training steps of the generator", at_least=1)
    gen_batch: int = setting(500, "generated images per training step", at_least=2)
    noise: float | None = setting(
        None,
        "noise over add/remove sensitivity (1/batch); default: what the budget allows",
        above=0,
    )

    generator: ImageLayers = setting(
        ImageLayers.CONVOLUTIONS,
        "layers of a generator of images: convolutions as in DP-MERF's last program, or linear "
        "ones, which come nearer to the numbers that GS-WGAN prints",
    )

    def sampling_rate(self, stage: Stage) -> float:
        """The probability that a record of any party enters a sample."""
        return min(1.0, self.batch / sum(info.records for info in stage.parties))

    def calibrated_noise(self, sampling_rate: float, budget: Budget) -> float:
        """The smallest multiplier within the budget; by the papers' convention, also within their
        own count of it."""
        target = budget.epsilon, budget.delta, budget.accounting
        noise = noise_multiplier(
            lambda sigma: self.event(sampling_rate, sigma), *target, budget.relation
        )
        if budget.accounting != PAPER_CONVENTION:
            return noise
        return max(noise, noise_multiplier(lambda s: self.paper_event(sampling_rate, s), *target))

    def event(self, sampling_rate: float, sigma: float) -> DpEvent:
        """The event of all samples and, with `labels=noised`, of the class weights."""
        samples = repeated(poisson(sampling_rate, gaussian(sigma)), self.steps)
        return composed([samples, gaussian(sigma)]) if self.noised_weights else samples

    def paper_event(self, sampling_rate: float, sigma: float) -> DpEvent:
        """The same for a replaced record, as the papers count."""
        samples = repeated(poisson(sampling_rate, gaussian(sigma / 2)), self.steps)
        return composed([samples, gaussian(sigma / 2**0.5)]) if self.noised_weights else samples


class DPMERFBatches(FourierEmbedding[DPMERFBatchesConfig]):
    """One request per training step, and one more for class weights with `labels=noised`."""

    name = "dp_merf_batches"
    summary = "A generator trained on noised means of random Fourier features of fresh samples"
    source = "Harder et al. 2021, DP-MERF, as compared with by Chen et al. 2020 (GS-WGAN)"
    Config = DPMERFBatchesConfig
    presets = {"smoke": {"spc": 200, "steps": 100}, "laptop": {"spc": 1000}}

    def space(self, cfg: DPMERFBatchesConfig, data: DatasetInfo) -> OutputSpace:
        return output_space(data, cfg.generator)

    def plan(self, cfg: DPMERFBatchesConfig, stage: Stage, budget: Budget) -> Plan:
        plan, rate = super().plan(cfg, stage, budget), cfg.sampling_rate(stage)
        noise = cfg.noise or cfg.calibrated_noise(rate, budget)

        def sampled(party_plan: PartyPlan, info: PartyInfo) -> PartyPlan:
            width = self.width(cfg, stage.data) * cfg.steps + cfg.noised_weights
            return replace(
                party_plan,
                event=cfg.event(rate, noise),
                paper_event=cfg.paper_event(rate, noise),
                sampling_rate=rate,
                steps=cfg.steps,
                noise_multiplier=noise,
                bytes_up=4 * width * len(info.class_counts),
            )

        parties = tuple(sampled(plan.of(info.party), info) for info in stage.parties)
        return replace(plan, parties=parties, rounds=cfg.steps + cfg.noised_weights)

    def party(self, ctx: PartyContext[DPMERFBatchesConfig], request: Request) -> Release:
        plan, classes = ctx.party_plan, sorted(ctx.info.class_counts)
        rate = 1.0
        rows: FeatureMap = ConstantFeature()
        if request.kind == BATCH:
            rate = plan.sampling_rate
            rows = self.features(ctx.config, ctx.dataset, request.scalars["seed"])
        mechanism = class_feature_sums(rows, plan.noise_multiplier, classes, rate)
        (sums,) = ctx.guard.apply(mechanism, ctx.data, call=request.round)
        return ctx.guard.release({MEAN: sums / (rate * ctx.info.records)})

    def serve(self, ctx: ServerContext[DPMERFBatchesConfig]) -> SyntheticSet:
        cfg, classes = ctx.config, ctx.plan.stage.classes
        weights = torch.full((len(classes),), 1 / len(classes))
        if cfg.noised_weights:
            weights = normalized_weights(self._mean(ctx, Request(WEIGHTS, cfg.steps)))
        return self.trained_set(ctx, lambda step: self._mean(ctx, Request(BATCH, step)), weights)

    def _mean(self, ctx: ServerContext[DPMERFBatchesConfig], request: Request) -> Tensor:
        """The mean over all parties, one row per class."""
        releases = ctx.ask(ctx.parties, replace(request, scalars={"seed": ctx.seed}))
        parties = [ctx.plan.info(release.party) for release in releases]
        means = [release.arrays[MEAN] for release in releases]
        return pooled_means(means, parties, ctx.plan.stage.classes)
