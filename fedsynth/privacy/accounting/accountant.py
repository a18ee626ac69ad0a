"""The epsilon of an event: tight, by Renyi orders, and by the conventions of published papers.

Claim: `epsilon(event, delta)` is an upper bound, from a pessimistic privacy loss distribution (PLD)
like dp-accounting's (`accounting.gaussian_pld`), or from the exact formula where all mechanisms are
unsampled Gaussians.
Published conventions reproduce a paper's number beside it. They are not always sound: a convention
states what a paper computed, and each method documents where that falls short.

Relation: events are stated for `add_remove` (one record more or less). `replace_one` is counted
from the same event: a replacement is a removal and an addition, so that a mechanism's values move
by up to twice the bound (`accounting.spending`); for Poisson samples the pair of outputs that
dominates all replacements is counted (`accounting.pld`).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from dp_accounting import DpEvent

from fedsynth.core.enums import Accounting, Relation
from fedsynth.core.errors import unknown
from fedsynth.privacy.accounting import pld, rdp
from fedsynth.privacy.accounting.gdp import check_delta, gdp_delta, gdp_epsilon
from fedsynth.privacy.accounting.rdp import CONVENTIONS, renyi_epsilon
from fedsynth.privacy.accounting.spending import Change, Spending, changes, key, spendings

ACCOUNTANTS = (Accounting.PLD.value, *CONVENTIONS)


@dataclass(frozen=True)
class Epsilons:
    """One event's epsilon by several accountants; `pld` is the one to state."""

    pld: float
    rdp: float
    rdp_improved: float
    rdp_classic: float


def count(event: DpEvent, delta: float, relation: str = Relation.ADD_REMOVE) -> Epsilons:
    """The event's epsilon by PLD, by dp-accounting's Renyi orders and by two paper conventions."""
    names = [field.name for field in fields(Epsilons)]
    return Epsilons(**{name: epsilon(event, delta, name, relation) for name in names})


def epsilon(
    event: DpEvent,
    delta: float,
    accountant: str = Accounting.PLD,
    relation: str = Relation.ADD_REMOVE,
) -> float:
    """An upper bound on the event's epsilon at `delta`; infinite for a disclosure.

    Args:
        event: A tree from the constructors of `accounting.events`.
        delta: The probability of failure, strictly between 0 and 1.
        accountant: "pld", or a convention of `accounting.rdp`.
        relation: The neighbouring relation.

    Raises:
        UserError: The accountant or the relation is unknown, or they cannot count this event.
    """
    check_delta(delta)
    if accountant not in ACCOUNTANTS:
        raise unknown("accountant", accountant, ACCOUNTANTS)
    if relation not in tuple(Relation):
        raise unknown("neighbouring relation", relation, [choice.value for choice in Relation])
    return _epsilon(key(event), float(delta), accountant, str(relation))


def delta(event: DpEvent, epsilon: float, relation: str = Relation.ADD_REMOVE) -> float:
    """The smallest known delta at `epsilon`, by PLD; exact for unsampled Gaussians."""
    return max((_delta(way, epsilon, 1e-5) for way in _ways(key(event), relation)), default=0.0)


def gaussian_mu_of(event: DpEvent, relation: str = Relation.ADD_REMOVE) -> float | None:
    """The mu of an event that is mu-GDP exactly: unsampled Gaussians; None for all others."""
    ways = _ways(key(event), relation)
    if any(way.disclosed or _sampled(way) for way in ways):
        return None
    return math.sqrt(max(way.mu2 for way in ways))


def renyi_divergence(event: DpEvent, order: float, relation: str = Relation.ADD_REMOVE) -> float:
    """The event's Renyi divergence of one order; infinite for a disclosure.

    Args:
        event: A tree from the constructors of `accounting.events`.
        order: The order, above 1.
        relation: The neighbouring relation.

    Raises:
        UserError: The event samples without replacement.
    """
    return _renyi_divergence(key(event), float(order), str(relation))


@lru_cache(maxsize=4096)
def _renyi_divergence(text: str, order: float, relation: str) -> float:
    ways = _ways(text, relation)
    if any(way.disclosed for way in ways):
        return math.inf
    found = [0.0]
    for way in ways:
        if isinstance(way, Spending):
            found.append(rdp.renyi_divergence(way.mu2, way.sampled, order))
        else:
            moved = way.removed.sampled + way.added.sampled
            replaced = way.replaced.sampled
            found.append(rdp.renyi_divergence(way.mu2, moved, order, replaced=replaced))
    return max(found)


def cross_check(event: DpEvent, delta: float) -> dict[str, float]:
    """The event's epsilon by independent programs: dp-accounting's PLD, Opacus's RDP and PRV.

    "pld" and "rdp" are ours. Empty for events that Opacus cannot express (parallel branches,
    disclosures). PRV is its upper bound at an error of 0.01, or of 0.3% of epsilon where that is
    more.
    """
    from opacus.accountants import PRVAccountant, RDPAccountant

    ways = spendings(key(event))
    if len(ways) != 1 or ways[0].disclosed or ways[0] == Spending():
        return {}
    history = [(sigma, q, n) for (_, q, sigma), n in sorted(ways[0].sampled.items())]
    if ways[0].mu2:
        history.append((ways[0].mu2 ** -0.5, 1.0, 1))
    found = {name: epsilon(event, delta, name) for name in ("pld", "rdp")}
    found["dp_accounting_pld"] = pld.library_epsilon(ways[0], delta)
    renyi, prv = RDPAccountant(), PRVAccountant()
    renyi.history = prv.history = history
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # about the edge of its orders, and logarithms of zero
        found["opacus_rdp"] = float(renyi.get_epsilon(delta))
        error = max(0.01, 0.003 * found["pld"])
        found["opacus_prv"] = float(prv.get_epsilon(delta, eps_error=error))
    return found


# ---- epsilon of one way in which a record meets an event ----


def _ways(text: str, relation: str) -> tuple[Spending, ...] | tuple[Change, ...]:
    return changes(text) if relation == Relation.REPLACE_ONE else spendings(text)


def _sampled(way: Spending | Change) -> bool:
    """True if any mechanism works on a sample."""
    parts = (way,) if isinstance(way, Spending) else (way.replaced, way.removed, way.added)
    return any(part.sampled for part in parts)


@lru_cache(maxsize=4096)
def _epsilon(text: str, delta: float, accountant: str, relation: str) -> float:
    ways = _ways(text, relation)
    if any(way.disclosed for way in ways):
        return math.inf
    if accountant != Accounting.PLD:
        return max((_renyi(way, delta, accountant) for way in ways), default=0.0)
    if relation == Relation.ADD_REMOVE:
        return max(_pld_epsilon(way, delta) for way in ways)
    worst = 0.0
    for way in sorted(ways, key=_moved):  # replacements within a part first: they are the worst
        if not _moved(way) or pld.renyi_bound(way, delta) > worst:
            worst = max(worst, _pld_epsilon(way, delta))
    return worst


def _moved(way: Spending | Change) -> bool:
    """True if a replaced record moves from one part to another."""
    return isinstance(way, Change) and (way.removed != Spending() or way.added != Spending())


def _renyi(way: Spending | Change, delta: float, accountant: str) -> float:
    convention = CONVENTIONS[accountant]
    if isinstance(way, Spending):
        return renyi_epsilon(way.mu2, way.sampled, delta, convention)
    moved = way.removed.sampled + way.added.sampled
    return renyi_epsilon(way.mu2, moved, delta, convention, replaced=way.replaced.sampled)


def _delta(way: Spending | Change, epsilon: float, near_delta: float) -> float:
    if way.disclosed:
        return 1.0
    if not _sampled(way):
        return gdp_delta(math.sqrt(way.mu2), epsilon)
    if isinstance(way, Spending):
        return pld.spending_delta(way, epsilon, near_delta)
    return pld.change_delta(way, epsilon, near_delta)


def _pld_epsilon(way: Spending | Change, delta: float) -> float:
    if way.disclosed:
        return math.inf
    if not _sampled(way):
        return gdp_epsilon(math.sqrt(way.mu2), delta)
    if isinstance(way, Spending):
        return pld.spending_epsilon(way, delta)
    return pld.change_epsilon(way, delta)
