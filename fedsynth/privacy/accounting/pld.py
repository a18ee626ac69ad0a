"""Privacy loss distributions (PLD) of sampled Gaussians, for removed, added and replaced records.

A step with sampling rate q adds the Gaussian noise N(0, sigma^2) to a sum that one record moves by
at most 1 in L2, if it is in the sample. For the rest of the data fixed, and the sum without the
record as origin, its output is a mixture:

    removed   (1-q) N(0) + q N(x)  against  N(0)
    added     N(0)                 against  (1-q) N(0) + q N(x)
    replaced  (1-q) N(0) + q N(x)  against  (1-q) N(0) + q N(x'),   |x|, |x'| <= 1

Claim: the pair x = 1, x' = -1 on a line dominates all replaced pairs: for every g >= 0 its
divergence H_g(P, Q) = integral of max(p - g q, 0) is the largest. Products of dominating pairs
dominate adaptive compositions, so its PLD bounds every epsilon.
Proof, for g >= 1 (for g < 1 exchange the two, as H_g(P, Q) = 1 - g + g H_{1/g}(Q, P)). Joining the
common terms, H_g(P, Q) = q H_h(N(x), (1-b) N(0) + b N(x')) with h = g + (1-q)(g-1)/q and b = g/h.
With x as origin this is a Gaussian against a mixture of Gaussians at u_1, u_2 with |u_1| <= 1 and
|u_2| <= 2: the expectation of a convex function f of the likelihood ratio, the sum of
w_i exp(y_i), where the y_i are jointly normal with covariances C_ij = u_i u_j (in units of sigma)
and means -C_ii / 2. Its derivative in each C_ij is, up to a factor, the expectation of
f'' w_i w_j exp(y_i + y_j), by the heat equation of normal densities (for i = j the means cancel the
terms with f'). So it is largest where all C_ij are: on one line at the largest distances, which is
x = 1, x' = -1.
Values in a ball: where the sum is any function of the sample with values in a ball of diameter 1,
replaced pairs have |x - x'| <= 1 too. The divergence above is convex in its second argument, so
that H_h(N(x), (1-b) N(0) + b N(x')) <= H_h(N(1), N(0)): for g >= 1 no replaced pair exceeds the
removed one with |x| = 1, for g < 1 none exceeds the added one. The larger of both, as a function of
g, is the profile of one pair: on the half-line z > 1/2 taken twice, where the removed pair has
P > Q, once the removed pair and once the added one, and P = Q elsewhere. This pair dominates all
replacements, and its products their compositions, whose steps may be closest to a removal one time
and to an addition another. Its density gives the Renyi divergence (`rdp`), its profile the PLD.
Classes: a replaced record may have another class, and so another sampling rate of at most q.
Drawing at a lower rate is drawing at q and then leaving the record out by a further coin, so that
joint convexity leaves the worst case as it is.

The PLD is dp-accounting's, pessimistic: `REPLACE_ONE` there is the pair above. Tests compare with a
quadrature by hand in one and in two dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as distributions

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.gaussian_pld import (
    gaussian_in_ball,
    pld_epsilon,
    sampled_gaussian,
    self_composed,
)
from fedsynth.privacy.accounting.rdp import (
    CONVENTIONS,
    POISSON_IN_BALL,
    WITHOUT_REPLACEMENT,
    WITHOUT_REPLACEMENT_KIND,
    Sampled,
    renyi_epsilon,
)
from fedsynth.privacy.accounting.spending import Change, Spending

SMALLEST_DELTA = 1e-10  # below, the rounding errors of a Fourier transform would show
Composed = frozenset[tuple[Sampled, int]]


def spending_epsilon(way: Spending, delta: float) -> float:
    """The epsilon of sampled mechanisms that a removed or added record meets."""
    return _epsilon(_pld(way, _interval(way, delta)), way, delta)


def library_epsilon(way: Spending, delta: float) -> float:
    """`spending_epsilon` by dp-accounting alone, on the same grid; about ten times slower."""
    interval = _interval(way, delta)
    accountant = dp.pld.PLDAccountant(value_discretization_interval=interval)
    for (_, q, sigma), n in way.sampled.items():
        accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), n)
    if way.mu2:
        accountant.compose(dp.GaussianDpEvent(way.mu2**-0.5))
    return float(accountant.get_epsilon(delta))


def spending_delta(way: Spending, epsilon: float, near_delta: float) -> float:
    """The delta of sampled mechanisms at `epsilon`; the grid is chosen for `near_delta`."""
    return float(_pld(way, _interval(way, near_delta)).get_delta_for_epsilon(epsilon))


def change_epsilon(change: Change, delta: float) -> float:
    """The epsilon of sampled mechanisms that a replaced record meets."""
    return _epsilon(_change_pld(change, _interval(change, delta)), change, delta)


def change_delta(change: Change, epsilon: float, near_delta: float) -> float:
    """The delta of sampled mechanisms at `epsilon` for a replaced record."""
    pld = _change_pld(change, _interval(change, near_delta))
    return float(pld.get_delta_for_epsilon(epsilon))


def renyi_bound(way: Spending | Change, delta: float) -> float:
    """The epsilon by Renyi orders: quick, and never below the true one."""
    if isinstance(way, Spending):
        return renyi_epsilon(way.mu2, way.sampled, delta, CONVENTIONS["rdp"])
    moved = way.removed.sampled + way.added.sampled
    convention = CONVENTIONS["rdp"]
    return renyi_epsilon(way.mu2, moved, delta, convention, replaced=way.replaced.sampled)


def _epsilon(pld: Any, way: Spending | Change, delta: float) -> float:
    """The epsilon of a PLD, or the Renyi bound where the PLD's grid ends too early for delta."""
    if delta < SMALLEST_DELTA:
        return renyi_bound(way, delta)
    with np.errstate(over="ignore"):  # a mass that is too small to divide by gives infinity
        found = pld_epsilon(pld, delta)
    return found if math.isfinite(found) else renyi_bound(way, delta)


def _interval(way: Spending | Change, delta: float) -> float:
    """The discretisation interval of the privacy loss at which rounding adds a few 1e-4 of epsilon.

    Rounding adds at most interval^2 / 4 to the variance of each step's loss. If the total loss is
    near normal with deviation s, then epsilon is about s^2/2 + z s with z = sqrt(2 log(1/delta)),
    which bounds the variance that may be added. A power of two, so that similar events share an
    interval, and never so small that one step's losses have more than about a million values.
    """
    rough = max(renyi_bound(way, delta), 1e-9)
    z = math.sqrt(2 * math.log(1 / delta))
    s = math.sqrt(z * z + 2 * rough) - z
    added = 8e-4 * rough * s / (s + z)
    steps = _steps(way)
    wanted = 2 * math.sqrt(added / (sum(n for _, n in steps) + 1))
    widest = max(shift**2 * 0.5 / sigma**2 + shift * 12 / sigma for (shift, sigma), _ in steps)
    return float(2.0 ** math.floor(math.log2(max(wanted, widest * 1e-6))))


def _steps(way: Spending | Change) -> list[tuple[tuple[float, float], int]]:
    """The sampled mechanisms as (how far they move, sigma) with their counts."""
    if isinstance(way, Spending):
        return [((1.0, sigma), n) for (_, _, sigma), n in way.sampled.items()]
    moved = way.removed.sampled + way.added.sampled
    return [((1.0, sigma), n) for (_, _, sigma), n in moved.items()] + [
        ((1.0 if kind == POISSON_IN_BALL else 2.0, sigma), n)
        for (kind, _, sigma), n in way.replaced.sampled.items()
    ]


def _pld(way: Spending, interval: float) -> Any:
    return _pld_of(way.mu2, frozenset(way.sampled.items()), interval)


@lru_cache(maxsize=8)
def _pld_of(mu2: float, sampled: Composed, interval: float) -> Any:
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    return _composed(
        [*_distributions(sampled, interval, relation), *_unsampled(mu2, interval)], interval
    )


def _change_pld(change: Change, interval: float) -> Any:
    return _change_pld_of(
        change.mu2,
        frozenset(change.replaced.sampled.items()),
        frozenset(change.removed.sampled.items()),
        frozenset(change.added.sampled.items()),
        interval,
    )


@lru_cache(maxsize=8)
def _change_pld_of(
    mu2: float, replaced: Composed, removed: Composed, added: Composed, interval: float
) -> Any:
    """The PLD of one direction; `changes` holds the other direction as a change of its own.

    A distribution of dp-accounting holds two functions, of the loss when the record is removed and
    when it is added; a replacement across parts needs one of each."""
    relations = dp.NeighboringRelation
    parts = _distributions(replaced, interval, relations.REPLACE_ONE)
    for found, attribute in ((removed, "_pmf_remove"), (added, "_pmf_add")):
        for pld in _distributions(found, interval, relations.ADD_OR_REMOVE_ONE):
            parts.append(distributions.PrivacyLossDistribution(getattr(pld, attribute)))
    return _composed([*parts, *_unsampled(mu2, interval)], interval)


def _distributions(
    sampled: Composed, interval: float, relation: dp.NeighboringRelation
) -> list[Any]:
    found = []
    for (kind, q, sigma), n in sorted(sampled):
        if kind == WITHOUT_REPLACEMENT_KIND:
            raise UserError(WITHOUT_REPLACEMENT)
        if kind == POISSON_IN_BALL and relation == dp.NeighboringRelation.REPLACE_ONE:
            one = gaussian_in_ball(q, sigma, interval)
        else:
            one = sampled_gaussian(q, sigma, interval, relation)
        found.append(self_composed(one, n))
    return found


def _unsampled(mu2: float, interval: float) -> list[Any]:
    if not mu2:
        return []
    return [
        distributions.from_gaussian_mechanism(
            standard_deviation=mu2**-0.5, value_discretization_interval=interval
        )
    ]


def _composed(parts: Iterable[Any], interval: float) -> Any:
    total = None
    for part in parts:
        total = part if total is None else total.compose(part)
    return total or distributions.identity(value_discretization_interval=interval)
