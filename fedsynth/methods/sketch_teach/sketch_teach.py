"""sketch_teach: a small noised sketch of each class, a private teacher, and a set from both.

Two releases share the budget by exact Gaussian differential privacy.

1. The sketch: three or four queries about the mean and the spread of each class (`queries`). Images
   drawn from it and changed by a public prior (`synthesis`) train a network, whose features are
   useful for the real images too, next to a fixed scattering transform.
2. The teacher: T full-batch gradients of a linear head on those features (`linear_teacher`). It
   labels fresh images, and they are the release.

A record changes the answer to a query by at most the bound of the query and a gradient sum by at
most C in L2; the guard enforces both. Everything else is post-processing. Images are released as
bytes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TypeVar

import torch
from dp_accounting import DpEvent

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records, class_indices
from fedsynth.methods.common.request_arrays import earlier_set
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.sketch_teach.config import (
    LabelKind,
    ReleaseParameters,
    SketchTeachConfig,
    unfit,
)
from fedsynth.methods.sketch_teach.linear_teacher import FeatureMap, gradient_factors
from fedsynth.methods.sketch_teach.queries import Query
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    estimate_class_models,
    negative_examples,
    without_classes,
)
from fedsynth.nn.classifiers.poolnet import BATCH
from fedsynth.nn.transforms.scattering import scattering
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum

SMOKE = {"spc": 100, "pool": 200, "pool_steps": 60, "steps": 15, "scattering": False}
LAPTOP = {"spc": 1000, "pool": 1000, "pool_steps": 400}


K = TypeVar("K", bound=SketchTeachConfig)


class SketchTeachMethod(Method[K]):
    """The statements that both forms of the method share."""

    source = "this project"
    paper_convention = "pld"
    presets = {"smoke": SMOKE, "laptop": LAPTOP}

    def unfit(self, data: DatasetInfo) -> str:
        return super().unfit(data) or unfit(data)

    def inherits(self, cfg: K) -> bool:
        return cfg.negatives > 0


class SketchTeach(SketchTeachMethod[SketchTeachConfig]):
    """A one-shot release: a party sketches, fits features, trains a teacher and labels a set."""

    name = "sketch_teach"
    summary = (
        "A noised sketch of each class, and a private teacher that labels images drawn from it"
    )

    def plan(self, cfg: SketchTeachConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        images = sum(
            release_parameters(cfg, stage, info, budget).spc * len(info.class_counts)
            for info in stage.parties
        )
        return Plan(self.name, stage, budget, parties, images=images, assumes=assumes)

    def _party_plan(
        self, cfg: SketchTeachConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        parameters = release_parameters(cfg, stage, info, budget)
        image_bytes = math.prod(stage.data.shape) + 8  # with its label
        held, earlier_classes = len(info.class_counts), len(stage.seen) - len(stage.classes)
        soft = 4 * stage.data.classes * held * parameters.spc if cfg.labels == LabelKind.SOFT else 0
        return PartyPlan(
            info.party,
            info.records,
            event=release_event(parameters),
            steps=len(parameters.sketch_multipliers) + parameters.steps,
            noise_multiplier=parameters.teacher_multiplier,
            bytes_up=held * parameters.spc * image_bytes + soft,
            bytes_down=earlier_classes * min(cfg.negatives, parameters.spc) * image_bytes,
            cost=(*feature_cost(cfg, info.records), *synthesis_cost(cfg, parameters, held)),
        )

    def party(self, ctx: PartyContext[SketchTeachConfig], request: Request) -> Release:
        stage = ctx.plan.stage
        parameters = release_parameters(ctx.config, stage, ctx.info, ctx.plan.budget)
        classes = held_classes(stage, ctx.info)

        def ask(query: Query) -> torch.Tensor:
            multiplier = parameters.sketch_multipliers[query.number]
            return query.answer(ctx.data, ctx.guard, noise_multiplier=multiplier)

        key = (request.scalar("seed"), self.name, stage.index, ctx.party)
        earlier = earlier_set(ctx.dataset, request)
        models = estimate_class_models(ask, parameters, classes, records=ctx.info.records, key=key)
        synthesizer = SetSynthesizer(
            ctx.config,
            parameters,
            ctx.dataset,
            models,
            earlier=without_classes(classes, earlier),
            key=key,
            device=ctx.device,
        )
        return ctx.guard.release(synthesizer.synthesize(_train_head(ctx, parameters, synthesizer)))

    def serve(self, ctx: ServerContext[SketchTeachConfig]) -> Outcome:
        earlier = negative_examples(ctx.config, ctx.inherited)
        arrays = {} if earlier is None else earlier.to_arrays()
        releases = ctx.ask(ctx.parties, Request(arrays=arrays, scalars={"seed": ctx.seed}))
        return SyntheticSet.join([release.synthetic_set() for release in releases])


def _train_head(
    ctx: PartyContext[SketchTeachConfig],
    parameters: ReleaseParameters,
    synthesizer: SetSynthesizer,
) -> torch.Tensor:
    """Train the head on the party's records with noised gradient sums."""
    head = synthesizer.head()
    rows = ctx.data.records.map(partial(rows_and_indices, synthesizer.features, synthesizer.order))
    event = gaussian(parameters.teacher_multiplier)
    with ctx.guard.reserve(event, parameters.steps, "teacher"):
        for step in ctx.data.rounds(parameters.steps, head.state):
            mechanism = OuterProductSum(
                factors=rows.map(lambda features: gradient_factors(head.weights, *features)),
                shape=head.weights.shape,
                clip=ctx.config.clip,
                noise_multiplier=parameters.teacher_multiplier,
            )
            (total,) = ctx.guard.apply(mechanism, ctx.data, call=step)
            head.step(step, synthesizer.mean_gradient(head.weights, total, ctx.info.records))
    return head.result()


def release_parameters(
    cfg: SketchTeachConfig, stage: Stage, info: PartyInfo, budget: Budget
) -> ReleaseParameters:
    """The numbers of a party that releases by itself."""
    held = held_classes(stage, info)
    earlier = tuple(label for label in stage.seen if label not in stage.classes)
    single_party = Stage(stage.data, 0, 1, (info,), held, (*earlier, *held))
    return ReleaseParameters.derive(cfg, single_party, budget, info.records)


def held_classes(stage: Stage, info: PartyInfo) -> tuple[int, ...]:
    """The public classes of a party, in the order of the stage."""
    return tuple(c for c in stage.classes if c in info.class_counts)


def release_event(parameters: ReleaseParameters) -> DpEvent:
    """The privacy event of a whole release: one Gaussian per query and per step of the teacher."""
    teacher = repeated(gaussian(parameters.teacher_multiplier), parameters.steps)
    return composed([*map(gaussian, parameters.sketch_multipliers), teacher])


def rows_and_indices(
    features: FeatureMap, order: list[int], records: Records
) -> tuple[torch.Tensor, torch.Tensor]:
    """The feature row and the class index of each record, from that record alone.

    The scattering transform depends on neither noise nor budget, so it is computed once and
    cached at the party."""
    pixels = records.pixels()
    scattered = None
    if features.with_scattering:
        device = features.centre.device
        scattered = records.remember("scattering", lambda _: scattering(pixels.to(device)).cpu())
    return features(pixels, scattered), class_indices(records.labels, order)


def feature_cost(cfg: SketchTeachConfig, images: int, steps: int = 0) -> tuple[ComputeCost, ...]:
    """The cost of the features of `images` images, each about a forward pass, and of `steps`
    training steps."""
    training = ComputeCost("train", cfg.width, BATCH, images // (3 * BATCH) + steps)
    return (training, ComputeCost("scattering", 1, images, 1)) if cfg.scattering else (training,)


def synthesis_cost(
    cfg: SketchTeachConfig, parameters: ReleaseParameters, classes: int
) -> tuple[ComputeCost, ...]:
    """The cost of training the pool-net and of the synthetic images."""
    images = classes * (cfg.pool + (cfg.matched_to or parameters.spc))
    matching = () if cfg.matched_to is None else cfg.condensation(parameters.spc).cost(classes)
    return (*feature_cost(cfg, images, cfg.pool_steps), *matching)
