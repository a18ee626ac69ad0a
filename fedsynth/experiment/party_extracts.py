"""The driver's extracts of parties whose state lies on another disk: ledgers and computing times.

A party's ledger, keys and unfinished work stay on the disk of its node. After each stage the driver
fetches the ledger of every party of the stage, and checks it against what the party signed in the
certificate: no report is written over a ledger that is missing or short. At the end of a job the
keys are destroyed where they lie.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_timing import FILE, read_seconds
from fedsynth.privacy.certificate.canonical import canonical, opened, read_document
from fedsynth.privacy.ledger_entry import (
    Entry,
    damaged,
    read_entries,
    verified_chain,
    verified_extract,
)
from fedsynth.privacy.ledger_head import GENESIS
from fedsynth.privacy.noise import end_repetitions
from fedsynth.storage.files import write_file
from fedsynth.storage.run_directory import LEDGER, NODES, RunDirectory


@dataclass(frozen=True)
class Extract:
    """The driver's copy of the public parts of a party on another disk."""

    ledger: str
    seconds: dict[str, float]  # of computation, by work folder below the party's

    def entries(self, job: Job, party: int) -> list[Entry]:
        """The entries of the ledger, verified."""
        return verified_chain(self.ledger.encode(), f"ledger of {job.name}, party {party}")


def read_extract(job: Job, party: int) -> Extract | None:
    """The extract of a party; None: its state lies on the driver's disk."""
    path = _extract_file(job, party)
    return Extract(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def party_entries(job: Job, party: int, *, of_job: bool = False) -> list[Entry]:
    """The verified ledger entries of a party, wherever its state lies.

    Args:
        job: The job.
        party: The party.
        of_job: Leave out the entries of other jobs.
    """
    extract = read_extract(job, party)
    if extract is None:
        return read_entries(job.party_folder(party) / LEDGER, job.name if of_job else None)
    return [e for e in extract.entries(job, party) if not of_job or e.job == job.name]


def on_nodes(job: Job) -> bool:
    """True if the parties of a job answer on real nodes."""
    return (Path(job.out) / NODES).is_file()


def known_entries(job: Job, party: int) -> Sequence[Entry] | None:
    """The verified ledger entries of a party in this job; None: it has not shown them.

    A party on a real node shows the lines of this job in its signed statements alone."""
    if not on_nodes(job):
        return party_entries(job, party, of_job=True)
    store = RunDirectory(Path(job.out)).releases
    for stage in range(len(job.plans), 0, -1):
        if not store.exists(job.name, stage):
            continue
        path = store.certificate(job.name, stage)
        if not path.is_file():
            continue
        for document in opened(read_document(path), path.name)[0]["statements"]:
            if document["body"]["party"] == party:
                return _signed_entries(document, f"the statement of party {party} in {path.name}")
    return None


def _signed_entries(document: Any, name: str) -> list[Entry]:
    """The ledger lines in a statement of a party.

    Raises:
        LedgerDamaged: They are not as the party signed them.
    """
    body, key = opened(document, name)
    text = b"".join(canonical(fields) + b"\n" for fields in body["ledger"]["entries"])
    entries = verified_extract(text, name)
    if any(entry.signer != key for entry in entries):
        raise damaged(name, len(entries), "it was signed with another key than the statement")
    return entries


def release_seconds(job: Job, stage: int) -> float:
    """The total computing time of all parties of a stage."""
    return sum(_seconds(job, share.party, stage) for share in job.plan(stage).parties)


def _seconds(job: Job, party: int, stage: int) -> float:
    extract = read_extract(job, party)
    if extract is None:
        return read_seconds(job.work_folder(job.party_folder(party), stage))
    return extract.seconds.get(job.work_folder(Path(), stage).as_posix(), 0.0)


def collect_extracts(engine: Engine, job: Job, stage: int) -> None:
    """Fetch the extracts of the parties of a stage that is released and certified.

    Parties on the driver's disk need none; an extract that is complete is not fetched again.

    Raises:
        PartiesUnreachable: No worker sees the disk of some parties.
        UserError: A ledger is missing, or shorter than the party signed.
    """
    if engine.one_disk:
        return
    stated = dict(_stated_ledgers(job, stage))
    missing = [party for party in stated if not _covers(job, party, stated[party])]
    for party, extract in engine.visit_parties(
        str(job.parties_folder()), read_state, missing
    ).items():
        text = json.dumps(dataclasses.asdict(extract))
        write_file(_extract_file(job, party), text.encode())
    short = [
        party
        for party in missing
        if not (_covers(job, party, stated[party]) or _is_here(job, party, stated[party]))
    ]
    if short:
        numbers = ", ".join(map(str, short))
        raise UserError(
            f"{job.name}, stage {stage + 1}: the ledger of party {numbers} lacks entries that it "
            "signed in the certificate: it was lost or cut on its node. Restore it there and "
            "continue with --resume, or start a new run."
        )


def destroy_keys(job: Job, engine: Engine | None = None) -> None:
    """Destroy the noise keys of a job that is complete, and remove its checkpoints.

    Args:
        job: The job.
        engine: Reaches parties whose state lies on other disks; None: there are none.

    Raises:
        PartiesUnreachable: No worker sees the disk of some parties; all other keys are destroyed.
    """
    for party in range(job.scenario.parties):
        destroy_state(str(job.party_folder(party)))
    destroy_state(str(job.server_folder()))
    if engine is not None:
        engine.visit_parties(str(job.parties_folder()), destroy_state)


def remove_parties(job: Job, engine: Engine) -> None:
    """Remove all state of a job's parties, wherever it lies."""
    engine.visit_parties(str(job.parties_folder()), shutil.rmtree)
    shutil.rmtree(job.parties_folder(), ignore_errors=True)


def read_state(folder: str) -> Extract:
    """The extract of a party, from its folder on this disk."""
    path = Path(folder)
    ledger = path / LEDGER
    text = ledger.read_text(encoding="utf-8") if ledger.exists() else ""
    works = [file.parent for file in path.glob(f"job-*/stage-*/{FILE}")]
    return Extract(text, {w.relative_to(path).as_posix(): read_seconds(w) for w in works})


def destroy_state(folder: str) -> None:
    """Destroy the noise key in a folder on this disk, and remove its checkpoints."""
    end_repetitions(Path(folder))


def _stated_ledgers(job: Job, stage: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Length and head of the ledger of each party of a stage, as it signed them."""
    path = RunDirectory(Path(job.out)).releases.certificate(job.name, stage + 1)
    body, _ = opened(read_document(path), path.name)
    for statement in body["statements"]:
        yield statement["body"]["party"], statement["body"]["ledger"]


def _covers(job: Job, party: int, stated: dict[str, Any]) -> bool:
    """True if the extract of a party has all entries that it signed."""
    extract = read_extract(job, party)
    return extract is not None and _complete(extract.entries(job, party), stated)


def _is_here(job: Job, party: int, stated: dict[str, Any]) -> bool:
    return read_extract(job, party) is None and _complete(party_entries(job, party), stated)


def _complete(entries: list[Entry], stated: dict[str, Any]) -> bool:
    length = int(stated["length"])
    last = entries[length - 1].hash if 0 < length <= len(entries) else GENESIS
    return length <= len(entries) and last == stated["head"]


def _extract_file(job: Job, party: int) -> Path:
    return job.server_folder() / "extracts" / f"party-{party}.json"
