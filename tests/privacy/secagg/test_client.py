"""Secure aggregation: the sum and nothing else, through drop-outs, and to one set of parties."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.privacy.secagg.client import OutOfTurn, SecAggClient
from fedsynth.privacy.secagg.server import NeighbourGraph, least_threshold, unmasked

QUESTION = "0123456789abcdef" * 4


class Round:
    """The protocol from its setup on, with parties dropping out between its stages."""

    def __init__(self, folder: Path, count: int, at_least: int, session: str = "s") -> None:
        self.near = NeighbourGraph.choose(range(count), at_least, numpy_generator(0, "test"))
        self.sides = {p: SecAggClient(folder / str(p), p, session) for p in range(count)}
        self.at_least = at_least
        self.public = {
            p: s.setup(QUESTION, self.near.threshold, at_least) for p, s in self.sides.items()
        }

    def share(self, lost: Collection[int] = ()) -> None:
        self.sealed = {
            p: side.share_keys({q: self.public[q] for q in self.near.of[p]}, self.sides)
            for p, side in self.sides.items()
            if p not in lost
        }

    def collect(self, numbers, lost: Collection[int] = ()) -> None:
        self.masked = {}
        for p in self.sealed:
            if p not in lost:
                texts = {
                    q: self.sealed[q][p] for q in self.near.of[p] if q in self.sealed and q != p
                }
                self.sides[p].open_shares(QUESTION, texts)
                self.masked[p] = self.sides[p].mask(numbers[p])

    def unmask(self, lost: Collection[int] = ()) -> dict[str, torch.Tensor]:
        answered = sorted(self.masked)
        given = {
            p: self.sides[p].unmask(answered, self.at_least, self.sides)
            for p in answered
            if p not in lost
        }
        dropped = [p for p in self.sealed if p not in self.masked]
        return unmasked(self.masked, given, dropped, self.public, self.near)


def numbers_of(count: int) -> dict[int, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(count)
    return {
        p: {
            "b": torch.randint(-(2**50), 2**50, (3, 5), generator=generator),
            "a": torch.randint(-9, 9, (4,), generator=generator),
        }
        for p in range(count)
    }


@pytest.mark.parametrize(
    ("count", "unshared", "uncollected", "unmasked_late"),
    [
        (2, [], [], []),
        (3, [], [], []),
        (5, [], [2], []),
        (5, [4], [], []),
        (7, [1], [0, 6], []),
        (9, [], [], [0, 8]),
        (22, [3], [8, 20], [11]),
    ],
)
def test_the_sum_is_that_of_those_who_answered(
    tmp_path, count, unshared, uncollected, unmasked_late
):
    """Also where parties are lost before they share, before they send, or before unmasking."""
    numbers = numbers_of(count)
    some = Round(tmp_path, count, count - len(unshared) - len(uncollected))
    some.share(lost=unshared)
    some.collect(numbers, lost=uncollected)
    total = some.unmask(lost=unmasked_late)
    there = [p for p in range(count) if p not in {*unshared, *uncollected}]
    for name in ("b", "a"):
        assert torch.equal(total[name], sum(numbers[p][name] for p in there))


def test_what_a_party_sends_looks_like_noise(tmp_path):
    """Zeros under their masks are uniform, and none of them is the mask of another session."""
    zeros = {p: {"a": torch.zeros(5000, dtype=torch.int64)} for p in range(3)}
    sent = []
    for session in ("s", "t"):
        some = Round(tmp_path, 3, 3, session)
        some.share()
        some.collect(zeros)
        sent += [arrays["a"] for arrays in some.masked.values()]
    for value in sent:
        assert chisquare(np.bincount(value.numpy().view(np.uint8), minlength=256)).pvalue > 1e-4
    assert len({value[:4].numpy().tobytes() for value in sent}) == 6
    partial = (sent[0] + sent[1]).numpy()
    assert chisquare(np.bincount(partial.view(np.uint8), minlength=256)).pvalue > 1e-4


def test_a_sum_of_too_few_stays_masked(tmp_path):
    some = Round(tmp_path, 5, at_least=4)
    some.share()
    some.collect(numbers_of(5), lost=[0, 1])
    with pytest.raises(OutOfTurn, match=r"a sum of 3 parties .* at least 4 shares"):
        some.unmask()


def test_a_question_is_answered_to_one_set_of_parties_only(tmp_path):
    """Two sums that differ by one party would show its numbers; also in a later session."""
    numbers = numbers_of(5)
    some = Round(tmp_path, 5, at_least=3)
    some.share()
    some.collect(numbers, lost=[4])
    first = some.unmask()
    assert torch.equal(some.unmask()["b"], first["b"]), "the same again is no trouble"
    some.masked.pop(3)
    with pytest.raises(OutOfTurn, match="over other parties before"):
        some.unmask()
    later = Round(tmp_path, 5, at_least=3, session="t")
    later.share()
    later.collect(numbers)
    with pytest.raises(OutOfTurn, match="over other parties before"):
        later.unmask()


def test_too_few_shares_do_not_open_a_mask(tmp_path):
    some = Round(tmp_path, 5, at_least=5)
    some.share()
    some.collect(numbers_of(5))
    with pytest.raises(UserError, match=r"cannot be taken off .* 2 of its neighbours"):
        some.unmask(lost=[0, 1, 2])


def test_shares_of_one_seed_and_one_key_are_never_given_together(tmp_path):
    some = Round(tmp_path, 4, at_least=3)
    some.share()
    some.collect(numbers_of(4), lost=[3])
    given = some.sides[0].unmask([0, 1, 2], 3, range(4))
    assert {party: seed for party, (seed, _) in given.items()} == {
        0: True,
        1: True,
        2: True,
        3: False,
    }


def test_steps_out_of_turn_are_refused(tmp_path):
    some = Round(tmp_path, 3, 3)
    side = some.sides[0]
    assert side.setup(QUESTION, some.near.threshold, 3) == some.public[0], (
        "asked again: the same keys"
    )
    with pytest.raises(OutOfTurn, match="another question"):
        side.setup("f" * 64, some.near.threshold, 3)
    with pytest.raises(OutOfTurn, match="were not shared"):
        side.open_shares(QUESTION, {})
    with pytest.raises(OutOfTurn, match="own keys"):
        side.share_keys({**some.public, 0: some.public[1]}, range(3))
    with pytest.raises(OutOfTurn, match="too few neighbours"):
        side.share_keys({0: some.public[0], 1: some.public[1]}, range(3))
    with pytest.raises(OutOfTurn, match="same key"):
        side.share_keys({**some.public, 2: some.public[1]}, range(3))
    some.share()
    with pytest.raises(OutOfTurn, match="were others before"):
        side.share_keys({**some.public, 2: (b"x", b"y")}, range(3))
    with pytest.raises(OutOfTurn, match="shares of party 1 cannot be opened"):
        side.open_shares(QUESTION, {1: some.sealed[2][0], 2: some.sealed[2][0]})
    with pytest.raises(OutOfTurn, match="not in the sum"):
        side.unmask([0, 1, 2], 3, range(4))
    Round(tmp_path, 3, 3, session="t")
    with pytest.raises(OutOfTurn, match="another one has begun"):
        side.mask(numbers_of(3)[0])


@pytest.mark.parametrize(
    ("at_least", "least"), [(2, 2), (3, 3), (5, 4), (10, 7), (20, 11), (100, 15)]
)
def test_a_threshold_below_what_the_plan_counts_on_is_refused(tmp_path, at_least, least):
    """A server that sets it to one would be told every secret by a single party."""
    for threshold in (-1, 0, 1, least - 1):
        with pytest.raises(OutOfTurn, match=f"too low: at least {least}"):
            SecAggClient(tmp_path, 0, "s").setup(QUESTION, threshold, at_least)
    SecAggClient(tmp_path, 0, "s").setup(QUESTION, least, at_least)


@pytest.mark.parametrize("count", range(2, 60))
def test_every_graph_has_a_threshold_that_its_parties_accept(count):
    for at_least in range(2, count + 1):
        near = NeighbourGraph.choose(range(count), at_least, numpy_generator(0, "test"))
        assert near.threshold >= least_threshold(at_least)
        assert all(2 * near.threshold > len(of) for of in near.of.values())


def test_half_of_the_neighbours_never_suffice(tmp_path):
    """Else one half could be asked for a party's seed, and the other one for its key."""
    some = Round(tmp_path, 8, 2)
    side = SecAggClient(tmp_path / "own", 0, "s")
    own = side.setup(QUESTION, 4, 2)
    with pytest.raises(OutOfTurn, match="more than half"):
        side.share_keys({**some.public, 0: own}, range(8))


def test_parties_that_the_plan_does_not_know_are_neither_neighbours_nor_in_a_sum(tmp_path):
    """A server could invent as many as a sum needs, and one party would be alone in it."""
    some = Round(tmp_path, 4, 3)
    with pytest.raises(OutOfTurn, match="not a party of this stage"):
        some.sides[0].share_keys(some.public, range(3))
    some.share()
    some.collect(numbers_of(4))
    with pytest.raises(OutOfTurn, match="not in this stage"):
        some.sides[0].unmask([0, 1000, 1001, 1002], 3, range(4))


def test_other_numbers_do_not_leave_under_the_same_masks(tmp_path):
    """Their difference would leave in the clear."""
    some = Round(tmp_path, 3, 3)
    some.share()
    numbers = numbers_of(3)
    some.collect(numbers)
    again = some.sides[0].mask(numbers[0])
    assert all(torch.equal(again[name], some.masked[0][name]) for name in again)
    numbers[0]["a"] += 1
    with pytest.raises(OutOfTurn, match="other numbers left"):
        some.sides[0].mask(numbers[0])


@pytest.mark.parametrize("question", ["../../elsewhere", "f" * 63, "F" * 64, ""])
def test_a_question_names_no_file(tmp_path, question):
    with pytest.raises(OutOfTurn, match="digest"):
        SecAggClient(tmp_path, 0, "s").setup(question, 3, 3)


@pytest.mark.parametrize("key", [b"", b"x" * 200, b"-----BEGIN PUBLIC KEY-----"])
def test_keys_that_cannot_be_read_are_refused(tmp_path, key):
    some = Round(tmp_path, 3, 3)
    with pytest.raises(OutOfTurn, match="cannot be read"):
        some.sides[0].share_keys({**some.public, 1: (key, some.public[1][1])}, range(3))


def test_a_new_session_begins_where_the_last_one_left_a_damaged_file(tmp_path):
    some = Round(tmp_path, 3, 3)
    (tmp_path / "0" / "secure-sum.checkpoint").write_text('{"session": "s"')
    with pytest.raises(OutOfTurn, match="damaged"):
        some.sides[0].share_keys(some.public, range(3))
    again = Round(tmp_path, 3, 3, session="t")
    again.share()
    again.collect(numbers_of(3))
    assert torch.equal(again.unmask()["a"], sum(n["a"] for n in numbers_of(3).values()))


def test_two_processes_asked_at_once_unmask_one_set_of_parties(tmp_path) -> None:
    """Flower may start a process per message: each is another client on the same folder."""
    start, sets = threading.Barrier(2), ([0, 1, 2], [0, 1])

    def bound(number: int, answered: list[int]) -> bool:
        start.wait()
        try:
            SecAggClient(tmp_path, 0, "s")._pin(f"{number:064x}"[::-1], answered)
        except OutOfTurn:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for number in range(50):
            one, other = (pool.submit(bound, number, answered) for answered in sets)
            assert one.result() != other.result()
