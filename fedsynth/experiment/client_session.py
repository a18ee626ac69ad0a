"""The client's side of a job: how a party answers a request."""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.enums import SecureSum
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.records import Records
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_timing import add_seconds
from fedsynth.experiment.progress import write_progress
from fedsynth.experiment.scenario import party_records
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.private_cache import PrivateCache
from fedsynth.privacy.secagg.protocol import STAGES, answer_in_stage


def answer_request(job_text: str, party: int, stage: int, request: Request) -> Release:
    """Answer one request inside a party: read its records and run the method behind the guard.

    An answer that holds only a share of the noise leaves the party under the masks of a secure sum,
    or enters the ideal sum that stands for one in this simulation.

    Raises:
        UserError: The request would send a share of the noise outside a secure sum.
    """
    job = Job.parse(job_text)
    shares = job.plan(stage).of(party).shares
    if request.kind in STAGES:
        answer = functools.partial(_method_answer, job, party, stage)
        parties = [plan.party for plan in job.plan(stage).parties]
        folder = _work_dir(job, party, stage)
        return answer_in_stage(folder, party, shares, request, answer, parties=parties)
    release = _method_answer(job, party, stage, request)
    if release.only_in_sum and shares > 1 and job.secure_sum != SecureSum.IDEAL:
        raise UserError("this answer holds a share of the noise only: it needs a secure sum")
    return release


def _method_answer(job: Job, party: int, stage: int, request: Request) -> Release:
    plan = job.plan(stage)
    # The digest covers the job's settings: a request of another job is no replay of this one's.
    digest = hashlib.sha256(f"{job.identity} {request.digest()}".encode()).hexdigest()
    state = _party_state(job, party)
    guard = Guard(
        plan=plan.of(party),
        stage=stage,
        ledger=state.ledger,
        key=state.key,
        request_digest=digest,
        data_fingerprint=state.fingerprint,
        device=job.device,
    )

    def on_step(done: int, total: int) -> None:
        write_progress(job.progress_folder(), party, stage, done, total)

    data = PartyData(
        state.records,
        plan.info(party),
        work_dir=_work_dir(job, party, stage),
        fingerprint=f"{digest} {state.fingerprint}",
        classes=plan.classes_of(party),
        on_step=on_step,
        private_cache=PrivateCache(data_directory(job.scenario.data_dir), party),
    )
    start = time.monotonic()
    try:
        return job.method_impl.party(PartyContext(job.config, plan, data, guard), request)
    finally:
        add_seconds(job, party, stage, time.monotonic() - start)


@dataclass(frozen=True)
class _PartyState:
    """The state of a party that a worker caches between requests."""

    records: Records
    key: NoiseKey
    fingerprint: str  # of the records, keyed, so that it reveals nothing
    ledger: Ledger


@functools.lru_cache(maxsize=4096)
def _party_state(job: Job, party: int) -> _PartyState:
    folder = job.party_folder(party)
    key = NoiseKey.of_owner(folder, f"party {party}", job.noise_seed)
    records = party_records(job.scenario, party)
    raw = (records.images.numpy().tobytes(), records.labels.numpy().tobytes())
    ledger = Ledger(
        folder / "ledger.jsonl",
        party_key=PartyKey.of_owner(folder, f"party {party}", job.noise_seed),
        noise_key=key,
        job=job.name,
        party=party,
        budget=job.budget,
    )
    return _PartyState(records, key, key.fingerprint(*raw), ledger)


def forget_parties() -> None:
    """Empty this process's cache of party states, as a restart does."""
    _party_state.cache_clear()


def _work_dir(job: Job, party: int, stage: int) -> Path:
    return job.party_folder(party) / f"stage-{stage}"
