"""DataLens's teachers at home: whose records they learn from, and what a crash costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tiny_runs as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instruments import Crash, Fuse

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.pate.datalens import teacher_store as home_file
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import CONVENTION, Recipe
from fedsynth.methods.pate.datalens.teacher_store import TeacherStore
from fedsynth.methods.pate.datalens.teachers import Question, RecordAssignment, TeacherEnsemble
from fedsynth.privacy.party_data import Records

DATA = DatasetInfo("tiny", (1, 8, 8), 3, (0.5,), (0.25,))
PARTIES = (PartyInfo(0, 60, {0: 20, 1: 20, 2: 20}),)
TASK = Stage(DATA, 0, 1, PARTIES, (0, 1, 2), (0, 1, 2))
BUDGET = Budget(10.0, 1e-5, accounting=CONVENTION)


FEW = {
    "teachers": 12, "entries": 9, "batch": 3, "channels": 2, "hidden": 5, "code": 3, "clip": 0.0,
    "rounds": 6, "generator_hidden": 4, "generator_channels": 2, "spc": 4,
}  # fmt: skip


def some_records(n: int = 60, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return Records(images, torch.randint(3, (n,), generator=generator))


def ensemble(records: Records, **changes: Any) -> TeacherEnsemble:
    cfg = DataLensConfig(**{**FEW, **changes})
    recipe = Recipe.of(cfg, TASK, BUDGET)
    made = TeacherEnsemble(
        records, 12, cfg=cfg, recipe=recipe, stage=TASK, key=("k",), device=torch.device("cpu")
    )
    made.begin()
    return made


def question(of: TeacherEnsemble, number: int) -> Request:
    studio = StudentGenerator(of.cfg, of.recipe, of.stage, ("s",), torch.device("cpu"))
    return studio.question(number, 0)


def after(of: TeacherEnsemble, rounds: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Counts of all rounds, and each teacher's parameters behind them."""
    counts = []
    for number in range(rounds):
        arrays = question(of, number).arrays
        like = torch.empty(0, dtype=of.dtype)
        asked = Question.of(number, arrays, of.recipe, of.stage, like)
        counts.append(of.round(asked).sums)
    states: list[list[torch.Tensor]] = [[] for _ in range(12)]
    for stack in of.stacks:
        for flat in (stack.flat, stack.squares):
            for view in of.shape.views(flat, stack.teachers).values():
                for i in range(stack.teachers):
                    states[stack.start + i].append(view[i].flatten().float())
    return counts, [torch.cat(parts) for parts in states]


@given(st.integers(0, 59), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_record_more_or_less_changes_one_teacher_wherever_it_stands(position, shuffled):
    whole = some_records()
    left = [i for i in range(60) if i != position]
    if shuffled:
        left.reverse()
    rest = Records(whole.images[left], whole.labels[left])
    one, other = ensemble(whole), ensemble(rest)
    counts, states = after(one, 2)
    fewer, others = after(other, 2)
    changed = [i for i in range(12) if not torch.equal(states[i], others[i])]
    owner = int(torch.nonzero(one.members.sizes - other.members.sizes))
    assert changed in ([owner], [])  # a batch may do without one record
    bound = one.recipe.rule.sensitivity(one.recipe.images)
    for a, b in zip(counts, fewer, strict=True):
        assert float((a - b).double().norm()) <= bound


def test_every_record_has_one_teacher_and_all_have_about_as_many():
    members = RecordAssignment.of(some_records(3000), 100, "some partition")
    used = torch.cat([row[:n] for row, n in zip(members.places, members.sizes, strict=True)])
    assert sorted(used.tolist()) == list(range(3000))
    assert 10 < int(members.sizes.min()) < 30 < int(members.sizes.max()) < 60


def test_a_batch_holds_own_records_each_once_while_there_are_enough():
    members = RecordAssignment.of(some_records(), 12, "some partition")
    batches = [members.batch(4, "round", number) for number in range(3)]
    for teacher, size in enumerate(members.sizes.tolist()):
        own = set(members.places[teacher, :size].tolist())
        for batch in batches:
            chosen = batch[teacher].tolist()
            assert size == 0 or set(chosen) <= own
            assert size == 0 or len(set(chosen)) == min(4, size)
    assert not torch.equal(batches[0], batches[1])


def test_teachers_without_records_abstain():
    lonely = ensemble(some_records(1))
    (counts,), _ = after(lonely, 1)
    assert (counts != 0).sum(1).tolist() == [9, 9, 9]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_change_nothing(dtype):
    found = []
    for threads in (1, 3):
        made = ensemble(some_records(), dtype=dtype)
        made.threads = threads
        found.append(after(made, 2))
    (counts, states), (others, those) = found
    assert all(torch.equal(a, b) for a, b in zip(counts + states, others + those, strict=True))


# At home


def answers(home: TeacherStore, of: TeacherEnsemble, numbers: range) -> list[torch.Tensor]:
    return [home.answer(question(of, number)).sums for number in numbers]


@pytest.fixture
def undisturbed() -> list[torch.Tensor]:
    return after(ensemble(some_records()), 6)[0]


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_killed_party_goes_on_where_it_was(
    tmp_path, monkeypatch, undisturbed, every, killed_after
):
    """From saved teachers or, where none were saved yet, from the journal alone."""
    monkeypatch.setattr(home_file, "EVERY_SECONDS", every)
    monkeypatch.setattr(home_file, "SHARE", 0)
    first = ensemble(some_records())
    before = answers(TeacherStore(tmp_path, 0, first), first, range(killed_after))
    assert (tmp_path / "teachers.checkpoint").exists() == (every == 0.0)
    fresh = ensemble(some_records())
    fresh.end()
    home = TeacherStore(tmp_path, 0, fresh)
    again = answers(home, fresh, range(killed_after - 1, 6))
    assert torch.equal(again[0], before[-1])
    found = before + again[1:]
    assert all(torch.equal(a, b) for a, b in zip(found, undisturbed, strict=True))
    assert not fresh.stacks, "the memory is given back after the last round"
    assert not (tmp_path / "teachers.checkpoint").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "another"])
def test_damaged_teachers_are_noticed_and_trained_again(tmp_path, monkeypatch, undisturbed, damage):
    monkeypatch.setattr(home_file, "EVERY_SECONDS", 0.0)
    first = ensemble(some_records())
    answers(TeacherStore(tmp_path, 0, first), first, range(2))
    path = tmp_path / "teachers.checkpoint"
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[:-100]
    elif damage == "flipped":
        raw[len(raw) // 2] ^= 1
    else:
        raw = raw.replace(b'"belongs": "', b'"belongs": "x')
    path.write_bytes(raw)
    fresh = ensemble(some_records())
    fresh.end()
    found = answers(TeacherStore(tmp_path, 0, fresh), fresh, range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(found, undisturbed[2:4], strict=True))


def test_a_round_broken_off_in_the_middle_is_not_built_upon(tmp_path, monkeypatch, undisturbed):
    made = ensemble(some_records())
    home = TeacherStore(tmp_path, 0, made)
    answers(home, made, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(TeacherEnsemble, "_votes", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            home.answer(question(made, 2))
    assert torch.equal(home.answer(question(made, 2)).sums, undisturbed[2])


def test_saved_teachers_are_left_out_where_the_disk_has_no_room(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(home_file, "EVERY_SECONDS", 0.0)
    usage = home_file.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(home_file.shutil, "disk_usage", lambda _: usage._replace(free=10))
    made = ensemble(some_records())
    answers(TeacherStore(tmp_path, 0, made), made, range(2))
    assert not (tmp_path / "teachers.checkpoint").exists()
    assert "no room" in caplog.text


def test_too_many_teachers_for_the_memory_are_refused_before_it_is_taken(monkeypatch):
    made = ensemble(some_records())
    made.end()
    free = (
        home_file.TeacherEnsemble.begin.__globals__["psutil"]
        .virtual_memory()
        ._replace(available=10)
    )
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    with pytest.raises(UserError, match=r"12 teachers of datalens take .* Host fewer"):
        made.begin()


def test_questions_that_make_no_sense_are_refused(tmp_path):
    made = ensemble(some_records())
    home = TeacherStore(tmp_path, 7, made)
    home.answer(question(made, 0))
    other = dataclasses.replace(question(made, 1), round=0)
    with pytest.raises(UserError, match="party 7 answered another question in round 0"):
        home.answer(other)
    with pytest.raises(UserError, match=r"party 7 was asked for round 3 .* never for round 1"):
        home.answer(question(made, 3))
    with pytest.raises(UserError, match=r"round 6 of datalens; the budget pays for rounds 0\.\.5"):
        home.answer(question(made, 6))
    asked = question(made, 1)
    for name, value in (
        ("images", asked.arrays["images"][:2]),
        ("labels", asked.arrays["labels"] + 9),
        ("made", asked.arrays["made"][:, :1]),
    ):
        arrays = {**asked.arrays, name: value}
        with pytest.raises(UserError, match="round 1 of datalens"):
            home.answer(dataclasses.replace(asked, arrays=arrays))
    home._round_file(0).write_bytes(b"rubbish")
    with pytest.raises(UserError, match="file is damaged"):
        home.answer(question(made, 0))


def test_a_run_that_crashes_at_many_moments_ends_the_same(here, tmp_path, monkeypatch):
    """Teachers saved after every round, the curator's state not since the beginning."""
    monkeypatch.setattr(home_file, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(home_file, "SHARE", 0)
    whole = tiny.tiny_job("datalens", tmp_path / "whole", "together")
    tiny.release(whole, here)
    job = tiny.tiny_job("datalens", tmp_path / "crashed", "together")
    for moment in (11, 24):
        with pytest.MonkeyPatch.context() as patch:
            Fuse(patch, at=moment)
            with pytest.raises(Crash):
                tiny.release(job, here)
    tiny.release(job, here)
    assert tiny.outputs(job.out) == tiny.outputs(whole.out)


def test_a_secure_sum_of_votes_is_the_ideal_one(here, tmp_path):
    """Through masks that no party's votes can be read from."""
    released = []
    for way in ("ideal", "secagg"):
        job = tiny.tiny_job("datalens", tmp_path / way, "together", {"at": "distributed"})
        job = dataclasses.replace(job, secure_sum=way)
        tiny.release(job, here)
        released.append({k: v for k, v in tiny.outputs(job.out).items() if k.endswith(".npz")})
    assert released[0] == released[1]
