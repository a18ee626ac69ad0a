"""Lower bounds on epsilon from a single run with many canaries.

Each of `canaries` records enters by a fair coin of its own, independently of all else. The attacker
sees the output of one run and guesses some of the coins. How many guesses are right bounds the
privacy from below:

* `epsilon_bound` holds for any (epsilon, delta)-DP mechanism (Steinke, Nasr and Jagielski 2023,
  "Privacy Auditing with One (1) Training Run", theorem 5.2);
* `contradicts` compares with a whole trade-off curve (after Mahloujifar, Melis and Chaudhuri 2024,
  "Auditing f-Differential Privacy in One Run"), which is far tighter for Gaussian mechanisms.

The second one, derived. Let p_j be the probability of exactly j right guesses among g, and fix one
canary of m at random. "It is guessed rightly, and at least i - 1 of the others are" has the
probability r_i = sum over j >= i of p_j j / m. Turn its coin: the others' guesses are as right as
before and its own is wrong, which has probability h_(i-1) = sum over j >= i - 1 of p_j (g - j) / m
without the turn. The two worlds are neighbours, so r_i <= F(h_(i-1)) for F(alarms) = the most hits
that the claim allows. So h_(i-1) is at least the inverse of F at r_i, from which p_(i-1) and
r_(i-1) follow, down to i = 0, where r_0 + h_0 = g / m. If c or more guesses were right with the
probability tau, then r_c >= tau c / m. A start from equality, which is the most favourable one,
that ends above g / m therefore contradicts the claim at the level tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

_LARGEST = 200.0


@dataclass(frozen=True)
class Guesses:
    """The outcome of one run: how many canaries there were, were guessed, and were guessed
    rightly."""

    canaries: int
    guessed: int
    right: int


def guesses(scores: Sequence[float], coins: Sequence[bool], guessed: int) -> Guesses:
    """Guess "in" for the highest scores and "out" for the lowest, `guessed` in all.

    The number of guesses must be chosen before the run.
    """
    order = np.argsort(np.asarray(scores, dtype=float), kind="stable")
    truth = np.asarray(coins, dtype=bool)
    low, high = guessed - guessed // 2, guessed // 2
    right = int((~truth[order[:low]]).sum() + truth[order[len(order) - high :]].sum())
    return Guesses(len(truth), guessed, right)


def epsilon_bound(found: Guesses, delta: float, confidence: float = 0.95) -> float:
    """The epsilon that any (epsilon, delta)-DP mechanism with these guesses has at least."""
    return _largest(lambda e: _p_value(found, e, delta) <= 1 - confidence)


def _p_value(found: Guesses, epsilon: float, delta: float) -> float:
    """The probability of so many right guesses, at most, under (epsilon, delta)-DP."""
    m, g, right = found.canaries, found.guessed, found.right
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, g, chance))
    masses = binom.pmf(right - np.arange(1, right + 1), g, chance).cumsum()
    slope = float((masses / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, tail + 2 * m * delta * slope)


def mu_bound(found: Guesses, confidence: float = 0.95) -> float:
    """The mu that any mu-GDP mechanism with these guesses has at least."""
    return _largest(
        lambda mu: contradicts(found, lambda hits: float(ndtr(ndtri(hits) - mu)), confidence)
    )


def contradicts(
    found: Guesses, alarms_of: Callable[[float], float], confidence: float = 0.95
) -> bool:
    """True if these guesses contradict a trade-off curve.

    Args:
        found: The guesses.
        alarms_of: The false alarms that an attacker with so many hits has at least.
        confidence: The probability that a curve which holds is not contradicted.
    """
    m, g, right = found.canaries, found.guessed, found.right
    if right == 0:
        return False
    level = 1 - confidence
    r, h = level * right / m, level * (g - right) / m
    for i in range(right - 1, -1, -1):
        more = max(h, alarms_of(min(r, 1.0)))
        r += i / (g - i) * (more - h)
        h = more
        if r + h > g / m:
            return True
    return False


def _largest(contradicted: Callable[[float], bool]) -> float:
    """The largest value below which all values are contradicted, rounded down."""
    if not contradicted(1e-3):
        return 0.0
    low, high = 1e-3, 1.0
    while contradicted(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if contradicted(middle) else (low, middle)
    return low
