"""Signed keys of secure sums: a server that replaces them by its own is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from fedsynth.core.messages import Release, Request
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.secagg.certification import Certification
from fedsynth.privacy.secagg.client import SecAggClient
from fedsynth.privacy.secagg.masking import OutOfTurn
from fedsynth.privacy.secagg.protocol import SHARE, answer_in_stage, secure_sum

QUESTION = Request("gradient", 3)
COUNT = 3
KEYS = {party: PartyKey.of_owner(Path(), f"party {party}", 1) for party in range(COUNT)}
PUBLIC = {party: key.public for party, key in KEYS.items()}
Alter = Callable[[int, Request], Request]


def total(
    folder: Path, certified: Mapping[int, Certification | None], alter: Alter = lambda _, r: r
) -> torch.Tensor:
    """The sum of three parties, by a server that alters its requests."""

    def ask(requests: Mapping[int, Request]) -> list[Release]:
        return [
            answer_in_stage(
                folder / str(p),
                p,
                COUNT,
                alter(p, request),
                lambda _, p=p: Release(p, {"a": torch.full((4,), 10**p)}, ("e",), {}, True),
                parties=range(COUNT),
                certification=certified[p],
            )
            for p, request in requests.items()
        ]

    return secure_sum(ask, range(COUNT), QUESTION, COUNT, ("key",))[0]["a"]


def all_certified(peers: Mapping[int, str] = PUBLIC) -> dict[int, Certification | None]:
    return {party: Certification(key, peers) for party, key in KEYS.items()}


def with_keys_of_the_server(folder: Path, *, signed_by: PartyKey | None = None) -> Alter:
    """Party 0 is given keys of the server's own as those of party 1."""

    def alter(party: int, request: Request) -> Request:
        if request.kind != SHARE or party != 0:
            return request
        session = str(request.scalars["session"])
        server = SecAggClient(folder / "server", 1, session)
        keys = server.setup(QUESTION.digest(), 3, COUNT)
        forged = {
            f"{kind} 1": torch.frombuffer(bytearray(key), dtype=torch.uint8)
            for kind, key in zip(("first key", "second key"), keys, strict=True)
        }
        if signed_by is not None:
            signature = Certification(signed_by).sign(session, QUESTION.digest(), 1, keys)
            forged["signature 1"] = torch.frombuffer(bytearray(signature), dtype=torch.uint8)
        arrays = {**request.arrays, **forged}
        return Request(request.kind, request.round, arrays, request.scalars)

    return alter


@pytest.mark.parametrize("certified", [all_certified(), all_certified({}), dict.fromkeys(KEYS)])
def test_the_sum_is_the_same_with_and_without_signatures(tmp_path, certified):
    assert total(tmp_path, certified).tolist() == [111] * 4


@pytest.mark.parametrize("signed_by", [None, KEYS[0], PartyKey(b"s" * 32)])
def test_keys_of_the_server_do_not_pass_for_those_of_a_party(tmp_path, signed_by):
    alter = with_keys_of_the_server(tmp_path, signed_by=signed_by)
    with pytest.raises(OutOfTurn, match="keys of party 1 are not signed"):
        total(tmp_path, all_certified(), alter)


def test_without_known_peers_such_a_server_is_not_found(tmp_path):
    """The limit that the documents state: nothing is refused while keys are shared."""
    alter = with_keys_of_the_server(tmp_path)
    with pytest.raises(OutOfTurn, match="cannot be opened"):  # only the sum itself goes wrong
        total(tmp_path, all_certified({}), alter)


def test_a_party_whose_key_is_not_known_is_refused(tmp_path):
    known = {party: public for party, public in PUBLIC.items() if party != 2}
    with pytest.raises(OutOfTurn, match="keys of party 2 are not signed"):
        total(tmp_path, all_certified(known))


@pytest.mark.parametrize("change", ["drop", "swap", "cut"])
def test_signatures_cannot_be_dropped_or_exchanged(tmp_path, change):
    def alter(party: int, request: Request) -> Request:
        arrays = dict(request.arrays)
        if request.kind == SHARE and party == 0:
            if change == "drop":
                del arrays["signature 1"]
            elif change == "swap":
                arrays["signature 1"] = arrays["signature 2"]
            else:
                arrays["signature 1"] = arrays["signature 1"][:-1]
        return Request(request.kind, request.round, arrays, request.scalars)

    with pytest.raises(OutOfTurn, match="keys of party 1 are not signed"):
        total(tmp_path, all_certified(), alter)


def test_a_signature_is_for_one_session_one_question_and_one_party(tmp_path):
    keys = SecAggClient(tmp_path, 1, "s").setup("a" * 64, 3, COUNT)
    signature = Certification(KEYS[1]).sign("s", "a" * 64, 1, keys)
    judge = Certification(KEYS[0], PUBLIC)
    judge.check("s", "a" * 64, {1: keys}, {1: signature}, 0)
    for session, question, party in (
        ("t", "a" * 64, 1),
        ("s", "b" * 64, 1),
        ("s", "a" * 64, 2),
    ):
        with pytest.raises(OutOfTurn, match="not signed"):
            judge.check(session, question, {party: keys}, {party: signature}, 0)
