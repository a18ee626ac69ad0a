"""A party's answers depend on the whole job: its ledger takes no other job for a replay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.engine.base import Engine
from fedsynth.engine.messages import PartyRefused
from fedsynth.privacy.ledger import read_entries


def test_other_settings_at_the_same_folder_are_charged_anew(here: Engine, tmp_path: Path) -> None:
    """The same question at the same price, about other features: the same noise on both sums would
    give their difference away."""
    jobs = [
        tiny.tiny_job("dp_merf", tmp_path / "run", "together", {"scale": scale})
        for scale in (5.0, 6.0)
    ]
    tiny.release(jobs[0], here)
    ledger = jobs[0].party_folder(0) / "ledger.jsonl"
    paid = read_entries(ledger)
    for name in ("releases", "server"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    assert jobs[1].plan(0).of(0).event == jobs[0].plan(0).of(0).event
    with pytest.raises(PartyRefused, match="party 0 refuses"):
        tiny.release(jobs[1], here)
    tiny.release(jobs[0], here)
    assert read_entries(ledger) == paid
