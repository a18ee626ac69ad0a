"""G-PATE: teachers vote, per random direction, on how generated images should move.

Long et al.: "G-PATE: Scalable Differentially Private Data Generator via Private Aggregation of
Teacher Discriminators", 2021. Every teacher is a small discriminator with a few records of its own.
In a round each projects its gradient at every image onto p random directions and votes for the bin
that contains the value; the centre of the fullest bin is released where enough teachers agree
(Confident GNMax). Teachers, generator and the assignment of records are those of DataLens.

What it costs. The published epsilon depends on the votes and is itself private. Here the noised
histograms and the noised maxima are charged as Gaussian mechanisms, whatever the votes: one teacher
moves two counts of a histogram and one maximum, and every threshold is charged. The published noise
then allows 1519 images at epsilon 10, and 1971 at epsilon 1.

Each party's teachers vote among themselves, and the party adds its own noise: it releases one value
per direction and image. The server takes the mean over parties.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, Stage
from fedsynth.data.records import Records
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble, TeacherMethod
from fedsynth.methods.pate.g_pate.config import GPateConfig, GPateParameters
from fedsynth.methods.pate.record_assignment import RecordAssignment
from fedsynth.privacy.mechanisms.votes import VoteMaxima, VoteSums

TEACHER_DTYPE = torch.bfloat16
LAPTOP = {
    "teachers": 200, "rounds": 40, "channels": 8, "hidden": 64, "generator_hidden": 256,
    "generator_channels": 32, "generator_steps": 5, "spc": 1000,
}  # fmt: skip


class GPate(TeacherMethod[GPateConfig]):
    """Votes with a histogram of a gradient's projections."""

    name = "g_pate"
    summary = "A generator that follows its teachers' votes on projected gradients"
    source = "Long et al. 2021, G-PATE"
    presets = {"smoke": {**LAPTOP, "teachers": 60, "rounds": 5, "spc": 200}, "laptop": LAPTOP}

    def plan(self, cfg: GPateConfig, stage: Stage, budget: Budget) -> Plan:
        parameters = GPateParameters.of(cfg, stage, budget)
        parameters.check_sizes(cfg, stage)
        rounds = parameters.rounds
        parties = tuple(
            PartyPlan(
                info.party,
                info.records,
                parameters.event,
                steps=rounds,
                noise_multiplier=parameters.noise.histograms,
                bytes_up=4 * parameters.images * cfg.projections * rounds,
                bytes_down=parameters.query_bytes(stage) * rounds,
                memory=parameters.teacher_memory(cfg, stage, info.party, TEACHER_DTYPE),
                cost=(parameters.teacher_cost(cfg, info.party),),
            )
            for info in stage.parties
        )
        assumes = (
            "the number of records of each party, and so of its teachers",
            "the classes of a stage",
        )
        return Plan(self.name, stage, budget, parties, rounds=rounds, assumes=assumes)

    def party(self, ctx: PartyContext[GPateConfig], request: Request) -> Release:
        """Train the party's teachers for one round and release their confident answers."""
        cfg, plan = ctx.config, ctx.plan
        parameters = GPateParameters.of(cfg, plan.stage, plan.budget)
        seed, teachers = request.scalar("seed"), parameters.teachers[ctx.party]
        Query.check(request, parameters, plan.stage)
        public_key = plan.random_key(seed)
        folder = ctx.data.file("teachers.checkpoint").parent

        def compression(gradients: Tensor, number: int, _first_teacher: int) -> Tensor:
            directions = projection(parameters.width, cfg.projections, *public_key, number)
            return bin_votes(gradients @ directions.to(gradients), cfg)

        def build(records: Records) -> TeacherStore:
            key = (*public_key, ctx.party)
            ensemble = TeacherEnsemble(
                records,
                RecordAssignment.of(records, teachers, repr(key)),
                cfg=cfg,
                parameters=parameters,
                compression=compression,
                stage=plan.stage,
                key=key,
                dtype=TEACHER_DTYPE,
                device=ctx.device,
            )
            return TeacherStore(folder, ctx.party, ensemble)

        store = ctx.data.remember(f"{folder} {seed}", build)
        votes = store.map(partial(TeacherStore.votes, request=request))
        histograms = VoteSums(
            bounds=parameters.bounds,
            images=parameters.images,
            noise_multiplier=parameters.noise.histograms,
        )
        largest = VoteMaxima(
            bounds=parameters.bounds,
            images=parameters.images,
            noise_multiplier=parameters.noise.maxima,
            groups=cfg.projections,
        )
        (counts,) = ctx.guard.apply(histograms, votes, call=2 * request.round)
        (maxima,) = ctx.guard.apply(largest, votes, call=2 * request.round + 1)
        return ctx.guard.release({"values": confident_values(counts, maxima, teachers, cfg)})

    def serve(self, ctx: ServerContext[GPateConfig]) -> Outcome:
        """In each round, send images, average the answers, move the images along the directions."""
        cfg, plan = ctx.config, ctx.plan
        parameters = GPateParameters.of(cfg, plan.stage, plan.budget)
        key = plan.random_key(ctx.seed)
        student = StudentGenerator(cfg, parameters, plan.stage, key, ctx.device)
        shapes = {"values": (parameters.images, cfg.projections)}
        for number in ctx.rounds(parameters.rounds, student.state):
            releases = ctx.ask(ctx.parties, student.query(number, ctx.seed), shapes=shapes)
            values = torch.stack([release.arrays["values"] for release in releases]).mean(0)
            directions = projection(parameters.width, cfg.projections, *key, number)
            student.learn(number, values @ directions.t())
        return student.sample()


def projection(width: int, count: int, *key: object) -> Tensor:
    """Normal directions [width, count] of variance 1 / count: public, other ones for every key."""
    directions = torch.randn((width, count), generator=torch_generator(*key, "projection"))
    return directions / math.sqrt(count)


def bin_votes(values: Tensor, cfg: GPateConfig) -> Tensor:
    """One vote per projection for the bin of its clipped value, [..., projections bins] int8."""
    scaled = ((values / cfg.clip).clamp(-1, 1) + 1) * (cfg.bins / 2)
    chosen = scaled.floor().long().clamp(0, cfg.bins - 1)
    return torch.nn.functional.one_hot(chosen, cfg.bins).to(torch.int8).flatten(-2)


def confident_values(counts: Tensor, maxima: Tensor, teachers: int, cfg: GPateConfig) -> Tensor:
    """The centres of the fullest bins where the maximum reaches the threshold, else 0;
    [images, projections]."""
    fullest = counts.unflatten(1, (cfg.projections, cfg.bins)).argmax(2)
    centres = cfg.clip * (2 * (fullest + 0.5) / cfg.bins - 1)
    return torch.where(maxima >= cfg.threshold * teachers, centres, 0.0)
