"""The teachers on a party's disk: recovery after crashes, damaged files, refused requests."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from instruments import Crash
from tiny_teachers import query_request, run_rounds, some_records, tiny_ensemble

from fedsynth.core.errors import UserError
from fedsynth.methods.pate.datalens import teacher_store
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import TeacherEnsemble
from fedsynth.storage.state_file import state_from_bytes, state_to_bytes


def answers(store: TeacherStore, of: TeacherEnsemble, numbers: range) -> list[torch.Tensor]:
    return [store.votes(query_request(of, number)).sums for number in numbers]


@pytest.fixture
def undisturbed() -> list[torch.Tensor]:
    return run_rounds(tiny_ensemble(some_records()), 6)[0]


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_killed_party_goes_on_where_it_was(
    tmp_path, monkeypatch, undisturbed, every, killed_after
):
    """From saved teachers or, where none were saved yet, from the journal alone."""
    monkeypatch.setattr(teacher_store, "EVERY_SECONDS", every)
    monkeypatch.setattr(teacher_store, "SAVING_INTERVALS", 0)
    first = tiny_ensemble(some_records())
    before = answers(TeacherStore(tmp_path, 0, first), first, range(killed_after))
    assert (tmp_path / "teachers.checkpoint").exists() == (every == 0.0)
    fresh = tiny_ensemble(some_records())
    fresh.free()
    store = TeacherStore(tmp_path, 0, fresh)
    again = answers(store, fresh, range(killed_after - 1, 6))
    assert torch.equal(again[0], before[-1])
    found = before + again[1:]
    assert all(torch.equal(a, b) for a, b in zip(found, undisturbed, strict=True))
    assert not fresh.stacks, "the memory is given back after the last round"
    assert not (tmp_path / "teachers.checkpoint").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "another"])
def test_damaged_teachers_are_noticed_and_trained_again(tmp_path, monkeypatch, undisturbed, damage):
    monkeypatch.setattr(teacher_store, "EVERY_SECONDS", 0.0)
    first = tiny_ensemble(some_records())
    answers(TeacherStore(tmp_path, 0, first), first, range(2))
    path = tmp_path / "teachers.checkpoint"
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[:-100]
    elif damage == "flipped":
        raw[len(raw) // 2] ^= 1
    else:
        raw = state_to_bytes({**state_from_bytes(bytes(raw)), "fingerprint": "of others"})
    path.write_bytes(raw)
    fresh = tiny_ensemble(some_records())
    fresh.free()
    found = answers(TeacherStore(tmp_path, 0, fresh), fresh, range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(found, undisturbed[2:4], strict=True))


def test_a_round_broken_off_in_the_middle_is_not_built_upon(tmp_path, monkeypatch, undisturbed):
    made = tiny_ensemble(some_records())
    store = TeacherStore(tmp_path, 0, made)
    answers(store, made, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(TeacherEnsemble, "_votes", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            store.votes(query_request(made, 2))
    assert torch.equal(store.votes(query_request(made, 2)).sums, undisturbed[2])


def test_saved_teachers_are_left_out_where_the_disk_has_no_room(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(teacher_store, "EVERY_SECONDS", 0.0)
    usage = teacher_store.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(teacher_store.shutil, "disk_usage", lambda _: usage._replace(free=10))
    made = tiny_ensemble(some_records())
    answers(TeacherStore(tmp_path, 0, made), made, range(2))
    assert not (tmp_path / "teachers.checkpoint").exists()
    assert "no space" in caplog.text


def test_invalid_requests_are_refused(tmp_path):
    made = tiny_ensemble(some_records())
    store = TeacherStore(tmp_path, 7, made)
    store.votes(query_request(made, 0))
    other = dataclasses.replace(query_request(made, 1), round=0)
    with pytest.raises(UserError, match="differs from the one that party 7 answered in round 0"):
        store.votes(other)
    with pytest.raises(UserError, match="round 3, and party 7 was not asked for round 1"):
        store.votes(query_request(made, 3))
    with pytest.raises(UserError, match=r"round 6; the budget covers 0\.\.5"):
        store.votes(query_request(made, 6))
    asked = query_request(made, 1)
    for name, value in (
        ("images", asked.arrays["images"][:2]),
        ("labels", asked.arrays["labels"] + 9),
        ("made", asked.arrays["made"][:, :1]),
    ):
        arrays = {**asked.arrays, name: value}
        with pytest.raises(UserError, match="the request 'votes'"):
            store.votes(dataclasses.replace(asked, arrays=arrays))
    store._round_file(0).write_bytes(b"rubbish")
    with pytest.raises(UserError, match="file is damaged"):
        store.votes(query_request(made, 0))
