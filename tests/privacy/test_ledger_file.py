"""The file of a ledger: a loss is refused by name, and no death of a process hides spending."""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from forged_ledgers import write_cheaper_ledger
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.ledger import BudgetExceeded, Ledger, LedgerDamaged, read_entries
from fedsynth.privacy.ledger_head import SLOT
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import KEY_FILE, PartyKey

KEY = NoiseKey.from_seed(1, "party 0")
SEEDED = PartyKey.of_owner(Path(), "party 0", 1)
STEP = gaussian(20.0)
BUDGET = Budget(1.0, 1e-5)
ROOT = str(Path(__file__).parents[2])


def ledger(folder: Path, party_key: PartyKey = SEEDED, budget: Budget = BUDGET) -> Ledger:
    path = folder / "ledger.jsonl"
    return Ledger(path, party_key=party_key, noise_key=KEY, job="j", party=0, budget=budget)


def spend(book: Ledger, calls: int) -> None:
    for call in range(calls):
        book.reserve(STEP, stage=0, label=f"call {call}", digest="d", data="f")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def no_newline(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def no_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def no_head(path: Path) -> None:
    path.with_suffix(".head").unlink()


def neither(path: Path) -> None:
    path.unlink()
    no_head(path)


def emptied_without_head(path: Path) -> None:
    emptied(path)
    no_head(path)


def emptied_head(path: Path) -> None:
    path.with_suffix(".head").write_bytes(b"")


def newest_slot_destroyed(path: Path) -> None:
    """The older slot and a ledger without its last line would fit together."""
    length = len(path.read_bytes().splitlines())
    head = bytearray(path.with_suffix(".head").read_bytes())
    start = SLOT * (length % 2)
    head[start : start + SLOT] = bytes(SLOT)
    path.with_suffix(".head").write_bytes(head)
    no_last_line(path)


def older_slot_copied(path: Path) -> None:
    length = len(path.read_bytes().splitlines())
    head = path.with_suffix(".head").read_bytes()
    older = head[:SLOT] if length % 2 else head[SLOT:]
    path.with_suffix(".head").write_bytes(older * 2)
    no_last_line(path)


def rewritten(path: Path) -> None:
    """A new chain of cheaper events, by who does not hold the key: all hashes hold."""
    write_cheaper_ledger(path, PartyKey(b"f" * 32))


def an_older_head(path: Path) -> None:
    """Of the time when there was one entry, put back with the ledger as it is: harmless alone."""
    shutil.copy(path.with_suffix(".old-head"), path.with_suffix(".head"))


LOSSES: list[Callable[[Path], None]] = [
    emptied,
    Path.unlink,
    no_newline,
    no_last_line,
    zeroed,
    no_head,
    neither,
    emptied_without_head,
    emptied_head,
    newest_slot_destroyed,
    older_slot_copied,
    rewritten,
]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("alive", [True, False], ids=["live process", "restart"])
def test_a_ledger_that_knows_less_is_refused_with_the_way_out(tmp_path, lose, alive):
    key = PartyKey.of_owner(tmp_path, "party 0")
    book = ledger(tmp_path, key)
    spend(book, 3)
    lose(tmp_path / "ledger.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    asked = book if alive else ledger(tmp_path, PartyKey.of_owner(tmp_path, "party 0"))
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match=r"Restore it from a copy|restore it from a copy"):
            asked.reserve(STEP, stage=0, label="more", digest="d", data="f")
        with pytest.raises(LedgerDamaged):
            asked.record_release("sha256:0", stage=0, digest="d", data="f")
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {p: b for p, b in after.items() if b or p in before} == before, "nothing was written"


def test_a_whole_spending_is_not_accepted_twice(tmp_path):
    """The measured attack: empty the file under a live process, and spend the budget again."""
    book = ledger(tmp_path, budget=Budget(0.2, 1e-5))
    spend(book, 1)
    with pytest.raises(BudgetExceeded):
        book.reserve(gaussian(20.0), stage=1, label="x", digest="d", data="f")
    emptied(tmp_path / "ledger.jsonl")
    for asked in (book, ledger(tmp_path, budget=Budget(0.2, 1e-5))):
        with pytest.raises(LedgerDamaged):
            asked.reserve(gaussian(20.0), stage=1, label="x", digest="d", data="f")


def test_a_restored_file_goes_on(tmp_path):
    book = ledger(tmp_path)
    spend(book, 3)
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    for lose in (emptied, no_newline, Path.unlink):
        lose(tmp_path / "ledger.jsonl")
        with pytest.raises(LedgerDamaged):
            spend(book, 1)
        (tmp_path / "ledger.jsonl").write_bytes(whole)
        spend(book, 3)
    assert (tmp_path / "ledger.jsonl").read_bytes() == whole
    book.reserve(STEP, stage=0, label="more", digest="d", data="f")
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 4


def test_a_head_that_a_live_process_knows_to_be_old_is_refused(tmp_path):
    """Ledger and head put back together: a process that saw more refuses."""
    book = ledger(tmp_path)
    spend(book, 1)
    shutil.copytree(tmp_path, tmp_path / "copy")
    spend(book, 4)
    for name in ("ledger.jsonl", "ledger.head"):
        (tmp_path / name).write_bytes((tmp_path / "copy" / name).read_bytes())
    with pytest.raises(LedgerDamaged, match="older"):
        spend(book, 1)


def test_a_rewrite_in_place_of_the_same_length_is_found_by_a_live_process(tmp_path):
    book = ledger(tmp_path)
    spend(book, 3)
    path = tmp_path / "ledger.jsonl"
    changed = path.read_bytes().replace(b"20.0", b"90.0", 1)
    os.utime(path, ns=(1, 1))
    path.write_bytes(changed)
    with pytest.raises(LedgerDamaged, match="chain is broken"):
        spend(book, 1)


def test_entries_that_a_process_left_without_a_head_are_counted(tmp_path):
    """Only if the party signed them: a forged one is refused."""
    spend(ledger(tmp_path), 1)
    head = (tmp_path / "ledger.head").read_bytes()
    spend(ledger(tmp_path), 3)
    (tmp_path / "ledger.head").write_bytes(head)
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    assert len(ledger(tmp_path).entries()) == 3
    assert ledger(tmp_path).head().length == 3
    (tmp_path / "ledger.head").write_bytes(head)
    lines = whole.splitlines(keepends=True)
    signature = read_entries(tmp_path / "ledger.jsonl")[1].signature.encode()
    lines[1] = lines[1].replace(signature, b"0" * 128)
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines[:2]))
    with pytest.raises(LedgerDamaged, match="signature"):
        ledger(tmp_path).entries()


def test_a_ledger_of_an_earlier_version_is_not_continued(tmp_path):
    old = Path(ROOT) / "results/split_mnist/float_noise/ledger.jsonl"
    (tmp_path / "ledger.jsonl").write_bytes(old.read_bytes().splitlines(keepends=True)[0])
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(LedgerDamaged):
        spend(ledger(tmp_path), 1)
    assert (tmp_path / "ledger.jsonl").read_bytes() == before


def test_keys_and_ledger_may_lie_apart(tmp_path):
    keys, books = tmp_path / "keys", tmp_path / "books"
    key = PartyKey.of_owner(keys, "party 0")
    path = books / "ledger.jsonl"
    terms = {"noise_key": KEY, "job": "j", "party": 0, "budget": BUDGET}
    spend(Ledger(path, party_key=key, head=keys / "ledger.head", **terms), 2)
    shutil.rmtree(books)
    with pytest.raises(LedgerDamaged, match="missing"):
        spend(Ledger(path, party_key=key, head=keys / "ledger.head", **terms), 2)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_damage_anywhere_is_refused_or_harmless(tmp_path_factory, data):
    """Of ledger or head: whatever is accepted afterwards knows of everything that was spent."""
    folder = tmp_path_factory.mktemp("damage")
    spend(ledger(folder), 3)
    target = folder / data.draw(st.sampled_from(["ledger.jsonl", "ledger.head"]))
    content = bytearray(target.read_bytes())
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 600)))
    content[start:end] = data.draw(st.binary(max_size=30) | st.just(bytes(end - start)))
    target.write_bytes(content)
    try:
        found = ledger(folder).entries()
    except LedgerDamaged:
        return
    assert [entry.label for entry in found[:3]] == ["call 0", "call 1", "call 2"]


FREE = Budget(float("inf"), 1e-5)


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def name_of(file: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{file}")).name


def spend_and_die(point: str, folder: Path, calls: int) -> None:
    """In a process of its own: write so many entries, and be killed while one more is written."""
    book = ledger(folder, budget=FREE)
    spend(book, calls)
    file, head = book._file, book._file._head
    write = head.write

    def half_a_line(handle, entry, **_):
        handle.write(entry.line().encode()[:200])
        die()

    def half_a_slot(state, **_):
        with open(head.path, "r+b") as out:
            out.seek(SLOT * (state.length % 2))
            out.write(head._slot(state)[:200] + bytes(SLOT - 200))
        die()

    def then_die(state, **how):
        write(state, **how)
        die()

    match point:
        case "half a line":
            file.append = half_a_line
        case "line before fsync":
            sync = os.fsync
            os.fsync = lambda f: die() if name_of(f) == "ledger.jsonl" else sync(f)
        case "line before head":
            head.write = die
        case "half a head":
            head.write = half_a_slot
        case "head before fsync":
            file._synced = -math.inf
            os.fdatasync = die
        case "head":
            head.write = then_die
    book.reserve(STEP, stage=0, label=f"last {calls}", digest="d", data="f")


def killed(point: str, folder: Path, calls: int) -> None:
    """Run `spend_and_die` in a child of this process, and wait for its death."""
    child = os.fork()
    if child == 0:
        try:
            spend_and_die(point, folder, calls)
        finally:
            os._exit(1)  # it was to be killed
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


POINTS = [
    "half a line",
    "line before fsync",
    "line before head",
    "half a head",
    "head before fsync",
    "head",
]


@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_kill_9_at_every_point_costs_at_most_the_one_entry(tmp_path, point, calls):
    """The next process finds all that was paid, and pays the same entry at most once."""
    killed(point, tmp_path, calls)
    undisturbed = tmp_path / "undisturbed"
    book = ledger(undisturbed, budget=FREE)
    spend(book, calls)
    last = book.reserve(STEP, stage=0, label=f"last {calls}", digest="d", data="f")
    again = ledger(tmp_path, budget=FREE)
    labels = [entry.label for entry in again.entries()]
    counted = point != "half a line"
    assert labels == [f"call {call}" for call in range(calls)] + [f"last {calls}"] * counted
    assert again.reserve(STEP, stage=0, label=f"last {calls}", digest="d", data="f") == last
    again.reserve(STEP, stage=0, label="after", digest="d", data="f")
    assert len(ledger(tmp_path).entries()) == calls + 2
    assert ledger(tmp_path).head().length == calls + 2


RACING = """
    import sys
    from pathlib import Path
    sys.path[:0] = {folders!r}
    from test_ledger_file import FREE, STEP, ledger
    book = ledger(Path(sys.argv[1]), budget=FREE)
    for call in range(20):
        book.reserve(STEP, stage=0, label=f"{{sys.argv[2]}} {{call}}", digest="d", data="f")
"""


def test_two_processes_write_one_chain(tmp_path):
    tests = Path(ROOT) / "tests"
    folders = [str(tests / "privacy"), str(tests / "support"), ROOT]
    program = textwrap.dedent(RACING.format(folders=folders))
    words = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen([*words, name]) for name in ("left", "right")]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    labels = {entry.label for entry in ledger(tmp_path).entries()}
    assert labels == {f"{name} {call}" for name in ("left", "right") for call in range(20)}


def test_a_head_that_cannot_be_written_means_no_release(tmp_path, monkeypatch):
    """The line stays and counts; the next use writes the head."""
    book = ledger(tmp_path)
    spend(book, 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(Exception, match="nothing was released"):
            book.reserve(STEP, stage=0, label="more", digest="d", data="f")
    assert book.head().length == 2
    assert ledger(tmp_path).head().length == 2


def test_a_key_of_a_file_is_not_taken_from_a_seed(tmp_path):
    """A ledger that one key signed is not continued by another."""
    spend(ledger(tmp_path), 1)
    with pytest.raises(LedgerDamaged):
        spend(ledger(tmp_path, PartyKey(b"o" * 32)), 1)
    assert not (tmp_path / KEY_FILE).exists()


def test_random_deaths_in_a_row_keep_the_chain(tmp_path):
    """Thirty processes, each killed at a random point of one more entry."""
    rng = random.Random(5)
    most = 0
    for _ in range(30):
        killed(rng.choice(POINTS), tmp_path, most)
        found = ledger(tmp_path, budget=FREE).entries()
        assert most <= len(found)
        most = len(found)
    assert most > 10
