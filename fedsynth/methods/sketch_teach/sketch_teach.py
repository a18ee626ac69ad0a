"""sketch_teach: a small noised sketch of each class, a private teacher on top, a set from both.

Two releases share the budget by exact Gaussian differential privacy. The first is a sketch, in
three questions: the mean shape of each class, how records lie around the means of their classes,
and the same class by class (`_questions`). Images drawn from it, made livelier by a prior written
by hand, train a network whose features, next to a fixed scattering transform, are good for the real
images too. The second are T full-batch gradients of a linear head on those features: the teacher.
It labels fresh images, and they are the release.

A record moves the answer to a question by at most the question's bound, which the guard enforces,
and every gradient sum by at most C. The rest is post-processing. Images are released as bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from dp_accounting import DpEvent

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.sketch_teach.config import Recipe, SketchTeachConfig, unfit
from fedsynth.methods.sketch_teach.linear_teacher import FeatureMap, gradient_factors, places_in
from fedsynth.methods.sketch_teach.queries import Query
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    others_than,
    portrayed,
    shown_negatives,
)
from fedsynth.nn.classifiers.poolnet import BATCH
from fedsynth.nn.transforms.scattering import scattering
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum
from fedsynth.privacy.party_data import Records, recall

SMOKE = {"spc": 100, "pool": 200, "pool_steps": 60, "steps": 15, "scattering": False}
TEST = {"pool": 20, "pool_steps": 3, "spc": 6, "negatives": 4, "frequencies": 3}
LAPTOP = {"spc": 1000, "pool": 1000, "pool_steps": 400}


class SketchTeach(Method[SketchTeachConfig]):
    """One-shot: the party sketches, learns features from the sketch, teaches, labels, releases."""

    name = "sketch_teach"
    summary = (
        "A noised sketch of each class, and a private teacher that labels images drawn from it"
    )
    source = "this project"
    Config = SketchTeachConfig
    paper_convention = "pld"
    presets = {"test": TEST, "smoke": SMOKE, "laptop": LAPTOP, "paper": {}}

    def unfit(self, data: DatasetInfo) -> str:
        return super().unfit(data) or unfit(data)

    def inherits(self, cfg: SketchTeachConfig) -> bool:
        return cfg.negatives > 0

    def plan(self, cfg: SketchTeachConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        images = sum(
            recipe_of(cfg, stage, info, budget).spc * len(info.class_counts)
            for info in stage.parties
        )
        return Plan(self.name, stage, budget, parties, images=images, assumes=assumes)

    def _party_plan(
        self, cfg: SketchTeachConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        recipe = recipe_of(cfg, stage, info, budget)
        image = math.prod(stage.data.shape) + 8  # and its label
        held, strangers = len(info.class_counts), len(stage.seen) - len(stage.classes)
        soft = 4 * stage.data.classes * held * recipe.spc if cfg.labels == "soft" else 0
        return PartyPlan(
            info.party,
            info.records,
            event=event_of(recipe),
            steps=len(recipe.sketch_multipliers) + recipe.steps,
            noise_multiplier=recipe.teacher_multiplier,
            bytes_up=held * recipe.spc * image + soft,
            bytes_down=strangers * min(cfg.negatives, recipe.spc) * image,
            cost=(*work_of(cfg, info.records), *made_work(cfg, recipe, held)),
        )

    def party(self, ctx: PartyContext[SketchTeachConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, data = private.info, plan.stage.data
        recipe = recipe_of(cfg, plan.stage, info, plan.budget)
        classes = held_classes(plan.stage, info)

        def ask(question: Query) -> torch.Tensor:
            multiplier = recipe.sketch_multipliers[question.number]
            return question.answer(private, guard, noise_multiplier=multiplier)

        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        models = portrayed(ask, recipe, classes, records=info.records, key=key)
        sent = request.arrays
        earlier = SyntheticSet.from_arrays(sent) if sent else None
        lesson = SetSynthesizer(
            cfg,
            recipe,
            data,
            models,
            earlier=others_than(classes, earlier),
            key=key,
            device=guard.device,
        )
        head = lesson.head()
        rows = private.records.map(partial(rows_and_places, lesson.features, lesson.order))
        with guard.reserve(gaussian(recipe.teacher_multiplier), recipe.steps, "teacher"):
            for step in private.rounds(recipe.steps, head.state):
                mechanism = OuterProductSum(
                    factors=rows.map(lambda known: gradient_factors(head.weights, *known)),
                    clip=cfg.clip,
                    noise_multiplier=recipe.teacher_multiplier,
                )
                (total,) = guard.apply(mechanism, private, call=step)
                head.step(step, lesson.mean_gradient(head.weights, total, info.records))
        made = lesson.released(head.result())
        return guard.release(made)

    def serve(self, ctx: ServerContext[SketchTeachConfig]) -> Outcome:
        cfg = ctx.config
        earlier = shown_negatives(cfg, ctx.inherited)
        sent = {} if earlier is None else replace(earlier, soft=None).to_arrays()
        releases = ctx.ask(ctx.parties, Request(arrays=sent, numbers={"seed": ctx.seed}))
        return SyntheticSet.join([release.synthetic_set() for release in releases])


def recipe_of(cfg: SketchTeachConfig, stage: Stage, info: PartyInfo, budget: Budget) -> Recipe:
    """The recipe of a party that releases alone."""
    held = held_classes(stage, info)
    earlier = tuple(name for name in stage.seen if name not in stage.classes)
    alone = Stage(stage.data, 0, 1, (info,), held, (*earlier, *held))
    return Recipe.of(cfg, alone, budget, info.records)


def held_classes(stage: Stage, info: PartyInfo) -> tuple[int, ...]:
    """The classes a party says it holds, in the order of the stage."""
    return tuple(c for c in stage.classes if c in info.class_counts)


def event_of(recipe: Recipe) -> DpEvent:
    """All a record's party spends: a Gaussian for each question and for each teacher step."""
    teacher = repeated(gaussian(recipe.teacher_multiplier), recipe.steps)
    return composed([*map(gaussian, recipe.sketch_multipliers), teacher])


def rows_and_places(
    features: FeatureMap, order: list[int], records: Records
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the teacher needs of the records, each row from its own record alone. The scattering
    transform knows no draw and no budget: it is computed once for all of them."""
    pixels = records.pixels()
    known = None
    if features.with_scattering:
        device = features.centre.device
        known = recall(records, "scattering", lambda _: scattering(pixels.to(device)).cpu())
    return features(pixels, known), places_in(records.labels, order)


def work_of(cfg: SketchTeachConfig, images: int, steps: int = 0) -> tuple[ComputeCost, ...]:
    """Features of so many images, each about a forward pass, and so many steps of training."""
    training = ComputeCost("train", cfg.width, BATCH, images // (3 * BATCH) + steps)
    return (training, ComputeCost("scattering", 1, images, 1)) if cfg.scattering else (training,)


def made_work(cfg: SketchTeachConfig, recipe: Recipe, classes: int) -> tuple[ComputeCost, ...]:
    """The pool-net's training, and what it takes to make the set."""
    images = classes * (cfg.pool + (cfg.drawn or recipe.spc))
    small = () if cfg.drawn is None else cfg.condensation(recipe.spc).cost(classes)
    return (*work_of(cfg, images, cfg.pool_steps), *small)
