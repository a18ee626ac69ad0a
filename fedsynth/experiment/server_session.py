"""The server's side of a job: its stages, and the connection to the parties of a stage."""

from __future__ import annotations

import contextlib
import functools
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from fedsynth.core.enums import DataKind, SecureSum
from fedsynth.core.messages import AggregatedSum, Release, Request, Shapes
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.data.tables import to_csv
from fedsynth.engine.dropouts import DropoutRegistry, dropped_parties
from fedsynth.engine.messages import BadReply, PartyLost
from fedsynth.engine.server_app import Ask, Compute, StageCallback, compute_here
from fedsynth.engine.validation import check_answers
from fedsynth.experiment.certification import certify
from fedsynth.experiment.events import recorded
from fedsynth.experiment.job import Job
from fedsynth.experiment.progress import StageProgress, write_progress
from fedsynth.methods.method import ExpectedAnswers, ExpectedSum, ServerContext, ServerWork
from fedsynth.privacy.answered_sums import AnsweredSums
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import CentralNoise
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.secagg.protocol import COLLECT, UNMASK, added, secure_sum
from fedsynth.storage.checkpoint import rounds
from fedsynth.storage.run_directory import RunDirectory

MAX_CONCURRENT_STAGES = 8
Result = TypeVar("Result")
DROPPED = "parties gone"  # key in a checkpoint, beside the state of the method's loop


def serve_job(
    job_text: str, ask: Ask, on_stage: StageCallback, compute: Compute = compute_here
) -> None:
    """Run all stages of a job at the server and save their outcomes.

    Stages run one after another if they build on each other, else at the same time. A stage whose
    outcome is on disk is not run again. `on_stage` is called once per stage, after it is saved."""
    job = Job.parse(job_text)
    run = RunDirectory(Path(job.out))
    ask = recorded(ask, job.progress_folder(), job.name)
    stages = range(job.plan(0).stage.count)

    def serve_stage(stage: int, inherited: tuple[Outcome, ...] = ()) -> Outcome:
        connect = functools.partial(StageConnection, job, stage, ask, inherited, compute)
        outcome = _serve_stage(job, run, stage, ask, connect)
        on_stage(stage, outcome)
        return outcome

    if job.method_impl.inherits(job.config):
        inherited: tuple[Outcome, ...] = ()
        for stage in stages:
            inherited = (*inherited, serve_stage(stage, inherited))
        return
    with ThreadPoolExecutor(min(len(stages), MAX_CONCURRENT_STAGES)) as pool:
        futures = [pool.submit(serve_stage, stage) for stage in stages]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()


def _serve_stage(
    job: Job,
    run: RunDirectory,
    stage: int,
    ask: Ask,
    connect: Callable[[], StageConnection],
) -> Outcome:
    if run.releases.exists(job.name, stage + 1):
        outcome = run.releases.load(job.name, stage + 1)
        certify(job, run, stage, outcome, ask)
        return outcome
    outcome = job.method_impl.serve(connect())
    data = job.plan(stage).stage.data
    table = None
    if isinstance(outcome, SyntheticSet) and data.kind == DataKind.TABLE:
        table = to_csv(data, outcome.images, outcome.labels)
    run.releases.save(job.name, stage + 1, outcome, table)
    certify(job, run, stage, outcome, ask)
    return outcome


class StageWork(ServerWork[Any]):
    """The server's computations in one stage, in any process."""

    def __init__(self, job: Job, stage: int) -> None:
        self._job, self._stage = job, stage
        self.seed = job.seed
        self.device = job.server_device
        self.config, self.plan = job.config, job.plan(stage)

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Rounds with checkpoints where the run directory is seen, else without."""
        folder = self._job.server_folder()
        if not folder.is_dir():
            yield from range(n)
            return
        path = folder / f"stage-{self._stage}.checkpoint"
        party = self.plan.stage.parties[0].party

        def on_step(done: int, total: int) -> None:
            at = StageProgress(self._stage, done, total)
            write_progress(self._job.progress_folder(), self._job.name, party, at)

        yield from rounds(n, state, path, fingerprint=self._job.identity, on_step=on_step)


def _work(job_text: str, stage: int, block: bytes) -> Any:
    """Compute for the server in a worker; the block refers to the job's plug-ins."""
    job = Job.parse(job_text)
    function, arguments = pickle.loads(block)
    return function(StageWork(job, stage), *arguments)


class StageConnection(StageWork, ServerContext[Any]):
    """The server's connection to the parties of one stage."""

    def __init__(
        self,
        job: Job,
        stage: int,
        ask: Ask,
        inherited: tuple[Outcome, ...],
        compute: Compute = compute_here,
    ) -> None:
        super().__init__(job, stage)
        self._ask, self._compute = ask, compute
        self.inherited = inherited
        self.parties = tuple(info.party for info in self.plan.stage.parties)
        # With noise of the system the key makes the folder; checkpoints need it in any case.
        job.server_folder().mkdir(parents=True, exist_ok=True)
        key = NoiseKey.of_owner(job.server_folder(), "curator", job.noise_seed)
        answered = AnsweredSums(job.server_folder() / f"stage-{stage}-answered.jsonl")
        self.central_noise = CentralNoise(
            key,
            stage,
            job.identity,
            answered,
            without_noise=any(plan.without_noise for plan in self.plan.parties),
        )
        self._dropouts = DropoutRegistry(job.dropout_file(stage))

    def answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedAnswers
    ) -> list[Release]:
        with self._naming(request):
            if expected.allow_missing:
                answers = self._ask_available(parties, request)
            else:
                answers = self._ask(parties, self._stage, request)
            check_answers(answers, expected.shapes, expected.dtype)
        return answers

    @contextlib.contextmanager
    def _naming(self, request: Request) -> Iterator[None]:
        """Name the request in the error about an answer to it."""
        try:
            yield
        except BadReply as error:
            raise BadReply(f"{self._describe(request)} is refused: {error}") from error

    def sum_of_answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedSum
    ) -> AggregatedSum:
        shapes, at_least = expected.shapes, expected.at_least
        excluded = self._dropouts.excluded_for(request.digest())
        available = [party for party in parties if party not in excluded]
        sums: dict[str, torch.Tensor] = {}
        answered: tuple[int, ...] = ()
        with self._naming(request):
            if len(available) < at_least:
                answered = tuple(available)
            elif self._job.secure_sum == SecureSum.IDEAL or len(available) == 1:
                answers = self._ask_available(available, request)
                check_answers(answers, shapes, torch.int64)
                sums, answered = added(answers), tuple(answer.party for answer in answers)
            else:
                sums, answered = self._secure_sum(available, request, shapes, at_least)
        if len(answered) < at_least:
            reasons = "; ".join(self._dropouts.reasons.values())
            raise PartyLost(
                f"{self._describe(request)}: {len(answered)} of {len(parties)} parties answered, "
                f"and the noise consists of at least {at_least} shares, so there is no sum. "
                f"{reasons}"
            )
        grid = FixedPointGrid.of(expected.bound, sum(math.prod(shape) for shape in shapes.values()))
        return AggregatedSum({name: grid.read(value) for name, value in sums.items()}, answered)

    def _secure_sum(
        self, parties: Sequence[int], request: Request, shapes: Shapes, at_least: int
    ) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        digest, description = request.digest(), self._describe(request)

        def ask(requests: Mapping[int, Request]) -> list[Release]:
            missing: dict[int, str] = {}
            answers = self._ask(list(requests), self._stage, requests, missing)
            kind = next(iter(requests.values())).kind
            self._dropouts.record("" if kind == UNMASK else digest, missing, description)
            if kind == COLLECT:
                check_answers(answers, shapes, torch.int64)
            return answers

        return secure_sum(
            ask, parties, request, at_least, (self.seed, self._job.method, self._stage)
        )

    def _ask_available(self, parties: Sequence[int], request: Request) -> list[Release]:
        digest = request.digest()
        excluded = self._dropouts.excluded_for(digest)
        missing: dict[int, str] = {}
        available = [party for party in parties if party not in excluded]
        answers = self._ask(available, self._stage, request, missing)
        self._dropouts.record(digest, missing, self._describe(request))
        if not answers:
            reasons = "; ".join(self._dropouts.reasons.values())
            raise PartyLost(f"{self._describe(request)}: no party is left that answers. {reasons}")
        return answers

    def _describe(self, request: Request) -> str:
        moment = f"round {request.round} of stage {self._stage + 1}"
        return f"{self._job.method}, {request.kind!r} {moment}"

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Rounds with checkpoints, which hold the dropped parties too."""
        state[DROPPED] = self._dropouts.current
        yield from super().rounds(n, state)

    def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Compute in a worker (see `ServerWork`)."""
        block = pickle.dumps((function, arguments))
        result: Result = self._compute(_work, self._job.text(), self._stage, block)
        return result


def dropout_notes(job: Job) -> list[str]:
    """One sentence per party that dropped out of a stage of this job."""
    return [
        f"{job.name}, stage {stage + 1}: party {party} dropped out ({reason})"
        for stage in range(job.plan(0).stage.count)
        for party, reason in sorted(dropped_parties(job.dropout_file(stage)).items())
    ]
