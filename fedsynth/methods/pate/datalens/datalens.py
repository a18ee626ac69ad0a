"""DataLens: thousands of teachers vote on which way a generator's images should go.

Wang et al.: "DataLens: Scalable Privacy Preserving Training via Gradient Compression and
Aggregation", 2021. Every teacher is a small discriminator with a few records of its own. In a round
it learns to tell them from the generator's images, and sends for each of m images the signs of the
k coordinates in which its gradient is largest. Noise of deviation sigma is added to the sums;
coordinates whose sum reaches a share beta of the teachers pull the image that way.

Where this departs from the paper and its code. Records are dealt to teachers by a hash of their
content (the published round-robin gives 1138 of MNIST's images to two teachers, which makes the
published epsilon 1 one of 1.58, and moves every later record when one is removed). A teacher's
epsilon is counted for its true sensitivity, by composition of one Gaussian an image; rounds are
worked out before the first. The images teachers learn from are drawn together, ten classes a code,
and the released set is the generator's last, not the best of many on test data.

With `at=party` and one party that hosts all teachers, or with `at=aggregate`, noise is where the
paper has it (see `_joint` for the views). `unit=user` protects all records of a party: every party
is then one teacher.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from fedsynth.core.enums import Unit
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.common.noise_placement import aggregate_parties, with_noise_placement
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.pate.datalens.compression import direction
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import CONVENTION, Recipe, weakness
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import TeacherEnsemble
from fedsynth.nn.gan.label_dcgan import LabelDCGAN
from fedsynth.privacy.party_data import Records

TEST = {
    "teachers": 120, "entries": 20, "batch": 3, "channels": 1, "hidden": 4, "code": 3,
    "generator_hidden": 4, "generator_channels": 2, "sketch_rows": 3, "sketch_columns": 50,
    "teacher_steps": 2, "pretraining": 4, "clip": 0.01, "beta": 0.1,
}  # fmt: skip
LAPTOP = {"teachers": 400, "batch": 15, "rounds": 60, "spc": 1000}
SMOKE = {
    "teachers": 60, "batch": 15, "rounds": 5, "channels": 8, "hidden": 64, "generator_hidden": 256,
    "generator_channels": 32, "spc": 200,
}  # fmt: skip


class DataLens(Method[DataLensConfig]):
    """A conversation of as many rounds as the budget pays for."""

    name = "datalens"
    summary = "A generator that follows the noised votes of thousands of small teachers"
    source = "Wang et al. 2021, DataLens"
    Config = DataLensConfig
    paper_convention = CONVENTION
    units = (Unit.RECORD, Unit.USER)
    keeps_state = True
    presets = {"test": TEST, "smoke": SMOKE, "laptop": LAPTOP, "paper": {}}

    def plan(self, cfg: DataLensConfig, stage: Stage, budget: Budget) -> Plan:
        recipe = Recipe.of(cfg, stage, budget)
        recipe.shape(cfg, stage)
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            LabelDCGAN(recipe.code, len(stage.classes), stage.data.shape, 1, 1)
        numbers = math.prod(vote_shape(recipe))
        shown = recipe.images * (len(stage.classes) + 1) * recipe.width
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                PartyPlan(
                    info.party,
                    info.records,
                    recipe.event,
                    steps=recipe.rounds,
                    noise_multiplier=recipe.multiplier,
                    paper_event=recipe.paper_event,
                    bytes_up=4 * numbers * recipe.rounds,
                    bytes_down=(4 * shown + 8 * recipe.images) * recipe.rounds,
                    cost=(
                        ComputeCost(
                            "teachers", cfg.hidden, recipe.teachers[info.party], recipe.rounds
                        ),
                    ),
                ),
            )
            for info in stage.parties
        )
        return Plan(
            self.name,
            stage,
            budget,
            parties,
            rounds=recipe.rounds,
            warnings=weakness(cfg, recipe, stage),
            assumes=(
                "the number of records of each party, and so of its teachers",
                "the classes of a stage",
            ),
        )

    def party(self, ctx: PartyContext[DataLensConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        recipe, party = Recipe.of(cfg, plan.stage, plan.budget), private.info.party
        seed = request.numbers.get("seed")
        folder = private.file("teachers.checkpoint").parent

        def build(records: Records) -> TeacherStore:
            key = (seed, self.name, plan.stage.index, party)
            ensemble = TeacherEnsemble(
                records,
                recipe.teachers[party],
                cfg=cfg,
                recipe=recipe,
                stage=plan.stage,
                key=key,
                device=guard.device,
            )
            return TeacherStore(folder, party, ensemble)

        home = private.remember(f"{folder} {seed}", build)
        votes = guard.noisy_votes(
            home.map(partial(TeacherStore.answer, request=request)),
            noise_multiplier=recipe.multiplier,
            sketch=recipe.sketch,
            call=request.round,
            at=cfg.at,
        )
        return guard.release({"votes": votes})

    def serve(self, ctx: ServerContext[DataLensConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        recipe = Recipe.of(cfg, plan.stage, plan.budget)
        key = (ctx.seed, self.name, plan.stage.index)
        studio = StudentGenerator(cfg, recipe, plan.stage, key, ctx.device)
        for number in ctx.rounds(recipe.rounds, studio.state):
            request = studio.question(number, ctx.seed)
            total = aggregate_parties(
                cfg,
                plan,
                ctx,
                request,
                shapes={"votes": vote_shape(recipe)},
                bound=recipe.sensitivity,
                noise_multiplier=recipe.multiplier,
            )
            teachers = sum(recipe.teachers[party] for party in total.parties)
            studio.learn(number, direction(cfg, recipe, total.arrays["votes"], teachers))
        return studio.result()


def vote_shape(recipe: Recipe) -> tuple[int, ...]:
    """The form of an answer."""
    if recipe.sketch is None:
        return recipe.images, recipe.width
    return recipe.images, recipe.sketch.rows, recipe.sketch.columns
