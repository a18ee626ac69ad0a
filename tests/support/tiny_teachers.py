"""A tiny ensemble of DataLens's teachers, for tests of the teachers and of their store."""

from __future__ import annotations

from typing import Any

import torch

from fedsynth.core.messages import Request
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.pate.datalens.compression import compress_votes
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import CONVENTION, DataLensParameters
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble
from fedsynth.methods.pate.record_assignment import RecordAssignment

DATA = DatasetInfo("tiny", (1, 8, 8), 3, (0.5,), (0.25,))
PARTIES = (PartyInfo(0, 60, {0: 20, 1: 20, 2: 20}),)
STAGE = Stage(DATA, 0, 1, PARTIES, (0, 1, 2), (0, 1, 2))
BUDGET = Budget(10.0, 1e-5, accounting=CONVENTION)
TEACHERS = 12
SETTINGS = {
    "teachers": TEACHERS, "entries": 9, "batch": 3, "channels": 2, "hidden": 5, "latent": 3,
    "clip": 0.0, "rounds": 6, "generator_hidden": 4, "generator_channels": 2, "spc": 4,
}  # fmt: skip


def some_records(n: int = 60, seed: int = 0) -> Records:
    """Random images with random labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return Records(images, torch.randint(3, (n,), generator=generator))


def tiny_ensemble(
    records: Records, *, assignment: RecordAssignment | None = None, **changes: Any
) -> TeacherEnsemble:
    """Freshly initialised teachers of these records."""
    cfg = DataLensConfig(**{**SETTINGS, **changes})
    parameters = DataLensParameters.of(cfg, STAGE, BUDGET)
    ensemble = TeacherEnsemble(
        records,
        assignment or RecordAssignment.of(records, TEACHERS, repr(("k",))),
        cfg=cfg,
        parameters=parameters,
        compression=lambda gradients, number, first: compress_votes(
            cfg, parameters, gradients, torch_generator("k", "votes", number, first)
        ),
        stage=STAGE,
        key=("k",),
        dtype=getattr(torch, cfg.dtype),
        device=torch.device("cpu"),
    )
    ensemble.initialise()
    return ensemble


def query_request(of: TeacherEnsemble, number: int) -> Request:
    """The server's request in round `number`, from an untrained generator."""
    student = StudentGenerator(of.cfg, of.parameters, of.stage, ("s",), torch.device("cpu"))
    return student.query(number, 0)


def run_rounds(of: TeacherEnsemble, rounds: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The vote sums of all rounds, and the state of each teacher after them."""
    counts = []
    like = torch.empty(0, dtype=of.dtype)
    for number in range(rounds):
        arrays = query_request(of, number).arrays
        query = Query.of(number, arrays, like)
        counts.append(of.run_round(query).sums)
    states: list[list[torch.Tensor]] = [[] for _ in range(TEACHERS)]
    for stack in of.stacks:
        for flat in (stack.flat, stack.squares):
            for view in of.shape.views(flat, stack.teachers).values():
                for i in range(stack.teachers):
                    states[stack.start + i].append(view[i].flatten().float())
    return counts, [torch.cat(parts) for parts in states]
