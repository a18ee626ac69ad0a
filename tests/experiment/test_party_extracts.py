"""Parties whose state lies on another disk: nothing is reported over a ledger that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.engine.inprocess import InProcessEngine
from fedsynth.engine.placement import PartiesUnreachable, Place, Placement
from fedsynth.experiment.job import Job
from fedsynth.experiment.party_extracts import (
    collect_extracts,
    destroy_keys,
    party_entries,
    read_extract,
    release_seconds,
    remove_parties,
)


class TwoDisks(InProcessEngine):
    """Reaches party 1 in another folder, as a node with a disk of its own does."""

    def __init__(self, there: Path) -> None:
        self.there, self.lost = there, False

    @property
    def one_disk(self) -> bool:
        return False

    def visit_parties(
        self, policies: str, function: Callable[[str], Any], parties: Sequence[int] | None = None
    ) -> dict[int, Any]:
        wanted = [1] if parties is None else [party for party in parties if party == 1]
        if self.lost and wanted:
            raise Placement(policies, Place("", "")).unreachable(wanted)
        return {party: function(str(self.there / f"party-{party}")) for party in wanted}


@pytest.fixture
def moved(here: Engine, tmp_path: Path) -> tuple[Job, TwoDisks]:
    """A job that is released, with real noise, whose party 1 lies on the other disk."""
    job = tiny.tiny_job("psg", tmp_path / "run", "together", noise_seed=None)
    tiny.release(job, here)
    (tmp_path / "there").mkdir()
    job.party_folder(1).rename(tmp_path / "there" / "party-1")
    return job, TwoDisks(tmp_path / "there")


def test_an_extract_has_the_ledger_and_the_seconds(moved: tuple[Job, TwoDisks]) -> None:
    job, engine = moved
    assert not party_entries(job, 1)
    before = release_seconds(job, 0)
    collect_extracts(engine, job, 0)
    assert len(party_entries(job, 1)) == len(party_entries(job, 0)) > 0
    assert release_seconds(job, 0) > before
    assert read_extract(job, 0) is None
    engine.lost = True
    collect_extracts(engine, job, 0)  # complete: the node is not asked again


def test_a_ledger_that_is_short_or_missing_is_refused_by_name(moved: tuple[Job, TwoDisks]) -> None:
    job, engine = moved
    ledger = engine.there / "party-1" / "ledger.jsonl"
    whole = ledger.read_bytes()
    for left in (b"".join(whole.splitlines(keepends=True)[:-1]), b"", None):
        ledger.unlink() if left is None else ledger.write_bytes(left)
        with pytest.raises(UserError, match="the ledger of party 1 lacks entries"):
            collect_extracts(engine, job, 0)
    ledger.write_bytes(whole)
    collect_extracts(engine, job, 0)


def test_a_node_that_is_gone_is_a_refusal(moved: tuple[Job, TwoDisks]) -> None:
    job, engine = moved
    engine.lost = True
    with pytest.raises(PartiesUnreachable, match="party 1"):
        collect_extracts(engine, job, 0)


def test_keys_are_destroyed_where_they_lie(moved: tuple[Job, TwoDisks]) -> None:
    job, engine = moved
    places = [job.party_folder(0), engine.there / "party-1", job.party_folder(2)]
    assert all((folder / "noise.key").exists() for folder in places)
    engine.lost = True
    with contextlib.suppress(PartiesUnreachable):
        destroy_keys(job, engine)
    assert [(folder / "noise.key").exists() for folder in places] == [False, True, False]
    engine.lost = False
    destroy_keys(job, engine)
    assert not any((folder / "noise.key").exists() for folder in places)
    remove_parties(job, engine)
    assert not any(folder.exists() for folder in places)
