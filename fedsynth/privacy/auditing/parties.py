"""Parties for audits: without earlier releases, and without a limit on what they spend."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedsynth.core.enums import Unit
from fedsynth.core.messages import Request
from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.answered_sums import AnsweredSums
from fedsynth.privacy.auditing.two_worlds import Audit, audit
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey

FINGERPRINT = "audit"
MEMORY = Path("/dev/shm")  # where thousands of ledgers cost no waiting for a disk

Attack = Callable[[Guard, PartyData], float]
"""Runs a mechanism or a whole release and scores what came out: large with the canary."""


def with_record(records: Records, canary: Records) -> Records:
    """The neighbouring records: `canary` comes last."""
    return Records(
        torch.cat([records.images, canary.images]), torch.cat([records.labels, canary.labels])
    )


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
    worlds = (records, with_record(records, canary))
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        for number, (world, found) in enumerate(zip(worlds, scores, strict=True)):
            owner = f"world {number}, trial {trial}"
            party = fresh_party(world, len(records.labels), owner=owner, noise_seed=noise_seed)
            with party as (guard, private):
                found.append(attack(guard, private))
    return audit(*scores, delta)


class _Remembered(AnsweredSums):
    """The sums that an aggregator answered, for as long as an audit's run."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def record(self, request: str, answer: str) -> None:
        if self._seen.setdefault(request, answer) != answer:
            raise PermissionError("this request was answered with other sums before")


def aggregator(key: NoiseKey) -> CentralNoise:
    """A trusted aggregator with this key that leaves no files."""
    return CentralNoise(key, 0, "audit", _Remembered())


@dataclass(frozen=True)
class AuditedParty:
    """A party with a ledger and keys of its own."""

    plan: PartyPlan
    ledger: Ledger
    key: NoiseKey
    data: PartyData

    def guard(self, digest: str) -> Guard:
        """The guard of one answer, to the request with this digest."""
        return Guard(
            plan=self.plan,
            stage=0,
            ledger=self.ledger,
            key=self.key,
            request_digest=digest,
            data_fingerprint=FINGERPRINT,
        )


@contextmanager
def audited_party(
    records: Records,
    info: PartyInfo,
    plan: PartyPlan,
    *,
    owner: str,
    noise_seed: int | None,
    unit: Unit = Unit.RECORD,
    classes: Collection[int] | None = None,
) -> Iterator[AuditedParty]:
    """A party without earlier releases, whose ledger has no limit, because an audit measures what
    is spent. The fingerprint is the same for all data, so that the worlds of an audit differ in
    the data alone. `classes` are those of `PartyData`."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        root = Path(folder)
        key = NoiseKey.of_owner(root, owner, noise_seed)
        ledger = Ledger(
            root / "ledger.jsonl",
            party_key=PartyKey.of_owner(root, owner, noise_seed),
            noise_key=key,
            job="audit",
            party=info.party,
            budget=Budget(math.inf, 1e-5, unit),
        )
        data = PartyData(
            records, info, work_dir=root / "work", fingerprint=FINGERPRINT, classes=classes
        )
        yield AuditedParty(plan, ledger, key, data)


@contextmanager
def fresh_party(
    records: Records,
    public_count: int,
    *,
    owner: str = "audited",
    noise_seed: int | None = None,
    shares: int = 1,
    classes: Sequence[int] = (),
) -> Iterator[tuple[Guard, PartyData]]:
    """An audited party and the guard of its only answer. The public facts are the same in both
    worlds of an audit: the classes of the first `public_count` records, and `classes`."""
    names, counts = records.labels[:public_count].unique(return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    info = PartyInfo(0, public_count, {**dict.fromkeys(classes, 0), **found})
    plan = PartyPlan(0, public_count, disclosed(), shares=shares)
    with audited_party(records, info, plan, owner=owner, noise_seed=noise_seed) as party:
        yield party.guard(Request().digest()), party.data
