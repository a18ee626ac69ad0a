"""Releases with certificates, and forgers that change them and sign again."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tiny_runs as tiny

from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.privacy.certificate.canonical import rendered, sealed
from fedsynth.privacy.certificate.derived import derived
from fedsynth.privacy.certificate.document import read_statements
from fedsynth.privacy.ledger_entry import Entry, signed_entry
from fedsynth.privacy.party_key import PartyKey

SIGNED = ("hash", "signature", "signer", "protocol")  # fields that a signature adds
Change = Callable[[dict[str, Any]], object]


def released(name: str, out: Path, engine: Engine, scenario: str, **changes: Any) -> Job:
    """A tiny job whose stages are released and certified."""
    job = tiny.tiny_job(name, out, scenario, changes)
    tiny.release(job, engine)
    return job


def folder_of(job: Job) -> Path:
    """The folder of the releases of a job."""
    return Path(job.out) / "releases" / job.name


def copied(folder: Path, target: Path) -> Path:
    """A copy that a test may damage; the folder keeps its name."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target / "releases" / folder.name))


def forger(name: str = "forger") -> PartyKey:
    """A key that no party has."""
    return PartyKey.of_owner(Path(), name, 666)


def forge(certificate: Path, change: Change) -> None:
    """Change the body of a certificate and sign it with another key."""
    body = copy.deepcopy(json.loads(certificate.read_bytes())["body"])
    change(body)
    certificate.write_bytes(rendered(sealed(body, forger())))


def forge_statement(
    certificate: Path, change: Change, position: int = 0, complete: bool = False
) -> None:
    """Change one party's statement; sign its ledger, it and the certificate with other keys.

    A complete forger computes the numbers anew as well."""

    def forged(body: dict[str, Any]) -> None:
        statement = body["statements"][position]["body"]
        change(statement)
        key = forger(f"forged party {position}")
        sign_ledger(statement["ledger"], key)
        body["statements"][position] = sealed(statement, key)
        if complete:
            body["derived"] = derived(read_statements(body["statements"]))

    forge(certificate, forged)


def sign_ledger(ledger: dict[str, Any], key: PartyKey) -> None:
    """Link and sign the lines of a ledger extract with another key."""
    before: Entry | None = None
    for place, fields in enumerate(ledger["entries"]):
        kept = {k: v for k, v in fields.items() if k not in SIGNED}
        if before is not None and before.seq + 1 == kept["seq"]:
            kept["prev"] = before.link
        if kept["budget"] is None:
            kept["budget"] = float("inf")
        before = signed_entry(kept, key)
        ledger["entries"][place] = before.stored()
    if before is not None and before.seq + 1 == ledger["length"]:
        ledger["head"] = before.hash


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All values of a document with their places."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        if isinstance(inner, dict | list):
            yield from leaves(inner, (*place, key))
        else:
            yield (*place, key), inner


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    """Replace the value at a place."""
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new
