"""The mechanisms of an event that one record meets, for a removed, an added and a replaced record.

A record that is added or removed meets the mechanisms on all records and, of each partition, those
on its own part: one path through the parallel branches (`spendings`).

Replacing a record removes one and adds another (`changes`). Mechanisms on all records, and those on
a part in which both lie, see the replacement; if they lie in different parts, the mechanisms on one
part see a removal and those on the other an addition. Every event is stated for add/remove, with
noise relative to the L2 bound on what one record moves. By the triangle inequality a replacement
moves the same values by at most twice that; values that lie in a ball (`events.gaussian_in_ball`)
it moves by at most the diameter, which is all that a removal may move them. Mechanisms that bound
an exchange only (`events.gaussian_of_exchange`) count for one as the values of a ball do; for a
removal, and where a record can leave a part or a sample, they count as a disclosure.

Both functions leave out paths that surely cost no more than another one. For the cross terms this
rests on the following: with the same q, sigma and number of steps, a removal from one part together
with an addition to another one costs at most a replacement within one part. Step by step, both are
the pair (1-q) N(0) + q N(x) and (1-q) N(0) + q N(x') of Gaussians with |x|, |x'| <= 1: orthogonal x
and x' in the first case, opposite ones in the second, which dominate all others
(proof: `accounting.pld`). It does not hold for values in balls: there a change of two parts costs
more than a change within one, and both kinds are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import TypeVar

import dp_accounting as dp
from dp_accounting import DpEvent

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.events import (
    IN_BALL,
    OF_EXCHANGE,
    BallGaussianDpEvent,
    ExchangeGaussianDpEvent,
    ParallelDpEvent,
    by_part,
    flatten,
    from_text,
    to_text,
    unflatten,
)
from fedsynth.privacy.accounting.rdp import (
    POISSON,
    POISSON_IN_BALL,
    WITHOUT_REPLACEMENT_KIND,
    Sampled,
)

NO_NOISE = 1e-6  # a multiplier below this counts as none: epsilon would exceed 1e11
MAX_PATHS, MAX_CHANGES = 64, 512


@dataclass(frozen=True)
class Spending:
    """Mechanisms: unsampled Gaussians as one number, sampled ones with their counts."""

    mu2: float = 0.0  # sum of 1/sigma^2 over all unsampled Gaussians
    sampled: Counter[Sampled] = field(default_factory=Counter)  # -> number of times
    disclosed: bool = False
    ball2: float = 0.0  # the part of mu2 whose values lie in balls

    def __add__(self, other: Spending) -> Spending:
        sampled, disclosed = self.sampled + other.sampled, self.disclosed or other.disclosed
        return Spending(self.mu2 + other.mu2, sampled, disclosed, self.ball2 + other.ball2)

    @property
    def free2(self) -> float:
        """The part of mu2 whose values a replacement moves twice as far as a removal."""
        return max(self.mu2 - self.ball2, 0.0)

    @property
    def in_balls(self) -> bool:
        """True if the values of any mechanism lie in a ball."""
        return self.ball2 > 0 or any(kind == POISSON_IN_BALL for kind, _, _ in self.sampled)

    def times(self, n: int) -> Spending:
        """The same `n` times."""
        if n == 0:
            return Spending()
        sampled = Counter({k: c * n for k, c in self.sampled.items()})
        return Spending(self.mu2 * n, sampled, self.disclosed, self.ball2 * n)

    def within(self, other: Spending) -> bool:
        """True if this surely costs no more than `other`; compares one kind of sampling only."""
        if self.disclosed or other.disclosed:
            return other.disclosed
        if self.mu2 > other.mu2 or self.free2 > other.free2:
            return False
        if self.sampled <= other.sampled:
            return True
        if len(self.sampled) != 1 or len(other.sampled) != 1:
            return False
        ((kind, q, sigma), n), ((kind2, q2, sigma2), n2) = (
            next(iter(s.sampled.items())) for s in (self, other)
        )
        return kind == kind2 and q <= q2 and sigma >= sigma2 and n <= n2


@dataclass(frozen=True)
class Change:
    """The mechanisms that see a replacement, those that see the removal only, and the others."""

    replaced: Spending = field(default_factory=Spending)
    removed: Spending = field(default_factory=Spending)
    added: Spending = field(default_factory=Spending)

    def __add__(self, other: Change) -> Change:
        return Change(
            self.replaced + other.replaced,
            self.removed + other.removed,
            self.added + other.added,
        )

    def times(self, n: int) -> Change:
        """The same `n` times."""
        return Change(self.replaced.times(n), self.removed.times(n), self.added.times(n))

    @property
    def disclosed(self) -> bool:
        """True if anything is disclosed."""
        return self.replaced.disclosed or self.removed.disclosed or self.added.disclosed

    @property
    def mu2(self) -> float:
        """The squared mu of all unsampled Gaussians: a replacement moves twice as far, but for
        values in balls."""
        within = 4 * self.replaced.free2 + self.replaced.ball2
        return within + self.removed.mu2 + self.added.mu2

    def within(self, other: Change) -> bool:
        """True if this surely costs no more than `other`."""
        pairs = (
            (self.replaced, other.replaced),
            (self.removed, other.removed),
            (self.added, other.added),
        )
        if all(mine.within(theirs) for mine, theirs in pairs):
            return True
        if self.removed.in_balls or self.added.in_balls:
            return False
        ways = (self.replaced + self.removed, self.replaced + self.added)
        return all(way.within(other.replaced) for way in ways)


T = TypeVar("T", Spending, Change)


def key(event: DpEvent) -> str:
    """One text for all trees of the same cost, so that their epsilon is equal to the bit."""
    return to_text(unflatten(flatten(event)))


@lru_cache(maxsize=4096)
def spendings(text: str) -> tuple[Spending, ...]:
    """All paths through the parallel branches, without those that are surely not the worst.

    Args:
        text: The `key` of an event.

    Raises:
        UserError: The event cannot be counted.
    """
    return _ways(
        text,
        Spending(),
        whole=_base,
        parts=lambda branches: [way for each in sorted(set(branches)) for way in spendings(each)],
        most=MAX_PATHS,
    )


@lru_cache(maxsize=4096)
def changes(text: str) -> tuple[Change, ...]:
    """All ways in which a replaced record meets an event, without those surely not the worst.

    Argument and errors are those of `spendings`."""
    return _ways(text, Change(), whole=_replaced, parts=_between, most=MAX_CHANGES)


def _ways(
    text: str,
    start: T,
    *,
    whole: Callable[[DpEvent], Iterable[T]],
    parts: Callable[[Iterable[str]], Iterable[T]],
    most: int,
) -> tuple[T, ...]:
    """All ways through an event, without those that are surely not the worst.

    Args:
        text: The `key` of the event.
        start: The way through nothing.
        whole: The ways through a mechanism on all records.
        parts: The ways through the mechanisms on the parts of a partition.
        most: The largest number of ways.
    """
    total: tuple[T, ...] = (start,)
    mechanisms, partitions = by_part(flatten(from_text(text)))
    choices = [[way.times(n) for way in whole(from_text(m))] for m, n in mechanisms.items()]
    for branches in partitions.values():
        choices.append(list(parts(to_text(unflatten(flat)) for flat in branches.values())))
    for ways in choices:
        total = _worst([a + b for a, b in product(total, ways)], most)
    return total


def _replaced(event: DpEvent) -> list[Change]:
    """The ways of a replaced record through one mechanism on all records."""
    if isinstance(event, ParallelDpEvent):
        return _between(to_text(branch) for branch in event.events)
    if isinstance(event, ExchangeGaussianDpEvent):
        return [Change(replaced=_gaussian(event.noise_multiplier, in_ball=True))]
    return [Change(replaced=way) for way in _base(event)]


def _between(branches: Iterable[str]) -> list[Change]:
    """Replacements within each of these branches, and from each of them to each other one.

    To or from a part without mechanisms costs less than within a branch. From a branch to an equal
    one costs less than within it, unless values lie in balls."""
    found = Counter(branches)
    texts = sorted(found)
    if any(OF_EXCHANGE in text for text in texts):
        return [Change(replaced=Spending(disclosed=True))]
    within = [change for text in texts for change in changes(text)]
    across = [
        Change(removed=a, added=b)
        for one, other in product(texts, texts)
        if one != other or (found[one] > 1 and IN_BALL in one)
        for a, b in product(spendings(one), spendings(other))
    ]
    return list(_worst([*within, *across], MAX_CHANGES))


def _worst(ways: list[T], most: int = MAX_PATHS) -> tuple[T, ...]:
    kept: list[T] = []
    for way in ways:
        if not any(way.within(k) for k in kept):
            kept = [k for k in kept if not k.within(way)]
            kept.append(way)
        if len(kept) > most:
            raise UserError(
                f"this event leaves more than {most} combinations of parallel branches to compare: "
                "put parallel() outermost, with everything one class pays in its branch."
            )
    return tuple(kept)


def _base(event: DpEvent) -> list[Spending]:
    if isinstance(event, ParallelDpEvent):
        return [way for branch in event.events for way in spendings(to_text(branch))]
    if isinstance(event, dp.NonPrivateDpEvent | ExchangeGaussianDpEvent):
        return [Spending(disclosed=True)]
    if isinstance(event, dp.GaussianDpEvent | BallGaussianDpEvent):
        in_ball = isinstance(event, BallGaussianDpEvent)
        return [_gaussian(event.noise_multiplier, in_ball=in_ball)]
    if isinstance(event, dp.PoissonSampledDpEvent):
        kind, q = POISSON, float(event.sampling_probability)
    else:
        kind, q = WITHOUT_REPLACEMENT_KIND, event.sample_size / event.source_dataset_size
    return [_sampled(kind, q, way) for way in spendings(to_text(event.event))]


def _gaussian(sigma: float, *, in_ball: bool) -> Spending:
    if sigma < NO_NOISE:
        return Spending(disclosed=True)
    return Spending(sigma**-2.0, ball2=sigma**-2.0 if in_ball else 0.0)


def _sampled(kind: str, q: float, inner: Spending) -> Spending:
    """Gaussians that share one sample are one Gaussian of the summed precision, then sampled.

    Their values lie in a ball if all of them do, each in one of its own."""
    if inner.disclosed:
        return inner
    if inner.sampled:
        raise UserError(
            "an event samples records and, inside, samples again: fedsynth counts sampling of "
            "Gaussian mechanisms only. Multiply the two rates into one poisson(q, ...) if both "
            "draws are fresh and independent each time."
        )
    if kind == POISSON and inner.mu2 and inner.ball2 == inner.mu2:
        kind = POISSON_IN_BALL
    return Spending(sampled=Counter({(kind, q, inner.mu2**-0.5): 1}))
