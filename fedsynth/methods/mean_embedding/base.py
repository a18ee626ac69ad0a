"""Noised mean embeddings: parties release them once, and the server trains a generator on them.

DP-MERF and its relatives differ in the feature map only. A party sums the features of its records
class by class, adds Gaussian noise, and divides by its public number of records. The noised
embedding is all that leaves it. The server trains a generator whose images have the same embedding,
which is post-processing and costs parties nothing.

Claim: the features of every record have norm at most one, so adding or removing a record changes
the sums by at most one.

The papers count replace-one neighbours: replacing a record changes the mean by 2/m, so noise of
standard deviation s/m is a multiplier of s/2 to them and of s for the add/remove relation here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeVar

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from fedsynth.core.enums import Relation
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.generator_training import LearningGenerator
from fedsynth.methods.common.one_shot import PARTY_CLASSES, PARTY_RECORDS
from fedsynth.methods.mean_embedding.output_space import OutputSpace, output_space
from fedsynth.methods.method import Method, PartyContext, ServerContext, ServerWork
from fedsynth.nn import optimizers
from fedsynth.privacy.accounting.calibration import noise_multiplier
from fedsynth.privacy.accounting.events import composed, gaussian
from fedsynth.privacy.mechanisms.sums import ClassSums

PAPER_CONVENTION = "rdp_classic"
MIN_CLASS_WEIGHT = 1e-3  # of a class whose noised count is smaller
DECAYS = 5  # the learning rate falls after every fifth of the steps
COST_AS_CONVNET_WIDTH = 20  # a step of the generator takes as long as one of such a ConvNet


class FeatureMap(ABC):
    """Differentiable features of records; public, chosen before any record is read."""

    width: int

    @abstractmethod
    def __call__(self, pixels: Tensor) -> Tensor:
        """The features of records [n, c, h, w] in [0, 1]: rows [n, width] of norm at most one."""

    def of_generated(self, outputs: Tensor) -> Tensor:
        """The features of outputs of the generator, where these are not in the form of records."""
        return self(outputs)

    def weighted_sums(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Weighted sums of the rows of outputs of the generator.

        Args:
            outputs: Outputs of the generator.
            weights: The weight of each output in each sum, [n, k].

        Returns:
            The sums, [k, width]. Subclasses may compute them without the rows.
        """
        return weights.t() @ self.of_generated(outputs)


class GeneratedLabels(StrEnum):
    """The shares of the classes among generated images."""

    BALANCED = "balanced"
    NOISED = "noised"  # as released, with noise of their own


@dataclass(frozen=True)
class EmbeddingConfig:
    """The settings that mean-embedding methods share; the defaults are the published ones."""

    spc: int = setting(
        6000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )
    latent: int = setting(
        5, "length of the generator's latent vectors", at_least=1, formerly="code"
    )
    steps: int = setting(
        3000, "training steps of the generator (post-processing: they cost no privacy)", at_least=1
    )
    gen_batch: int = setting(100, "generated images per training step", at_least=2)
    learning_rate: float = setting(0.01, "Adam's learning rate", above=0, formerly="rate")
    decay: float = setting(
        0.9, "factor on the learning rate after every fifth of the steps", above=0, at_most=1
    )
    labels: GeneratedLabels = setting(
        GeneratedLabels.BALANCED,
        "labels of generated images: uniform, or by class weights released with noise of their own",
    )
    noise: float | None = setting(
        None, "noise over add/remove sensitivity (1/m); default: what the budget allows", above=0
    )

    @property
    def noised_weights(self) -> bool:
        """True if class weights are released with noise of their own."""
        return self.labels == GeneratedLabels.NOISED


E = TypeVar("E", bound=EmbeddingConfig)


class EmbeddingMethod(Method[E]):
    """One request, one noised embedding per party, one generator at the server."""

    Config: ClassVar[type] = EmbeddingConfig
    paper_convention = PAPER_CONVENTION
    paper_relation = Relation.REPLACE_ONE

    @abstractmethod
    def features(self, cfg: E, data: DatasetInfo, seed: object) -> FeatureMap:
        """The feature map, from public randomness."""

    def space(self, cfg: E, data: DatasetInfo) -> OutputSpace:
        """The generator's output space: of convolutions for images, where not overridden."""
        return output_space(data)

    def width(self, cfg: E, data: DatasetInfo) -> int:
        """The number of features of a record."""
        return self.features(cfg, data, "width").width

    def plan(self, cfg: E, stage: Stage, budget: Budget) -> Plan:
        with torch.device("meta"):  # refuses sizes that the generator cannot draw
            self.space(cfg, stage.data).generator(cfg.latent, len(stage.classes))
        noise = calibrated_noise(cfg, budget)
        floats = self.width(cfg, stage.data) + cfg.noised_weights
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                event=embedding_event(cfg, noise),
                noise_multiplier=noise,
                paper_event=paper_embedding_event(cfg, noise),
                bytes_up=4 * floats * len(info.class_counts),
            )
            for info in stage.parties
        )
        cost = ComputeCost("train", COST_AS_CONVNET_WIDTH, cfg.gen_batch, cfg.steps)
        assumes = (PARTY_RECORDS, PARTY_CLASSES)
        return Plan(self.name, stage, budget, parties, server_cost=(cost,), assumes=assumes)

    def party(self, ctx: PartyContext[E], request: Request) -> Release:
        features = self.features(ctx.config, ctx.dataset, request.scalar("seed"))
        return ctx.guard.release(noised_embedding(ctx, features))

    def serve(self, ctx: ServerContext[E]) -> SyntheticSet:
        plan, classes = ctx.plan, ctx.plan.stage.classes
        releases = ctx.ask(ctx.parties, Request(scalars={"seed": ctx.seed}))
        parties = [plan.info(release.party) for release in releases]
        target = pooled_means([r.arrays["embedding"] for r in releases], parties, classes)
        weights = torch.full((len(classes),), 1 / len(classes))
        if ctx.config.noised_weights:
            noised = pooled_means([r.arrays["weights"] for r in releases], parties, classes)
            weights = normalized_weights(noised)
        return self.generated_set(ctx, target, weights)

    def generated_set(self, ctx: ServerContext[E], target: Tensor, weights: Tensor) -> SyntheticSet:
        """Train a generator towards the released embedding `target`, in a worker where there are
        some, and draw a set from it."""
        return ctx.compute(self.trained_set, target, weights)

    def trained_set(
        self, work: ServerWork[E], target: Tensor | Callable[[int], Tensor], weights: Tensor
    ) -> SyntheticSet:
        """Train a generator towards the released embedding, or that of each step, and draw a set
        from it."""
        stage, cfg = work.plan.stage, work.config
        features = self.features(cfg, stage.data, work.seed)
        key = work.plan.random_key(work.seed)
        trainer = GeneratorTrainer(cfg, self.space(cfg, stage.data), weights, key, work.device)
        for step in work.rounds(cfg.steps, trainer.state):
            now = target if isinstance(target, Tensor) else target(step)
            trainer.step(step, features, now.to(work.device))
        return trainer.sample(stage.classes)


class ConstantFeature(FeatureMap):
    """The feature map that counts: every record is a one."""

    width = 1

    def __call__(self, pixels: Tensor) -> Tensor:
        return pixels.new_ones(len(pixels), 1)


def noised_embedding(ctx: PartyContext[E], features: FeatureMap) -> dict[str, Tensor]:
    """A party's noised embedding and, with `labels=noised`, its noised class weights."""
    classes = sorted(ctx.info.class_counts)

    def noisy_mean(rows: FeatureMap, call: int) -> Tensor:
        mechanism = class_feature_sums(rows, ctx.party_plan.noise_multiplier, classes)
        (sums,) = ctx.guard.apply(mechanism, ctx.data, call=call)
        return sums / ctx.info.records

    arrays = {"embedding": noisy_mean(features, 0)}
    if ctx.config.noised_weights:
        arrays["weights"] = noisy_mean(ConstantFeature(), 1)
    return arrays


def class_feature_sums(
    features: FeatureMap,
    noise_multiplier: float,
    classes: Sequence[int],
    sampling_rate: float = 1.0,
) -> ClassSums:
    """The mechanism of an embedding: the features of all records, or of a Poisson sample of them,
    summed class by class."""
    return ClassSums(
        contribution=lambda pixels, _: features(pixels),
        width=features.width,
        clip=1.0,
        noise_multiplier=noise_multiplier,
        sampling_rates=dict.fromkeys(classes, sampling_rate),
    )


def calibrated_noise(cfg: EmbeddingConfig, budget: Budget, before: Sequence[DpEvent] = ()) -> float:
    """The noise multiplier of an embedding: as set, or the smallest one within the budget.

    Args:
        cfg: The settings.
        budget: The budget; by the papers' convention, their neighbours count. They replace a
            record, which is what `relation=replace_one` makes of the event itself.
        before: Events that the same budget pays for.
    """
    by_paper = budget.accounting == PAPER_CONVENTION and budget.relation == Relation.ADD_REMOVE
    of_embedding = paper_embedding_event if by_paper else embedding_event

    def whole(sigma: float) -> DpEvent:
        own = of_embedding(cfg, sigma)
        return composed([*before, own]) if before else own

    return cfg.noise or noise_multiplier(
        whole, budget.epsilon, budget.delta, budget.accounting, budget.relation
    )


def embedding_event(cfg: EmbeddingConfig, sigma: float) -> DpEvent:
    """The event of an embedding and, with `labels=noised`, of its class weights."""
    return composed([gaussian(sigma)] * (2 if cfg.noised_weights else 1))


def paper_embedding_event(cfg: EmbeddingConfig, sigma: float) -> DpEvent:
    """The same for a replaced record, as the papers count: 2/m, and sqrt(2)/m for the weights."""
    weights = [gaussian(sigma / 2**0.5)] if cfg.noised_weights else []
    return composed([gaussian(sigma / 2), *weights])


def normalized_weights(noised: Tensor) -> Tensor:
    """Class weights that sum to one, from their noised means."""
    weights = noised.flatten().clamp_min(MIN_CLASS_WEIGHT)
    return weights / weights.sum()


def pooled_means(
    means: Sequence[Tensor], parties: Sequence[PartyInfo], classes: Sequence[int]
) -> Tensor:
    """The mean over the records of all parties, from the means of each.

    Args:
        means: The means of each party, whose rows are the classes it holds, ascending.
        parties: The public facts of these parties.
        classes: The classes of the rows of the result.
    """
    total = means[0].new_zeros(len(classes), means[0].shape[1])
    for mean, info in zip(means, parties, strict=True):
        rows = torch.tensor([classes.index(c) for c in sorted(info.class_counts)])
        total.index_add_(0, rows, mean * info.records)
    return total / sum(info.records for info in parties)


class GeneratorTrainer:
    """A generator in training towards a released embedding."""

    def __init__(
        self,
        cfg: EmbeddingConfig,
        space: OutputSpace,
        weights: Tensor,
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        """`weights` are the shares of the classes among generated labels."""
        self.cfg, self.space = cfg, space
        with default_seed(*key, "generator"):
            net = space.generator(cfg.latent, len(weights)).to(device)
        adam = optimizers.Adam(net.parameters(), cfg.learning_rate, fused=True)
        self.learner = LearningGenerator(
            net, adam, latent=cfg.latent, weights=weights, key=key, device=device
        )
        # With noised weights, classes are compared by their own means: rare ones count as much.
        emphasis = 1 / weights if cfg.noised_weights else torch.ones(len(weights))
        self.emphasis = emphasis.to(device)

    @property
    def state(self) -> dict[str, object]:
        """The state to checkpoint; restored in place."""
        return self.learner.state

    def step(self, number: int, features: FeatureMap, target: Tensor) -> None:
        """Take one step of Adam on the squared distance of the generated embedding to `target`."""
        for group in self.learner.optimiser.param_groups:
            decays = number * DECAYS // self.cfg.steps
            group["lr"] = self.cfg.learning_rate * self.cfg.decay**decays
        outputs, labels = self.learner.batch(number, self.cfg.gen_batch)
        weights = nn.functional.one_hot(labels, len(target)).to(outputs) / self.cfg.gen_batch
        difference = target - features.weighted_sums(outputs, weights)
        self.learner.descend((difference * self.emphasis.unsqueeze(1)).square().sum())

    def sample(self, classes: Sequence[int]) -> SyntheticSet:
        """Draw `spc` records per class on average, by class weight, at least one of each."""
        return self.learner.sample(classes, self.cfg.spc, self.space.decode)
