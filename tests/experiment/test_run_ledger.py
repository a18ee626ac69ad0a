"""The ledger of a run holds the ledgers of all parties as they are, and no damaged one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.experiment.run_ledger import merged_ledger
from fedsynth.privacy.ledger_entry import read_chains


def test_all_ledgers_stand_one_after_the_other_by_job_and_party(
    here: Engine, tmp_path: Path
) -> None:
    first = tiny.tiny_job("dp_merf", tmp_path / "run", "together")
    jobs = [dataclasses.replace(first, seed=1), first]
    texts = {}
    for job in jobs:
        tiny.release(job, here)
        for party in range(3):
            path = job.party_folder(party) / "ledger.jsonl"
            texts[job.name, party] = path.read_text(encoding="utf-8")
    assert all(texts.values())
    merged = merged_ledger(jobs)
    assert merged == "".join(texts[key] for key in sorted(texts))
    (tmp_path / "ledger.jsonl").write_text(merged, encoding="utf-8")
    assert len(read_chains(tmp_path / "ledger.jsonl")) == 2 * 3


def test_a_changed_ledger_is_not_merged(here: Engine, tmp_path: Path) -> None:
    job = tiny.tiny_job("dp_merf", tmp_path / "run", "together")
    tiny.release(job, here)
    path = job.party_folder(1) / "ledger.jsonl"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"budget":10.0', '"budget":9.0', 1), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    with pytest.raises(UserError, match="ledger"):
        merged_ledger([job])
