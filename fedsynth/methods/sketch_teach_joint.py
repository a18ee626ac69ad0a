"""sketch_teach as a conversation: both of its releases are sums over records, so over parties too.

Round 0 adds up the parties' sketches; the curator trains on them what a lone party would train at
home, and in each of T more rounds the parties return the clipped gradient sum of its linear head on
their records. The features go out with the first of these rounds; a party keeps them. Who adds the
noise: see `methods._joint`.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import partial

import torch

from fedsynth.core import (
    Arrays,
    Budget,
    DataFacts,
    Method,
    Outcome,
    Parties,
    PartyPlan,
    Plan,
    Release,
    Request,
    Task,
)
from fedsynth.errors import UserError
from fedsynth.methods._joint import NoiseAt, party_sum, placed
from fedsynth.methods._lesson import Lesson, others_than, shown_negatives, sketched
from fedsynth.methods._sketch_settings import Recipe, SketchTeachConfig, unfit
from fedsynth.methods._teacher import FeatureMap, gradient_factors
from fedsynth.methods.sketch_teach import (
    LAPTOP,
    SMOKE,
    TEST,
    event_of,
    made_work,
    rows_and_places,
    work_of,
)
from fedsynth.models.poolnet import PoolNet
from fedsynth.models.scattering import NUMBERS
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.private import Private, Records
from fedsynth.report.files import atomic_write

SKETCH, TEACH = "sketch", "teach"


@dataclass(frozen=True)
class SketchTeachJointConfig(SketchTeachConfig, NoiseAt):
    """sketch_teach's settings, and where the noise is added."""


class SketchTeachJoint(Method):
    """A conversation of 1 + T rounds about one set of images."""

    name = "sketch_teach_joint"
    summary = "sketch_teach as a conversation: one sketch and one teacher from all parties' sums"
    source = "this project"
    Config = SketchTeachJointConfig
    paper_convention = "pld"
    presets = {"test": TEST, "smoke": SMOKE, "laptop": LAPTOP, "paper": {}}

    def unfit(self, data: DataFacts) -> str:
        return super().unfit(data) or unfit(data)

    def inherits(self, cfg: SketchTeachJointConfig) -> bool:
        return cfg.negatives > 0

    @staticmethod
    def _recipe(cfg: SketchTeachJointConfig, task: Task, budget: Budget) -> Recipe:
        noises = len(task.parties) if cfg.at == "party" else 1
        return Recipe.of(cfg, task, budget, _records(task), noises)

    def plan(self, cfg: SketchTeachJointConfig, task: Task, budget: Budget) -> Plan:
        recipe = self._recipe(cfg, task, budget)
        event = event_of(recipe)
        with torch.device("meta"):
            net = PoolNet(cfg.width, len(task.seen), task.data.shape[-1])
        width = net.features + (NUMBERS if cfg.scattering else 0)
        gradients = 4 * len(task.seen) * (width + 1) * recipe.steps
        features = 4 * (width * (width + 1) + sum(p.numel() for p in net.parameters()))
        parties = tuple(
            placed(
                cfg,
                task,
                PartyPlan(
                    facts.party,
                    facts.records,
                    event,
                    steps=1 + recipe.steps,
                    noise_multiplier=recipe.teacher_multiplier,
                    bytes_up=4 * len(task.classes) * recipe.sketch.width + gradients,
                    bytes_down=features + gradients,
                    work=work_of(cfg, facts.records),
                ),
            )
            for facts in task.parties
        )
        return Plan(
            self.name,
            task,
            budget,
            parties,
            rounds=1 + recipe.steps,
            curator_work=made_work(cfg, recipe, len(task.classes)),
            assumes=("the number of records of all parties together", "the classes of a stage"),
        )

    def party(
        self,
        cfg: SketchTeachJointConfig,
        plan: Plan,
        private: Private,
        request: Request,
        guard: Guard,
    ) -> Release:
        recipe = self._recipe(cfg, plan.task, plan.budget)
        if request.kind == SKETCH:
            total = guard.noisy_class_sums(
                private,
                lambda pixels, _: recipe.sketch.contribution(pixels),
                width=recipe.sketch.width,
                bound=recipe.sketch.bound,
                noise_multiplier=recipe.sketch_multiplier,
                rates=dict.fromkeys(plan.task.classes, 1.0),
                call=request.round,
                at=cfg.at,
            )
        else:
            keep_features(private, request)
            digest = str(request.numbers["features"])
            known = private.remember(digest, partial(_rows, cfg, private, digest, guard.device))
            weights = request.arrays["weights"].to(guard.device)
            total = guard.noisy_outer_sum(
                private,
                known.map(lambda rows: gradient_factors(weights, *rows)),
                bound=cfg.clip,
                noise_multiplier=recipe.teacher_multiplier,
                call=request.round,
                at=cfg.at,
            )
        return guard.release({"sum": total})

    def serve(self, cfg: SketchTeachJointConfig, plan: Plan, parties: Parties) -> Outcome:
        task, records = plan.task, _records(plan.task)
        recipe = self._recipe(cfg, task, plan.budget)
        noise = recipe.sketch.bound * recipe.sketch_multiplier
        sums = party_sum(
            cfg,
            plan,
            parties,
            Request(SKETCH),
            shapes={"sum": (len(task.classes), recipe.sketch.width)},
            bound=recipe.sketch.bound,
            noise_multiplier=recipe.sketch_multiplier,
        ).arrays["sum"]
        times = math.sqrt(len(task.parties)) if cfg.at == "party" else 1.0
        models = sketched(
            sums, task.classes, recipe, task.data, noise=noise * times, records=records
        )
        lesson = Lesson(
            cfg,
            recipe,
            task.data,
            models,
            earlier=others_than(task.classes, shown_negatives(cfg, parties.inherited)),
            key=(parties.seed, self.name, task.stage),
            device=parties.device,
        )
        features = {**lesson.features.arrays(), "order": torch.tensor(lesson.order)}
        digest = features_digest(features)
        head = lesson.head()
        for step in parties.rounds(recipe.steps, head.state):
            arrays = {"weights": head.weights, **(features if step == 0 else {})}
            request = Request(TEACH, step + 1, arrays=arrays, numbers={"features": digest})
            total = party_sum(
                cfg,
                plan,
                parties,
                request,
                shapes={"sum": head.weights.shape},
                bound=cfg.clip,
                noise_multiplier=recipe.teacher_multiplier,
            ).arrays["sum"]
            head.step(step, lesson.mean_gradient(head.weights, total.to(parties.device), records))
        return lesson.released(head.result())


def _records(task: Task) -> int:
    return sum(facts.records for facts in task.parties)


def features_digest(arrays: Arrays) -> str:
    """The name under which a party keeps these features."""
    return Request("features", arrays=arrays).digest()


def keep_features(private: Private, request: Request) -> None:
    """Keep the features that came with this request, if any did, at home."""
    arrays = {name: value for name, value in request.arrays.items() if name != "weights"}
    if arrays:
        buffer = io.BytesIO()
        torch.save(arrays, buffer)
        atomic_write(private.file(f"features-{features_digest(arrays)}.pt"), buffer.getvalue())


def _rows(
    cfg: SketchTeachConfig, private: Private, digest: str, device: torch.device, records: Records
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of the records under features that this party was sent before."""
    try:
        arrays = torch.load(private.file(f"features-{digest}.pt"), weights_only=True)
    except FileNotFoundError:
        raise UserError(
            "this party has not been sent the features that the curator asks about: its folder "
            "or the curator's was removed in the middle of a stage. Start the run anew."
        ) from None
    order = arrays["order"].tolist()
    features = FeatureMap.of_arrays(arrays, cfg.width, len(order), device)
    return rows_and_places(features, order, records)
