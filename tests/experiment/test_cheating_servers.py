"""Servers that cheat over several messages: what real parties answer, and what their ledgers hold.

`test_client_session.py` has the attacks of one message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from cached import cleared
from real_party import POLICY, RealParty, Reply, proposal

from fedsynth.cli.ledger import main as ledger_command
from fedsynth.core.errors import Refusal
from fedsynth.core.messages import Release, Request
from fedsynth.experiment import scenario
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import total
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.secagg.client import SecAggClient
from fedsynth.privacy.secagg.protocol import SHARE, secure_sum

DELTA = 1e-3
ASK = Request("release", 0, scalars={"seed": 0})
OWN = POLICY.replace(
    "{name: shapes, partition: iid, parties: 3, holdout: 1600}",
    "{name: ward, file: own.npz, partition: single, parties: 1}",
)


def of_own_file(**changes: object) -> dict:
    fields = proposal(**changes)
    own = {"data": "ward", "partition": "single", "parties": 1, "holdout": 0.0}
    return {**fields, "scenario": {**fields["scenario"], **own}}


def write_records(folder: Path, first_pixel: int = 0) -> None:
    """Records of a party, of which the first differs in one pixel."""
    images = np.random.default_rng(3).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    images[0, 0, 0] = first_pixel
    labels = np.arange(60) % 3
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(folder / "own.npz", **arrays)


def bits(release: Release | None) -> dict[str, bytes]:
    assert release is not None
    return {name: value.numpy().tobytes() for name, value in release.arrays.items()}


def test_after_a_secure_sum_no_share_leaves_in_the_clear(tmp_path: Path) -> None:
    """The same question again, without masks and as an ideal sum, before and after a restart."""
    parties = [RealParty(tmp_path / str(number), party=number) for number in range(3)]
    wanted = proposal("dp_merf_joint", {"noise_at": "distributed"}, secure_sum="secagg")
    question = Request("sums", 0, scalars={"seed": 0})

    def ask(requests: Mapping[int, Request]) -> list[Release]:
        replies = [parties[party].ask(wanted, request) for party, request in requests.items()]
        return [reply.release for reply in replies if reply.release is not None]

    summed, answered = secure_sum(ask, range(3), question, 3, (0, "attack"))
    assert answered == (0, 1, 2)
    assert all(torch.isfinite(value.double()).all() for value in summed.values())
    paid = [party.charged for party in parties]
    for _ in range(2):
        for party in parties:
            for kind in ("secagg", "ideal"):
                reply = party.ask({**wanted, "secure_sum": kind}, question)
                assert reply.release is None
                assert reply.refusal is Refusal.POLICY
        tiny.forget()
    assert [party.charged for party in parties] == paid


def keys_of_the_server(folder: Path, request: Request) -> Request:
    """The request to share keys, with the server's own in place of those of party 1."""
    session, question = str(request.scalars["session"]), str(request.scalars["question"])
    keys = SecAggClient(folder / "server", 1, session).setup(question, 3, 3)
    forged = {
        f"{kind} 1": torch.frombuffer(bytearray(key), dtype=torch.uint8)
        for kind, key in zip(("first key", "second key"), keys, strict=True)
    }
    arrays = {**request.arrays, **forged}
    return Request(request.kind, request.round, arrays, request.scalars)


@pytest.mark.parametrize("cheats", [False, True], ids=["honest", "swapped keys"])
def test_a_server_that_swaps_keys_is_refused_by_a_policy_with_peers(tmp_path, cheats) -> None:
    """The party that is given a false key shares nothing, so that no sum and no share leaves it; an
    honest server gets the sum."""
    keys = {n: PartyKey.of_owner(tmp_path / str(n), f"party {n}").public for n in range(3)}
    parties = []
    for number in range(3):
        peers = {other: key for other, key in keys.items() if other != number}
        policy = f"{POLICY}peers: {json.dumps(peers)}\n"
        parties.append(RealParty(tmp_path / str(number), policy, party=number))
    wanted = proposal("dp_merf_joint", {"noise_at": "distributed"}, secure_sum="secagg")
    replies: list[Reply] = []

    def ask(requests: Mapping[int, Request]) -> list[Release]:
        releases = []
        for party, request in requests.items():
            false = cheats and request.kind == SHARE and party == 0
            sent = keys_of_the_server(tmp_path, request) if false else request
            replies.append(parties[party].ask(wanted, sent))
            if replies[-1].release is not None:
                releases.append(replies[-1].release)
        return releases

    question = Request("sums", 0, scalars={"seed": 0})
    summed, answered = secure_sum(ask, range(3), question, 3, (0, "attack"))
    if not cheats:
        assert answered == (0, 1, 2)
        assert all(torch.isfinite(value.double()).all() for value in summed.values())
        return
    assert summed == {}
    assert {reply.refusal for reply in replies if reply.release is None} == {Refusal.REQUEST}
    assert "keys of party 1 are not signed" in next(r.text for r in replies if not r.release)
    for party in parties:
        assert not (party.folder / "ledger.jsonl").exists() or party.charged == []


def test_a_question_on_changed_records_is_paid_for_or_refused(tmp_path: Path) -> None:
    """One record is edited between two answers: ten answers do not cost what one does."""
    party = RealParty(tmp_path / "party", OWN)

    def answer(pixel: int) -> Reply:
        """After a restart, on records with this pixel."""
        write_records(party.folder, pixel)
        tiny.forget()
        with cleared(scenario, "party_records", "_read", "_assigned"):
            return party.ask(of_own_file(), ASK)

    answers = [answer(pixel) for pixel in range(0, 100, 10)]
    released = [reply.release for reply in answers if reply.release is not None]
    assert answers[0].release is not None
    assert {reply.refusal for reply in answers if reply.release is None} == {Refusal.BUDGET}
    assert len(released) < 4
    assert epsilon(total(party.charged), DELTA) <= 2
    paid = party.charged
    assert bits(answer(0).release) == bits(answers[0].release)
    assert party.charged == paid


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_its_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [emptied, Path.unlink, without_its_end])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_party_whose_ledger_was_lost_spends_nothing_more(party, damage, restarted) -> None:
    assert party.ask(proposal(), ASK).release is not None
    damage(party.folder / "ledger.jsonl")
    if restarted:
        tiny.forget()
    for wanted in (proposal(), proposal("dp_hp", seed=1)):
        reply = party.ask(wanted, ASK)
        assert reply.release is None
        assert reply.refusal is Refusal.LEDGER
        assert str(party.folder) not in reply.text


def test_jobs_that_a_server_drops_count_with_their_whole_plan(party: RealParty) -> None:
    """It gets no answer, and the party has less left: no more jobs than with answers."""
    replies = [party.ask(proposal(seed=seed), ASK, stage=7) for seed in range(20)]
    refusals = [reply.refusal for reply in replies]
    admitted = refusals.count(Refusal.REQUEST)  # there is no such stage
    assert 1 <= admitted < 4
    assert refusals == [Refusal.REQUEST] * admitted + [Refusal.BUDGET] * (20 - admitted)
    assert len((party.folder / "jobs.jsonl").read_text().splitlines()) == admitted
    assert not (party.folder / "ledger.jsonl").exists() or party.charged == []


@pytest.mark.parametrize("restarted", [False, True])
def test_closed_jobs_are_not_repeated(party: RealParty, restarted: bool) -> None:
    """`fedsynth ledger close`: the noise of the first answer can be drawn no more, the same request
    would exceed its job's plan, and another job is admitted as before."""
    first = party.ask(proposal(), ASK)
    assert bits(party.ask(proposal(), ASK).release) == bits(first.release)
    charged = party.charged
    assert ledger_command(["close", str(party.folder / "ledger.jsonl")]) == 0
    assert not list(party.folder.rglob("*.checkpoint*"))
    if restarted:
        tiny.forget()
    reply = party.ask(proposal(), ASK)
    assert reply.release is None
    assert reply.refusal is Refusal.BUDGET
    assert party.charged == charged
    another = party.ask(proposal(seed=1), ASK)
    assert bits(another.release) != bits(first.release)
    assert epsilon(total(party.charged), DELTA) <= 4


@pytest.fixture
def party(tmp_path: Path) -> RealParty:
    return RealParty(tmp_path / "party")
