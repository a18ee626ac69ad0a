"""Checks a certificate with nothing but the folder that holds it, and names what is wrong.

Nothing in the folder is believed: the form of the file, the signatures, the lines of the ledgers,
the hash of every file and every number are checked or computed anew. What a folder cannot show is
whose keys signed; for that a reader names the public keys that are known from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsynth.core.enums import Accounting
from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.certificate.canonical import (
    CertificateDamaged,
    opened,
    read_document,
)
from fedsynth.privacy.certificate.data_schema import array_schema
from fedsynth.privacy.certificate.derived import derived, difference
from fedsynth.privacy.certificate.document import (
    FIELDS,
    NOT_PRIVATE,
    PRIVATE,
    file_facts,
    read_statements,
    senders,
)
from fedsynth.privacy.certificate.noise_facts import noise_facts
from fedsynth.privacy.certificate.registry_record import facts_of, parsed_record, problems_of
from fedsynth.privacy.certificate.statement import Statement
from fedsynth.privacy.stored_audits import problems_of as problems_of_audits
from fedsynth.storage.releases import CERTIFICATE_SUFFIX, REGISTRY_SUFFIX, unarchive

SLACK = 1e-6  # relative: how far a spending may exceed its budget by rounding


@dataclass(frozen=True)
class Signer:
    """One signature of a certificate: whose it is said to be, the key, and whether it is known."""

    name: str  # "party 3" or "server"
    key: str
    known: bool


@dataclass(frozen=True)
class Verdict:
    """The result of a check: problems, or what the certificate says."""

    path: Path
    problems: tuple[str, ...]
    body: Mapping[str, Any] = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    signers: tuple[Signer, ...] = ()

    @property
    def established(self) -> bool:
        """True if every signature is by a key that the reader named."""
        return bool(self.signers) and all(signer.known for signer in self.signers)


def check(path: Path, trusted: Mapping[str, str] | None = None) -> Verdict:
    """Check a certificate and the release beside it.

    Args:
        path: The certificate.
        trusted: Public keys that the reader knows, with the signer that each belongs to ("party 3",
            "server"; empty for any). None: no key is known.

    Raises:
        UserError: The file cannot be read at all.
    """
    try:
        body, key = opened(read_document(path), path.name)
        if set(body) != FIELDS.get(str(body.get("form"))):
            raise CertificateDamaged(f"{path.name} does not have the fields of a certificate.")
        statements = read_statements(body["statements"])
    except CertificateDamaged as error:
        return Verdict(path, (str(error),))
    signers = [
        _signer(f"party {statement.party}", document["key"], trusted)
        for statement, document in zip(statements, body["statements"], strict=True)
    ]
    signers.append(_signer("server", key, trusted))
    try:
        problems = [
            *_statement_problems(body, statements),
            *_number_problems(body, statements),
            *_file_problems(path, body, statements),
            *_word_problems(body),
        ]
    except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
        problems = [f"{path.name} is damaged: {error}"]
    problems += _signer_problems(signers, trusted)
    return Verdict(path, tuple(problems), body, tuple(statements), tuple(signers))


def _signer(name: str, key: str, trusted: Mapping[str, str] | None) -> Signer:
    return Signer(name, key, (trusted or {}).get(key) in ("", name))


def _signer_problems(signers: Sequence[Signer], trusted: Mapping[str, str] | None) -> list[str]:
    """Signatures by other keys than those that the reader named for these signers.

    A key without a name is that of some party, and then every party must have signed with one."""
    if not trusted:
        return []
    found = []
    for signer in signers:
        unnamed = "" in trusted.values() and signer.name != "server"
        if signer.known or not (unnamed or signer.name in trusted.values()):
            continue
        whose = trusted.get(signer.key)
        said = f"the key of {whose}" if whose else "none of the keys that you named"
        found.append(f"{signer.name} signed with {signer.key[:16]}..., which is {said}.")
    keys = [signer.key for signer in signers if signer.name != "server"]
    if len(set(keys)) < len(keys):
        found.append("two parties signed with one key.")
    return found


def _statement_problems(body: Mapping[str, Any], statements: Sequence[Statement]) -> list[str]:
    """Contradictions between the statements, and between them and the release."""
    found = []
    release, method = body["release"], body["method"]
    parties = [s.party for s in statements] + [row["party"] for row in body["without_statement"]]
    if not parties:
        found.append("the certificate names no party.")
    if len(set(parties)) < len(parties):
        found.append("a party appears twice.")
    for statement in statements:
        whose = f"the statement of party {statement.party}"
        # A real party adds its own digest of the job to the name, after a space.
        if (statement.job.split(" ")[0], statement.method) != (release["job"], method["name"]):
            found.append(f"{whose} belongs to another job ({statement.job}).")
        if not 1 <= statement.stage <= release["stage"] <= release["stages"]:
            found.append(f"{whose} belongs to stage {statement.stage}, not to this release.")
        spent = epsilon(statement.total, statement.delta, Accounting.PLD, statement.relation)
        if method["private"] and spent > statement.budget * (1 + SLACK) and _tight(statement):
            found.append(
                f"party {statement.party} spent epsilon {spent:.6g}, and its budget is "
                f"{statement.budget:g}."
            )
    for name in ("job_digest", "unit", "relation", "delta"):
        if len({getattr(statement, name) for statement in statements}) > 1:
            found.append(f"the statements of the parties differ in {name}.")
    return found


def _tight(statement: Statement) -> bool:
    """True if the budget is counted by an accountant that bounds the loss."""
    return statement.accounting in (Accounting.PLD, Accounting.RDP)


def _number_problems(body: Mapping[str, Any], statements: Sequence[Statement]) -> list[str]:
    """Numbers that are not those of the events, by either accountant."""
    found = []
    computed = derived(statements)
    place = difference(body["derived"], computed)
    if place is not None:
        found.append(f"derived.{place} is not what the ledgers' events come to.")
    for row in computed["spendings"].values():
        for terms in row["epsilon"]:
            pld, rdp = terms["pld"], terms["rdp"]
            if isinstance(rdp, float) and isinstance(pld, float) and pld > rdp * 1.001 + 1e-3:
                found.append(f"the two accountants contradict each other: {pld} and {rdp}.")
    return found


def _file_problems(
    path: Path, body: Mapping[str, Any], statements: Sequence[Statement]
) -> list[str]:
    """Files that are missing, changed or belong to another release."""
    found = []
    stem, files = path.name.removesuffix(CERTIFICATE_SUFFIX), body["files"]
    stage = body["release"]["stage"]
    kind = "model" if body["schema"]["kind"] == "model" else "stage"
    payload, registry = f"{kind}-{stage}.npz", f"{kind}-{stage}{REGISTRY_SUFFIX}"
    if stem != f"{kind}-{stage}" or not {payload, registry} <= set(files):
        found.append(f"{path.name} is not the certificate of {kind}-{stage}: it was swapped.")
    folder = path.resolve().parent
    if folder.parent.name in ("releases", "disclosed") and folder.name != body["release"]["job"]:
        found.append(f"the certificate is that of {body['release']['job']}, not of {folder.name}.")
    for name, facts in files.items():
        file = folder / name
        if Path(name).name != name or not file.is_file():
            found.append(f"{name} is missing beside the certificate.")
        elif file_facts(file) != facts:
            found.append(f"{name} was changed: its SHA-256 or size is not that of the certificate.")
    if found:
        return found
    outcome = unarchive(folder / payload)
    if body["sent_unchanged_by"] != senders(outcome, statements):
        found.append(f"{payload} is not what the parties sent that the certificate names.")
    schema = array_schema(outcome)
    if {name: body["schema"][name] for name in schema} != schema:
        found.append(f"{payload} does not have the arrays that the certificate states.")
    return [*found, *_registry_problems(folder / registry, body)]


def _registry_problems(path: Path, body: Mapping[str, Any]) -> list[str]:
    record = parsed_record(path.read_bytes(), path.name)
    found = [f"{path.name}: {problem}" for problem in problems_of(record)]
    if not found and facts_of(record) != facts_of_body(body):
        found.append(f"{path.name} states other numbers than the certificate.")
    return found


def facts_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a registry record must repeat."""
    from fedsynth.privacy.certificate.registry_record import registry_record

    return facts_of(registry_record(body))


def _word_problems(body: Mapping[str, Any]) -> list[str]:
    """Sentences that are not those of the facts."""
    found = []
    expected = PRIVATE if body["method"]["private"] else NOT_PRIVATE
    if body["processing"] != expected:
        found.append("the sentence on processing is not that of a release of this kind.")
    noise = noise_facts(body["noise"]["sources"])
    if body["noise"] != noise or not set(body["derived"]["noise_sources"]) <= set(noise["sources"]):
        found.append("the facts on noise are not those of the ledgers.")
    if "audits" in body:
        found += problems_of_audits(body["audits"], body["method"]["name"])
    return found


def read(path: Path) -> Verdict:
    """The certificate of a release, checked.

    Args:
        path: The certificate, or the archive of the release that it lies beside.

    Raises:
        CertificateDamaged: The certificate or the release was changed.
        UserError: There is no certificate.
    """
    place = certificate_of(path)
    verdict = check(place)
    if verdict.problems:
        raise CertificateDamaged(f"{place.name}: {verdict.problems[0]}")
    return verdict


def certificate_of(path: Path) -> Path:
    """The certificate that lies beside a file of a release."""
    name = path.name
    if name.endswith(CERTIFICATE_SUFFIX):
        return path
    stem = name.removesuffix(REGISTRY_SUFFIX) if name.endswith(REGISTRY_SUFFIX) else path.stem
    return path.with_name(stem + CERTIFICATE_SUFFIX)
