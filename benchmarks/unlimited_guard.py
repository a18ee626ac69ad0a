"""A guard whose budget has no end, for benchmarks of what parties compute."""

from __future__ import annotations

from pathlib import Path

from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey

KEY = NoiseKey.from_seed(0, "benchmark")


def unlimited_guard(folder: Path, records: int, noise_multiplier: float) -> Guard:
    """The guard of a party with so many records; its ledger is in `folder`."""
    return Guard(
        plan=PartyPlan(0, records, gaussian(noise_multiplier)),
        stage=0,
        ledger=Ledger(
            folder / "ledger.jsonl",
            job="benchmark",
            party=0,
            budget=Budget(float("inf"), 1e-5),
            noise_key=KEY,
            party_key=PartyKey.of_owner(folder, "party 0", 0),
        ),
        key=KEY,
        request_digest="benchmark",
        data_fingerprint="benchmark",
    )
