"""Parties whose files are put back, rewritten, shared or without space while they answer messages.

`test_cheating_servers.py` has servers that cheat by what they ask.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_runs as tiny
from forged_ledgers import write_cheaper_ledger
from real_party import RealParty, Reply, proposal

from fedsynth.core.errors import Refusal
from fedsynth.core.messages import Request
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import total
from fedsynth.privacy.ledger_entry import CHARGE
from fedsynth.privacy.ledger_file import LedgerFile
from fedsynth.privacy.party_key import PartyKey

ASK = Request("release", 0, scalars={"seed": 0})
ELSEWHERE = 7  # a stage that does not exist: the job is admitted, and nothing is computed
DELTA, LIFETIME = 1e-3, 4.0
PATIENCE = 200.0  # seconds, for a machine that is busy with other things
SUPPORT = Path(__file__).parents[1] / "support"
TWO_SEEDS = (proposal(seed=0), proposal(seed=1))


@pytest.fixture
def party(tmp_path: Path) -> RealParty:
    return RealParty(tmp_path / "party")


def assert_refused(reply: Reply, code: Refusal) -> None:
    assert reply.release is None
    assert reply.refusal is code


# A ledger that was rewritten or put back


def by_a_stranger(party: RealParty) -> None:
    write_cheaper_ledger(party.folder / "ledger.jsonl", PartyKey(b"f" * 32))


def by_the_partys_key(party: RealParty) -> None:
    """Even who holds the key must rewrite the head too."""
    write_cheaper_ledger(party.folder / "ledger.jsonl", PartyKey.of_owner(party.folder, "party 0"))


def older(party: RealParty) -> None:
    shutil.copy(party.folder / "older" / "ledger.jsonl", party.folder / "ledger.jsonl")


def older_head(party: RealParty) -> None:
    shutil.copy(party.folder / "older" / "ledger.head", party.folder / "ledger.head")


def spent_twice_with_a_copy_of_once(party: RealParty) -> None:
    """One job, a copy of ledger and head, and a second job."""
    assert party.ask(TWO_SEEDS[0], ASK).release is not None
    (party.folder / "older").mkdir()
    for name in ("ledger.jsonl", "ledger.head"):
        shutil.copy(party.folder / name, party.folder / "older" / name)
    assert party.ask(TWO_SEEDS[1], ASK).release is not None


@pytest.mark.parametrize(
    ("attack", "restarted"),
    [
        (by_a_stranger, False),
        (by_a_stranger, True),
        (by_the_partys_key, False),
        (by_the_partys_key, True),
        (older, False),
        (older, True),
    ],
    ids=lambda case: case.__name__ if callable(case) else ("restart" if case else "live"),
)
def test_a_rewritten_or_older_ledger_is_refused(
    party: RealParty, attack: Callable[[RealParty], None], restarted: bool
) -> None:
    """Neither a repetition nor another job is answered, and no path is told."""
    spent_twice_with_a_copy_of_once(party)
    attack(party)
    if restarted:
        tiny.forget()
    held = (party.folder / "ledger.jsonl").read_bytes()
    for wanted in (*TWO_SEEDS, proposal("dp_hp", seed=2)):
        reply = party.ask(wanted, ASK)
        assert reply.release is None
        assert reply.refusal in (Refusal.LEDGER, Refusal.BUDGET)
        assert str(party.folder) not in reply.text
    assert_refused(party.ask(TWO_SEEDS[1], ASK), Refusal.LEDGER)
    assert (party.folder / "ledger.jsonl").read_bytes() == held


def test_an_older_head_alone_costs_and_frees_nothing(party: RealParty) -> None:
    """The ledger is ahead of it, as after a power cut: its signed entries count."""
    spent_twice_with_a_copy_of_once(party)
    older_head(party)
    charged = party.charged
    for wanted in TWO_SEEDS:
        assert party.ask(wanted, ASK).release is not None
        tiny.forget()
    assert party.charged == charged


@pytest.mark.parametrize("restarted", [False, True])
def test_an_older_copy_of_ledger_and_head_makes_no_room_in_the_lifetime(party, restarted) -> None:
    """The limit that the documents state: the copy is accepted, but for a job that this process
    knows to be missing there. The book still holds every job."""
    spent_twice_with_a_copy_of_once(party)
    older(party)
    older_head(party)
    if restarted:
        tiny.forget()
    else:
        assert_refused(party.ask(TWO_SEEDS[1], ASK), Refusal.LEDGER)
    jobs = admitted(party)
    replies = [party.ask(proposal(seed=seed), ASK) for seed in range(2, 20)]
    refused = {reply.refusal for reply in replies if reply.release is None}
    assert Refusal.BUDGET in refused
    assert sum(reply.release is not None for reply in replies) == admitted(party) - jobs
    assert epsilon(total(party.charged), DELTA) <= LIFETIME


# Two processes and one book


def start(party: RealParty, begin: Path, end: str, seeds: range) -> subprocess.Popen[bytes]:
    """A server in a process of its own, which proposes a job per seed once `begin` is there."""
    script = SUPPORT / "proposing_server.py"
    paths = os.pathsep.join([str(tiny.ROOT), str(SUPPORT)])
    words = [str(party.folder), str(begin), end, *map(str, seeds)]
    return subprocess.Popen(
        [sys.executable, str(script), *words], env={**os.environ, "PYTHONPATH": paths}
    )


def begun_together(party: RealParty, begin: Path, servers: list[subprocess.Popen[bytes]]) -> None:
    """Wait until all of them are ready, and let them begin."""
    end = time.monotonic() + PATIENCE
    while len(list(party.folder.glob("ready-*"))) < len(servers):
        assert time.monotonic() < end
        time.sleep(0.01)
    begin.touch()


def admitted(party: RealParty) -> int:
    return len((party.folder / "jobs.jsonl").read_text().splitlines())


def spend_all(party: RealParty, seeds: int) -> int:
    """Ask for every job; the number of those that were answered."""
    tiny.forget()
    replies = [party.ask(proposal(seed=seed), ASK) for seed in range(seeds)]
    refused = {reply.refusal for reply in replies if reply.release is None}
    assert refused == {Refusal.BUDGET}
    return sum(reply.release is not None for reply in replies)


def test_two_servers_in_two_processes_share_one_lifetime(party: RealParty, tmp_path: Path) -> None:
    most = spend_all(RealParty(tmp_path / "alone"), 8)
    begin = tmp_path / "begin"
    servers = [start(party, begin, "whole", seeds) for seeds in (range(8), range(4, 12))]
    begun_together(party, begin, servers)
    assert [server.wait(PATIENCE) for server in servers] == [0, 0]
    assert admitted(party) == most
    assert spend_all(party, 12) == most
    assert epsilon(total(party.charged), DELTA) <= LIFETIME


@pytest.mark.parametrize("killed", ["after", "within"])
def test_a_process_that_is_killed_leaves_the_book_to_the_other_one(party, tmp_path, killed) -> None:
    """kill -9 when the first job's line is in the book, or half of it: the lock is free again, a
    whole line counts, half a line does not."""
    most = spend_all(RealParty(tmp_path / "alone"), 8)
    begin = tmp_path / "begin"
    begin.touch()
    assert start(party, begin, killed, range(1)).wait(PATIENCE) == -signal.SIGKILL
    for seed in range(1, 8):
        reply = party.ask(proposal(seed=seed), ASK, stage=ELSEWHERE)
        assert reply.refusal in (Refusal.REQUEST, Refusal.BUDGET)
    assert admitted(party) == most
    assert (party.ask(TWO_SEEDS[0], ASK).release is not None) == (killed == "after")
    assert epsilon(total(party.charged), DELTA) <= LIFETIME


def charges(party: RealParty) -> int:
    return sum(entry.kind == CHARGE for entry in party.charged)


# Disks without space, and a ledger that is cut while a party computes


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond this size: writes end in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)


def test_a_charge_that_the_disk_does_not_take_releases_nothing(party: RealParty) -> None:
    """Half of the line is written: it is cut off again, and the next attempt is charged once."""
    assert party.ask(TWO_SEEDS[0], ASK).release is not None
    before = (party.folder / "ledger.jsonl").read_bytes()
    party.ask(TWO_SEEDS[1], ASK, stage=ELSEWHERE)  # admitted
    for _ in range(2):
        with largest_file(len(before) + 100):
            reply = party.ask(TWO_SEEDS[1], ASK)
        assert_refused(reply, Refusal.INTERNAL)
        assert reply.text == "this party cannot answer now; its log has the reason."
        assert (party.folder / "ledger.jsonl").read_bytes() == before
    assert party.ask(TWO_SEEDS[1], ASK).release is not None
    assert charges(party) == 2


def test_an_answer_whose_hash_the_disk_does_not_take_does_not_leave(party: RealParty) -> None:
    """The charge fits, its release's line does not: nothing leaves, and the same answer does later,
    at no further cost."""
    assert party.ask(TWO_SEEDS[0], ASK).release is not None
    path = party.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    party.ask(TWO_SEEDS[1], ASK, stage=ELSEWHERE)
    with largest_file(path.stat().st_size + len(lines[0]) + 100):
        assert_refused(party.ask(TWO_SEEDS[1], ASK), Refusal.INTERNAL)
    assert charges(party) == 2
    tiny.forget()
    assert party.ask(TWO_SEEDS[1], ASK).release is not None
    assert charges(party) == 2


def test_a_job_that_the_book_has_no_space_for_is_not_admitted(party: RealParty) -> None:
    with largest_file(60):
        reply = party.ask(TWO_SEEDS[0], ASK)
    assert_refused(reply, Refusal.INTERNAL)
    assert not (party.folder / "ledger.jsonl").exists()
    assert (party.folder / "jobs.jsonl").read_bytes()[-1:] != b"\n"
    assert party.ask(TWO_SEEDS[0], ASK).release is not None
    assert admitted(party) == 1


def test_a_ledger_that_is_cut_while_a_party_computes_lets_nothing_out(
    party: RealParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the charge and the release, by another program."""
    assert party.ask(TWO_SEEDS[0], ASK).release is not None
    path, append = party.folder / "ledger.jsonl", LedgerFile.append

    def cut_after(file: LedgerFile, *given: object, **options: object) -> None:
        append(file, *given, **options)  # type: ignore[arg-type]
        os.truncate(path, 100)

    with monkeypatch.context() as patch:
        patch.setattr(LedgerFile, "append", cut_after)
        assert_refused(party.ask(TWO_SEEDS[1], ASK), Refusal.LEDGER)
    for wanted in TWO_SEEDS:
        assert_refused(party.ask(wanted, ASK), Refusal.LEDGER)
        tiny.forget()
