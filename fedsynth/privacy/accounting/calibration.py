"""The smallest noise multiplier, or the largest number of steps, for a budget.

`dp_accounting.calibrate_dp_mechanism` answers the same question; this search starts from the quick
Renyi answer, so that it needs few of the slow tight counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

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

Excess = Callable[[float], float]  # log sigma -> log(epsilon found / epsilon wanted)


def noise_multiplier(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    accountant: str = Accounting.PLD,
    relation: str = Relation.ADD_REMOVE,
) -> float:
    """The smallest sigma for which `make_event(sigma)` costs at most `epsilon`.

    Claim: the epsilon of the returned number itself has been computed and is within the target.
    Assumption: the cost of `make_event` falls as sigma grows.
    Consequence: the answer is rounded up by at most `PRECISION`.

    Args:
        make_event: The event for a noise multiplier.
        epsilon: The target, positive and finite.
        delta: The delta at which epsilon is counted.
        accountant: "pld", or a convention of `accounting.rdp`.
        relation: The neighbouring relation.

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
    if accountant == Accounting.PLD:
        # Renyi accounting is quick and lies a little above the tight count: begin at its answer.
        quick = excess_by(Accounting.RDP, relation)
        low, high = _bracket(quick, start, step)
        start = float(brentq(quick, low, high, xtol=1e-3))
        step = 0.05
    excess = excess_by(accountant, relation)
    low, high = _bracket(excess, start, step)
    best = float(brentq(excess, low, high, xtol=PRECISION / 4))
    while excess(best) > 0:  # the root's last digits may fall on the wrong side
        best += PRECISION / 4
    return math.exp(best)


@lru_cache(maxsize=1024)
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
    """Sigma for `steps` mechanisms of this event, each on its own Poisson sample of rate `q`."""
    return noise_multiplier(
        lambda sigma: repeated(poisson(q, event(sigma)), steps),
        epsilon,
        delta,
        accountant,
        relation,
    )


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
