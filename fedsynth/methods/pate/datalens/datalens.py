"""DataLens: thousands of teachers vote on the direction in which generated images should move.

Wang et al.: "DataLens: Scalable Privacy Preserving Training via Gradient Compression and
Aggregation", 2021. Every teacher is a small discriminator with a few records of its own. In a round
it is trained to tell them from the generator's images; then it votes, for each of m generated
images, with the signs of the k coordinates in which its gradient is largest. The vote sums get
Gaussian noise of deviation sigma, and the coordinates whose sum reaches a fraction beta of the
teachers move the image (`generator.py`).

Departures from the paper and its code. Records are assigned to teachers by a hash of their content:
the published round-robin gives 1138 of MNIST's images to two teachers, which makes the published
epsilon 1 one of 1.58, and moves every later record when one is removed. `assignment=stratified`
deals equally many records of each class to all teachers as published, and no record twice; it needs
`relation=replace_one`, and the classes of records are public. Epsilon is computed for the true
sensitivity of a vote (`parameters.py`), by composition of one Gaussian mechanism per image,
and the number of rounds is fixed before the first. Images that teachers are trained on are drawn
together, ten classes per latent. The released set comes from the final generator, not from the best
of many on test data.

With `noise_at=party` and one party that hosts all teachers, or with `noise_at=aggregate`, the noise
is added where the paper adds it (see `methods.common.noise_placement` for the views). `unit=user`
protects all records of a party: every party is then one teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PARTY_CLASS_COUNTS, RECORD_CLASSES, PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.noise_placement import aggregate_parties, with_noise_placement
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.pate.datalens.compression import compress_votes, voted_direction
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import (
    DataLensParameters,
    low_signal_warning,
)
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble, TeacherMethod
from fedsynth.methods.pate.record_assignment import RecordAssignment
from fedsynth.privacy.mechanisms.votes import Assignment, VoteSums

LAPTOP = {"teachers": 400, "batch": 15, "rounds": 60, "spc": 1000}
SMOKE = {
    "teachers": 60, "batch": 15, "rounds": 5, "channels": 8, "hidden": 64, "generator_hidden": 256,
    "generator_channels": 32, "spc": 200,
}  # fmt: skip


class DataLens(TeacherMethod[DataLensConfig]):
    """Votes with the signs of the largest coordinates of a gradient."""

    name = "datalens"
    summary = "A generator that follows the noised votes of thousands of small teachers"
    source = "Wang et al. 2021, DataLens"
    units = (Unit.RECORD, Unit.USER)
    presets = {"smoke": SMOKE, "laptop": LAPTOP}

    def at_budget(
        self, cfg: DataLensConfig, stages: Sequence[Stage], budget: Budget
    ) -> DataLensConfig:
        return cfg.published_for(stages[0].data.name, budget.epsilon)

    def plan(self, cfg: DataLensConfig, stage: Stage, budget: Budget) -> Plan:
        parameters = DataLensParameters.of(cfg, stage, budget)
        parameters.check_sizes(cfg, stage)
        stratified = cfg.assignment == Assignment.STRATIFIED
        return Plan(
            self.name,
            stage,
            budget,
            tuple(_party_plan(cfg, stage, info, parameters) for info in stage.parties),
            rounds=parameters.rounds,
            warnings=low_signal_warning(cfg, parameters, stage),
            assumes=(
                "the number of records of each party, and so of its teachers",
                "the classes of a stage",
                *((PARTY_CLASS_COUNTS, RECORD_CLASSES) if stratified else ()),
            ),
        )

    def party(self, ctx: PartyContext[DataLensConfig], request: Request) -> Release:
        """Train the party's teachers for one round and release their noised vote sums."""
        cfg, plan = ctx.config, ctx.plan
        parameters = DataLensParameters.of(cfg, plan.stage, plan.budget)
        seed = request.scalar("seed")
        Query.check(request, parameters, plan.stage)
        key = plan.random_key(seed, ctx.party)
        folder = ctx.data.file("teachers.checkpoint").parent

        def compression(gradients: Tensor, number: int, first_teacher: int) -> Tensor:
            generator = torch_generator(*key, "votes", number, first_teacher)
            return compress_votes(cfg, parameters, gradients, generator)

        def build(records: Records) -> TeacherStore:
            teachers, partition = parameters.teachers[ctx.party], repr(key)
            if cfg.assignment == Assignment.STRATIFIED:
                counts = plan.info(ctx.party).class_counts
                assignment = RecordAssignment.stratified(records, teachers, partition, counts)
            else:
                assignment = RecordAssignment.of(records, teachers, partition)
            ensemble = TeacherEnsemble(
                records,
                assignment,
                cfg=cfg,
                parameters=parameters,
                compression=compression,
                stage=plan.stage,
                key=key,
                dtype=getattr(torch, cfg.dtype),
                device=ctx.device,
            )
            return TeacherStore(folder, ctx.party, ensemble)

        store = ctx.data.remember(f"{folder} {seed}", build)
        (votes,) = ctx.guard.apply(
            VoteSums(
                bounds=parameters.bounds,
                images=parameters.images,
                noise_multiplier=parameters.multiplier,
                sketch=parameters.sketch,
                teachers=parameters.teachers[ctx.party],
                assignment=cfg.assignment,
            ),
            store.map(partial(TeacherStore.votes, request=request)),
            call=request.round,
            noise_at=cfg.noise_at,
        )
        return ctx.guard.release({"votes": votes})

    def serve(self, ctx: ServerContext[DataLensConfig]) -> Outcome:
        """In each round, send images, sum the votes over parties, move the images by their sum."""
        cfg, plan = ctx.config, ctx.plan
        parameters = DataLensParameters.of(cfg, plan.stage, plan.budget)
        key = plan.random_key(ctx.seed)
        student = StudentGenerator(cfg, parameters, plan.stage, key, ctx.device)
        for number in ctx.rounds(parameters.rounds, student.state):
            total = aggregate_parties(
                ctx,
                student.query(number, ctx.seed),
                shapes={"votes": parameters.release_shape},
                bound=parameters.sensitivity,
                noise_multiplier=parameters.multiplier,
            )
            teachers = sum(parameters.teachers[party] for party in total.parties)
            votes = total.arrays["votes"]
            student.learn(number, voted_direction(cfg, parameters, votes, teachers))
        return student.sample()


def _party_plan(
    cfg: DataLensConfig, stage: Stage, info: PartyInfo, parameters: DataLensParameters
) -> PartyPlan:
    rounds = parameters.rounds
    numbers = torch.Size(parameters.release_shape).numel()
    alone = PartyPlan(
        info.party,
        info.records,
        parameters.event,
        steps=rounds,
        noise_multiplier=parameters.multiplier,
        paper_event=parameters.paper_event,
        bytes_up=4 * numbers * rounds,
        bytes_down=parameters.query_bytes(stage) * rounds,
        memory=parameters.teacher_memory(cfg, stage, info.party, getattr(torch, cfg.dtype)),
        cost=(parameters.teacher_cost(cfg, info.party),),
    )
    return with_noise_placement(cfg, stage, alone)
