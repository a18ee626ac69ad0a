"""PATE-GAN: the cost of a vote, the independence of teachers, and the student's labels."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import pytest
import torch

from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.pate.pate_gan import (
    MOVED,
    RELABELLED,
    VOTE,
    PateGAN,
    PateGANConfig,
    Queries,
    _Student,
    _Teachers,
)
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian, repeated

PATE = PateGAN()
DELTA = 1e-5
CFG = PateGANConfig(
    teachers=6, rounds=3, batch=16, latent=3, hidden=5, teacher_steps=2, learning_rate=0.01, spc=4
)


def stage_of(parties: int = 1, records: int = 60) -> Stage:
    info = tuple(PartyInfo(p, records, {1: records // 2, 4: records // 2}) for p in range(parties))
    data = DatasetInfo("tiny", (1, 4, 4), 6, (0.5,), (0.25,))
    return Stage(data, 0, 1, info, (1, 4), (1, 4))


def test_every_label_is_charged_whatever_the_votes():
    """The counts of a round move by one each, like one Gaussian mechanism of sigma per image."""
    party_plan = PATE.plan(replace(CFG, noise=12.0), stage_of(), Budget(10, DELTA)).parties[0]
    labels = repeated(gaussian(12.0), 3 * 16)
    assert epsilon(party_plan.event, DELTA) == pytest.approx(epsilon(labels, DELTA), rel=1e-9)
    assert VOTE.sensitivity(16) == math.sqrt(16)


@pytest.mark.parametrize("budget", [1.0, 10.0])
def test_noise_is_calibrated_to_all_labels(budget):
    party_plan = PATE.plan(CFG, stage_of(), Budget(budget, DELTA)).parties[0]
    assert 0.9999 * budget < epsilon(party_plan.event, DELTA) <= budget
    twice = PATE.plan(replace(CFG, rounds=6), stage_of(), Budget(budget, DELTA)).parties[0]
    assert twice.noise_multiplier == pytest.approx(math.sqrt(2) * party_plan.noise_multiplier)


def test_teachers_are_shared_by_records():
    assert CFG.teachers_per_party(stage_of(3)) == {0: 2, 1: 2, 2: 2}
    assert CFG.teachers_per_party(stage_of(12)) == dict.fromkeys(range(12), 1)


@pytest.fixture
def student() -> _Student:
    plan = Plan("pate_gan", stage_of(), Budget(10, DELTA), ())
    net = PATE.network(CFG, plan, 0, "net")
    return _Student(CFG, plan, 0, net, ("key",))


def records(n: int = 60, seed: int = 0) -> Records:
    images = torch.randint(
        0, 256, (n, 1, 4, 4), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8
    )
    return Records(images, torch.tensor([1, 4])[torch.arange(n) % 2])


def test_a_teachers_votes_depend_on_its_own_records_and_public_images_only(student):
    """The records of all other teachers, and their number, do not change its votes."""
    data = records()
    teachers = _Teachers(CFG, student, data, 6)
    votes = {}
    own = teachers.assignment.indices[2, : teachers.assignment.sizes[2]].sort().values
    for name, kept in (("all", torch.arange(60)), ("own", own)):
        chosen = Records(data.images[kept], data.labels[kept])
        teachers = _Teachers(CFG, student, chosen, 6)
        for number in range(3):
            votes[name, number] = _votes(teachers, number)[2]
    assert any(votes["all", number].any() for number in range(3))
    for number in range(3):
        assert torch.equal(votes["all", number], votes["own", number])


def _votes(teachers: _Teachers, number: int) -> torch.Tensor:
    """The votes of a round before they are counted, [teachers, images]."""
    seen: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "fedsynth.methods.pate.pate_gan.VoteCounts.count",
            staticmethod(lambda _rule, _images, stacks: seen.extend(stacks)),
        )
        teachers.votes(number)
    return torch.cat(seen).squeeze(2)


def test_a_teacher_without_records_abstains(student):
    data = records(3)
    teachers = _Teachers(CFG, student, data, 6)
    empty = teachers.assignment.sizes == 0
    assert empty.any()
    for number in range(3):
        assert not _votes(teachers, number)[empty].any()


@pytest.mark.parametrize(("labels", "expected"), [("majority", [0.0, 1.0, 1.0]),
                                                  ("share", [0.0, 0.5, 1.0])])  # fmt: skip
def test_the_student_learns_the_noised_labels(student, labels, expected, monkeypatch):
    seen = []
    student.cfg = replace(CFG, labels=labels, batch=3)
    monkeypatch.setattr(
        "fedsynth.methods.pate.pate_gan.F.binary_cross_entropy_with_logits",
        lambda scores, real: seen.append(real) or scores.sum(),
    )
    student.learn(0, torch.tensor([-2.0, 3.0, 9.0]))
    assert seen[0].tolist() == expected


def test_perturbed_queries_are_public_images_near_generated_ones(student):
    generated = student.voted_rows(3)
    student.cfg = replace(CFG, queries=Queries.PERTURBED, batch=200)
    rows = student.voted_rows(3)
    assert torch.equal(rows, student.voted_rows(3))  # for teachers and student alike
    assert not torch.equal(rows[:16], generated)
    pixels, one_hot = rows.split([16, 2], 1)
    assert ((pixels >= 0) & (pixels <= 1)).all()
    assert torch.equal(one_hot.sum(1), torch.ones(200))
    student.cfg = replace(CFG, batch=200)
    plain = student.voted_rows(3)
    moved = (plain[:, :16] != pixels).any(1).float().mean()
    relabelled = (plain[:, 16:] != one_hot).any(1).float().mean()
    assert moved == pytest.approx(MOVED, abs=0.1)
    assert relabelled == pytest.approx(RELABELLED / 2, abs=0.1)  # half of the labels stay by chance


def test_networks_see_averaged_images_and_the_generator_draws_whole_ones():
    cfg = replace(CFG, side=2)
    plan = Plan("pate_gan", stage_of(), Budget(10, DELTA), ())
    student = _Student(cfg, plan, 0, PATE.network(cfg, plan, 0, "net"), ("key",))
    images = torch.rand(5, 1, 4, 4)
    rows = student.seen_rows(images, torch.zeros(5).long())
    assert rows.shape == (5, 4 + 2)
    torch.testing.assert_close(rows[:, 0], images[:, 0, :2, :2].mean((1, 2)))
    assert student.generator(torch.zeros(5, 3), torch.zeros(5).long()).shape == images.shape
    assert student.rows(0).shape == (16, 6)
    assert _votes(_Teachers(cfg, student, records(), 6), 0).shape == (6, 16)
    assert replace(CFG, side=9).seen_shape((1, 1, 30)) == (1, 1, 30)  # a table is never averaged


def test_the_student_remembers_the_labels_of_earlier_rounds(student, monkeypatch):
    seen = []
    student.cfg = replace(CFG, memory=2, student_steps=30)
    student.labelled = deque(maxlen=2)
    monkeypatch.setattr(
        "fedsynth.methods.pate.pate_gan.F.binary_cross_entropy_with_logits",
        lambda scores, real: seen.append(float(real.sum())) or scores.sum(),
    )
    for number, votes in enumerate((0.0, 6.0, 0.0)):
        seen.clear()
        student.learn(number, torch.full((16,), votes))
    assert seen[0] == 0  # the newest first
    assert set(seen) == {0.0, 16.0}  # and those of the round before, but no older ones
