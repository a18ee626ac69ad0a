"""The result of an audit: claimed, audited and theoretical values side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedsynth.core.enums import Unit
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.one_run import Guesses, contradicts, epsilon_bound, mu_bound
from fedsynth.privacy.auditing.two_worlds import audit

RESAMPLED = 40  # times, for the power


@dataclass(frozen=True)
class Finding:
    """One attack on one claim. All bounds are lower bounds at `confidence`."""

    name: str  # of the mechanism and its case, or of the method
    attack: str
    form: str  # two_worlds or one_run
    runs: int  # in each world; canaries of the one run
    claimed_epsilon: float  # the budget
    theoretical_epsilon: float  # the accountant's, of the events that were charged
    audited_epsilon: float  # with these events and any amount of noise
    audited_epsilon_any: float  # by the (epsilon, delta) definition alone
    theoretical_mu: float | None  # None: the events sample records
    audited_mu: float | None
    canary_mu: float | None  # the distance that this canary moves the values, in deviations
    found: bool  # the claim is contradicted
    power: float | None  # the share of resampled audits that contradict it
    confidence: float
    delta: float
    unit: str
    relation: str
    view: str
    broken: str = ""  # the deliberate error
    canary: str = ""  # the records by which the two worlds differ, in words

    @property
    def reached(self) -> float | None:
        """The share of the theoretical mu that the audit reached."""
        if self.audited_mu is None or not self.theoretical_mu:
            return None
        return self.audited_mu / self.theoretical_mu

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "reached": self.reached}


@dataclass(frozen=True)
class Subject:
    """The part of a finding that is known before the attack."""

    name: str
    claim: Claim
    claimed_epsilon: float
    view: str
    unit: str = Unit.RECORD.value
    broken: str = ""
    canary: str = ""

    @property
    def common(self) -> dict[str, Any]:
        """The fields of a finding that repeat these, and the claim's."""
        return {
            "name": self.name,
            "claimed_epsilon": self.claimed_epsilon,
            "theoretical_epsilon": self.claim.epsilon,
            "theoretical_mu": self.claim.mu,
            "delta": self.claim.delta,
            "unit": self.unit,
            "relation": str(self.claim.relation),
            "view": self.view,
            "broken": self.broken,
            "canary": self.canary,
        }


def judge(
    subject: Subject,
    attack: str,
    scores: tuple[Sequence[float], Sequence[float]],
    confidence: float,
    *,
    canary_mu: float | None = None,
    natural: float | None = None,
) -> Finding:
    """The finding of an attack in two worlds from its scores without and with the canary.

    `natural` is a threshold as in `two_worlds.audit`."""
    claim = subject.claim
    result = audit(*scores, claim.delta, confidence, natural=natural)
    return Finding(
        **subject.common,
        attack=attack,
        form="two_worlds",
        runs=result.trials,
        audited_epsilon=claim.epsilon_of(result.hits, result.false_alarms),
        audited_epsilon_any=result.epsilon,
        audited_mu=result.mu if claim.mu is not None else None,
        canary_mu=canary_mu,
        found=claim.broken_by(result.hits, result.false_alarms),
        power=_power(claim, scores, confidence, natural),
        confidence=confidence,
    )


def _power(
    claim: Claim,
    scores: tuple[Sequence[float], Sequence[float]],
    confidence: float,
    natural: float | None,
) -> float:
    """The share of audits on resampled scores that contradict the claim."""
    rng = np.random.default_rng(0)
    without, with_canary = (np.asarray(s, dtype=float) for s in scores)
    found = 0
    for _ in range(RESAMPLED):
        resampled = rng.choice(without, len(without)), rng.choice(with_canary, len(with_canary))
        result = audit(*resampled, claim.delta, confidence, natural=natural)
        found += claim.broken_by(result.hits, result.false_alarms)
    return found / RESAMPLED


def judge_guesses(subject: Subject, attack: str, found: Guesses, confidence: float) -> Finding:
    """The finding of an attack in one run with many canaries."""
    claim = subject.claim
    mu = mu_bound(found, confidence) if claim.mu is not None else None
    anyway = epsilon_bound(found, claim.delta, confidence)
    return Finding(
        **subject.common,
        attack=attack,
        form="one_run",
        runs=found.canaries,
        audited_epsilon=claim.epsilon_of_guesses(found, confidence),
        audited_epsilon_any=anyway,
        audited_mu=mu,
        canary_mu=None,
        found=contradicts(found, claim.least_alarms, confidence),
        power=None,
        confidence=confidence,
    )
