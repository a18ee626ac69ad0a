"""Audits of single mechanisms, through the guard, with the worst-case canaries of `cases`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.enums import NoisePlacement, Relation, Unit, ViewKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, View
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.calibration import gaussian_mu, poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.accounting.gdp import gdp_mu
from fedsynth.privacy.auditing.breaks import Break, broken
from fedsynth.privacy.auditing.cases import (
    MOST_CANARIES,
    WITH_MANY_CANARIES,
    Case,
    cases_of,
    many_canaries,
)
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.findings import Finding, Subject, judge, judge_guesses
from fedsynth.privacy.auditing.one_run import guesses
from fedsynth.privacy.auditing.parties import aggregator, fresh_party, with_record
from fedsynth.privacy.auditing.recording import ComparedRuns, Recording, Use
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.mechanisms.base import Mechanism
from fedsynth.privacy.noise import FROM_SYSTEM, NoiseKey

RATIO, BITS, ANEW = "likelihood ratio", "least bits", "likelihood ratio, each run a new party"
SHARES = 2  # of distributed noise
FRESH_RUNS, BIT_RUNS = 150, 400  # at most; these attacks need few
USES = 500  # of a mechanism by one party
GUESSED = 0.2  # share of the canaries of one run that are guessed
MAIN = 0.8  # share of the error probability for the first attack, which is the tight one
_VIEWS = {
    NoisePlacement.PARTY: SERVER_VIEW,
    NoisePlacement.AGGREGATE: PUBLIC_VIEW,
    NoisePlacement.DISTRIBUTED: View.of_sum(SHARES),
}


def audit_mechanism(
    name: str,
    epsilon: float,
    delta: float,
    *,
    runs: int = 20_000,
    choice: Break | None = None,
    noise_seed: int | None = None,
    confidence: float = 0.95,
    relation: Relation = Relation.ADD_REMOVE,
) -> list[Finding]:
    """Attack a mechanism in all its cases; all bounds hold together with `confidence`.

    Args:
        name: One of `cases.MECHANISMS`.
        epsilon: The epsilon that the mechanism is calibrated to.
        delta: Its delta.
        runs: Runs in each world of the main attack.
        choice: A deliberate error.
        noise_seed: Makes the audit reproducible.
        confidence: The probability that no bound is too large.
        relation: The neighbours that the claim is for.
    """
    attacks = [
        (case, attack)
        for case in cases_of(name)
        for attack in ((BITS,) if case.attack == "zeros" else (RATIO, ANEW))
        if attack != ANEW or case.attack == "direction"
    ]
    findings = []
    for number, (case, attack) in enumerate(attacks):
        others = max(1, len(attacks) - 1)
        share = 1.0 if len(attacks) == 1 else MAIN if number == 0 else (1 - MAIN) / others
        findings.append(
            _attack(
                case,
                attack,
                epsilon,
                delta,
                runs={RATIO: runs, BITS: min(runs, BIT_RUNS), ANEW: min(runs, FRESH_RUNS)}[attack],
                choice=choice,
                noise_seed=noise_seed,
                confidence=1 - (1 - confidence) * share,
                relation=relation,
            )
        )
    return findings


def audit_mechanism_in_one_run(
    name: str,
    epsilon: float,
    delta: float,
    *,
    runs: int = MOST_CANARIES,
    choice: Break | None = None,
    noise_seed: int | None = None,
    confidence: float = 0.95,
) -> list[Finding]:
    """Attack one use of a mechanism with `runs` canaries, each in the data by a fair coin.

    Raises:
        UserError: The mechanism has no case with many canaries, or there are too many.
    """
    if name not in WITH_MANY_CANARIES:
        raise UserError(
            f"mechanism={name} has no case with many canaries; form=one_run audits "
            f"{', '.join(WITH_MANY_CANARIES)}."
        )
    if runs > MOST_CANARIES:
        raise UserError(f"runs={runs}: one run has at most {MOST_CANARIES} canaries.")
    noise = 1 / gdp_mu(epsilon, delta)
    coins = np.random.default_rng(noise_seed).random(runs) < 0.5
    case = many_canaries(name, np.flatnonzero(coins).tolist())
    with broken(choice):
        (use,) = _Setting(case, noise, noise_seed).outputs(0, 1, anew=True)
    scores = torch.cat([value.flatten() for value in use.outputs])[-MOST_CANARIES:][:runs]
    found = guesses(scores.tolist(), coins.tolist(), 2 * max(1, round(runs * GUESSED / 2)))
    subject = Subject(
        case.name,
        Claim(gaussian(noise), delta),
        epsilon,
        SERVER_VIEW.text,
        broken=choice.value if choice else "",
    )
    return [judge_guesses(subject, "scores of canaries", found, confidence)]


def _attack(
    case: Case,
    attack: str,
    epsilon: float,
    delta: float,
    *,
    runs: int,
    choice: Break | None,
    noise_seed: int | None,
    confidence: float,
    relation: Relation = Relation.ADD_REMOVE,
) -> Finding:
    q = case.shape.sampling_rate
    if q < 1:
        noise = poisson_gaussian_multiplier(q, 1, epsilon, delta, relation=relation)
        event = poisson(q, gaussian(noise))
    else:
        noise = 1 / gaussian_mu(epsilon, delta, relation=relation)
        event = gaussian(noise)
    if case.colluding:  # the claim is for the noise that this server does not know
        noise *= math.sqrt(SHARES / (SHARES - case.colluding))
    setting = _Setting(case, noise, noise_seed, relation)
    with broken(choice):
        known = setting.measured()
        scores = [
            [
                _score(attack, known.with_outputs(use), case.colluding)
                for use in setting.outputs(number, runs, anew=attack == ANEW)
            ]
            for number in (0, 1)
        ]
    black = "" if relation == Relation.ADD_REMOVE else " in place of a black one"
    subject = Subject(
        case.name,
        Claim(event, delta, relation),
        epsilon,
        case_view(case).text,
        broken=choice.value if choice else "",
        canary=f"a white record{black}",
    )
    return judge(
        subject,
        attack,
        (scores[0], scores[1]),
        confidence,
        canary_mu=known.distance(case.colluding),
        natural=None if attack == BITS else 0.0,
    )


def case_view(case: Case) -> View:
    """The observer for whom the claim of a case holds."""
    if case.colluding:
        return View(ViewKind.COLLUDING, colluding=case.colluding)
    return _VIEWS[case.noise_at]


def _score(attack: str, runs: ComparedRuns, colluding: int) -> float:
    return runs.bits() if attack == BITS else runs.ratio(colluding)


Answer = Callable[[int, Recording | None], list[Tensor]]
"""Uses a mechanism for the time of this number and returns what its observer sees."""


@dataclass(frozen=True)
class _Setting:
    """A case with its noise, and the worlds without and with the canary."""

    case: Case
    noise: float
    noise_seed: int | None
    relation: Relation = Relation.ADD_REMOVE

    def world(self, number: int | None) -> Records:
        """The records without the canary, or with it; with none, those of both worlds."""
        known = self.case.records
        if number == 1:
            return with_record(known, self.case.canary)
        if number == 0 and self.relation == Relation.REPLACE_ONE:
            return with_record(known, self.case.replaced)
        return known

    def measured(self) -> ComparedRuns:
        """The values before noise without and with the canary, which is sampled."""
        without = self._recorded(None, Recording())
        first = without
        if self.relation == Relation.REPLACE_ONE:
            first = self._recorded(0, Recording(forced=without))
        second = self._recorded(1, Recording(forced=without))
        sampled = self.case.shape.sampling_rate < 1
        return ComparedRuns(first, second, without if sampled else None)

    def _recorded(self, number: int | None, recording: Recording) -> Recording:
        with recording.running(), self.party(number, 1, "known") as answer:
            answer(0, recording)
        return recording

    def outputs(self, number: int, runs: int, *, anew: bool) -> Iterator[Use]:
        """The outputs of independent runs: of one party, or each of another one."""
        at_once = 1 if anew else USES
        for start in range(0, runs, at_once):
            count = min(at_once, runs - start)
            with self.party(number, count, f"world {number}, run {start}") as answer:
                for run in range(count):
                    if not self.case.colluding:
                        yield Use(torch.empty(0), answer(run, None), 0.0)
                        continue
                    with Recording().running() as recording:
                        answer(run, recording)
                    yield recording.uses[-1]

    @contextmanager
    def party(self, number: int | None, runs: int, owner: str) -> Iterator[Answer]:
        """A party of a world that uses the mechanism so many times."""
        at = self.case.noise_at
        with ExitStack() as stack:

            def enter(number: int | None, owner: str) -> tuple[Guard, Mechanism[Any, Any], Any]:
                party = fresh_party(
                    self.world(number),
                    self.case.known,
                    owner=owner,
                    noise_seed=self.noise_seed,
                    shares=SHARES if at == NoisePlacement.DISTRIBUTED else 1,
                    classes=(1,),
                )
                guard, private = stack.enter_context(party)
                return guard, *self.case.build(self.noise, private)

            guard, mechanism, data = enter(number, owner)
            match at:
                case NoisePlacement.PARTY:
                    stack.enter_context(guard.reserve(mechanism.event(Unit.RECORD), runs))
                    yield lambda run, _: guard.apply(mechanism, data, call=run)
                case NoisePlacement.AGGREGATE:
                    yield self._aggregated(guard, mechanism, data, owner)
                case NoisePlacement.DISTRIBUTED:
                    other = enter(None, f"{owner}, the other")
                    yield _shared([(guard, mechanism, data), other])

    def _aggregated(
        self, guard: Guard, mechanism: Mechanism[Any, Any], data: Any, owner: str
    ) -> Answer:
        """One party, and an aggregator that adds the noise."""
        if self.noise_seed is None:
            key = NoiseKey(os.urandom(32), FROM_SYSTEM)
        else:
            key = NoiseKey.from_seed(self.noise_seed, f"aggregator of {owner}")
        centre = aggregator(key)

        def use(run: int, _: Recording | None) -> list[Tensor]:
            placed = guard.apply(mechanism, data, call=run, noise_at=NoisePlacement.AGGREGATE)
            return centre.add(
                placed,
                sensitivity=1.0,
                noise_multiplier=self.noise,
                request=Request(round=run),
            )

        return use


def _shared(parties: Sequence[tuple[Guard, Mechanism[Any, Any], Any]]) -> Answer:
    """Parties that add a share of the noise each; their sum is seen."""

    def use(run: int, recording: Recording | None) -> list[Tensor]:
        shares = [
            guard.apply(mechanism, data, call=run, noise_at=NoisePlacement.DISTRIBUTED)
            for guard, mechanism, data in parties
        ]
        sums = [torch.stack(values).sum(0) for values in zip(*shares, strict=True)]
        grid = FixedPointGrid.of(1.0, sum(value.numel() for value in sums))
        if recording is not None:
            return recording.reveal(sums, grid)
        return [grid.read(value) for value in sums]

    return use
