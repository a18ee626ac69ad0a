"""A guard and what a party holds, for tests of mechanisms; the noise key is always the same."""

from __future__ import annotations

from pathlib import Path

import torch

from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.party_key import PartyKey

KEY = NoiseKey.from_seed(3, "party 0")
PARTY_KEY = PartyKey.of_owner(Path(), "party 0", 3)
FREE = Budget(float("inf"), 1e-5)
ANY = PartyPlan(0, 1, gaussian(1.0))


def guard(
    path: Path,
    *,
    plan: PartyPlan = ANY,
    budget: Budget = FREE,
    digest: str = "d",
    data: str = "f",
) -> Guard:
    """The guard of one answer; its ledger lies in `path` and goes on where it was."""
    ledger = Ledger(
        path / "ledger.jsonl",
        party_key=PARTY_KEY,
        noise_key=KEY,
        job="j",
        party=plan.party,
        budget=budget,
    )
    return Guard(
        plan=plan,
        stage=0,
        ledger=ledger,
        key=KEY,
        request_digest=digest,
        data_fingerprint=data,
    )


def records(n: int, seed: int = 0) -> Records:
    """Images of 8 x 8 of four classes in turn."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return Records(images, torch.arange(n) % 4)


def private(data: Records, path: Path) -> PartyData:
    """The data of the guard's party, with the working directory `path`."""
    info = PartyInfo(0, len(data.labels), dict.fromkeys(data.labels.unique().tolist(), 1))
    return PartyData(data, info, work_dir=path, fingerprint="f")
