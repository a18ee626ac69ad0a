"""dp-accounting's privacy loss distributions of sampled Gaussians, computed on whole arrays.

The steps and formulas are dp-accounting's own, and the results are objects of its classes: the
pessimistic discretisation by connected dots, the composition with itself by a Fourier transform of
a window that Chernoff's bound gives, and the epsilon at a delta. dp-accounting computes profile,
bounds and epsilon number by number, and takes about ten times as long. Tests compare each step with
dp-accounting's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as distributions
from scipy import fft
from scipy.special import log_ndtr, ndtr, ndtri

TAIL = 1e-15  # the mass that a composition moves to an infinite loss, as in dp-accounting
_EDGE = -float(ndtri(0.5 * math.exp(-50)))  # of noise, in sigmas, as in dp-accounting
_LARGE = 20.0  # from which on asinh(exp(t)) is t + log 2 to the last bit
_ORDERS = 20  # of Chernoff's bound in each direction


def sampled_gaussian(
    q: float, sigma: float, interval: float, relation: dp.NeighboringRelation
) -> Any:
    """The PLD of a Gaussian mechanism on a Poisson sample, for a relation of dp-accounting."""
    if q >= 1:
        return distributions.from_gaussian_mechanism(
            standard_deviation=sigma,
            value_discretization_interval=interval,
            neighboring_relation=relation,
        )
    if relation == dp.NeighboringRelation.REPLACE_ONE:
        least, most = (
            _loss_at(q, sigma, -x) - _loss_at(q, sigma, x)
            for x in (_EDGE * sigma, -_EDGE * sigma - 1)
        )
        replace = _pmf(interval, least, most, lambda losses: _replaced(q, sigma, losses))
        return distributions.PrivacyLossDistribution(replace)
    least, most = _loss_at(q, sigma, -_EDGE * sigma), _loss_at(q, sigma, _EDGE * sigma + 1)
    remove = _pmf(interval, least, most, lambda losses: _removed(q, sigma, losses))
    add = _pmf(interval, -most, -least, lambda losses: _added(q, sigma, losses))
    return distributions.PrivacyLossDistribution(remove, add)


def gaussian_in_ball(q: float, sigma: float, interval: float) -> Any:
    """The PLD of a replacement where values lie in a ball, from the profile of its dominating pair
    (`accounting.pld`)."""
    top = _loss_at(q, sigma, _EDGE * sigma + 1)

    def profile(losses: np.ndarray) -> np.ndarray:
        deltas = _removed(q, sigma, np.abs(losses))
        mirrored = -np.expm1(losses) + np.exp(losses) * deltas
        return np.where(losses < 0, mirrored, deltas)

    return distributions.PrivacyLossDistribution(_pmf(interval, -top, top, profile))


def _pmf(
    interval: float, lowest: float, highest: float, profile: Callable[[np.ndarray], np.ndarray]
) -> Any:
    """The pessimistic discretisation of a profile by connected dots (Doroshenko et al. 2022)."""
    first, last = math.floor(lowest / interval), math.ceil(highest / interval)
    deltas = np.clip(profile(np.arange(first, last + 1) * interval), 0, 1)
    deltas = np.minimum.accumulate(deltas)
    steps = np.diff(deltas)
    masses = np.empty_like(deltas)
    masses[0] = 1 - deltas[0] + steps[0] / math.expm1(interval)
    masses[1:-1] = (steps[1:] - steps[:-1] * math.exp(interval)) / math.expm1(interval)
    masses[-1] = steps[-1] / math.expm1(-interval)
    infinite = float(deltas[-1])
    return pld_pmf.DensePLDPmf(interval, first, np.maximum(masses, 0.0), infinite, True)


def _removed(q: float, sigma: float, losses: np.ndarray) -> np.ndarray:
    """The divergence of (1-q) N(0) + q N(1) from N(0) at each loss."""
    inside = losses > math.log1p(-q)  # below, the one density is nowhere the smaller one
    some = losses[inside]
    x = -_place(q, sigma, some)
    deltas: np.ndarray = -np.expm1(np.minimum(losses, 0.0))
    above = (1 - q) * ndtr(x / sigma) + q * ndtr((x + 1) / sigma)
    deltas[inside] = above - np.exp(some + log_ndtr(x / sigma))
    return deltas


def _added(q: float, sigma: float, losses: np.ndarray) -> np.ndarray:
    """The divergence of N(0) from (1-q) N(0) + q N(1) at each loss."""
    inside = losses < -math.log1p(-q)
    some = losses[inside]
    x = _place(q, sigma, -some)
    deltas = np.zeros_like(losses)
    without = math.log1p(-q) + log_ndtr(x / sigma)
    mixture = np.logaddexp(without, math.log(q) + log_ndtr((x - 1) / sigma))
    deltas[inside] = ndtr(x / sigma) - np.exp(some + mixture)
    return deltas


def _replaced(q: float, sigma: float, losses: np.ndarray) -> np.ndarray:
    """The divergence of (1-q) N(0) + q N(1) from (1-q) N(0) + q N(-1) at each loss."""
    half = np.abs(losses) / 2
    ratio = 0.5 / sigma**2 + math.log1p(-q) - math.log(q)
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
    large = ratio + log_sinh > _LARGE
    near = np.arcsinh(np.exp(np.where(large, 0.0, ratio + log_sinh)))
    far = np.where(large, ratio + log_sinh, 0.0) + math.log(2)
    x = -np.sign(losses) * sigma**2 * (np.where(large, far, near) + half)
    above = (1 - q) * ndtr(x / sigma) + q * ndtr((x + 1) / sigma)
    without = math.log1p(-q) + log_ndtr(x / sigma)
    mixture = np.logaddexp(without, math.log(q) + log_ndtr((x - 1) / sigma))
    deltas: np.ndarray = above - np.exp(losses + mixture)
    return deltas


def _loss_at(q: float, sigma: float, x: float) -> float:
    """The loss of a removal at -x: log(1 - q + q exp((2x - 1) / (2 sigma^2)))."""
    return float(np.logaddexp(math.log1p(-q), math.log(q) + (x - 0.5) / sigma**2))


def _place(q: float, sigma: float, losses: np.ndarray) -> np.ndarray:
    """The x of `_loss_at` for each loss above log(1 - q)."""
    large = losses > 1
    small = np.log1p(np.expm1(np.where(large, 0.0, losses)) / q)
    far = losses - math.log(q) + np.log1p((q - 1) * np.exp(-np.where(large, losses, 1.0)))
    return 0.5 + np.where(large, far, small) * sigma**2


def self_composed(one: Any, times: int) -> Any:
    """The PLD of `times` of these mechanisms."""
    remove = _self_composed(one._pmf_remove, times)
    if one._symmetric:
        return distributions.PrivacyLossDistribution(remove)
    return distributions.PrivacyLossDistribution(remove, _self_composed(one._pmf_add, times))


def _self_composed(pmf: Any, times: int) -> Any:
    if not isinstance(pmf, pld_pmf.DensePLDPmf):
        return pmf.self_compose(times)
    probabilities = pmf._probs
    first, last = _window(probabilities, times)
    length = fft.next_fast_len(max(last - first + 1, len(probabilities)), real=True)
    whole = fft.irfft(_power(fft.rfft(probabilities, length), times), length)
    kept = np.roll(whole, -first)[: last - first + 1]
    infinite = TAIL - math.expm1(times * math.log1p(-pmf._infinity_mass))
    lowest = pmf._lower_loss * times + first
    return pld_pmf.DensePLDPmf(pmf._discretization, lowest, kept, infinite, True)


def _power(values: np.ndarray, times: int) -> np.ndarray:
    """`values` to the power of `times` by squaring: for complex numbers quicker than `**`."""
    result = np.ones_like(values)
    while times:
        if times % 2:
            result = result * values
        times //= 2
        if times:
            values = values * values
    return result


def _window(probabilities: np.ndarray, times: int) -> tuple[int, int]:
    """The first and last index of the composition outside of which lies a mass of `TAIL` at most,
    by Chernoff's bound at dp-accounting's orders k / size."""
    size = len(probabilities)
    first, last = 0, (size - 1) * times
    step = np.exp(np.arange(size) / size)
    most = math.log(2 / TAIL)
    rising, falling = probabilities, probabilities
    for k in range(1, _ORDERS + 1):
        rising, falling = rising * step, falling / step
        last = min(last, math.ceil((times * math.log(rising.sum()) + most) * size / k))
        first = max(first, math.floor((times * math.log(falling.sum()) + most) * size / -k))
    return first, last


def pld_epsilon(pld: Any, delta: float) -> float:
    """The smallest epsilon at which the divergence of a PLD is at most `delta`, or infinity."""
    pmfs = [pld._pmf_remove] if pld._symmetric else [pld._pmf_remove, pld._pmf_add]
    return max(_pmf_epsilon(pmf, delta) for pmf in pmfs)


def _pmf_epsilon(pmf: Any, delta: float) -> float:
    """By masses of both distributions above each loss, from the largest loss down."""
    if not isinstance(pmf, pld_pmf.DensePLDPmf) or pmf._infinity_mass > delta:
        return float(pmf.get_epsilon_for_delta(delta))
    probabilities = pmf._probs[::-1]
    top = pmf._lower_loss + len(probabilities) - 1
    losses = (top - np.arange(len(probabilities))) * pmf._discretization
    upper = np.cumsum(np.append(pmf._infinity_mass, probabilities))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        lower = np.cumsum(np.append(0.0, np.exp(-losses) * probabilities))
        found = np.log((upper - delta) / lower)
        reached = (upper[:-1] > delta) & (lower[:-1] > 0) & (found[:-1] >= losses)
    at = int(reached.argmax()) if reached.any() else len(losses)
    if not np.isfinite(lower[at]) or bool(((upper >= delta) & (lower == 0))[1 : at + 1].any()):
        return float(pmf.get_epsilon_for_delta(delta))  # losses beyond the range of floats
    return max(0.0, float(found[at])) if upper[at] > lower[at] + delta else 0.0
