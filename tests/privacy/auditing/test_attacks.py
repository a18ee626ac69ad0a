"""Attacks that succeeded once, on honest code: no lower bound exceeds the claim.

A thousand runs in each world and more, seeds fixed. What each attack finds where the fault is put
back in is tested too: an attack without power would prove nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import disclosed, gaussian, repeated
from fedsynth.privacy.auditing.breaks import Break
from fedsynth.privacy.auditing.cases import Case, cases_of
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.findings import Finding, Subject, judge
from fedsynth.privacy.auditing.mechanisms import BITS, RATIO, _attack
from fedsynth.privacy.auditing.parties import fresh_party, with_record
from fedsynth.privacy.auditing.recording import Recording, distance
from fedsynth.privacy.grid import noised
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger, read_entries, total
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey

RUNS, DELTA = 1000, 1e-5
KEY = NoiseKey.from_seed(8, "attacks")


def case_of(mechanism: str, attack: str) -> Case:
    (case,) = (case for case in cases_of(mechanism) if case.attack == attack)
    return case


def attacked(
    mechanism: str, case: str, attack: str, epsilon: float, choice: Break | None = None
) -> Finding:
    return _attack(
        case_of(mechanism, case),
        attack,
        epsilon,
        DELTA,
        runs=RUNS,
        choice=choice,
        noise_seed=4,
        confidence=0.95,
    )


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_a_class_without_records_and_a_silent_user_release_noise_like_any_other(epsilon):
    """Nothing against one record that puts a little into every number: the least bits of a user
    who stays silent (`joins=hidden`) and of a class that a party does not hold."""
    honest = attacked("class_sums", "zeros", BITS, epsilon)
    assert honest.audited_epsilon_any <= epsilon
    assert not honest.found
    former = attacked("class_sums", "zeros", BITS, epsilon, Break.FLOAT32)
    assert former.audited_epsilon_any > 3.65
    assert former.power >= 0.95


@pytest.mark.parametrize("mechanism", ["vote_sums", "vote_maxima", "shared_sum"])
def test_votes_and_shares_of_a_sum_stay_below_their_claim(mechanism):
    honest = attacked(mechanism, "direction", RATIO, 4.0)
    assert not honest.found
    assert honest.audited_epsilon <= 4.0
    assert honest.reached > 0.8


def large_sum(n: int) -> tuple[float, Records, Records]:
    """The worst order that is known: many records one way, then as many the other way, and a first
    one that shifts the chunks of all others."""
    values = torch.ones(n, dtype=torch.uint8)
    values[n // 2 :] = 3
    images = values.view(n, 1, 1, 1)
    records = Records(images, torch.zeros(n, dtype=torch.int64))
    return 1.0, records, Records(images[:1] * 3, records.labels[:1])


@pytest.mark.parametrize("n", [60_000, 300_000])
def test_one_record_of_many_moves_a_sum_by_no_more_than_the_bound(n):
    """Measured through the guard; then the noise of a thousand runs on the measured values."""
    clip, records, canary = large_sum(n)
    sigma = 1 / 1.5
    found = []
    for world in (records, with_record(records, canary)):
        with fresh_party(world, n, noise_seed=1) as (guard, private):

            def factors(rows: Records) -> tuple[torch.Tensor, torch.Tensor]:
                sign = rows.images.view(-1, 1).float() - 2
                return torch.full_like(sign, 0.3), sign * 7.7

            mechanism = OuterProductSum(
                factors=private.records.map(factors),
                shape=(1, 1),
                clip=clip,
                noise_multiplier=sigma,
            )
            recording = Recording()
            with recording.running():
                guard.apply(mechanism, private)
            found.append(recording)
    reached = distance(*found) * sigma
    assert 0.999 < reached <= 1.0001
    scores = [
        [
            float(
                noised(
                    [recording.uses[0].before],
                    sensitivity=clip,
                    noise_multiplier=sigma,
                    stream=KEY.stream(n, world, run),
                )[0]
                - found[0].uses[0].before
            )
            for run in range(RUNS)
        ]
        for world, recording in enumerate(found)
    ]
    subject = Subject("sum", Claim(gaussian(sigma), DELTA), 0.0, "server")
    assert not judge(subject, RATIO, (scores[0], scores[1]), 0.95).found


ANSWERS, MU = 4, 0.8  # of one request, on data that change in between


def answers_on_changing_data(path: Path, seed: int) -> tuple[list[float], float]:
    """One request, answered anew for each state of the data: the answers, and the mu of all that
    the ledger counts."""
    case, key = case_of("record_sum", "direction"), NoiseKey.from_seed(seed, "replay")
    ledger = Ledger(
        path / "ledger.jsonl",
        party_key=PartyKey.of_owner(path, "replay", seed),
        noise_key=key,
        job="audit",
        party=0,
        budget=Budget(math.inf, DELTA),
    )
    outputs = []
    for change in range(ANSWERS):
        guard = Guard(
            plan=PartyPlan(0, case.known, disclosed()),
            stage=0,
            ledger=ledger,
            key=key,
            request_digest="the same",
            data_fingerprint=f"data {change}",
        )
        info = PartyInfo(0, case.known, {1: case.known})
        private = PartyData(case.records, info, work_dir=path, fingerprint=f"data {change}")
        mechanism, data = case.build(1 / MU, private)
        (value,) = guard.apply(mechanism, data)
        outputs.append(float(value))
    mu = Claim(total(read_entries(path / "ledger.jsonl")), DELTA).mu
    assert mu is not None
    return outputs, mu


def test_a_replay_on_changed_data_is_paid_for(tmp_path):
    """The ledger counts every answer: the mean of all of them proves no more than it says, and more
    than one answer costs. An attacker of the former ledger, which counted once, wins."""
    outputs, mu = answers_on_changing_data(tmp_path, 1)
    assert len(set(outputs)) == ANSWERS
    assert mu == pytest.approx(MU * ANSWERS**0.5)
    again, same = answers_on_changing_data(tmp_path, 1)
    assert again == outputs
    assert same == mu
    sums = np.array(
        [
            [
                sum(
                    float(
                        noised(
                            [torch.tensor([float(1 - 2 * world)])],
                            sensitivity=2.0,
                            noise_multiplier=1 / MU,
                            stream=KEY.stream("replay", world, run, change),
                        )[0]
                    )
                    for change in range(ANSWERS)
                )
                for run in range(RUNS)
            ]
            for world in (0, 1)
        ]
    )
    once, each = (
        judge(
            Subject("replay", Claim(event, DELTA), 0.0, "server"),
            RATIO,
            (sums[0].tolist(), sums[1].tolist()),
            0.95,
        )
        for event in (gaussian(1 / MU), repeated(gaussian(1 / MU), ANSWERS))
    )
    assert once.found
    assert once.power >= 0.95
    assert not each.found
