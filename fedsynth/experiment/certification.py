"""Certificates of a run: a party's signed statement, and the server's file beside each release.

After a stage is saved, the server asks each of its parties for a statement (a request of its own
kind on the same message interface as all others) and writes the certificate. A party that is gone
or refuses is named in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.engine.dropouts import dropped_parties
from fedsynth.engine.messages import BadReply, PartyRefused
from fedsynth.engine.server_app import Ask
from fedsynth.experiment.job import Job
from fedsynth.experiment.run_seal import server_key
from fedsynth.privacy.certificate.canonical import (
    canonical,
    opened,
    read_document,
    rendered,
    sealed,
)
from fedsynth.privacy.certificate.document import (
    MethodFacts,
    certificate_body,
    signed,
    with_files,
)
from fedsynth.privacy.certificate.registry_record import registry_text
from fedsynth.privacy.certificate.statement import statement_body
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.storage.environment import package_versions
from fedsynth.storage.files import write_file
from fedsynth.storage.releases import REGISTRY_SUFFIX
from fedsynth.storage.run_directory import RunDirectory

STATEMENT = "statement"  # the kind of the request for one
GONE, REFUSED = "dropped out", "gave no statement"
_PACKAGES = ("fedsynth", "torch", "numpy", "scipy", "dp-accounting")  # that decide the numbers


def party_statement(job: Job, party: int, stage: int, ledger: Ledger) -> Release:
    """A party's answer to a request for its statement: public facts, signed with its key.

    Args:
        job: The job as the party plans it.
        party: The party.
        stage: The stage.
        ledger: The ledger of the party; a damaged one makes no statement.
    """
    body = statement_body(
        job=ledger.job,
        job_digest=job.key,
        plan=job.plan(stage),
        party=party,
        entries=ledger.entries(),
        budget=ledger.budget,
    )
    statement = canonical(sealed(body, ledger.party_key)).decode()
    return Release(party, {}, (), {"statement": statement})


def certify(job: Job, run: RunDirectory, stage: int, outcome: Outcome, ask: Ask) -> Path:
    """Write the certificate of a stage that is saved; one that is there stays as it is.

    Returns:
        The path of the certificate.
    """
    path = run.releases.certificate(job.name, stage + 1)
    if path.is_file():
        return path
    earlier = _earlier_statements(job, run, stage)
    answered, silent = _statements(job, stage, ask)
    now = {statement["body"]["party"] for statement in answered}
    kept = [s for s in earlier["statements"] if s["body"]["party"] not in now]
    gone = {row["party"]: row["reason"] for row in earlier["without_statement"]}
    method = job.method_impl
    noise_key = NoiseKey.of_owner(job.server_folder(), "curator", job.noise_seed)
    body = certificate_body(
        job=job.name,
        plan=job.plan(stage),
        outcome=outcome,
        method=MethodFacts(method.name, method.private, method.summary, method.source),
        created=_date(job.noise_seed),
        statements=sorted([*kept, *answered], key=lambda s: s["body"]["party"]),
        without_statement={p: r for p, r in {**gone, **silent}.items() if p not in now},
        server_noise=noise_key.origin,
        secure_sum=str(job.secure_sum),
        software={k: v for k, v in package_versions().items() if k in _PACKAGES},
    )
    files = run.releases.files(job.name, stage + 1)
    registry = files[0].with_suffix(REGISTRY_SUFFIX)
    write_file(registry, registry_text(body).encode())
    key = server_key(Path(job.out), job.noise_seed)
    return write_file(path, rendered(signed(with_files(body, [*files, registry]), key)))


def _date(noise_seed: int | None) -> str:
    """The date of a release, UTC; of a simulation the year only, so that it can be repeated."""
    today = datetime.now(UTC).date()
    return (today if noise_seed is None else today.replace(month=1, day=1)).isoformat()


def _earlier_statements(job: Job, run: RunDirectory, stage: int) -> Mapping[str, Any]:
    """The parties of the stages that this one builds on, as its predecessor names them."""
    if stage == 0 or not job.method_impl.inherits(job.config):
        return {"statements": [], "without_statement": []}
    path = run.releases.certificate(job.name, stage)
    body, _ = opened(read_document(path), path.name)
    return body


def _statements(job: Job, stage: int, ask: Ask) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The statements of the parties of a stage, and those without one with the reason."""
    silent = dict.fromkeys(dropped_parties(job.dropout_file(stage)), GONE)
    parties = [info.party for info in job.plan(stage).stage.parties if info.party not in silent]
    missing: dict[int, str] = {}
    try:
        answers = ask(parties, stage, Request(STATEMENT), missing)
    except PartyRefused:
        answers = []
        for party in parties:
            try:
                answers += ask([party], stage, Request(STATEMENT), missing)
            except PartyRefused:
                silent[party] = REFUSED
    return [_read(answer) for answer in answers], {**silent, **dict.fromkeys(missing, GONE)}


def _read(answer: Release) -> dict[str, Any]:
    """The statement in an answer, signed by whom it names.

    Raises:
        BadReply: The answer is none.
    """
    try:
        document = json.loads(str(answer.scalars.get("statement", "")))
        body, _ = opened(document, f"the statement of party {answer.party}")
    except (ValueError, RecursionError) as error:
        raise BadReply(f"party {answer.party} sent no statement") from error
    if body.get("party") != answer.party:
        raise BadReply(f"party {answer.party} sent the statement of another party")
    return dict(document)
