"""The four stages of a secure sum, carried by requests and releases as an engine carries them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.privacy.secagg.protocol import (
    COLLECT,
    SETUP,
    SHARE,
    STAGES,
    UNMASK,
    added,
    answer_in_stage,
    secure_sum,
)

QUESTION = Request("gradient", 3, {"model": torch.tensor([1.0, 2.0])}, {"scale": 2})


class Parties:
    """Parties that answer each stage, except for those that drop out of it."""

    def __init__(self, folder: Path, count: int, lost: Mapping[str, set[int]] | None = None):
        self.folder, self.count, self.lost = folder, count, lost or {}
        self.questions: list[Request] = []
        self.sent: dict[str, list[Release]] = {stage: [] for stage in STAGES}

    def numbers(self, party: int) -> Release:
        """The release of one party to the question, before any mask."""
        values = torch.arange(4).reshape(2, 2) * 10**party
        return Release(party, {"sum": values}, (f"entry {party}",), {}, only_in_sum=True)

    def ask(self, requests: Mapping[int, Request]) -> list[Release]:
        """Send one request per party and return the releases of those that did not drop out."""
        kind = next(iter(requests.values())).kind

        def answer(party: int):
            def inner(question: Request) -> Release:
                self.questions.append(question)
                return self.numbers(party)

            return inner

        releases = [
            answer_in_stage(
                self.folder / str(p),
                p,
                self.count - 1,
                request,
                answer(p),
                parties=range(self.count),
            )
            for p, request in requests.items()
            if p not in self.lost.get(kind, set())
        ]
        self.sent[kind] += releases
        return releases

    def sum(self, at_least: int | None = None) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        """The sum over all parties."""
        least = self.count - 1 if at_least is None else at_least
        return secure_sum(self.ask, range(self.count), QUESTION, least, ("key",))


@pytest.mark.parametrize("stage", [None, SETUP, SHARE, COLLECT, UNMASK])
def test_the_sum_equals_the_ideal_one_whenever_a_party_drops_out(tmp_path, stage):
    parties = Parties(tmp_path, 5, {stage: {1}} if stage else {})
    total, answered = parties.sum()
    expected = {0, 1, 2, 3, 4} - ({1} if stage in (SETUP, SHARE, COLLECT) else set())
    assert set(answered) == expected
    ideal = added([parties.numbers(p) for p in answered])
    assert torch.equal(total["sum"], ideal["sum"])


def test_the_inner_question_arrives_as_it_was_asked(tmp_path):
    parties = Parties(tmp_path, 3)
    parties.sum()
    assert {question.digest() for question in parties.questions} == {QUESTION.digest()}


def test_masked_releases_keep_their_entries_and_hide_their_numbers(tmp_path):
    parties = Parties(tmp_path, 3)
    parties.sum()
    for release in parties.sent[COLLECT]:
        plain = parties.numbers(release.party)
        assert release.entries == plain.entries
        assert not bool((release.arrays["sum"] == plain.arrays["sum"]).any())
    assert all(
        not release.entries for kind in (SETUP, SHARE, UNMASK) for release in parties.sent[kind]
    )


def test_too_few_answers_are_no_sum_and_nothing_is_unmasked(tmp_path):
    parties = Parties(tmp_path, 4, {COLLECT: {0, 2}})
    assert parties.sum(at_least=3) == ({}, (1, 3))
    assert parties.sent[UNMASK] == []


def test_a_release_without_shares_of_noise_is_not_summed(tmp_path):
    parties = Parties(tmp_path, 3)
    parties.numbers = lambda party: Release(party, {"sum": torch.zeros(1)}, ())
    with pytest.raises(UserError, match="not answered in a sum"):
        parties.sum()


def test_another_question_than_was_agreed_on_is_refused(tmp_path):
    parties = Parties(tmp_path, 3)
    honest = parties.ask

    def replaced(requests: Mapping[int, Request]) -> list[Release]:
        changed = {
            p: Request(r.kind, r.round + 1, r.arrays, r.scalars) if r.kind == COLLECT else r
            for p, r in requests.items()
        }
        return honest(changed)

    with pytest.raises(UserError, match="begun about another question"):
        secure_sum(replaced, range(3), QUESTION, 3, ("key",))
    assert not parties.questions
