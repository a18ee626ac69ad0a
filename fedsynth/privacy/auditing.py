"""Empirical lower bounds on a mechanism's epsilon, by an attack with a canary.

A mechanism is run many times on records without a canary and as many times with it; an attack that
uses everything but the noise turns each output into a score, large where it finds the canary. How
well scores separate the two worlds bounds epsilon from below, with confidence and without trust in
the mechanism or its accounting:

* `epsilon` holds for any mechanism: (epsilon, delta)-DP implies that hits are at most
  e^epsilon times false alarms plus delta, and likewise with the two worlds exchanged;
* `mu` and `epsilon_gdp` are larger and hold for mechanisms that claim Gaussian differential
  privacy, such as sums with Gaussian noise on all records: no test tells their worlds apart better
  than N(0, 1) from N(mu, 1).

Hits and false alarms enter through Clopper-Pearson bounds. The threshold is chosen on one half of
the runs and judged on the other. A bound above what was claimed shows a broken mechanism; a bound
below it shows nothing, for there may be better attackers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy.special import betaincinv, ndtri

from fedsynth.core.messages import Request
from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey

LEAST_TRIALS = 20
TRIED = 400  # thresholds
MEMORY = Path("/dev/shm")  # where thousands of ledgers cost no waiting for a disk

Attack = Callable[[Guard, PartyData], float]
"""Runs a mechanism or a whole release and scores what came out: large with the canary."""


@dataclass(frozen=True)
class Audit:
    """The result of an attack, true with probability `confidence` over the runs."""

    trials: int  # in each world, of which half were judged
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
) -> Audit:
    """Lower bounds from the scores of independent runs in the two worlds."""
    scores = np.asarray(without, dtype=float), np.asarray(with_canary, dtype=float)
    trials = min(map(len, scores))
    if trials < LEAST_TRIALS or not all(np.isfinite(s).all() for s in scores):
        raise ValueError(f"an audit needs {LEAST_TRIALS} finite scores or more in each world")
    (learn_0, learn_1), (judge_0, judge_1) = ([s[half::2] for s in scores] for half in (0, 1))
    threshold = _best_threshold(learn_0, learn_1, delta)
    hits, alarms = _bounds(judge_0, judge_1, threshold, 1 - confidence)
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


def _best_threshold(without: np.ndarray, with_canary: np.ndarray, delta: float) -> float:
    """The midpoint between scores (of at most `TRIED`) with the strongest bounds."""
    points = np.unique(np.concatenate([without, with_canary]))
    if len(points) > TRIED:
        points = np.quantile(points, np.linspace(0, 1, TRIED))
    between = (points[:-1] + points[1:]) / 2 if len(points) > 1 else points

    def worth(threshold: float) -> tuple[float, float]:
        rates = _bounds(without, with_canary, threshold, 0.1)
        return _mu(*rates), _epsilon(*rates, delta)

    return float(max(between, key=worth))


def _bounds(
    without: np.ndarray, with_canary: np.ndarray, threshold: float, alpha: float
) -> tuple[float, float]:
    """Clopper-Pearson bounds: least hits, most false alarms, wrong with probability `alpha`."""
    hits, alarms = int((with_canary > threshold).sum()), int((without > threshold).sum())
    n, m = len(with_canary), len(without)
    least = float(betaincinv(hits, n - hits + 1, alpha / 2)) if hits else 0.0
    most = float(betaincinv(alarms + 1, m - alarms, 1 - alpha / 2)) if alarms < m else 1.0
    return least, most


def _epsilon(hits: float, alarms: float, delta: float) -> float:
    """From hits <= e^epsilon alarms + delta, and the same for the complements."""
    pairs = ((hits, alarms), (1 - alarms, 1 - hits))
    return max(0.0, *(math.log((a - delta) / b) for a, b in pairs if a > delta and b > 0))


def _mu(hits: float, alarms: float) -> float:
    if hits <= 0 or alarms >= 1:
        return 0.0
    return max(0.0, float(ndtri(hits) - ndtri(alarms)))


def audit_attack(
    attack: Attack,
    records: Records,
    canary: Records,
    *,
    delta: float,
    trials: int = 200,
    noise_seed: int | None = None,
) -> Audit:
    """Run an attack on `records` and on `records` followed by the canary, `trials` times each,
    every time with noise of its own: from the operating system, or from `noise_seed` to be able to
    repeat the audit."""
    worlds = (
        records,
        Records(
            torch.cat([records.images, canary.images]), torch.cat([records.labels, canary.labels])
        ),
    )
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        for number, (world, found) in enumerate(zip(worlds, scores, strict=True)):
            owner = f"world {number}, trial {trial}"
            party = fresh_party(world, len(records.labels), owner=owner, noise_seed=noise_seed)
            with party as (guard, private):
                found.append(attack(guard, private))
    return audit(*scores, delta)


@contextmanager
def fresh_party(
    records: Records, public_count: int, *, owner: str = "audited", noise_seed: int | None = None
) -> Iterator[tuple[Guard, PartyData]]:
    """A party without earlier releases and its guard, whose ledger has no limit, because an audit
    measures what is spent. The public facts are the same in both worlds of an audit."""
    names, counts = records.labels[:public_count].unique(return_counts=True)
    info = PartyInfo(0, public_count, dict(zip(names.tolist(), counts.tolist(), strict=True)))
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        root = Path(folder)
        key = NoiseKey.of_owner(root, owner, noise_seed)
        unlimited = Budget(math.inf, 1e-5)
        ledger = Ledger(
            root / "ledger.jsonl",
            party_key=PartyKey.of_owner(root, owner, noise_seed),
            noise_key=key,
            job="audit",
            party=0,
            budget=unlimited,
        )
        guard = Guard(
            plan=PartyPlan(0, public_count, disclosed()),
            stage=0,
            ledger=ledger,
            key=key,
            request_digest=Request().digest(),
            data_fingerprint="audit",
        )
        yield guard, PartyData(records, info, work_dir=root / "work", fingerprint="audit")
