"""Events to epsilon: tight, by Renyi orders, and in the words of the published papers.

`epsilon(event, delta)` is an upper bound that fedsynth can defend: dp-accounting's pessimistic
privacy loss distribution (PLD), or the exact formula where all is Gaussian. Published conventions
have names, so that a paper's number can be reproduced beside it; they are not always sound (a
convention states what a paper computed, and `methods/` says where that falls short).

Neighbouring relation: `add_remove` (one record more or less) is what events are made for.
`replace_one` is answered soundly from the same event: a swap is a removal and an addition, so pure
Gaussians get twice the sensitivity, and everything else group privacy, 2e at (1 + exp(e)) delta(e).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import DpEvent
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp

from fedsynth.errors import UserError, unknown
from fedsynth.privacy.events import ParallelDpEvent, flatten, from_text, to_text

RELATIONS = ("add_remove", "replace_one")
_TENTHS = tuple(1 + x / 10 for x in range(1, 100))


@dataclass(frozen=True)
class Convention:
    """A way to turn Renyi divergences into epsilon: which orders, and which conversion."""

    orders: tuple[float, ...]
    improved: bool = True  # log((a-1)/a) - log(a)/(a-1) better than the classic conversion
    tiny_is_zero: bool = False  # epsilon 0 where the KL divergence alone gives delta
    without_replacement: bool = False  # subsampling is bounded as drawn without replacement


CONVENTIONS: dict[str, Convention] = {
    # dp-accounting's own orders and conversion
    "rdp": Convention((*_TENTHS, *range(11, 64), 128, 256, 512, 1024), tiny_is_zero=True),
    # Private Set Generation, Opacus before 1.0
    "rdp_improved": Convention((*_TENTHS, *range(12, 64))),
    # LDPDC and NDPDC
    "rdp_improved_2000": Convention((*_TENTHS, *range(12, 2000))),
    # eps = rdp + log(1/delta)/(order - 1): TF-privacy to 0.8, autodp, PSG's Theorem A.2
    "rdp_classic": Convention((*_TENTHS, *range(11, 257)), improved=False),
    # DataLens
    "rdp_classic_199": Convention((1.1, *range(2, 200)), improved=False),
    # GS-WGAN's Theorem A.1: a generic bound for sampling without replacement, replace one
    "wor_bound": Convention(tuple(range(2, 257)), improved=False, without_replacement=True),
}
ACCOUNTANTS = ("pld", *CONVENTIONS)


@dataclass(frozen=True)
class Epsilons:
    """One event's epsilon, counted in several ways; `pld` is the one to state."""

    pld: float
    rdp: float
    rdp_improved: float
    rdp_classic: float


def count(event: DpEvent, delta: float, relation: str = "add_remove") -> Epsilons:
    """The event's epsilon side by side: tight, by dp-accounting's orders, and as papers count."""
    names = ("pld",) if relation == "replace_one" else ("pld", "rdp", "rdp_improved", "rdp_classic")
    found = {name: epsilon(event, delta, name, relation) for name in names}
    missing = dict.fromkeys(("rdp", "rdp_improved", "rdp_classic"), math.nan)
    return Epsilons(**{**missing, **found})


def epsilon(
    event: DpEvent, delta: float, accountant: str = "pld", relation: str = "add_remove"
) -> float:
    """An upper bound on the event's epsilon at `delta`; infinite for a disclosure."""
    check_delta(delta)
    if accountant not in ACCOUNTANTS:
        raise unknown("accountant", accountant, ACCOUNTANTS)
    if relation not in RELATIONS:
        raise unknown("neighbouring relation", relation, RELATIONS)
    if relation == "replace_one" and accountant not in ("pld", "wor_bound"):
        raise UserError(
            f"accountant={accountant} counts add_remove neighbours only; for relation=replace_one "
            "use accountant=pld."
        )
    return _epsilon(to_text(event), float(delta), accountant, relation)


def delta(event: DpEvent, epsilon: float) -> float:
    """The smallest delta known for this epsilon (add_remove; PLD, exact for pure Gaussians)."""
    return max((_delta(s, epsilon, 1e-5) for s in _spendings(to_text(event))), default=0.0)


def check_delta(delta: float) -> None:
    """Refuse a delta that promises nothing or cannot be had."""
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, not {delta!r}.")


# ---- Gaussian differential privacy: the exact formulas ----


def gdp_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at epsilon: Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)."""
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-math.exp(first) * math.expm1(min(second - first, 0.0)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of mu-GDP at `delta`, rounded up by at most one part in 1e9."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * (math.sqrt(2 * math.log(1 / delta)) + 1)
    root = brentq(lambda e: gdp_delta(mu, e) - delta, 0.0, high, xtol=1e-12 * high)
    return float(root) * (1 + 1e-10) + 2e-12 * high


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose GDP fits (epsilon, delta), rounded down by at most one part in 1e9."""
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive finite number, not {epsilon!r}.")
    high = 1.0
    while gdp_delta(high, epsilon) < delta:
        high *= 2
    root = brentq(lambda m: gdp_delta(m, epsilon) - delta, high * 1e-12, high, xtol=1e-13 * high)
    return float(root) * (1 - 1e-10)


# ---- what an event comes to: plain Gaussians in one number, sampled Gaussians in a bag ----


@dataclass(frozen=True)
class _Spending:
    """One way through an event's parallel branches."""

    mu2: float = 0.0  # sum of 1/sigma^2 over all Gaussians that see every record
    sampled: Counter[tuple[str, float, float]] = field(default_factory=Counter)
    disclosed: bool = False  # sampled: (kind, rate, sigma of all that shares the draw) -> times

    def __add__(self, other: _Spending) -> _Spending:
        sampled = self.sampled + other.sampled
        return _Spending(self.mu2 + other.mu2, sampled, self.disclosed or other.disclosed)

    def times(self, n: int) -> _Spending:
        if n == 0:
            return _Spending()
        sampled = Counter({k: c * n for k, c in self.sampled.items()})
        return _Spending(self.mu2 * n, sampled, self.disclosed)

    def within(self, other: _Spending) -> bool:
        """Is this surely no more than `other`? Compares one kind of sampling at a time."""
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


@lru_cache(maxsize=4096)
def _spendings(text: str) -> tuple[_Spending, ...]:
    """Every way a record can be hit, without the ways that are surely not the worst."""
    total: tuple[_Spending, ...] = (_Spending(),)
    for base, n in flatten(from_text(text)).items():
        ways = [way.times(n) for way in _base(from_text(base))]
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
        if event.noise_multiplier == 0:
            return [_Spending(disclosed=True)]
        return [_Spending(mu2=event.noise_multiplier**-2.0)]
    if isinstance(event, dp.PoissonSampledDpEvent):
        kind, q = "poisson", float(event.sampling_probability)
    else:
        kind, q = "without_replacement", event.sample_size / event.source_dataset_size
    return [_sampled(kind, q, way) for way in _spendings(to_text(event.event))]


def _sampled(kind: str, q: float, inner: _Spending) -> _Spending:
    """Gaussians that share one draw are one Gaussian of the summed precision, then sampled."""
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
    if accountant != "pld":
        convention = CONVENTIONS[accountant]
        return max((_renyi_epsilon(way, delta, convention) for way in ways), default=0.0)
    if relation == "add_remove":
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
    """How finely to cut the privacy loss, so that rounding up adds about 1e-4 of epsilon.

    Rounding adds at most interval^2 / 4 to the variance of each step's loss. If the total loss is
    near normal with deviation s, then epsilon is about s^2/2 + z s with z = sqrt(2 log(1/delta)),
    which says what variance may be added. A power of two, so that near events share an interval,
    and never so fine that one step's losses are cut into more than about a million pieces.
    """
    rough = max(_renyi_epsilon(way, delta, CONVENTIONS["rdp"]), 1e-9)
    z = math.sqrt(2 * math.log(1 / delta))
    s = math.sqrt(z * z + 2 * rough) - z
    added = 2e-4 * rough * s / (s + z)
    wanted = 2 * math.sqrt(added / (sum(way.sampled.values()) + 1))
    widest = max(0.5 / sigma**2 + 12 / sigma for _, _, sigma in way.sampled)
    return float(2.0 ** math.floor(math.log2(max(wanted, widest * 1e-6))))


def _pld(way: _Spending, interval: float) -> Any:
    return _pld_of(way.mu2, frozenset(way.sampled.items()), interval)


@lru_cache(maxsize=8)
def _pld_of(
    mu2: float, sampled: frozenset[tuple[tuple[str, float, float], int]], interval: float
) -> Any:
    accountant = PLDAccountant(value_discretization_interval=interval)
    for (kind, q, sigma), n in sorted(sampled):
        if kind != "poisson":
            raise UserError(
                "sampling without replacement is counted by accountant=wor_bound only (replace "
                "one); sample with poisson(q, ...) for an epsilon that fedsynth can defend."
            )
        accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), n)
    if mu2:
        accountant.compose(dp.GaussianDpEvent(mu2**-0.5))
    return accountant


def _renyi_epsilon(way: _Spending, delta: float, convention: Convention) -> float:
    orders = np.asarray(convention.orders, dtype=float)
    renyi = orders * (way.mu2 / 2)
    for (kind, q, sigma), n in way.sampled.items():
        if (kind == "without_replacement") != convention.without_replacement:
            name = "accountant=wor_bound" if kind == "without_replacement" else "pld or rdp"
            raise UserError(
                f"this convention cannot count {kind} sampling: count it with {name} instead."
            )
        renyi = renyi + n * _sampled_renyi(kind, q, sigma, convention.orders)
    found = renyi + math.log(1 / delta) / (orders - 1)
    if convention.improved:
        found = found + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
    if convention.tiny_is_zero:
        found = np.where(delta**2 + np.expm1(-renyi) > 0, 0.0, found)
    return max(float(np.min(found)), 0.0)


@lru_cache(maxsize=4096)
def _sampled_renyi(kind: str, q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence of one sampled Gaussian at each order."""
    array = np.asarray(orders, dtype=float)
    whole = array == np.floor(array)
    log_moment = np.empty_like(array)
    log_moment[whole] = _log_moment_whole(kind, q, sigma, array[whole])
    if not whole.all():
        log_moment[~whole] = _log_moment_fraction(q, sigma, array[~whole])
    unsampled = array / (2 * sigma**2)
    return np.minimum(np.maximum(log_moment, 0.0) / (array - 1), unsampled)


def _log_moment_whole(kind: str, q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Binomial sums: exact for Poisson sampling, Theorem A.1's bound without replacement."""
    found = np.empty(len(orders))
    j = np.arange(int(orders.max()) + 1, dtype=float)
    shift = j * (j - 1) / (2 * sigma**2)  # log of the j-th moment of the Gaussian's likelihood
    for i, a in enumerate(orders.astype(int)):
        k = j[: a + 1]
        terms = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1) + k * math.log(q)
        terms = terms + shift[: a + 1]
        if kind == "poisson":
            terms += (a - k) * math.log1p(-q) if q < 1 else np.where(k < a, -np.inf, 0.0)
        else:
            terms[0], terms[1] = 0.0, -np.inf
            second = 1 / sigma**2  # divergence of order 2
            terms[2] += min(math.log(4) + math.log(-math.expm1(-second)), math.log(2))
            terms[3:] += math.log(2)
        found[i] = logsumexp(terms)
    return found


def _log_moment_fraction(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """E over z ~ N(0, sigma^2) of (1 - q + q exp((2z - 1) / (2 sigma^2)))^order, by trapezoids.

    The integrand is smooth, so trapezoids are exact to rounding once they resolve it.
    """
    if sigma < 0.03:
        return np.full(len(orders), np.inf)  # the unsampled bound is as good there, and cheap
    step = min(sigma, sigma**2) / 4
    z = np.arange(-14 * sigma, orders.max() + 14 * sigma, step)
    weight = -(z**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2))
    return np.asarray([logsumexp(a * ratio + weight) for a in orders])
