"""Renyi divergences of sampled Gaussians, and the conventions that turn them into epsilon.

The conventions are those of the published papers, by name, so that their numbers can be reproduced
to the last printed digit; `accounting.accountant` decides which events each of them may count.

The divergences are computed here and not by a library. At fractional orders
dp-accounting 0.6 adds up a series of alternating signs as if all were positive, which is sound but
up to half too large at orders near 1, or does not converge (q = 0.5, sigma = 0.7); Opacus 1.6 loses
digits by cancellation (2e-5 at q = 1e-4). The quadrature below agrees with adaptive integration to
1e-14. Noise multipliers are calibrated to these numbers, so
that other last digits would also change published noise. Tests compare with both libraries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from fedsynth.core.errors import UserError

Sampled = tuple[str, float, float]  # kind, sampling rate, sigma inside the draw
POISSON, WITHOUT_REPLACEMENT_KIND = "poisson", "without_replacement"
POISSON_IN_BALL = "poisson_in_ball"  # of values that lie in a ball with or without any record
MAX_REPLACED_ORDER = 256
_TENTHS = tuple(1 + x / 10 for x in range(1, 100))
_ROWS, _CELLS = 64, 2**18  # orders, and numbers, that are computed together

WITHOUT_REPLACEMENT = (
    "sampling without replacement is counted by accountant=wor_bound only (replace one); sample "
    "with poisson(q, ...) for an epsilon that fedsynth can defend."
)


@dataclass(frozen=True)
class Convention:
    """A conversion of Renyi divergences into epsilon: its orders and its formula."""

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
    # TF-privacy's sparse default orders, as in DP-Sinkhorn
    "rdp_classic_sparse": Convention(
        (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512),
        improved=False,
    ),
    # DataLens and G-PATE
    "rdp_classic_199": Convention((1.1, *range(2, 200)), improved=False),
    # GS-WGAN's Theorem A.1: a generic bound for sampling without replacement, replace one
    "wor_bound": Convention(tuple(range(2, 257)), improved=False, without_replacement=True),
}


def renyi_epsilon(
    mu2: float,
    sampled: Mapping[Sampled, int],
    delta: float,
    convention: Convention,
    *,
    replaced: Mapping[Sampled, int] | None = None,
) -> float:
    """Epsilon of Gaussians with 1/sigma^2 summing to `mu2`, and sampled ones with their counts.

    Args:
        mu2: The squared mu of all unsampled Gaussians, as far as the neighbours move them.
        sampled: Mechanisms whose sum has one record more or less, with sigma relative to its bound.
        delta: The probability of failure.
        convention: The orders and the conversion.
        replaced: Mechanisms in whose sum a record is replaced, with the same sigma. Orders above
            `MAX_REPLACED_ORDER` are not used with them.
    """
    usable = [order for order in convention.orders if not replaced or order <= MAX_REPLACED_ORDER]
    orders = np.asarray(usable, dtype=float)
    renyi = orders * (mu2 / 2)
    for (kind, q, sigma), n in sampled.items():
        _check_kind(kind, convention)
        renyi = renyi + n * _sampled_renyi(kind, q, sigma, tuple(usable))
    for (kind, q, sigma), n in (replaced or {}).items():
        _check_kind(kind, convention)
        renyi = renyi + n * _replaced_by_kind(kind, q, sigma, tuple(usable))
    found = renyi + math.log(1 / delta) / (orders - 1)
    if convention.improved:
        found = found + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
    if convention.tiny_is_zero:
        found = np.where(delta**2 + np.expm1(-renyi) > 0, 0.0, found)
    return max(float(np.min(found)), 0.0)


def renyi_divergence(
    mu2: float,
    sampled: Mapping[Sampled, int],
    order: float,
    *,
    replaced: Mapping[Sampled, int] | None = None,
) -> float:
    """The Renyi divergence of one order; arguments as for `renyi_epsilon`."""
    usable = CONVENTIONS["rdp"]
    divergence = order * mu2 / 2
    for (kind, q, sigma), n in sampled.items():
        _check_kind(kind, usable)
        divergence += n * float(_sampled_renyi(kind, q, sigma, (order,))[0])
    for (kind, q, sigma), n in (replaced or {}).items():
        _check_kind(kind, usable)
        bound = (0.5 if kind == POISSON_IN_BALL else 2) * order / sigma**2
        if order <= MAX_REPLACED_ORDER:
            bound = float(_replaced_by_kind(kind, q, sigma, (order,))[0])
        divergence += n * bound
    return divergence


def _check_kind(kind: str, convention: Convention) -> None:
    if kind == WITHOUT_REPLACEMENT_KIND and not convention.without_replacement:
        raise UserError(WITHOUT_REPLACEMENT)
    if kind != WITHOUT_REPLACEMENT_KIND and convention.without_replacement:
        raise UserError(
            "accountant=wor_bound counts without_replacement(...) events only; count Poisson "
            "sampling with accountant=pld or rdp."
        )


def _replaced_by_kind(kind: str, q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence of a sampled mechanism at each order, when a record is replaced."""
    if kind == WITHOUT_REPLACEMENT_KIND:  # the bound of Theorem A.1 is for replace-one as it is
        return _sampled_renyi(kind, q, sigma, orders)
    return (_ball_renyi if kind == POISSON_IN_BALL else _replaced_renyi)(q, sigma, orders)


@lru_cache(maxsize=1024)
def _ball_renyi(q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence at each order of the pair that dominates all replacements where values lie
    in a ball (`accounting.pld`).

    With L = 1 - q + q exp((2z - 1) / (2 sigma^2)), the likelihood ratio of a removal, its moment of
    order a exceeds 1 by the integral of (L^a - 1)(1 - L^(1-a)) over z > 1/2 under N(0, sigma^2).
    By trapezoids from z = 1/2, where the integrand and its slope vanish."""
    array = np.asarray(orders, dtype=float)
    unsampled = array / (2 * sigma**2)
    if q >= 1 or sigma < 0.1:
        return unsampled
    step = min(sigma, sigma**2) / 16
    found = np.empty_like(array)
    for i, a in enumerate(array):
        z = np.arange(0.5, a + 1 + 14 * sigma, step)[1:]
        weight = -(z**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
        ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2))
        with np.errstate(divide="ignore"):
            rise = a * ratio + np.log(-np.expm1(-a * ratio))
            fall = np.log(-np.expm1((1 - a) * ratio))
        found[i] = np.logaddexp(0.0, logsumexp(weight + rise + fall)) / (a - 1)
    divergence: np.ndarray = np.minimum(np.maximum(found, 0.0), unsampled)
    return divergence


@lru_cache(maxsize=1024)
def _replaced_renyi(q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence at each order of (1-q) N(0) + q N(1) from (1-q) N(0) + q N(-1).

    This pair dominates all replacements (`accounting.pld`). By trapezoids, which are exact to
    rounding once they resolve the integrand; where sigma is small, that of unsampled Gaussians,
    which are 2 apart and as good there."""
    array = np.asarray(orders, dtype=float)
    unsampled = 2 * array / sigma**2
    if q >= 1 or sigma < 0.1:
        return unsampled
    inside, outside = math.log(q), math.log1p(-q)
    step = min(sigma, sigma**2) / 4
    found = np.empty_like(array)
    for i, a in enumerate(array):
        z = np.arange(-1 - 14 * sigma, 2 * a - 1 + 14 * sigma, step)
        common = -(z**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
        one = np.logaddexp(outside, inside + (2 * z - 1) / (2 * sigma**2))
        other = np.logaddexp(outside, inside - (2 * z + 1) / (2 * sigma**2))
        found[i] = logsumexp(common + a * one + (1 - a) * other) / (a - 1)
    divergence: np.ndarray = np.minimum(np.maximum(found, 0.0), unsampled)
    return divergence


@lru_cache(maxsize=4096)
def _sampled_renyi(kind: str, q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence of one sampled Gaussian at each order."""
    array = np.asarray(orders, dtype=float)
    whole = array == np.floor(array)
    log_moment = np.empty_like(array)
    if whole.any():
        log_moment[whole] = _log_moment_whole(kind, q, sigma, array[whole])
    if not whole.all():
        log_moment[~whole] = _log_moment_fraction(q, sigma, array[~whole])
    unsampled = array / (2 * sigma**2)
    divergence: np.ndarray = np.minimum(np.maximum(log_moment, 0.0) / (array - 1), unsampled)
    return divergence


def _log_moment_whole(kind: str, q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Binomial sums: exact for Poisson sampling, Theorem A.1's bound without replacement."""
    found = np.empty(len(orders))
    for start in range(0, len(orders), _ROWS):
        block = orders[start : start + _ROWS].astype(int)
        found[start : start + _ROWS] = _binomial_sums(kind, q, sigma, tuple(block.tolist()))
    return found


def _binomial_sums(kind: str, q: float, sigma: float, orders: tuple[int, ...]) -> np.ndarray:
    """`_log_moment_whole` for a few orders: a row of terms per order."""
    k, left, binomials = _binomials(orders)
    terms = binomials + k * math.log(q) + k * (k - 1) / (2 * sigma**2)
    if kind != WITHOUT_REPLACEMENT_KIND:
        terms += left * math.log1p(-q) if q < 1 else np.where(left > 0, -np.inf, 0.0)
    else:
        terms[:, 0], terms[:, 1] = 0.0, -np.inf
        second = 1 / sigma**2  # divergence of order 2
        terms[:, 2] += min(math.log(4) + math.log(-math.expm1(-second)), math.log(2))
        terms[:, 3:] += math.log(2)
    return _log_sums(terms)


@lru_cache(maxsize=64)
def _binomials(orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The indices k, per order a the differences a - k (0 beyond a), and the logarithms of the
    binomial coefficients (minus infinity beyond a)."""
    k = np.arange(max(orders) + 1, dtype=float)
    left = np.asarray(orders, dtype=float)[:, None] - k
    inside = left >= 0
    left = np.where(inside, left, 0.0)
    rows = gammaln(np.asarray(orders, dtype=float) + 1)[:, None]
    logs = np.where(inside, rows - gammaln(k + 1) - gammaln(left + 1), -np.inf)
    return k, left, logs


def _log_sums(terms: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exponentials of each row."""
    largest = terms.max(axis=1)
    sums: np.ndarray = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
    return sums


def _log_moment_fraction(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """E over z ~ N(0, sigma^2) of (1 - q + q exp((2z - 1) / (2 sigma^2)))^order, by trapezoids.

    The integrand is smooth, so trapezoids are exact to rounding once they resolve it.
    """
    if q >= 1:
        return np.asarray(orders * (orders - 1) / (2 * sigma**2))  # that of no sampling
    if sigma < 0.03:
        return np.full(len(orders), np.inf)  # the unsampled bound is as good there, and cheap
    step = min(sigma, sigma**2) / 4
    z = np.arange(-14 * sigma, orders.max() + 14 * sigma, step)
    weight = -(z**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2))
    rows = max(1, _CELLS // len(z))
    blocks = (orders[start : start + rows] for start in range(0, len(orders), rows))
    return np.concatenate([_log_sums(np.outer(block, ratio) + weight) for block in blocks])
