"""sketch_teach as a conversation: both of its releases are sums over records, so over parties too.

Three or four rounds add up the parties' answers to the sketch's questions; the curator trains on
them what a lone party would train at home, and in each of T more rounds the parties return the
clipped gradient sum of its linear head on their records. The features go out with the first of
those T rounds; a party keeps them. Who adds the noise: see `common.noise_placement`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays, Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.methods.common.noise_placement import (
    NoisePlacementConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.sketch_teach.class_model import MOST_DIRECTIONS
from fedsynth.methods.sketch_teach.config import Recipe, SketchTeachConfig, unfit
from fedsynth.methods.sketch_teach.linear_teacher import FeatureMap, gradient_factors
from fedsynth.methods.sketch_teach.queries import QUESTIONS, Query
from fedsynth.methods.sketch_teach.sketch_teach import (
    LAPTOP,
    SMOKE,
    TEST,
    event_of,
    made_work,
    rows_and_places,
    work_of,
)
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    others_than,
    portrayed,
    shown_negatives,
)
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.nn.transforms.scattering import NUMBERS
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum
from fedsynth.privacy.party_data import PartyData, Records
from fedsynth.storage.state_file import read_state, write_state

TEACH = "teach"


@dataclass(frozen=True)
class SketchTeachJointConfig(SketchTeachConfig, NoisePlacementConfig):
    """sketch_teach's settings, and where the noise is added."""


class SketchTeachJoint(Method[SketchTeachJointConfig]):
    """A conversation of 3 or 4 + T rounds about one set of images."""

    name = "sketch_teach_joint"
    summary = "sketch_teach as a conversation: one sketch and one teacher from all parties' sums"
    source = "this project"
    Config = SketchTeachJointConfig
    paper_convention = "pld"
    presets = {"test": TEST, "smoke": SMOKE, "laptop": LAPTOP, "paper": {}}

    def unfit(self, data: DatasetInfo) -> str:
        return super().unfit(data) or unfit(data)

    def inherits(self, cfg: SketchTeachJointConfig) -> bool:
        return cfg.negatives > 0

    @staticmethod
    def _recipe(cfg: SketchTeachJointConfig, stage: Stage, budget: Budget) -> Recipe:
        noises = len(stage.parties) if cfg.placement == NoisePlacement.PARTY else 1
        return Recipe.of(cfg, stage, budget, _records(stage), noises)

    def plan(self, cfg: SketchTeachJointConfig, stage: Stage, budget: Budget) -> Plan:
        recipe = self._recipe(cfg, stage, budget)
        event = event_of(recipe)
        with torch.device("meta"):
            net = PoolNet(cfg.width, len(stage.seen), stage.data.shape[-1])
        width = net.features + (NUMBERS if cfg.scattering else 0)
        gradients = 4 * len(stage.seen) * (width + 1) * recipe.steps
        features = 4 * (width * (width + 1) + sum(p.numel() for p in net.parameters()))
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                PartyPlan(
                    info.party,
                    info.records,
                    event,
                    steps=len(recipe.sketch_multipliers) + recipe.steps,
                    noise_multiplier=recipe.teacher_multiplier,
                    bytes_up=4 * answers_of(recipe, len(stage.classes)) + gradients,
                    bytes_down=features + gradients,
                    cost=work_of(cfg, info.records),
                ),
            )
            for info in stage.parties
        )
        return Plan(
            self.name,
            stage,
            budget,
            parties,
            rounds=len(recipe.sketch_multipliers) + recipe.steps,
            images=recipe.spc * len(stage.classes),
            server_cost=made_work(cfg, recipe, len(stage.classes)),
            assumes=("the number of records of all parties together", "the classes of a stage"),
        )

    def party(self, ctx: PartyContext[SketchTeachJointConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        recipe = self._recipe(cfg, plan.stage, plan.budget)
        noise_at = cfg.placement
        if request.kind in QUESTIONS:
            asked = Query(request.kind, recipe.sketch, plan.stage.classes, request.arrays)
            asked.require_whole(recipe.cells)
            multiplier = recipe.sketch_multipliers[asked.number]
            total = asked.answer(private, guard, noise_multiplier=multiplier, noise_at=noise_at)
        else:
            keep_features(private, request)
            digest = str(request.numbers["features"])
            known = private.remember(digest, partial(_rows, cfg, private, digest, guard.device))
            weights = request.arrays["weights"].to(guard.device)
            mechanism = OuterProductSum(
                factors=known.map(lambda rows: gradient_factors(weights, *rows)),
                clip=cfg.clip,
                noise_multiplier=recipe.teacher_multiplier,
            )
            (total,) = guard.apply(mechanism, private, call=request.round, noise_at=noise_at)
        return guard.release({"sum": total})

    def serve(self, ctx: ServerContext[SketchTeachJointConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        stage, records = plan.stage, _records(plan.stage)
        recipe = self._recipe(cfg, stage, plan.budget)

        def ask(question: Query) -> torch.Tensor:
            return aggregate_parties(
                ctx,
                Request(question.kind, question.number, arrays=question.known),
                shapes={"sum": question.shape},
                bound=question.bound,
                noise_multiplier=recipe.sketch_multipliers[question.number],
            ).arrays["sum"]

        key = (ctx.seed, self.name, stage.index)
        times = math.sqrt(len(stage.parties)) if cfg.placement == NoisePlacement.PARTY else 1.0
        models = portrayed(ask, recipe, stage.classes, records=records, key=key, times=times)
        lesson = SetSynthesizer(
            cfg,
            recipe,
            stage.data,
            models,
            earlier=others_than(stage.classes, shown_negatives(cfg, ctx.inherited)),
            key=key,
            device=ctx.device,
        )
        own = lesson.features.arrays()  # in the state too: parties go by every bit of them
        features = {**own, "order": torch.tensor(lesson.order)}
        head, digest = lesson.head(), ""
        for step in ctx.rounds(recipe.steps, {**head.state, **own}):
            digest = digest or features_digest(features)
            arrays = {"weights": head.weights, **(features if step == 0 else {})}
            number = len(QUESTIONS) + step
            request = Request(TEACH, number, arrays=arrays, numbers={"features": digest})
            total = aggregate_parties(
                ctx,
                request,
                shapes={"sum": head.weights.shape},
                bound=cfg.clip,
                noise_multiplier=recipe.teacher_multiplier,
            ).arrays["sum"]
            head.step(step, lesson.mean_gradient(head.weights, total.to(ctx.device), records))
        return lesson.released(head.result())


def _records(stage: Stage) -> int:
    return sum(info.records for info in stage.parties)


def answers_of(recipe: Recipe, classes: int) -> int:
    """Numbers in the answers to all questions, where as many directions stand out as may."""
    width, kept = recipe.sketch.width, min(recipe.sketch.width, MOST_DIRECTIONS)
    cells = classes * recipe.cells * (kept + 1) ** 2 if recipe.cells > 1 else 0
    return classes * (width + 1) + width**2 + classes * kept**2 + cells


def features_digest(arrays: Arrays) -> str:
    """The name under which a party keeps these features."""
    return Request("features", arrays=arrays).digest()


def keep_features(private: PartyData, request: Request) -> None:
    """Keep the features that came with this request, if any did, at home."""
    arrays = {name: value for name, value in request.arrays.items() if name != "weights"}
    if arrays:
        write_state(private.file(f"features-{features_digest(arrays)}.state"), arrays)


def _rows(
    cfg: SketchTeachConfig, private: PartyData, digest: str, device: torch.device, records: Records
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of the records under features that this party was sent before."""
    try:
        arrays = read_state(private.file(f"features-{digest}.state"))
    except FileNotFoundError:
        raise UserError(
            "this party has not been sent the features that the curator asks about: its folder "
            "or the curator's was removed in the middle of a stage. Start the run anew."
        ) from None
    order = arrays["order"].tolist()
    features = FeatureMap.of_arrays(arrays, cfg.width, len(order), device)
    return rows_and_places(features, order, records)
