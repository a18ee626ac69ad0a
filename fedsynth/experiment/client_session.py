"""The client's side of a job: how a party answers a request.

A party works from two texts. Its own policy (`privacy.policy`) states its data, the place of its
ledger, the source of its noise and the limits. The server's proposal states the wanted method and
budget. The party makes a job of its own from both, plans it from its own facts, admits it to its
lifetime budget, and answers requests behind the guard, or refuses with a `Refused`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from fedsynth.core.enums import SecureSum
from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.tensor_bytes import tensor_bytes
from fedsynth.core.types import Stage
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.records import Records
from fedsynth.engine.client_app import Node
from fedsynth.experiment.certification import STATEMENT, party_statement
from fedsynth.experiment.events import ANSWER, array_bytes, send_event
from fedsynth.experiment.job import Job
from fedsynth.experiment.own_records import read_own_records
from fedsynth.experiment.party_timing import add_seconds
from fedsynth.experiment.progress import StageProgress, write_progress
from fedsynth.experiment.proposal import party_job, read_proposal
from fedsynth.experiment.scenario import party_records, scenario_stages
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.accounting.events import composed
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.lifetime import BOOK, AdmittedJob, LifetimeBook, WithinPlan
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.policy import PartyPolicy, read_policy
from fedsynth.privacy.private_cache import PrivateCache
from fedsynth.privacy.request_log import Form, RequestLog
from fedsynth.privacy.secagg.certification import Certification
from fedsynth.privacy.secagg.protocol import STAGES, answer_in_stage


def answer_request(proposal: str, node: Node, stage: int, request: Request) -> Release:
    """Answer one request inside a party: read its records and run the method behind the guard.

    An answer that holds only a share of the noise leaves the party once: under the masks of a
    secure sum, or in the ideal sum that stands for one in a simulation, never both.

    Args:
        proposal: The server's proposal.
        node: The party, and the path of its policy.
        stage: The stage of the request.
        request: The request.

    Raises:
        Refused: The party does not answer this.
    """
    side = _open_side(proposal, node)
    if side.key != _noise_key(side.policy, side.folder, side.party):  # its owner closed its jobs
        forget_parties()
        side = _open_side(proposal, node)
    if stage not in side.stages:
        numbers = ", ".join(map(str, side.stages)) or "none"
        raise Refused(Refusal.REQUEST, f"this party takes part in the stages {numbers} only.")
    if request.kind == STATEMENT:
        return party_statement(side.job, side.party, stage, side.ledger)
    work, job = side.job.work_folder(side.folder, stage), side.job
    shares = job.plan(stage).of(side.party).shares
    if request.kind in STAGES:

        def masked(asked: Request) -> Release:
            return _answer(side, work, stage, asked, Form.MASKED)

        at_least = max(shares, side.policy.least_shares)
        parties = [plan.party for plan in job.plan(stage).parties]
        return answer_in_stage(
            work,
            side.party,
            at_least,
            request,
            masked,
            parties=parties,
            certification=Certification(side.ledger.party_key, side.policy.peer_keys),
        )
    form = Form.IDEAL if job.secure_sum == SecureSum.IDEAL else Form.CLEAR
    return _answer(side, work, stage, request, form)


@dataclass(frozen=True)
class _Side:
    """The state of a party in one job that a worker caches between requests."""

    party: int
    policy: PartyPolicy
    folder: Path  # of the ledger, the keys and unfinished work
    job: Job  # by the party's own policy and facts
    stages: tuple[int, ...]  # that this party takes part in
    records: Records
    key: NoiseKey
    fingerprint: str  # of the records, keyed, so that it reveals nothing
    ledger: Ledger
    logs: dict[Path, RequestLog] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def log(self, work: Path) -> RequestLog:
        """The log of the requests of a stage."""
        with self.turn:
            if work not in self.logs:
                durable = not self.policy.simulation
                self.logs[work] = RequestLog(work, self.policy.most_rounds, durable=durable)
            return self.logs[work]


def _answer(side: _Side, work: Path, stage: int, request: Request, form: Form) -> Release:
    job, plan = side.job, side.job.plan(stage)
    # The digest covers the job's settings: a request of another job is no replay of this one's.
    digest = hashlib.sha256(f"{job.identity} {request.digest()}".encode()).hexdigest()
    log = side.log(work)
    log.count(digest)
    guard = Guard(
        plan=plan.of(side.party),
        stage=stage,
        ledger=side.ledger,
        key=side.key,
        request_digest=digest,
        data_fingerprint=side.fingerprint,
        device=job.torch_device,
    )

    def on_step(done: int, total: int) -> None:
        if side.policy.progress is not None:
            at = StageProgress(stage, done, total)
            write_progress(side.folder / side.policy.progress, job.name, side.party, at)

    data = PartyData(
        side.records,
        plan.info(side.party),
        work_dir=work,
        classes=plan.classes_of(side.party),
        fingerprint=f"{digest} {side.fingerprint}",
        on_step=on_step,
        private_cache=PrivateCache(data_directory(job.scenario.data_dir), side.party),
    )
    start, moment = time.monotonic(), time.time()
    try:
        release = job.method_impl.party(PartyContext(job.config, plan, data, guard), request)
    finally:
        add_seconds(work, time.monotonic() - start)
    if side.policy.simulation and side.policy.progress is not None:
        send_event(
            side.folder / side.policy.progress,
            ANSWER,
            moment,
            job=job.name,
            stage=stage + 1,
            round=request.round,
            request=request.kind,
            party=side.party,
            noise_seconds=round(guard.noise_seconds, 4),
            bytes_down=array_bytes([request.arrays]),
            bytes_up=array_bytes([release.arrays]),
        )
    if release.only_in_sum and plan.of(side.party).shares > 1:
        if form is Form.CLEAR:
            raise Refused(
                Refusal.POLICY,
                "this answer holds a share of the noise only: it needs a secure sum.",
            )
        log.bind(digest, form)
    return release


def _open_side(proposal: str, node: Node) -> _Side:
    if not node.party_config:
        raise Refused(
            Refusal.POLICY,
            "this node has no policy. Its owner starts it with --node-config "
            "'party-config=\"PATH/party.yaml\"', or with FEDSYNTH_PARTY=PATH/party.yaml.",
        )
    path = Path(node.party_config)
    try:
        stamp = os.stat(path)
    except OSError as error:
        raise _unusable() from error
    return _side(proposal, str(path), stamp.st_mtime_ns, stamp.st_size, node.party)


def _unusable() -> Refused:
    return Refused(
        Refusal.POLICY, "this party's own policy cannot be used; its log has the reason."
    )


@functools.lru_cache(maxsize=4096)
def _side(proposal: str, path: str, _mtime: int, _size: int, party: int) -> _Side:
    """The party's side of a job, admitted; read again when its policy was written again."""
    home = Path(path).parent
    try:
        policy = read_policy(Path(path))
    except UserError as error:
        raise _unusable() from error
    job, facts = _party_job(policy.at(home), proposal)
    stages = tuple(s.index for s in facts if any(info.party == party for info in s.parties))
    _check_plans(policy, job, stages, party)
    folder = home / policy.ledger
    whole = composed([job.plan(stage).of(party).event for stage in stages])
    # In a simulated world the job's name is enough; a real party may get two jobs of one name.
    name = job.name if policy.simulation else f"{job.name} {job.key[:12]}"
    admitted = AdmittedJob(job.key, name, whole)
    book = LifetimeBook(folder / BOOK, policy.lifetime, durable=not policy.simulation)
    budget = policy.job_budget(job.budget)
    try:
        own = policy.at(home).data.records
        if own is None:
            records = party_records(job.scenario, party)
        else:
            records = read_own_records(job.scenario, party, Path(own))
    except UserError as error:
        raise _unusable_data() from error
    book.admit(admitted, str(budget.accounting))
    key = _noise_key(policy, folder, party)
    raw = (tensor_bytes(records.images), tensor_bytes(records.labels))
    ledger = Ledger(
        folder / "ledger.jsonl",
        party_key=PartyKey.of_owner(folder, f"party {party}", policy.noise_seed),
        noise_key=key,
        job=name,
        party=party,
        budget=budget,
        lifetime=WithinPlan(book, admitted),
    )
    return _Side(party, policy, folder, job, stages, records, key, key.fingerprint(*raw), ledger)


def _noise_key(policy: PartyPolicy, folder: Path, party: int) -> NoiseKey:
    return NoiseKey.of_owner(folder, f"party {party}", policy.noise_seed)


@functools.lru_cache(maxsize=64)
def _party_job(policy: PartyPolicy, proposal: str) -> tuple[Job, tuple[Stage, ...]]:
    """The job that parties with this policy make of a proposal, and the facts of its stages."""
    wanted = read_proposal(proposal)
    try:
        job = party_job(policy, wanted)
        return job, scenario_stages(job.scenario)
    except Refused:
        raise
    except UserError as error:
        raise _unusable_data() from error


def _check_plans(policy: PartyPolicy, job: Job, stages: tuple[int, ...], party: int) -> None:
    """Refuse what this party's plan of a stage shows, before anything is admitted or read."""
    for stage in stages:
        try:
            plan = job.plan(stage)
        except UserError as error:
            text = "this method cannot be planned with these settings for this party's data."
            if policy.data.file is None:  # all facts of the plan are published: so is its error
                text = str(error)
            raise Refused(Refusal.REQUEST, text) from error
        policy.check_plan(plan.of(party), rounds=plan.rounds, secure_sum=job.secure_sum)


def _unusable_data() -> Refused:
    return Refused(Refusal.DATA, "this party's data cannot be used; its log has the reason.")


def forget_parties() -> None:
    """Empty this process's cache of party states, as a restart does."""
    _side.cache_clear()
