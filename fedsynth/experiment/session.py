"""The two sides of a job: what happens inside a party, and what happens at the curator."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Release, Request, Shapes
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.tables import as_csv
from fedsynth.engine.apps import Ask
from fedsynth.engine.dropouts import DropoutRegistry, gone
from fedsynth.engine.messages import BadReply, PartyLost
from fedsynth.engine.validation import check_answers
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_timing import add_seconds
from fedsynth.experiment.progress import write_progress
from fedsynth.experiment.scenario import party_records
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey, destroy_key
from fedsynth.privacy.party_data import PartyData, Records
from fedsynth.privacy.private_cache import PrivateCache
from fedsynth.privacy.secagg.distributed_noise import FixedPointGrid
from fedsynth.privacy.secagg.protocol import (
    COLLECT,
    STAGES,
    UNMASK,
    added,
    answer_in_stage,
    secure_sum,
)
from fedsynth.storage.checkpoint import rounds
from fedsynth.storage.run_directory import RunDirectory

STAGES_AT_ONCE = 8
GONE = "parties gone"  # beside a loop's own state in its checkpoints


def device_of(job: Job) -> torch.device:
    """The device this process computes on."""
    return torch.device("cuda" if job.gpu and torch.cuda.is_available() else "cpu")


def progress_folder(job: Job) -> Path:
    """Where parties and the curator say how far they are."""
    return Path(job.out) / "progress" / job.name


def party_answer(text: str, party: int, stage: int, request: Request) -> Release:
    """Everything that happens inside one party: read its own records, run the method's party side
    behind the guard, and hand over what the guard made. What holds a share of the noise only goes
    out under the masks of a secure sum, or into the sum that this simulation stands for."""
    job = Job.parse(text)
    shares = job.plan(stage).of(party).shares
    if request.kind in STAGES:
        folder = job.party_folder(party) / f"stage-{stage}"
        answer = functools.partial(_method_answer, job, party, stage)
        return answer_in_stage(folder, party, shares, request, answer)
    release = _method_answer(job, party, stage, request)
    if release.only_in_sum and shares > 1 and job.secure_sum != "ideal":
        raise UserError("this answer holds a share of the noise only: it goes into a secure sum")
    return release


def _method_answer(job: Job, party: int, stage: int, request: Request) -> Release:
    plan = job.plan(stage)
    # With the job's settings: what another job asks at this folder is no replay of this one's.
    digest = hashlib.sha256(f"{job.identity} {request.digest()}".encode()).hexdigest()
    home = _home(job, party)
    guard = Guard(
        plan=plan.of(party),
        stage=stage,
        ledger=home.ledger,
        key=home.key,
        request_digest=digest,
        data_fingerprint=home.fingerprint,
        device=device_of(job),
    )

    def on_step(done: int, total: int) -> None:
        write_progress(progress_folder(job), party, stage, done, total)

    private = PartyData(
        home.records,
        plan.info(party),
        workshop=job.party_folder(party) / f"stage-{stage}",
        fingerprint=f"{digest} {home.fingerprint}",
        on_step=on_step,
        vault=PrivateCache(data_directory(job.world.data_dir), party),
    )
    start = time.monotonic()
    try:
        return job.method_impl.party(PartyContext(job.config, plan, private, guard), request)
    finally:
        add_seconds(job, party, stage, time.monotonic() - start)


def absence_file(job: Job, stage: int) -> Path:
    """Where the curator notes who dropped out of a stage."""
    return job.curator_folder() / f"stage-{stage}-gone.json"


def dropped_out(job: Job) -> list[str]:
    """Which parties dropped out of which stage of a job, and why, in words."""
    return [
        f"{job.name}, stage {stage + 1}: party {party} dropped out ({why})"
        for stage in range(job.plan(0).stage.count)
        for party, why in sorted(gone(absence_file(job, stage)).items())
    ]


@dataclass(frozen=True)
class _PartyState:
    """What a party keeps at hand between requests."""

    records: Records
    key: NoiseKey
    fingerprint: str  # keyed, so that it says nothing to others
    ledger: Ledger


@functools.lru_cache(maxsize=4096)
def _home(job: Job, party: int) -> _PartyState:
    folder = job.party_folder(party)
    key = NoiseKey.of_owner(folder, f"party {party}", job.noise_seed)
    records = party_records(job.world, party)
    raw = (records.images.numpy().tobytes(), records.labels.numpy().tobytes())
    ledger = Ledger(folder / "ledger.jsonl", job=job.name, party=party, budget=job.budget, key=key)
    return _PartyState(records, key, key.fingerprint(*raw), ledger)


def destroy_keys(job: Job) -> None:
    """Destroy the noise keys of a job whose releases are all made, and every unfinished work."""
    homes = [job.party_folder(party) for party in range(job.world.parties)]
    for folder in (*homes, job.curator_folder()):
        destroy_key(folder)
        for left in folder.rglob("*.checkpoint*"):
            left.unlink(missing_ok=True)


class StageParties:
    """The server's connection to the parties of one stage; implements `ServerContext`."""

    def __init__(self, job: Job, stage: int, ask: Ask, inherited: tuple[Outcome, ...]) -> None:
        self._job, self._stage, self._ask = job, stage, ask
        self.inherited = inherited
        self.seed = job.seed
        self.device = device_of(job)
        self.config, self.plan = job.config, job.plan(stage)
        self.parties = tuple(f.party for f in self.plan.stage.parties)
        self.central_noise = CentralNoise(
            NoiseKey.of_owner(job.curator_folder(), "curator", job.noise_seed), stage, job.identity
        )
        self._absence = DropoutRegistry(absence_file(job, stage))

    def ask(
        self,
        who: Sequence[int],
        request: Request,
        *,
        allow_missing: bool = False,
        shapes: Shapes | None = None,
    ) -> list[Release]:
        """Ask these parties at once, and check what they answer (see `ServerContext`)."""
        with self._named(request):
            if not allow_missing:
                answers = self._ask(who, self._stage, request)
            else:
                answers = self._those_there(who, request)
            check_answers(answers, shapes)
        return answers

    @contextlib.contextmanager
    def _named(self, request: Request) -> Iterator[None]:
        """What is wrong with an answer, with the question it was given to."""
        try:
            yield
        except BadReply as error:
            raise BadReply(f"{self._question(request)} is refused: {error}") from error

    def ask_sum(
        self,
        who: Sequence[int],
        request: Request,
        *,
        shapes: Shapes,
        bound: float,
        at_least: int,
    ) -> AggregatedSum:
        """Ask for noise in shares and learn the sum only (see `ServerContext`)."""
        absent = self._absence.before(request.digest())
        there = [party for party in who if party not in absent]
        sums: dict[str, torch.Tensor] = {}
        answered: tuple[int, ...] = ()
        with self._named(request):
            if len(there) < at_least:
                answered = tuple(there)
            elif self._job.secure_sum == "ideal" or len(there) == 1:
                answers = self._those_there(there, request)
                check_answers(answers, shapes, torch.int64)
                sums, answered = added(answers), tuple(answer.party for answer in answers)
            else:
                sums, answered = self._secure_sum(there, request, shapes, at_least)
        if len(answered) < at_least:
            why = "; ".join(self._absence.reasons.values())
            raise PartyLost(
                f"{self._question(request)}: {len(answered)} of {len(who)} parties answered, and "
                f"the noise is made of at least {at_least} shares, so there is no sum. {why}"
            )
        grid = FixedPointGrid.of(bound, sum(math.prod(shape) for shape in shapes.values()))
        return AggregatedSum({name: grid.read(value) for name, value in sums.items()}, answered)

    def _secure_sum(
        self, who: Sequence[int], request: Request, shapes: Shapes, at_least: int
    ) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        digest, question = request.digest(), self._question(request)

        def ask(requests: Mapping[int, Request]) -> list[Release]:
            missing: dict[int, str] = {}
            answers = self._ask(list(requests), self._stage, requests, missing)
            kind = next(iter(requests.values())).kind
            self._absence.note("" if kind == UNMASK else digest, missing, question)
            if kind == COLLECT:
                check_answers(answers, shapes, torch.int64)
            return answers

        return secure_sum(ask, who, request, at_least, (self.seed, self._job.method, self._stage))

    def _those_there(self, who: Sequence[int], request: Request) -> list[Release]:
        digest = request.digest()
        absent = self._absence.before(digest)
        missing: dict[int, str] = {}
        answers = self._ask([p for p in who if p not in absent], self._stage, request, missing)
        self._absence.note(digest, missing, self._question(request))
        if not answers:
            why = "; ".join(self._absence.reasons.values())
            raise PartyLost(f"{self._question(request)}: no party is left that answers. {why}")
        return answers

    def _question(self, request: Request) -> str:
        where = f"round {request.round} of stage {self._stage + 1}"
        return f"{self._job.method}, {request.kind!r} {where}"

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Rounds that are checkpointed and resumed, and with them who is gone."""
        path = self._job.curator_folder() / f"stage-{self._stage}.checkpoint"
        party = self.parties[0]
        state[GONE] = self._absence.now

        def on_step(done: int, total: int) -> None:
            write_progress(progress_folder(self._job), party, self._stage, done, total)

        yield from rounds(n, state, path, fingerprint=self._job.identity, on_step=on_step)


def conversation(text: str, ask: Ask) -> None:
    """Everything that happens at the curator: stage after stage, or all stages at once where none
    needs another. A stage that is on disk is not asked for again."""
    job = Job.parse(text)
    run = RunDirectory(Path(job.out))
    stages = range(job.plan(0).stage.count)
    if job.method_impl.inherits(job.config):
        inherited: tuple[Outcome, ...] = ()
        for stage in stages:
            inherited = (*inherited, _stage(job, run, stage, ask, inherited))
        return
    with ThreadPoolExecutor(min(len(stages), STAGES_AT_ONCE)) as pool:
        futures = [pool.submit(_stage, job, run, stage, ask, ()) for stage in stages]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()


def _stage(
    job: Job, run: RunDirectory, stage: int, ask: Ask, inherited: tuple[Outcome, ...]
) -> Outcome:
    if run.has_release(job.name, stage + 1):
        return run.load_release(job.name, stage + 1)
    parties = StageParties(job, stage, ask, inherited)
    outcome = job.method_impl.serve(parties)
    data = job.plan(stage).stage.data
    table = None
    if isinstance(outcome, SyntheticSet) and data.kind == DataKind.TABLE:
        table = as_csv(data, outcome.images, outcome.labels)
    run.save_release(job.name, stage + 1, outcome, table)
    return outcome
