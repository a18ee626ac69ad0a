"""Noised mean embeddings: each party releases once, the curator trains a generator on what it got.

DP-MERF and its relatives differ in the feature map alone. A party sums the features of its records
class by class (every record's features have norm at most one, so adding or removing one moves the
sums by at most one), adds Gaussian noise and divides by its public number of records. The noised
embedding is all that leaves it; the generator, whose images shall have the same embedding, is
post-processing at the curator and costs parties nothing.

The papers count replace-one neighbours: a swap moves the mean by 2/m, so that noise of standard
deviation s/m is a multiplier s/2 to them and s to us, who count one record more or less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.mean_embedding.output_space import OutputSpace, ground
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.privacy.accounting.calibration import noise_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.sums import ClassSums
from fedsynth.privacy.party_data import PartyData

LEAST_WEIGHT = 1e-3  # of a class whose noised count says it is not there
FIFTHS = 5  # the learning rate falls after every fifth of the steps
AS_WIDE = 20  # a step of the generator takes as long as one of a ConvNet of this width


class FeatureMap(ABC):
    """Features of images, differentiable; public, chosen before any record is looked at."""

    width: int

    @abstractmethod
    def __call__(self, pixels: Tensor) -> Tensor:
        """Rows [n, width] of norm at most one, for records [n, c, h, w] in [0, 1]."""

    def of_drawn(self, drawn: Tensor) -> Tensor:
        """The same of what the generator draws, where that is not in the form of records."""
        return self(drawn)

    def sums(self, drawn: Tensor, shares: Tensor) -> Tensor:
        """Weighted sums of rows, [k, width] for `shares` [n, k]; a map may know a quicker way."""
        return shares.t() @ self.of_drawn(drawn)


@dataclass(frozen=True)
class EmbeddingConfig:
    """The settings that mean-embedding methods share; the defaults are the published ones."""

    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)
    code: int = setting(5, "length of the generator's codes", at_least=1)
    steps: int = setting(3000, "training steps of the generator (free)", at_least=1)
    gen_batch: int = setting(100, "generated images a training step", at_least=2)
    rate: float = setting(0.01, "Adam's learning rate", above=0)
    decay: float = setting(0.9, "factor on it after every fifth of the steps", above=0, at_most=1)
    labels: str = setting(
        "balanced",
        "labels of generated images: uniform, or by class weights released with noise of their own",
        choices=("balanced", "noised"),
    )
    noise: float | None = setting(
        None, "noise over add/remove sensitivity (1/m); none: what the budget allows", above=0
    )


E = TypeVar("E", bound=EmbeddingConfig)


class EmbeddingMethod(Method[E]):
    """One question, one noised embedding a party, one generator at the curator."""

    Config: ClassVar[type] = EmbeddingConfig
    paper_convention = "rdp_classic"

    @abstractmethod
    def features(self, cfg: E, data: DatasetInfo, seed: object) -> FeatureMap:
        """The feature map, from public randomness."""

    def width(self, cfg: E, data: DatasetInfo) -> int:
        """How many features an image has."""
        return self.features(cfg, data, "width").width

    def plan(self, cfg: E, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            ground(stage.data).generator(cfg.code, len(stage.classes))
        by_paper = budget.accounting == self.paper_convention
        counted = paper_event if by_paper else event
        noise = cfg.noise or noise_multiplier(
            lambda sigma: counted(cfg, sigma), budget.epsilon, budget.delta, budget.accounting
        )
        floats = self.width(cfg, stage.data) + (cfg.labels == "noised")
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                event=event(cfg, noise),
                noise_multiplier=noise,
                paper_event=paper_event(cfg, noise),
                bytes_up=4 * floats * len(info.class_counts),
            )
            for info in stage.parties
        )
        assumes = ("the number of records of each party", "the classes a party holds")
        work = (ComputeCost("train", AS_WIDE, cfg.gen_batch, cfg.steps),)
        return Plan(self.name, stage, budget, parties, server_cost=work, assumes=assumes)

    def party(self, ctx: PartyContext[E], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        features = self.features(cfg, plan.stage.data, request.numbers["seed"])
        share = plan.of(private.info.party)
        return guard.release(self.embedded(cfg, share, private, guard, features))

    def embedded(
        self,
        cfg: EmbeddingConfig,
        share: PartyPlan,
        private: PartyData,
        guard: Guard,
        features: FeatureMap,
    ) -> dict[str, Tensor]:
        """The noised embedding and, if asked for, class weights: of every record's share of 1/m."""
        info = private.info
        everyone = dict.fromkeys(sorted(info.class_counts), 1.0)

        def noisy(rows: FeatureMap, width: int, call: int) -> Tensor:
            mechanism = ClassSums(
                contribution=lambda pixels, _: rows(pixels),
                width=width,
                clip=1.0,
                noise_multiplier=share.noise_multiplier,
                sampling_rates=everyone,
            )
            (sums,) = guard.apply(mechanism, private, call=call)
            return sums / info.records

        arrays = {"embedding": noisy(features, features.width, 0)}
        if cfg.labels == "noised":
            arrays["weights"] = noisy(ConstantFeature(), 1, 1)
        return arrays

    def serve(self, ctx: ServerContext[E]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        releases = ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed}))
        shares = [plan.info(release.party) for release in releases]
        classes = plan.stage.classes
        wanted = pooled_means([r.arrays["embedding"] for r in releases], shares, classes)
        weights = torch.full((len(classes),), 1 / len(classes))
        if cfg.labels == "noised":
            noised = pooled_means([r.arrays["weights"] for r in releases], shares, classes)
            weights = label_shares(noised)
        return self.generated(cfg, plan, ctx, wanted, weights)

    def generated(
        self, cfg: Any, plan: Plan, parties: ServerContext[Any], wanted: Tensor, weights: Tensor
    ) -> Outcome:
        """What a generator draws that was trained on the released embedding `wanted`."""
        key = (parties.seed, self.name, plan.stage.index)
        features = self.features(cfg, plan.stage.data, parties.seed)
        trainer = GeneratorTrainer(cfg, ground(plan.stage.data), weights, key, parties.device)
        for step in parties.rounds(cfg.steps, trainer.state):
            trainer.step(step, features, wanted.to(parties.device))
        return trainer.sample(plan.stage.classes)


class ConstantFeature(FeatureMap):
    """The feature map that counts: every record is a one."""

    width = 1

    def __call__(self, pixels: Tensor) -> Tensor:
        return pixels.new_ones(len(pixels), 1)


def label_shares(noised: Tensor) -> Tensor:
    """Shares of the classes among generated labels, from their noised means."""
    weights = noised.flatten().clamp_min(LEAST_WEIGHT)
    return weights / weights.sum()


def event(cfg: EmbeddingConfig, sigma: float) -> DpEvent:
    """What a party spends: the embedding and, if asked for, its class weights."""
    return composed([gaussian(sigma)] * (2 if cfg.labels == "noised" else 1))


def paper_event(cfg: EmbeddingConfig, sigma: float) -> DpEvent:
    """The same by the papers' neighbours, who swap a record: 2/m, and sqrt(2)/m for the weights."""
    weights = [gaussian(sigma / 2**0.5)] if cfg.labels == "noised" else []
    return composed([gaussian(sigma / 2), *weights])


def pooled_means(
    means: Sequence[Tensor], shares: Sequence[PartyInfo], classes: Sequence[int]
) -> Tensor:
    """The mean over the records of all parties, a row a class of `classes`, from the parties' own
    means, whose rows are the classes each of them holds, ascending."""
    total = means[0].new_zeros(len(classes), means[0].shape[1])
    for mean, info in zip(means, shares, strict=True):
        rows = torch.tensor([classes.index(c) for c in sorted(info.class_counts)])
        total.index_add_(0, rows, mean * info.records)
    return total / sum(info.records for info in shares)


class GeneratorTrainer:
    """A generator on its way to the embedding that was released."""

    def __init__(
        self,
        cfg: EmbeddingConfig,
        where: OutputSpace,
        weights: Tensor,
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        """`weights` are the shares of the classes among generated labels."""
        self.cfg, self.ground = cfg, where
        with default_seed(*key, "generator"):
            net = self.ground.generator(cfg.code, len(weights)).to(device)
        adam = torch.optim.Adam(net.parameters(), cfg.rate, fused=True)
        self.learner = LearningGenerator(
            net, adam, code=cfg.code, weights=weights, key=key, device=device
        )
        # With noised weights, classes are compared by their own means: rare ones count as much.
        self.emphasis = 1 / weights if cfg.labels == "noised" else torch.ones(len(weights))
        self.emphasis = self.emphasis.to(device)

    @property
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep; restored in place."""
        return self.learner.state

    def step(self, number: int, features: FeatureMap, wanted: Tensor) -> None:
        """One step of Adam on the squared distance between generated and released embedding."""
        for group in self.learner.optimiser.param_groups:
            group["lr"] = self.cfg.rate * self.cfg.decay ** (number * FIFTHS // self.cfg.steps)
        drawn, labels = self.learner.batch(number, self.cfg.gen_batch)
        shares = nn.functional.one_hot(labels, len(wanted)).to(drawn) / self.cfg.gen_batch
        apart = (wanted - features.sums(drawn, shares)) * self.emphasis.unsqueeze(1)
        self.learner.descend(apart.square().sum())

    def sample(self, classes: Sequence[int]) -> SyntheticSet:
        """`spc` records a class, or as many by class weight (at least one of each)."""
        return self.learner.sample(classes, self.cfg.spc, self.ground.leave)
