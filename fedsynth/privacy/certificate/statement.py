"""The statement of one party: what it charged for a job, signed with the key of the party.

A statement holds facts and no numbers that are computed from them: the lines of the ledger, the
observers, the unit, the relation and the budget. Whoever reads it computes every epsilon anew.

Claim: a statement whose signature is the party's own says what this party charged for the job up to
the stage, all of it if the lines are the whole ledger.
Assumption: the party ran this program, or one that charges as this one does. No signature shows
that noise was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dp_accounting import DpEvent

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PARTY_CLASS_COUNTS, Plan, readable_view
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.gdp import check_delta
from fedsynth.privacy.certificate.canonical import Document, canonical, number, read_number
from fedsynth.privacy.certificate.views import event_of, observed, read_view
from fedsynth.privacy.ledger_entry import CHARGE, RELEASE, Entry, chained, total
from fedsynth.privacy.ledger_head import GENESIS

FORM = "fedsynth party statement 1"
FIELDS = {
    *("form", "party", "job", "job_digest", "stage", "method", "unit", "relation", "delta"),
    *("budget", "accounting", "records", "class_counts", "policy", "views", "ledger"),
}


@dataclass(frozen=True)
class Observer:
    """An observer of one party: what it sees, and the event that counts for it."""

    name: str
    sees: str
    event: DpEvent


@dataclass(frozen=True)
class Statement:
    """A statement that was read and found consistent."""

    party: int
    job: str
    job_digest: str
    stage: int
    method: str
    unit: str
    relation: str
    delta: float
    budget: float
    accounting: str
    total: DpEvent
    observers: tuple[Observer, ...]
    noise: tuple[str, ...]  # where the noise comes from
    entries: int
    not_shown: int  # lines of the ledger that belong to other jobs
    released: tuple[str, ...] = ()  # SHA-256 of each payload that left the party


def statement_body(
    *,
    job: str,
    job_digest: str,
    plan: Plan,
    party: int,
    entries: Sequence[Entry],
    budget: Budget | None = None,
    policy: str | None = None,
) -> dict[str, Any]:
    """The facts that a party states of one stage, and of those before it.

    Args:
        job: The name of the job.
        job_digest: SHA-256 of everything that the releases of the job depend on.
        plan: The public plan of the stage.
        party: The party.
        entries: The ledger of the party, all lines.
        budget: The budget that the party charges to; None: that of the plan.
        policy: SHA-256 of the party's policy; None where it is not stated.
    """
    info, share, budget = plan.info(party), plan.of(party), budget or plan.budget
    mine = [e for e in entries if e.job == job and e.stage <= plan.stage.index]
    # Stated only where the plan names them as public.
    counts = info.class_counts if PARTY_CLASS_COUNTS in plan.assumes else {}
    return {
        "form": FORM,
        "party": party,
        "job": job,
        "job_digest": job_digest,
        "stage": plan.stage.index + 1,
        "method": plan.method,
        "unit": budget.unit.value,
        "relation": budget.relation.value,
        "delta": budget.delta,
        "budget": number(budget.epsilon),
        "accounting": str(budget.accounting),
        "records": info.records,
        "class_counts": {str(c): n for c, n in sorted(counts.items())},
        "policy": policy,
        "views": observed(tuple(share.views), share.shares),
        "ledger": {
            "entries": [entry.stored() for entry in mine],
            "length": len(entries),
            "head": entries[-1].hash if entries else GENESIS,
        },
    }


def read_statement(body: Document, key: str) -> Statement:
    """Read a statement and check that its parts agree.

    Args:
        body: The statement.
        key: The public key that signed it, which must have signed the lines of the ledger too.

    Raises:
        ValueError: A part is missing, or contradicts another one.
    """
    if set(body) != FIELDS or body["form"] != FORM:
        raise ValueError("it does not have the fields of a party's statement")
    _check_types(body)
    entries, not_shown = _read_ledger(body, key)
    _check_terms(body, entries)
    charges = [entry for entry in entries if entry.kind == CHARGE]
    charged_for = [readable_view(entry.view) for entry in charges]
    spent = total(charges)
    observers = []
    for fields in body["views"]:
        view = read_view(fields)
        event = event_of(view, fields["shares"], charged_for, spent)
        observers.append(Observer(fields["observer"], fields["sees"], event))
    if not observers:
        raise ValueError("it names no observer")
    return Statement(
        party=body["party"],
        job=body["job"],
        job_digest=body["job_digest"],
        stage=body["stage"],
        method=body["method"],
        unit=body["unit"],
        relation=body["relation"],
        delta=body["delta"],
        budget=read_number(body["budget"]),
        accounting=body["accounting"],
        total=spent,
        observers=tuple(observers),
        noise=tuple(dict.fromkeys(entry.noise for entry in charges)),
        entries=len(entries),
        not_shown=not_shown,
        released=tuple(entry.payload for entry in entries if entry.kind == RELEASE),
    )


def _check_types(body: Document) -> None:
    kinds: Mapping[str, type | tuple[type, ...]] = {
        **dict.fromkeys(("job", "job_digest", "method", "unit", "relation", "accounting"), str),
        **dict.fromkeys(("party", "stage", "records"), int),
        "delta": float,
        "class_counts": dict,
        "views": list,
        "ledger": dict,
        "policy": (str, type(None)),
    }
    for name, kind in kinds.items():
        if not isinstance(body[name], kind) or isinstance(body[name], bool):
            raise ValueError(f"its field {name!r} is {body[name]!r}")
    check_delta(body["delta"])
    Unit(body["unit"])
    Relation(body["relation"])
    counts = body["class_counts"].values()
    if not all(type(n) is int and n >= 0 for n in counts) or sum(counts) > body["records"]:
        raise ValueError("its class counts are more than its records")


def _check_terms(body: Document, entries: Sequence[Entry]) -> None:
    """Check that the lines were charged to the budget that the statement names."""
    for entry in entries:
        for name in ("unit", "relation", "delta", "accounting"):
            if getattr(entry, name) != body[name]:
                raise ValueError(f"its {name} is not that of its ledger")
        if entry.budget != read_number(body["budget"]):
            raise ValueError("its budget is not that of its ledger")


def _read_ledger(body: Document, key: str) -> tuple[list[Entry], int]:
    """The lines of a ledger extract, each checked, and the number of lines left out."""
    ledger = body["ledger"]
    if set(ledger) != {"entries", "length", "head"} or not isinstance(ledger["entries"], list):
        raise ValueError("its ledger has no entries, length and head")
    length, head = ledger["length"], ledger["head"]
    entries: list[Entry] = []
    for position, fields in enumerate(ledger["entries"], start=1):
        entry = _read_entry(fields, position)
        _check_place(entry, entries[-1] if entries else None, body, position)
        entries.append(entry)
    if type(length) is not int or length < len(entries) or not isinstance(head, str):
        raise ValueError("its ledger is longer than the length it states")
    if entries and entries[-1].seq >= length:
        raise ValueError("its ledger is longer than the length it states")
    whole = length == len(entries) or (entries[-1:] and entries[-1].seq == length - 1)
    if whole and head != (entries[-1].hash if entries else GENESIS):
        raise ValueError("the head of its ledger is not its last line")
    _check_signatures(entries, key)
    return entries, length - len(entries)


def _read_entry(fields: object, position: int) -> Entry:
    """One line, in the one form that a ledger has, with the hash of its content."""
    try:
        raw = canonical(fields) + b"\n"  # type: ignore[arg-type]
        ((entry, _),) = chained(raw, "extract", fields["seq"], fields["prev"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError, UserError):
        raise ValueError(f"line {position} of its ledger was changed: its hash differs") from None
    return entry


def _check_signatures(entries: Sequence[Entry], key: str) -> None:
    """Check that the party signed the lines. A signature covers all lines that it is linked to."""
    for entry, after in zip_longest(entries, entries[1:]):
        if entry.signer != key:
            raise ValueError("a line of its ledger was signed with another key than the statement")
        linked = after is not None and after.seq == entry.seq + 1
        if not linked and not entry.is_signed():
            raise ValueError("a line of its ledger has a false signature")


def _check_place(entry: Entry, before: Entry | None, body: Document, position: int) -> None:
    """Check that a line belongs to this statement, and follows the line before it."""
    if entry.job != body["job"] or entry.party != body["party"]:
        raise ValueError(f"line {position} of its ledger belongs to another job or party")
    if entry.stage >= body["stage"]:
        raise ValueError(f"line {position} of its ledger belongs to a later stage")
    earlier, hash_ = (-1, GENESIS) if before is None else (before.seq, before.link)
    if entry.seq <= earlier or (entry.seq == earlier + 1 and entry.prev != hash_):
        raise ValueError(
            f"line {position} of its ledger does not follow the line before it: a line was "
            "removed, added or moved"
        )
