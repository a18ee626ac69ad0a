"""The epsilon of an event: tight, by Renyi orders, and by the conventions of published papers.

Claim: `epsilon(event, delta)` is an upper bound, from dp-accounting's pessimistic privacy loss
distribution (PLD), or from the exact formula where all mechanisms are unsampled Gaussians.
Published conventions reproduce a paper's number beside it. They are not always sound: a convention
states what a paper computed, and each method documents where that falls short.

Relation: events are defined for `add_remove` (one record more or less). `replace_one` is bounded
from the same event: a replacement is a removal and an addition, so that unsampled Gaussians have
twice the sensitivity, and all else group privacy, 2e at (1 + exp(e)) delta(e).
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import product
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import DpEvent
from dp_accounting.pld import PLDAccountant

from fedsynth.core.enums import Accounting, Relation
from fedsynth.core.errors import UserError, unknown
from fedsynth.privacy.accounting.events import (
    ParallelDpEvent,
    by_part,
    flatten,
    from_text,
    to_text,
    unflatten,
)
from fedsynth.privacy.accounting.gdp import check_delta, gdp_delta, gdp_epsilon
from fedsynth.privacy.accounting.rdp import CONVENTIONS, WITHOUT_REPLACEMENT, Sampled, renyi_epsilon

ACCOUNTANTS = (Accounting.PLD.value, *CONVENTIONS)
_NO_NOISE = 1e-6  # a multiplier below this counts as none: epsilon would exceed 1e11


@dataclass(frozen=True)
class Epsilons:
    """One event's epsilon by several accountants; `pld` is the one to state."""

    pld: float
    rdp: float
    rdp_improved: float
    rdp_classic: float


def count(event: DpEvent, delta: float, relation: str = Relation.ADD_REMOVE) -> Epsilons:
    """The event's epsilon by PLD, by dp-accounting's Renyi orders and by two paper conventions.

    For `replace_one` only PLD has an answer; the others are not-a-number.
    """
    values = {field.name: math.nan for field in fields(Epsilons)}
    for name in ("pld",) if relation == Relation.REPLACE_ONE else tuple(values):
        values[name] = epsilon(event, delta, name, relation)
    return Epsilons(**values)


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
    if relation == Relation.REPLACE_ONE and accountant not in (Accounting.PLD, "wor_bound"):
        raise UserError(
            f"accountant={accountant} counts add_remove neighbours only; for relation=replace_one "
            "use accountant=pld."
        )
    return _epsilon(_key(event), float(delta), accountant, relation)


def delta(event: DpEvent, epsilon: float) -> float:
    """The smallest known delta at `epsilon`: add_remove, PLD, exact for unsampled Gaussians."""
    return max((_delta(s, epsilon, 1e-5) for s in _spendings(_key(event))), default=0.0)


def cross_check(event: DpEvent, delta: float) -> dict[str, float]:
    """The event's epsilon by independent programs: dp-accounting's PLD, Opacus's RDP and PRV.

    Empty for events that Opacus cannot express (parallel branches, disclosures). PRV is its upper
    bound at an error of 0.01, or of 0.3% of epsilon where that is more.
    """
    from opacus.accountants import PRVAccountant, RDPAccountant

    ways = _spendings(_key(event))
    if len(ways) != 1 or ways[0].disclosed or ways[0] == _Spending():
        return {}
    history = [(sigma, q, n) for (_, q, sigma), n in sorted(ways[0].sampled.items())]
    if ways[0].mu2:
        history.append((ways[0].mu2 ** -0.5, 1.0, 1))
    found = {name: epsilon(event, delta, name) for name in ("pld", "rdp")}
    renyi, prv = RDPAccountant(), PRVAccountant()
    renyi.history = prv.history = history
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # about the edge of its orders, and logarithms of zero
        found["opacus_rdp"] = float(renyi.get_epsilon(delta))
        error = max(0.01, 0.003 * found["pld"])
        found["opacus_prv"] = float(prv.get_epsilon(delta, eps_error=error))
    return found


# ---- an event's composition: unsampled Gaussians as one number, sampled ones as a counter ----


@dataclass(frozen=True)
class _Spending:
    """The mechanisms along one path through an event's parallel branches."""

    mu2: float = 0.0  # sum of 1/sigma^2 over all unsampled Gaussians
    sampled: Counter[Sampled] = field(default_factory=Counter)  # -> number of times
    disclosed: bool = False

    def __add__(self, other: _Spending) -> _Spending:
        sampled = self.sampled + other.sampled
        return _Spending(self.mu2 + other.mu2, sampled, self.disclosed or other.disclosed)

    def times(self, n: int) -> _Spending:
        if n == 0:
            return _Spending()
        sampled = Counter({k: c * n for k, c in self.sampled.items()})
        return _Spending(self.mu2 * n, sampled, self.disclosed)

    def within(self, other: _Spending) -> bool:
        """True if this surely costs no more than `other`; compares one kind of sampling only."""
        if self.disclosed or other.disclosed:
            return other.disclosed
        if not self.sampled:
            return self.mu2 <= other.mu2
        if len(self.sampled) != 1 or len(other.sampled) != 1 or self.mu2 > other.mu2:
            return False
        ((kind, q, sigma), n), ((kind2, q2, sigma2), n2) = (
            next(iter(s.sampled.items())) for s in (self, other)
        )
        return kind == kind2 and q <= q2 and sigma >= sigma2 and n <= n2


def _key(event: DpEvent) -> str:
    """One text for all trees of the same cost, so that their epsilon is equal to the bit."""
    return to_text(unflatten(flatten(event)))


@lru_cache(maxsize=4096)
def _spendings(text: str) -> tuple[_Spending, ...]:
    """All paths through the parallel branches, without those that are surely not the worst."""
    total: tuple[_Spending, ...] = (_Spending(),)
    whole, partitions = by_part(flatten(from_text(text)))
    choices = [[way.times(n) for way in _base(from_text(base))] for base, n in whole.items()]
    for parts in partitions.values():
        texts = {to_text(unflatten(flat)) for flat in parts.values()}
        choices.append([way for text in sorted(texts) for way in _spendings(text)])
    for ways in choices:
        total = _worst([a + b for a, b in product(total, ways)])
    return total


def _worst(ways: list[_Spending]) -> tuple[_Spending, ...]:
    kept: list[_Spending] = []
    for way in ways:
        if not any(way.within(k) for k in kept):
            kept = [*(k for k in kept if not k.within(way)), way]
    if len(kept) > 64:
        raise UserError(
            f"this event leaves {len(kept)} combinations of parallel branches to compare: put "
            "parallel() outermost, with everything one class pays in its branch."
        )
    return tuple(kept)


def _base(event: DpEvent) -> list[_Spending]:
    if isinstance(event, ParallelDpEvent):
        return [way for branch in event.events for way in _spendings(to_text(branch))]
    if isinstance(event, dp.NonPrivateDpEvent):
        return [_Spending(disclosed=True)]
    if isinstance(event, dp.GaussianDpEvent):
        if event.noise_multiplier < _NO_NOISE:
            return [_Spending(disclosed=True)]
        return [_Spending(mu2=event.noise_multiplier**-2.0)]
    if isinstance(event, dp.PoissonSampledDpEvent):
        kind, q = "poisson", float(event.sampling_probability)
    else:
        kind, q = "without_replacement", event.sample_size / event.source_dataset_size
    return [_sampled(kind, q, way) for way in _spendings(to_text(event.event))]


def _sampled(kind: str, q: float, inner: _Spending) -> _Spending:
    """Gaussians that share one sample are one Gaussian of the summed precision, then sampled."""
    if inner.disclosed:
        return inner
    if inner.sampled:
        raise UserError(
            "an event samples records and, inside, samples again: fedsynth counts sampling of "
            "Gaussian mechanisms only. Multiply the two rates into one poisson(q, ...) if both "
            "draws are fresh and independent each time."
        )
    return _Spending(sampled=Counter({(kind, q, inner.mu2**-0.5): 1}))


# ---- epsilon of one spending ----


@lru_cache(maxsize=4096)
def _epsilon(text: str, delta: float, accountant: str, relation: str) -> float:
    ways = _spendings(text)
    if any(way.disclosed for way in ways):
        return math.inf
    if accountant != Accounting.PLD:
        convention = CONVENTIONS[accountant]
        return max(
            (renyi_epsilon(way.mu2, way.sampled, delta, convention) for way in ways), default=0.0
        )
    if relation == Relation.ADD_REMOVE:
        return max(_pld_epsilon(way, delta) for way in ways)
    if not any(way.sampled for way in ways):
        return gdp_epsilon(2 * math.sqrt(max(way.mu2 for way in ways)), delta)
    return _swap_epsilon(ways, delta)


def _swap_epsilon(ways: tuple[_Spending, ...], delta: float) -> float:
    """Replace-one by group privacy: epsilon 2e where (1 + exp(e)) delta(e) <= delta."""

    def excess(e: float) -> float:
        worst = max(_delta(way, e, delta) for way in ways)
        return math.log(max(worst, 1e-300)) + float(np.logaddexp(0.0, e)) - math.log(delta)

    high = max(1e-3, *(_pld_epsilon(way, delta) for way in ways))
    while excess(high) > 0:
        high *= 1.5
        if high > 1e5:
            return math.inf
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return 2 * high


def _delta(way: _Spending, epsilon: float, near_delta: float) -> float:
    if way.disclosed:
        return 1.0
    if not way.sampled:
        return gdp_delta(math.sqrt(way.mu2), epsilon)
    return float(_pld(way, _interval(way, near_delta)).get_delta(epsilon))


def _pld_epsilon(way: _Spending, delta: float) -> float:
    if way.disclosed:
        return math.inf
    if not way.sampled:
        return gdp_epsilon(math.sqrt(way.mu2), delta)
    return float(_pld(way, _interval(way, delta)).get_epsilon(delta))


def _interval(way: _Spending, delta: float) -> float:
    """The discretisation interval of the privacy loss at which rounding adds a few 1e-4 of epsilon.

    Rounding adds at most interval^2 / 4 to the variance of each step's loss. If the total loss is
    near normal with deviation s, then epsilon is about s^2/2 + z s with z = sqrt(2 log(1/delta)),
    which bounds the variance that may be added. A power of two, so that similar events share an
    interval, and never so small that one step's losses have more than about a million values.
    """
    rough = max(renyi_epsilon(way.mu2, way.sampled, delta, CONVENTIONS["rdp"]), 1e-9)
    z = math.sqrt(2 * math.log(1 / delta))
    s = math.sqrt(z * z + 2 * rough) - z
    added = 8e-4 * rough * s / (s + z)
    wanted = 2 * math.sqrt(added / (sum(way.sampled.values()) + 1))
    widest = max(0.5 / sigma**2 + 12 / sigma for _, _, sigma in way.sampled)
    return float(2.0 ** math.floor(math.log2(max(wanted, widest * 1e-6))))


def _pld(way: _Spending, interval: float) -> Any:
    return _pld_of(way.mu2, frozenset(way.sampled.items()), interval)


@lru_cache(maxsize=8)
def _pld_of(mu2: float, sampled: frozenset[tuple[Sampled, int]], interval: float) -> Any:
    accountant = PLDAccountant(
        dp.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    for (kind, q, sigma), n in sorted(sampled):
        if kind != "poisson":
            raise UserError(WITHOUT_REPLACEMENT)
        accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), n)
    if mu2:
        accountant.compose(dp.GaussianDpEvent(mu2**-0.5))
    return accountant
