"""Lower bounds on epsilon from two worlds: one without a canary, one with it.

A mechanism is run many times in each world; an attack that uses everything but the noise turns each
output into a score. How well scores separate the two worlds bounds epsilon from below, with
confidence and without trust in the mechanism or its accounting:

* `epsilon` holds for any mechanism: (epsilon, delta)-DP implies that hits are at most
  e^epsilon times false alarms plus delta, and likewise with the two worlds exchanged;
* `mu` and `epsilon_gdp` are larger and hold for mechanisms that claim Gaussian differential
  privacy, such as sums with Gaussian noise on all records: no test tells their worlds apart better
  than N(0, 1) from N(mu, 1).

Hits and false alarms enter through Clopper-Pearson bounds. The threshold, and the side of it on
which the canary is found, are chosen on some of the runs and judged on the others. A bound above
what was claimed shows a broken mechanism; a bound below it shows nothing, for there may be better
attackers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri

from fedsynth.privacy.accounting.gdp import gdp_epsilon

LEAST_TRIALS = 20
TRIED = 400  # thresholds
SMOOTHED = 41  # of them, neighbours whose worth is averaged
ENOUGH = 0.75  # of the largest mu, for a natural threshold
LEARNED = 1 / 10  # share of the runs on which the threshold is chosen, if they are many
FEW = 200  # runs of which half choose the threshold


@dataclass(frozen=True)
class Audit:
    """The result of an attack, true with probability `confidence` over the runs."""

    trials: int  # in each world
    hits: float  # share of the worlds with the canary that were called so, its lower bound
    false_alarms: float  # share of those without it, its upper bound
    delta: float
    epsilon: float  # any (epsilon, delta)-DP mechanism has at least this epsilon
    mu: float  # any mu-GDP mechanism has at least this mu
    epsilon_gdp: float  # its epsilon at delta
    confidence: float


def audit(
    without: Sequence[float] | np.ndarray,
    with_canary: Sequence[float] | np.ndarray,
    delta: float,
    confidence: float = 0.95,
    *,
    natural: float | None = None,
) -> Audit:
    """Lower bounds from the scores of independent runs in the two worlds.

    Args:
        without: The scores of runs without the canary.
        with_canary: The scores of runs with it.
        delta: The delta at which epsilon is stated.
        confidence: The probability that the bounds hold.
        natural: A threshold that is best if all is as claimed, 0 for logarithms of likelihood
            ratios. It is taken unless another one is much better.

    Raises:
        ValueError: There are too few scores, or some are not finite.
    """
    scores = np.asarray(without, dtype=float), np.asarray(with_canary, dtype=float)
    trials = min(map(len, scores))
    if trials < LEAST_TRIALS or not all(np.isfinite(s).all() for s in scores):
        raise ValueError(f"an audit needs {LEAST_TRIALS} finite scores or more in each world")
    learned = trials // 2 if trials <= FEW else max(FEW // 2, int(LEARNED * trials))
    (learn_0, judge_0), (learn_1, judge_1) = ((s[:learned], s[learned:]) for s in scores)
    sign, threshold = _best_threshold(learn_0, learn_1, delta, natural)
    hits, alarms = _bounds(sign * judge_0, sign * judge_1, threshold, 1 - confidence)
    mu = _mu(hits, alarms)
    return Audit(
        trials,
        hits,
        alarms,
        delta,
        epsilon=_epsilon(hits, alarms, delta),
        mu=mu,
        epsilon_gdp=gdp_epsilon(mu, delta) if mu > 0 else 0.0,
        confidence=confidence,
    )


def _best_threshold(
    without: np.ndarray, with_canary: np.ndarray, delta: float, natural: float | None
) -> tuple[float, float]:
    """The sign of the scores and the midpoint between them (of at most `TRIED`) with the strongest
    bounds, or the natural threshold if that is nearly as good."""
    points = np.unique(np.concatenate([without, with_canary]))
    if len(points) > TRIED:
        points = np.quantile(points, np.linspace(0, 1, TRIED))
    between = (points[:-1] + points[1:]) / 2 if len(points) > 1 else points
    best: tuple[float, float, float, float] = (-1.0, -1.0, 1.0, float(between[0]))
    for sign in (1.0, -1.0):
        thresholds = sign * between
        hits, alarms = _rates(sign * without, sign * with_canary, thresholds, 0.1)
        with np.errstate(invalid="ignore"):
            worth = np.nan_to_num(np.maximum(ndtri(hits) - ndtri(alarms), 0.0))
        if len(worth) >= TRIED // 2:  # a mean of neighbours, so that chance does not choose
            worth = np.convolve(worth, np.full(SMOOTHED, 1 / SMOOTHED), mode="same")
        place = int(np.lexsort((hits - alarms, worth))[-1])
        found = float(worth[place]), _epsilon(float(hits[place]), float(alarms[place]), delta)
        best = max(best, (*found, sign, float(thresholds[place])))
    if natural is not None:
        rates = _bounds(without, with_canary, natural, 0.1)
        if _mu(*rates) >= ENOUGH * best[0]:
            return 1.0, natural
    return best[2], best[3]


def _bounds(
    without: np.ndarray, with_canary: np.ndarray, threshold: float, alpha: float
) -> tuple[float, float]:
    """Clopper-Pearson bounds: least hits, most false alarms, wrong with probability `alpha`."""
    hits, alarms = _rates(without, with_canary, np.array([threshold]), alpha)
    return float(hits[0]), float(alarms[0])


def _rates(
    without: np.ndarray, with_canary: np.ndarray, thresholds: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same for many thresholds, each by itself."""
    m, n = len(without), len(with_canary)
    alarms = m - np.searchsorted(np.sort(without), thresholds, side="right")
    hits = n - np.searchsorted(np.sort(with_canary), thresholds, side="right")
    least = betaincinv(np.maximum(hits, 1), n - hits + 1, alpha / 2)
    most = betaincinv(alarms + 1, np.maximum(m - alarms, 1), 1 - alpha / 2)
    return np.where(hits > 0, least, 0.0), np.where(alarms < m, most, 1.0)


def _epsilon(hits: float, alarms: float, delta: float) -> float:
    """From hits <= e^epsilon alarms + delta, and the same for the complements."""
    pairs = ((hits, alarms), (1 - alarms, 1 - hits))
    return max([0.0, *(math.log((a - delta) / b) for a, b in pairs if a > delta and b > 0)])


def _mu(hits: float, alarms: float) -> float:
    if hits <= 0 or alarms >= 1:
        return 0.0
    return max(0.0, float(ndtri(hits) - ndtri(alarms)))
