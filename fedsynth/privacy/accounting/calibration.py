"""The smallest noise multiplier, or the largest number of steps, for a budget.

`dp_accounting.calibrate_dp_mechanism` answers the same question; this search starts near the
answer, so that it needs few tight counts: from the quick Renyi answer, or for Poisson samples from
the answers at a few fixed sampling rates. Where it starts follows from the arguments alone, so that
every process finds the same bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from dp_accounting import DpEvent
from scipy.optimize import brentq

from fedsynth.core.enums import Accounting, Relation
from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting import accountant as accounting
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.accounting.gdp import check_delta, gdp_mu

PRECISION = 1e-4  # relative: how far above the smallest multiplier the answer may lie
MOST_STEPS = 10_000_000
_SMALLEST, _LARGEST = math.log(1e-5), math.log(1e9)
_FAR = 20.0  # cap of |log(found / target)|, so that 0 and infinity stay numbers

MOST_SECANTS = 8
_NODES = tuple(0.5 - 0.5 * math.cos((k + 0.5) * math.pi / 5) for k in range(5))  # Chebyshev's

Excess = Callable[[float], float]  # log sigma -> log(epsilon found / epsilon wanted)


class Near(NamedTuple):
    """The expected answer of a search, and an estimate of the slope of the excess there."""

    log_sigma: float
    slope: float


def noise_multiplier(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    accountant: str = Accounting.PLD,
    relation: str = Relation.ADD_REMOVE,
    *,
    near: Near | None = None,
    precision: float = PRECISION,
) -> float:
    """The smallest sigma for which `make_event(sigma)` costs at most `epsilon`.

    Claim: the epsilon of the returned number itself has been computed and is within the target.
    Assumption: the cost of `make_event` falls as sigma grows.
    Consequence: the answer is rounded up by at most `precision`.

    Args:
        make_event: The event for a noise multiplier.
        epsilon: The target, positive and finite.
        delta: The delta at which epsilon is counted.
        accountant: "pld", or a convention of `accounting.rdp`.
        relation: The neighbouring relation.
        near: Where the answer is expected, for the tight count; default: near that of "rdp".
        precision: How far above the smallest multiplier the answer may lie, relative to it.

    Raises:
        UserError: No multiplier meets the target, or nearly every one does.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(
            f"epsilon must be a positive finite number, not {epsilon!r}; a run without privacy "
            "discloses and needs no noise."
        )
    check_delta(delta)

    def excess_by(by: str, relation: str) -> Excess:
        def excess(log_sigma: float) -> float:
            event = make_event(math.exp(log_sigma))
            found = accounting.epsilon(event, delta, by, relation)
            return min(max(math.log(max(found, 1e-300) / epsilon), -_FAR), _FAR)

        return excess

    start, step = 0.0, math.log(2)
    excess = excess_by(accountant, relation)
    if accountant == Accounting.PLD:
        # Renyi accounting is quick and lies a little above the tight count: begin at its answer.
        step = 0.05
        if near is None:
            quick = excess_by(Accounting.RDP, relation)
            start = _root(quick, *_bracket(quick, start, math.log(2)), 1e-3)
            near = Near(start, (quick(start + step) - quick(start)) / step)
        start = near.log_sigma
        if (found := _secant(excess, near, precision)) is not None:
            return math.exp(found)
    best = _root(excess, *_bracket(excess, start, step), PRECISION / 4)
    while excess(best) > 0:  # the root's last digits may fall on the wrong side
        best += PRECISION / 4
    return math.exp(best)


def _root(excess: Excess, low: float, high: float, precision: float) -> float:
    return float(brentq(excess, low, high, xtol=precision))


def _secant(excess: Excess, near: Near, precision: float) -> float | None:
    """A log sigma within the target and at most `precision` above the smallest one; None if a few
    steps do not reach it."""
    at, slope = near
    before: tuple[float, float] | None = None
    for _ in range(MOST_SECANTS):
        found = excess(at)
        if before is not None and abs(at - before[0]) > precision / 4:
            slope = (found - before[1]) / (at - before[0])
        if slope >= 0:
            return None
        if 0.8 * precision * slope <= found <= 0:
            return at
        before = at, found
        at = at - found / slope + 0.05 * precision
    return None


@lru_cache(maxsize=16_384)
def poisson_gaussian_multiplier(
    q: float,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: str = Accounting.PLD,
    *,
    relation: str = Relation.ADD_REMOVE,
    event: Callable[[float], DpEvent] = gaussian,
) -> float:
    """Sigma for `steps` mechanisms of this event, each on its own Poisson sample of rate `q`.

    For the tight count the search starts from the answers at fixed rates around `q`, which the
    parties of a stage share; 1,000 parties of other sizes need little more than one count each."""
    target = _Target(steps, epsilon, delta, accountant, relation, event)
    near = None
    if accountant == Accounting.PLD and 0 < q < 1 and steps:
        near = _between_rates(q, target)
    return _at_rate(q, target, near)


class _Target(NamedTuple):
    """A calibration for a sampling rate, all but the rate."""

    steps: int
    epsilon: float
    delta: float
    accountant: str
    relation: str
    event: Callable[[float], DpEvent]

    def whole(self, q: float, sigma: float) -> DpEvent:
        """The event of all steps."""
        return repeated(poisson(q, self.event(sigma)), self.steps)


def _at_rate(
    q: float, target: _Target, near: Near | None = None, precision: float = PRECISION
) -> float:
    return noise_multiplier(
        functools.partial(target.whole, q),
        target.epsilon,
        target.delta,
        target.accountant,
        target.relation,
        near=near,
        precision=precision,
    )


def _between_rates(q: float, target: _Target) -> Near | None:
    """The answer at a rate by the polynomial through those at `_NODES` of its octave; None if one
    of these rates needs no noise."""
    octave = math.floor(math.log2(q))
    try:
        answers = _at_nodes(octave, target)
    except UserError:
        return None
    place = math.log2(q) - octave
    weights = [
        math.prod((place - other) / (node - other) for other in _NODES if other != node)
        for node in _NODES
    ]
    log_sigma, slope = (
        sum(w * value for w, value in zip(weights, values, strict=True))
        for values in zip(*answers, strict=True)
    )
    return Near(log_sigma + 0.3 * PRECISION, slope)


@lru_cache(maxsize=256)
def _at_nodes(octave: int, target: _Target) -> tuple[Near, ...]:
    """The answers at the rates 2^(octave + node), and the slopes of the excess there."""
    answers = []
    for node in _NODES:
        q = 2.0 ** (octave + node)
        sigma = _at_rate(q, target, precision=PRECISION / 8)
        here, beyond = (
            accounting.epsilon(
                target.whole(q, sigma * factor), target.delta, Accounting.RDP, target.relation
            )
            for factor in (1.0, 1.05)
        )
        answers.append(Near(math.log(sigma), math.log(beyond / here) / math.log(1.05)))
    return tuple(answers)


@lru_cache(maxsize=1024)
def poisson_gaussian_steps(
    q: float,
    sigma: float,
    epsilon: float,
    delta: float,
    accountant: str = Accounting.PLD,
    *,
    relation: str = Relation.ADD_REMOVE,
) -> int:
    """The largest number of Gaussian mechanisms of noise multiplier `sigma`, each on its own
    Poisson sample of rate `q`, that cost at most `epsilon` together.

    Raises:
        UserError: One of them costs more, or `MOST_STEPS` of them cost less.
    """

    def affordable(steps: int) -> bool:
        event = repeated(poisson(q, gaussian(sigma)), steps)
        return accounting.epsilon(event, delta, accountant, relation) <= epsilon

    if not affordable(1):
        raise UserError(
            f"one step with noise {sigma:g} costs more than the budget of epsilon={epsilon:g} at "
            f"delta={delta:g} (accounting {accountant}). Allowed: more noise, or a larger epsilon."
        )
    low, high = 1, 2
    while affordable(high):
        low, high = high, 2 * high
        if high > MOST_STEPS:
            raise UserError(
                f"noise {sigma:g} allows more than {MOST_STEPS:,} steps within epsilon="
                f"{epsilon:g}. Allowed: less noise, or a number of epochs."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low


@lru_cache(maxsize=1024)
def gaussian_mu(
    epsilon: float,
    delta: float,
    accountant: str = Accounting.PLD,
    relation: str = Relation.ADD_REMOVE,
) -> float:
    """The mu that all Gaussian mechanisms may spend together: the root of the sum of 1 / sigma^2
    over all of them, whatever their number. Exact for the tight count."""
    if accountant == Accounting.PLD:
        return gdp_mu(epsilon, delta) / (1 if relation == Relation.ADD_REMOVE else 2)
    return 1 / noise_multiplier(gaussian, epsilon, delta, accountant, relation)


def _bracket(excess: Excess, start: float, step: float) -> tuple[float, float]:
    """Two log sigmas, too little noise and enough, found by growing steps away from `start`."""
    low = high = start
    while excess(high) > 0:
        low, high, step = high, high + step, step * 1.5
        if high > _LARGEST:
            raise UserError(
                "no noise multiplier up to 1e9 meets this epsilon: something in the event costs "
                "the same however much noise there is (a disclosure, or too large a target)."
            )
    while excess(low) <= 0:
        low, high, step = low - step, low, step * 1.5
        if low < _SMALLEST:
            raise UserError(
                "even a noise multiplier of 1e-5 is within this epsilon: the event costs next to "
                "nothing (no steps, or a sampling rate near 0), so there is no noise to calibrate."
            )
    return low, high
