"""A checked certificate in plain words: what is promised to whom, and what is assumed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.core.enums import Relation
from fedsynth.core.plan import RECORD_CLASSES, readable_view
from fedsynth.core.text import epsilon_text
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import describe
from fedsynth.privacy.certificate.canonical import read_number
from fedsynth.privacy.certificate.check import Signer, Verdict
from fedsynth.privacy.certificate.statement import Statement

MAX_PARTIES = 12  # that are named one by one
MAX_ARRAYS = 4

_UNIT = {"record": "one record", "user": "all records of one user"}
_CHANGE = {
    Relation.ADD_REMOVE.value: "is there or not",
    Relation.REPLACE_ONE.value: "is replaced by any other",
}


def explanation(verdict: Verdict) -> list[str]:
    """The lines that a reader is shown for a certificate without problems."""
    body = verdict.body
    release, schema, method = body["release"], body["schema"], body["method"]
    shown = [f"{n} {a['type']}{a['shape']}" for n, a in schema["arrays"].items()]
    arrays = ", ".join(shown[:MAX_ARRAYS]) + (", ..." if len(shown) > MAX_ARRAYS else "")
    lines = [
        f"{release['job']}, stage {release['stage']} of {release['stages']}: {schema['kind']} "
        f"({arrays}) by {method['name']} from {schema['data']['name']}"
    ]
    same_class = RECORD_CLASSES in body["assumes"]
    lines += [_promise(row, same_class) for row in body["derived"]["guarantee"]]
    lines += _parties(verdict.statements)
    lines += [
        f"no statement of party {row['party']}: it {row['reason']}; what it released is not counted"
        for row in body["without_statement"]
    ]
    lines.append(body["processing"])
    if body["sent_unchanged_by"]:
        names = ", ".join(f"party {party}" for party in body["sent_unchanged_by"])
        lines.append(f"The arrays are, to the bit, those that {names} sent and signed for.")
    lines += _noise(body)
    lines += [f"treated as public: {text.rstrip('.')}." for text in body["assumes"]]
    lines += [body["secure_sum"]] if body["secure_sum"] else []
    lines += _audits(body.get("audits", {}), method["name"])
    lines.append(_scope(verdict.statements))
    lines += _signatures(verdict.signers)
    return lines


def summary(verdict: Verdict) -> str:
    """One line for a certificate without problems."""
    release = verdict.body["release"]
    rows = verdict.body["derived"]["guarantee"]
    promises = ", ".join(
        f"{row['observer']} {epsilon_text(read_number(row['epsilon_' + row['relation']]))}"
        for row in rows
    )
    terms = {f"delta={r['delta']:g}, unit {r['unit']}, relation {r['relation']}" for r in rows}
    signed = "signed by keys that you named" if verdict.established else "signers not established"
    return (
        f"{release['job']}, stage {release['stage']}: epsilon by observer: {promises} at "
        f"{' and '.join(sorted(terms))}; {signed}"
    )


def _noise(body: Mapping[str, Any]) -> list[str]:
    """How noise was drawn, where any protects the release."""
    rows = body["derived"]["guarantee"]
    if all(math.isinf(read_number(row["epsilon_" + row["relation"]])) for row in rows):
        return ["noise: none protects this release."]
    noise, sampler = body["noise"]["words"], body["noise"]["sampler"]
    return [
        f"noise: {noise} Sampler: {sampler['name']}.",
        f"deviation of the noise: {sampler['deviation']}.",
        *(f"assumed: {text}." for text in sampler["assumed"]),
    ]


def _promise(row: Mapping[str, Any], same_class: bool = False) -> str:
    """What one observer is kept from telling."""
    relation = row["relation"]
    other = next(r.value for r in Relation if r.value != relation)
    value, swapped = (read_number(row[f"epsilon_{name}"]) for name in (relation, other))
    seen = f"{row['observer']} ({row['sees']})"
    if math.isinf(value):
        return f"towards {seen}: no promise. Epsilon is infinite: private data can be read off."
    change = _CHANGE[relation] + (" of its class" if same_class else "")
    return (
        f"towards {seen}: whether {_UNIT[row['unit']]} {change} changes the probability "
        f"of anything it can observe by a factor of at most exp({epsilon_text(value)}), but for "
        f"{row['delta']:g}. That is epsilon {epsilon_text(value)} at delta={row['delta']:g}, unit "
        f"{row['unit']}, relation {relation}; epsilon {epsilon_text(swapped)} for {other}"
    )


def _parties(statements: Sequence[Statement]) -> list[str]:
    """The spending of the parties; equal ones share a line."""
    alike: dict[str, list[int]] = defaultdict(list)
    for statement in statements:
        pld = epsilon(statement.total, statement.delta, "pld", statement.relation)
        rdp = epsilon(statement.total, statement.delta, "rdp", statement.relation)
        text = (
            f"{describe(statement.total)}: epsilon {epsilon_text(pld)} by privacy loss "
            f"distributions, {epsilon_text(rdp)} by Renyi divergences; budget "
            f"{epsilon_text(statement.budget)}; ledger of {statement.entries} entries"
        )
        alike[text].append(statement.party)
    lines = []
    for text, parties in list(alike.items())[:MAX_PARTIES]:
        names = ", ".join(map(str, parties[:MAX_PARTIES]))
        more = f" and {len(parties) - MAX_PARTIES} more" if len(parties) > MAX_PARTIES else ""
        lines.append(f"{'party' if len(parties) == 1 else 'parties'} {names}{more}: {text}")
    if len(alike) > MAX_PARTIES:
        lines.append(f"and {len(alike) - MAX_PARTIES} more spendings")
    return lines


def _audits(facts: Mapping[str, Any], method: str) -> list[str]:
    """The audits of the method's code, each claim with the bound that came closest to it."""
    closest: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for row in facts.get("rows", []):
        terms = row["unit"], row["relation"], row["view"]
        if terms not in closest or row["audited_epsilon"] > closest[terms]["audited_epsilon"]:
            closest[terms] = row
    lines = [
        f"audit of the code of {method} at small size, towards {readable_view(row['view'])}, unit "
        f"{row['unit']}, relation {row['relation']}: claimed epsilon "
        f"{epsilon_text(row['claimed_epsilon'])}, by attack at least "
        f"{epsilon_text(row['audited_epsilon'])}, theoretical "
        f"{epsilon_text(row['theoretical_epsilon'])}"
        for row in closest.values()
    ]
    return [*lines, facts["scope"]] if lines else []


def _scope(statements: Sequence[Statement]) -> str:
    """What the numbers do not cover."""
    others = sum(statement.not_shown for statement in statements)
    elsewhere = (
        f"The parties' ledgers have {others} more lines, of other jobs, which are not counted here"
        if others
        else "The parties' ledgers hold nothing else"
    )
    return (
        f"{elsewhere}. Other releases from the same records, the time an answer takes, and the "
        "choice of settings on private data are not covered."
    )


def _signatures(signers: Sequence[Signer]) -> list[str]:
    """Whose signatures are established, and whose are not."""
    known = [signer.name for signer in signers if signer.known]
    unknown = [signer for signer in signers if not signer.known]
    lines = []
    if known:
        lines.append(f"signed, by keys that you named: {_listed(known)}")
    if unknown:
        lines.append(
            f"self-consistent, but who signed it is not established: {_listed(unknown)}. Compare "
            "the keys with the parties' own, and give them with --key or --keys"
        )
        lines += [f"key of {signer.name}: {signer.key}" for signer in unknown[:MAX_PARTIES]]
    return lines


def _listed(signers: Sequence[object]) -> str:
    names = [signer.name if isinstance(signer, Signer) else str(signer) for signer in signers]
    more = f" and {len(names) - MAX_PARTIES} more" if len(names) > MAX_PARTIES else ""
    return ", ".join(names[:MAX_PARTIES]) + more
