"""The certificate of a release: `privacy.json`, as the publisher of the release writes it.

It holds the signed statement of every party, what follows from them, and what a reader must know to
read the numbers: what was released, who sees what, how noise was drawn, what is assumed. The
publisher signs the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.messages import Release
from fedsynth.core.outcomes import Outcome, ReleasedModel
from fedsynth.core.plan import Plan
from fedsynth.privacy.certificate.canonical import CertificateDamaged, opened, sealed
from fedsynth.privacy.certificate.data_schema import data_schema
from fedsynth.privacy.certificate.derived import derived
from fedsynth.privacy.certificate.noise_facts import noise_facts
from fedsynth.privacy.certificate.statement import Statement, read_statement
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.stored_audits import stored_audits

FORM, WITHOUT_AUDITS = "fedsynth privacy certificate 2", "fedsynth privacy certificate 1"
_FIELDS = {
    *("form", "release", "method", "created", "files", "schema", "processing"),
    *("sent_unchanged_by", "statements"),
    *("without_statement", "derived", "noise", "assumes", "secure_sum", "software"),
}
FIELDS = {FORM: {*_FIELDS, "audits"}, WITHOUT_AUDITS: _FIELDS}  # of certificates that can be read

PRIVATE = (
    "The server computed this release from what the parties sent, and read no private data for it. "
    "What the parties' messages guarantee holds for it too (post-processing)."
)
NOT_PRIVATE = (
    "This is a reference without privacy: it was computed from private data without noise. Its "
    "epsilon is infinite, and it must not be published."
)

_SECURE_SUM = {
    "ideal": (
        "Where parties add shares of the noise, only their sum may be seen. In this run nothing "
        "enforced it: the program stood in for a secure sum."
    ),
    "secagg": (
        "Where parties add shares of the noise, SecAgg+ between the parties hides all but the sum, "
        "as long as its threshold of honest parties holds."
    ),
}


@dataclass(frozen=True)
class MethodFacts:
    """The method of a release, and whether it claims privacy at all."""

    name: str
    private: bool
    summary: str = ""
    source: str = ""


def file_facts(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def certificate_body(
    *,
    job: str,
    plan: Plan,
    outcome: Outcome,
    method: MethodFacts,
    created: str,
    statements: Sequence[Mapping[str, Any]],
    without_statement: Mapping[int, str],
    server_noise: str,
    secure_sum: str,
    software: Mapping[str, str],
) -> dict[str, Any]:
    """The body of a certificate, still without its files.

    Args:
        job: The name of the job.
        plan: The public plan of the stage.
        outcome: The release.
        method: The method.
        created: The date, YYYY-MM-DD.
        statements: The signed statements of the parties.
        without_statement: The parties that gave none, with the reason.
        server_noise: Where the server's noise comes from, for noise that it adds as an aggregator.
        secure_sum: The implementation of the secure sum.
        software: Versions, by package.

    Raises:
        CertificateDamaged: A statement is not consistent.
    """
    read = read_statements(statements)
    numbers = derived(read)
    summed = any("sums" in row["observer"] for row in numbers["guarantee"])
    return {
        "form": FORM,
        "release": {"job": job, "stage": plan.stage.index + 1, "stages": plan.stage.count},
        "method": {
            "name": method.name,
            "private": method.private,
            "summary": method.summary,
            "source": method.source,
        },
        "created": created,
        "files": {},
        "schema": data_schema(outcome, plan.stage.data, plan.stage.classes),
        "processing": PRIVATE if method.private else NOT_PRIVATE,
        "sent_unchanged_by": senders(outcome, read),
        "statements": [dict(statement) for statement in statements],
        "without_statement": [
            {"party": party, "reason": reason}
            for party, reason in sorted(without_statement.items())
        ],
        "derived": numbers,
        "noise": noise_facts(noise_sources(numbers, server_noise)),
        "assumes": list(plan.assumes),
        "secure_sum": _SECURE_SUM[secure_sum] if summed else "",
        "software": dict(sorted(software.items())),
        "audits": stored_audits().facts(method.name),
    }


def senders(outcome: Outcome, statements: Sequence[Statement]) -> list[int]:
    """The parties that sent exactly these arrays, by the hashes in their ledgers."""
    arrays = outcome.state if isinstance(outcome, ReleasedModel) else outcome.to_arrays()
    payload = Release(0, arrays, ()).payload_hash()
    return [statement.party for statement in statements if payload in statement.released]


def noise_sources(numbers: Mapping[str, Any], server_noise: str) -> list[str]:
    """The sources of all noise: the parties', and the server's where it is the aggregator."""
    aggregated = any(row["observer"] == "public" for row in numbers["guarantee"])
    return sorted({*numbers["noise_sources"], *([server_noise] if aggregated else [])})


def read_statements(statements: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The statements of a certificate, each checked by itself.

    Raises:
        CertificateDamaged: A signature or a part of a statement is wrong.
    """
    read = []
    for number, document in enumerate(statements, start=1):
        name = f"statement {number}"
        body, key = opened(document, name)
        name = f"the statement of party {body.get('party')}"
        try:
            read.append(read_statement(body, key))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CertificateDamaged(f"{name} is not consistent: {error}.") from error
    return read


def with_files(body: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The body with size and hash of each file of the release."""
    return {**body, "files": {path.name: file_facts(path) for path in files}}


def signed(body: Mapping[str, Any], key: PartyKey) -> dict[str, Any]:
    """The finished certificate, signed by the publisher of the release."""
    return sealed(body, key)
