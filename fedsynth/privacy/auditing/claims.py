"""The claim that an audit puts to the test: an event, with the trade-off curve that it allows.

Claim: no attacker who calls the world without the canary wrongly with probability at most `alarms`
finds the canary with more than `most_hits(alarms)`. For unsampled Gaussians the curve is exact; for
sampled ones it is the lower envelope of the lines that (epsilon, delta) pairs of the accountant
draw, which lies on or above the exact curve.

A bound on hits and false alarms becomes an epsilon in the family of the same event with more or
less noise: the least noise that the observed rates still allow. This bound holds for mechanisms of
the event's form; `two_worlds.Audit.epsilon` holds for any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dp_accounting import DpEvent
from scipy.special import ndtr, ndtri

from fedsynth.core.enums import Relation
from fedsynth.privacy.accounting import accountant
from fedsynth.privacy.accounting.events import from_json, from_text, to_json, to_text
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.auditing.one_run import Guesses, contradicts, mu_bound

LINES = 40  # pairs of epsilon and delta that draw a curve
_LEAST, _MOST = math.log(0.02), math.log(50.0)  # logs of factors of the noise that are considered
_HALVINGS = 14


@dataclass(frozen=True)
class Claim:
    """An event, the delta at which its epsilon is stated, and the neighbours that it is for."""

    event: DpEvent
    delta: float
    relation: str = Relation.ADD_REMOVE

    @functools.cached_property
    def epsilon(self) -> float:
        """The accountant's epsilon of the event."""
        return accountant.epsilon(self.event, self.delta, relation=self.relation)

    @functools.cached_property
    def mu(self) -> float | None:
        """The mu of unsampled Gaussians; None if the event samples."""
        return accountant.gaussian_mu_of(self.event, self.relation)

    def most_hits(self, alarms: float) -> float:
        """The largest probability to find the canary that this claim allows."""
        if self.mu is not None:
            return float(ndtr(ndtri(alarms) + self.mu))
        return _curve(self, alarms)

    def broken_by(self, hits: float, alarms: float) -> bool:
        """True if these rates contradict the claim."""
        return hits > self.most_hits(alarms)

    def least_alarms(self, hits: float) -> float:
        """The false alarms that an attacker with so many hits has at least: the inverse of
        `most_hits`."""
        if hits <= 0:
            return 0.0
        if self.mu is not None:
            return float(ndtr(ndtri(hits) - self.mu))
        return _inverse_curve(self, hits)

    def epsilon_of(self, hits: float, alarms: float) -> float:
        """The least epsilon with which these rates agree, in the family of the event."""
        if hits <= alarms:
            return 0.0
        if self.mu is not None:
            return gdp_epsilon(float(ndtri(hits) - ndtri(alarms)), self.delta)
        return self._least(lambda claim: claim.broken_by(hits, alarms))

    def epsilon_of_guesses(self, found: Guesses, confidence: float) -> float:
        """The least epsilon with which these guesses agree, in the family of the event."""
        if self.mu is not None:
            mu = mu_bound(found, confidence)
            return gdp_epsilon(mu, self.delta) if mu > 0 else 0.0
        return self._least(lambda claim: contradicts(found, claim.least_alarms, confidence))

    def _least(self, contradicted: Callable[[Claim], bool]) -> float:
        """The epsilon of the event with the least amount of noise that is contradicted."""
        low, high = _LEAST, _MOST  # logs of a factor of the noise that is allowed, and of one not
        if not contradicted(with_noise(self, math.exp(high))):
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (
                (low, middle)
                if contradicted(with_noise(self, math.exp(middle)))
                else (middle, high)
            )
        return with_noise(self, math.exp(high)).epsilon


def with_noise(claim: Claim, factor: float) -> Claim:
    """The same claim with all noise multiplied by `factor`."""
    return replace(claim, event=from_json(_scaled(to_json(claim.event), factor)))


def _scaled(event: dict[str, Any], factor: float) -> dict[str, Any]:
    changed = dict(event)
    if "sigma" in event:
        changed["sigma"] = event["sigma"] * factor
    if "event" in event:
        changed["event"] = _scaled(event["event"], factor)
    if "events" in event:
        changed["events"] = [_scaled(part, factor) for part in event["events"]]
    return changed


@functools.lru_cache(maxsize=512)
def _lines(text: str, epsilon: float, relation: str) -> tuple[tuple[float, float], ...]:
    """Pairs of e^epsilon and delta."""
    event = from_text(text)
    at = [0.0, *(np.geomspace(1e-3, 3.0, LINES) * max(epsilon, 1e-3)).tolist()]
    return tuple((math.exp(min(e, 700.0)), accountant.delta(event, e, relation)) for e in at)


def _lines_of(claim: Claim) -> tuple[tuple[float, float], ...]:
    return _lines(to_text(claim.event), claim.epsilon, claim.relation)


def _curve(claim: Claim, alarms: float) -> float:
    """From hits <= e^eps alarms + delta(eps) and 1 - hits >= e^-eps (1 - delta(eps) - alarms)."""
    if math.isinf(claim.epsilon):
        return 1.0
    return min(
        min(delta + factor * alarms, 1 - (1 - delta - alarms) / factor)
        for factor, delta in _lines_of(claim)
    )


def _inverse_curve(claim: Claim, hits: float) -> float:
    """The least alarms by the same lines."""
    if math.isinf(claim.epsilon):
        return 0.0
    return max(
        0.0,
        *(
            max((hits - delta) / factor, 1 - delta - factor * (1 - hits))
            for factor, delta in _lines_of(claim)
        ),
    )
