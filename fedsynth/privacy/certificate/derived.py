"""The part of a certificate that follows from the parties' statements: all of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsynth.core.enums import Accounting, Relation
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten, to_json, unflatten
from fedsynth.privacy.certificate.canonical import digest, number
from fedsynth.privacy.certificate.spending import spending
from fedsynth.privacy.certificate.statement import Statement
from fedsynth.privacy.noise import FROM_SYSTEM

CLOSE = 1e-6  # relative: how far a recomputed number may lie from the stated one


def derived(statements: Sequence[Statement]) -> dict[str, Any]:
    """Everything that a reader computes anew from the statements.

    Returns:
        `spendings`: the numbers of each distinct spending, by its digest; `observers`: per party
        the spending that counts for each observer; `guarantee`: per observer the largest epsilon
        over the parties; `noise_sources`: where the parties' noise comes from.
    """
    spendings: dict[str, Any] = {}
    observers: list[dict[str, Any]] = []
    for statement in statements:
        counted = {}
        for observer in statement.observers:
            event = unflatten(flatten(observer.event))
            name = digest({"event": to_json(event), "delta": statement.delta})[:16]
            if name not in spendings:
                spendings[name] = {"event": to_json(event), **spending(event, statement.delta)}
            counted[observer.name] = name
        observers.append({"party": statement.party, "spending": counted})
    return {
        "spendings": spendings,
        "observers": observers,
        "guarantee": _guarantee(statements),
        "noise_sources": sorted({source for s in statements for source in s.noise}),
    }


def _guarantee(statements: Sequence[Statement]) -> list[dict[str, Any]]:
    """Per observer, the largest epsilon of any party at its own delta and relation."""
    found: dict[str, dict[str, Any]] = {}
    for statement in statements:
        for observer in statement.observers:
            terms = (observer.event, statement.delta, Accounting.PLD)
            relations = {f"epsilon_{r.value}": epsilon(*terms, r) for r in Relation}
            row = found.setdefault(
                observer.name,
                {
                    "observer": observer.name,
                    "sees": observer.sees,
                    "unit": statement.unit,
                    "delta": statement.delta,
                    "relation": statement.relation,
                    "parties": 0,
                    **dict.fromkeys(relations, 0.0),
                },
            )
            row["parties"] += 1
            for name, value in relations.items():
                row[name] = max(row[name], value)
    return [
        {k: number(v) if k.startswith("epsilon") else v for k, v in row.items()}
        for row in found.values()
    ]


def is_simulation(sources: Sequence[str]) -> bool:
    """True if any noise comes from a seed, so that whoever knows the seed can subtract it."""
    return any(source != FROM_SYSTEM for source in sources)


def difference(stated: object, computed: object, place: str = "") -> str | None:
    """The first place at which a stated value is not the computed one; None where all agree.

    Numbers may differ by the rounding of another machine, everything else not at all."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        if set(stated) != set(computed):
            return place or "its fields"
        pairs = [(f"{place}.{k}" if place else k, stated[k], computed[k]) for k in computed]
    elif isinstance(stated, list) and isinstance(computed, list):
        if len(stated) != len(computed):
            return place
        pairs = [
            (f"{place}[{i}]", *both) for i, both in enumerate(zip(stated, computed, strict=True))
        ]
    elif isinstance(stated, float) and isinstance(computed, float):
        close = abs(stated - computed) <= CLOSE * max(abs(stated), abs(computed)) + 1e-14
        return None if close else place
    else:
        return None if type(stated) is type(computed) and stated == computed else place
    return next((d for name, a, b in pairs if (d := difference(a, b, name)) is not None), None)
