"""The numbers of a spending: epsilons by two accountants, for both relations, and the profile.

All of them follow from the event alone, so that a reader computes each of them again.
"""

from __future__ import annotations

from typing import Any

from dp_accounting import DpEvent

from fedsynth.core.enums import Accounting, Relation
from fedsynth.privacy.accounting.accountant import delta as delta_at
from fedsynth.privacy.accounting.accountant import epsilon, gaussian_mu_of
from fedsynth.privacy.accounting.events import describe, flatten, from_text, to_json
from fedsynth.privacy.certificate.canonical import number

DELTAS = (1e-4, 1e-5, 1e-6, 1e-8)  # beside the budget's own
ACCOUNTANTS = (Accounting.PLD.value, Accounting.RDP.value)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the privacy profile


def mechanism_events(event: DpEvent) -> list[dict[str, Any]]:
    """Each mechanism of a spending: the number of its uses, its event and the event in words."""
    found = []
    for text, uses in sorted(flatten(event).items()):
        base = from_text(text)
        found.append({"uses": uses, "event": to_json(base), "words": describe(base)})
    return found


def spending(event: DpEvent, delta: float) -> dict[str, Any]:
    """All numbers of an event, as they stand in a certificate.

    Args:
        event: The spending.
        delta: The delta of the budget; epsilons are given for it and for the usual ones.
    """
    deltas = sorted({float(delta), *DELTAS}, reverse=True)
    return {
        "mechanisms": mechanism_events(event),
        "mu": {relation.value: _mu(event, relation) for relation in Relation},
        "epsilon": [
            {
                "delta": at,
                "relation": relation.value,
                **{name: number(epsilon(event, at, name, relation)) for name in ACCOUNTANTS},
            }
            for relation in Relation
            for at in deltas
        ],
        "profile": {
            relation.value: [
                {"epsilon": e, "delta": number(delta_at(event, e, relation))} for e in EPSILONS
            ]
            for relation in Relation
        },
    }


def _mu(event: DpEvent, relation: Relation) -> float | str | None:
    mu = gaussian_mu_of(event, relation)
    return None if mu is None else number(mu)
