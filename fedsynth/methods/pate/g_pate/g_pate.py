"""G-PATE: teachers vote, direction by direction, on which way a generator's images should go.

Long et al.: "G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of
Teacher Discriminators", 2021. Every teacher is a small discriminator with a few records of its own.
In a round each projects its gradient at every image onto p random directions and votes for the bin
that the value falls into; the fullest bin is answered where enough teachers agree (Confident
GNMax). Teachers, generator and the dealing of records are DataLens's.

What it costs. The published epsilon depends on the votes and is itself private; here the noised
histograms and the noised maxima are counted for what they are, whatever the votes: one teacher
moves two counts of a histogram and one of a maximum, and every threshold is paid for. With the
published noise that leaves 1519 images at epsilon 10, and 1971 at epsilon 1.

Each party's teachers vote among themselves, and it adds its own noise: an answer of a party is a
bin a direction and image. The curator takes the mean over parties.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import TeacherEnsemble
from fedsynth.methods.pate.g_pate.config import (
    GPateConfig,
    GPateRecipe,
    answers,
    ballots,
    projection,
)
from fedsynth.nn.gan.label_dcgan import LabelDCGAN
from fedsynth.privacy.party_data import Records

LAPTOP = {
    "teachers": 200, "rounds": 40, "channels": 8, "hidden": 64, "generator_hidden": 256,
    "generator_channels": 32, "generator_steps": 5, "spc": 1000,
}  # fmt: skip


class GPate(Method[GPateConfig]):
    """A conversation of as many rounds as the budget pays for."""

    name = "g_pate"
    summary = "A generator that follows its teachers' votes on projected gradients"
    source = "Long et al. 2021, G-PATE"
    Config = GPateConfig
    paper_convention = "rdp_classic_199"
    keeps_state = True
    presets = {
        "test": {
            "teachers": 120, "projections": 3, "bins": 4, "batch": 3, "channels": 1, "hidden": 4,
            "code": 3, "generator_hidden": 4, "generator_channels": 2, "confident": 0.1,
            "rounds": 3, "pretraining": 3,
        },
        "smoke": {**LAPTOP, "teachers": 60, "rounds": 5, "spc": 200},
        "laptop": LAPTOP,
        "paper": {},
    }  # fmt: skip

    def plan(self, cfg: GPateConfig, stage: Stage, budget: Budget) -> Plan:
        recipe = GPateRecipe.of(cfg, stage, budget)
        shared = recipe.datalens
        shared.shape(cfg.as_datalens(budget), stage)
        with torch.device("meta"):  # refuses sizes it cannot draw before anything is spent
            LabelDCGAN(shared.code, len(stage.classes), stage.data.shape, 1, 1)
        shown = shared.images * (len(stage.classes) + 1) * shared.width
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                recipe.event,
                steps=shared.rounds,
                noise_multiplier=recipe.vote.histograms,
                bytes_up=4 * shared.images * cfg.projections * shared.rounds,
                bytes_down=(4 * shown + 8 * shared.images) * shared.rounds,
            )
            for info in stage.parties
        )
        assumes = (
            "the number of records of each party, and so of its teachers",
            "the classes of a stage",
        )
        return Plan(self.name, stage, budget, parties, rounds=shared.rounds, assumes=assumes)

    def party(self, ctx: PartyContext[GPateConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        recipe, party = GPateRecipe.of(cfg, plan.stage, plan.budget), private.info.party
        seed = request.numbers["seed"]
        folder = private.file("teachers.checkpoint").parent

        def build(records: Records) -> TeacherStore:
            key = (seed, self.name, plan.stage.index)
            ensemble = Voters(
                records,
                recipe.datalens.teachers[party],
                cfg=cfg.as_datalens(plan.budget),
                recipe=recipe.datalens,
                stage=plan.stage,
                key=(*key, party),
                device=guard.device,
            )
            ensemble.settings, ensemble.public_key = cfg, key
            return TeacherStore(folder, party, ensemble)

        home = private.remember(f"{folder} {seed}", build)
        tally = home.map(partial(TeacherStore.answer, request=request))
        counts = guard.noisy_votes(
            tally, noise_multiplier=recipe.vote.histograms, call=2 * request.round
        )
        maxima = guard.noisy_maxima(
            tally,
            groups=cfg.projections,
            noise_multiplier=recipe.vote.maxima,
            call=2 * request.round + 1,
        )
        values = answers(counts, maxima, recipe.datalens.teachers[party], cfg)
        return guard.release({"values": values})

    def serve(self, ctx: ServerContext[GPateConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        recipe = GPateRecipe.of(cfg, plan.stage, plan.budget)
        shared, key = recipe.datalens, (ctx.seed, self.name, plan.stage.index)
        studio = StudentGenerator(cfg.as_datalens(plan.budget), shared, plan.stage, key, ctx.device)
        form = {"values": (shared.images, cfg.projections)}
        for number in ctx.rounds(shared.rounds, studio.state):
            asked = ctx.ask(ctx.parties, studio.question(number, ctx.seed), shapes=form)
            values = torch.stack([answer.arrays["values"] for answer in asked]).mean(0)
            back = projection(shared.width, cfg.projections, *key, number).t()
            studio.learn(number, values @ back)
        return studio.result()


class Voters(TeacherEnsemble):
    """DataLens's teachers, who vote for bins in place of signs."""

    settings: GPateConfig
    public_key: tuple[object, ...]  # of the projections, which the curator has to know

    def _ballots(self, gradients: Tensor, number: int, start: int) -> Tensor:
        cfg, width = self.settings, self.recipe.width
        seen = projection(width, cfg.projections, *self.public_key, number).to(gradients)
        return ballots(gradients @ seen, cfg)
