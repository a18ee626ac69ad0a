"""The places of parties: known before a request is sent, and never two for one party."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.engine.placement import (
    PARTY_FILE,
    PartiesUnreachable,
    Place,
    Placement,
    refuse_elsewhere,
)

HERE, THERE = Place("disk a", "the driver"), Place("disk b", "node b")


def test_places_elsewhere_are_on_disk_at_once(tmp_path: Path) -> None:
    Placement(str(tmp_path), HERE).assign({3: THERE, 1: HERE})
    again = Placement(str(tmp_path), HERE)
    assert again.of(3) == THERE
    assert again.elsewhere() == {3: THERE}
    assert again.of(1) is None  # it has no state there yet


def test_a_party_with_state_on_the_drivers_disk_is_there(tmp_path: Path) -> None:
    (tmp_path / "party-0").mkdir()
    (tmp_path / "party-0" / PARTY_FILE).touch()
    placement = Placement(str(tmp_path), HERE)
    assert placement.of(0) is None
    (tmp_path / "party-0" / "ledger.jsonl").touch()
    assert placement.of(0) == HERE


def test_an_engine_with_one_disk_refuses_by_name(tmp_path: Path) -> None:
    refuse_elsewhere(str(tmp_path))
    refuse_elsewhere("")
    Placement(str(tmp_path), HERE).assign({3: THERE, 1: HERE, 7: THERE})
    with pytest.raises(PartiesUnreachable, match=r"^parties 3, 7: .*node b.*--resume") as caught:
        refuse_elsewhere(str(tmp_path))
    assert caught.value.parties == (3, 7)


def test_the_engine_in_this_process_refuses_a_job_with_parties_elsewhere(local_stage, tmp_path):
    Placement(str(tmp_path), HERE).assign({3: THERE})
    with pytest.raises(PartiesUnreachable, match="party 3: its ledger and keys lie on"):
        local_stage.engine.run("{}", 4, policies=str(tmp_path))
