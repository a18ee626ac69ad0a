"""Damaged files of a party, a run and a release: a message for the user, never another exception,
and no spending that a damaged file would hide.

A slice by default; FEDSYNTH_FUZZ=20000 damages 2,000 files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import certified
import numpy as np
import pytest
import torch
from real_party import POLICY, RealParty, proposal

from fedsynth.core.errors import Refusal, UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.types import Budget
from fedsynth.data.formats import npz
from fedsynth.experiment import client_session
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.certificate.check import check
from fedsynth.privacy.ledger import (
    BudgetExceeded,
    Ledger,
    LedgerError,
    read_chains,
    read_entries,
    total,
)
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey
from fedsynth.privacy.policy import PartyPolicy, read_policy
from fedsynth.privacy.secagg.protocol import COLLECT, SETUP, SHARE, UNMASK, answer_in_stage
from fedsynth.storage.checkpoint import rounds
from fedsynth.storage.releases import unarchive, write_archive
from fedsynth.storage.state_file import DamagedState, read_state, write_state

FILES = max(40, int(os.environ.get("FEDSYNTH_FUZZ", "400")) // 10)  # over all kinds
SEED = int(os.environ.get("FEDSYNTH_FUZZ_SEED", "0"))
KINDS = 11
EACH = -(-FILES // KINDS)
EVENT = gaussian(2.0)  # four of them cost 4.73, five of them 5.38
ASK = Request("release", 0, scalars={"seed": 0})
BUDGET = Budget(5.0, 1e-5, accounting="rdp")


class Damage:
    """Ways to damage bytes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng((SEED, seed))

    def __call__(self, data: bytes) -> bytes:
        """Other bytes than these."""
        while True:
            ways = (
                self._bits, self._cut, self._drop, self._repeat, self._swap, self._insert,
                self._zeros, self._lines, self._digits, self._whole,
            )  # fmt: skip
            changed = ways[int(self.rng.integers(len(ways)))](data)
            if changed != data:
                return changed

    def _span(self, data: bytes) -> tuple[int, int]:
        start = int(self.rng.integers(max(1, len(data))))
        return start, min(len(data), start + int(self.rng.integers(1, 200)))

    def _bits(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(int(self.rng.integers(1, 4))):
            changed[int(self.rng.integers(len(data)))] ^= 1 << int(self.rng.integers(8))
        return bytes(changed)

    def _cut(self, data: bytes) -> bytes:
        return data[: int(self.rng.integers(len(data)))]

    def _drop(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:start] + data[end:]

    def _repeat(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:end] + data[start:]

    def _swap(self, data: bytes) -> bytes:
        (a, b), (c, d) = sorted((self._span(data), self._span(data)))
        return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data[a:]

    def _insert(self, data: bytes) -> bytes:
        start, _ = self._span(data)
        more = self.rng.integers(0, 256, int(self.rng.integers(1, 50)), dtype=np.uint8).tobytes()
        return data[:start] + more + data[start:]

    def _zeros(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:start] + bytes(end - start) + data[end:]

    def _lines(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        if self.rng.random() < 0.5:
            self.rng.shuffle(lines)
        else:
            del lines[int(self.rng.integers(len(lines)))]
        return b"".join(lines)

    def _digits(self, data: bytes) -> bytes:
        places = [i for i, c in enumerate(data) if 48 <= c <= 57]
        if not places:
            return b""
        place = places[int(self.rng.integers(len(places)))]
        return data[:place] + bytes([48 + int(self.rng.integers(10))]) + data[place + 1 :]

    def _whole(self, data: bytes) -> bytes:
        every = (b"", b"\n", b"null\n", b"1" * 10_000, b"\xff\xfe", b"[]\n" * 5)
        every += (b"[" * 100_000, b'{"a":' * 50_000, data + data, data + b"{}\n", data[::-1])
        every += (b"\xef\xbb\xbf" + data,)
        return every[int(self.rng.integers(len(every)))]


def paid_ledger(folder: Path) -> Callable[[], Ledger]:
    """A ledger with four entries and a release, and the function that opens it."""
    folder.mkdir(parents=True)

    def opened() -> Ledger:
        party_key = PartyKey.of_owner(folder, "party 3")
        noise_key = NoiseKey.of_owner(folder, "party 3", None)
        return Ledger(
            folder / "ledger.jsonl",
            party_key=party_key,
            noise_key=noise_key,
            job="job",
            party=3,
            budget=BUDGET,
        )

    ledger = opened()
    for number in range(4):
        ledger.reserve(EVENT, stage=0, label=f"call {number}", digest="d", data="f")
    ledger.record_release("0" * 64, stage=0, digest="d", data="f")
    with pytest.raises(BudgetExceeded):
        ledger.reserve(EVENT, stage=0, label="call 4", digest="d", data="f")
    return opened


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "files",
    [
        ("ledger.jsonl",),
        ("ledger.head",),
        ("party.key",),
        ("noise.key",),
        ("ledger.jsonl", "ledger.head"),
    ],
    ids="+".join,
)
def test_a_damaged_ledger_pays_for_nothing_more(tmp_path, files):
    """Whether the damage is found or the charge exceeds what is left, nothing can be released."""
    damage, opened = Damage(len(files[0]) * len(files)), paid_ledger(tmp_path / "party")
    folder = tmp_path / "party"
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    found: Counter[str] = Counter()
    for number in range(EACH):
        for path in list(folder.iterdir()):
            path.unlink()
        for path, data in whole.items():
            path.write_bytes(data)
        for name in files:
            (folder / name).write_bytes(damage((folder / name).read_bytes()))
        with pytest.raises((UserError, BudgetExceeded)) as caught:
            opened().reserve(EVENT, stage=0, label="call 4", digest=str(number), data="f")
        found[type(caught.value).__name__] += 1
        for read in (read_entries, read_chains):
            try:
                read(folder / "ledger.jsonl")
            except LedgerError:
                found["unreadable"] += 1
    assert sum(found.values()) >= EACH


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("signed", [False, True], ids=["as it is", "with a new checksum"])
def test_a_damaged_state_file_is_called_damaged(tmp_path, signed):
    value = {"weights": torch.arange(12.0).view(3, 4), "list": [1, 2.5, "text", None, (b"x", True)]}
    path, damage = tmp_path / "state", Damage(20 + signed)
    write_state(path, value)
    whole = path.read_bytes()
    for _ in range(EACH):
        if signed:
            body = damage(whole[:-32])
            path.write_bytes(body + hashlib.sha256(body).digest())
        else:
            path.write_bytes(damage(whole))
        try:
            read_state(path)
        except DamagedState:
            continue
        assert signed, "damage was not noticed"


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("both", [False, True], ids=["the newest", "both"])
def test_a_loop_goes_on_from_a_damaged_checkpoint_to_the_same_end(tmp_path, both):
    path, damage = tmp_path / "loop.checkpoint", Damage(30 + both)
    previous = path.with_name(path.name + ".previous")

    def loop(upto: int) -> float:
        state = {"total": torch.zeros(1, dtype=torch.float64)}
        for step in rounds(5, state, path, fingerprint="f", every_seconds=0):
            if step >= upto:
                break
            state["total"] += step + 1
        return float(state["total"])

    loop(3)
    whole, before = path.read_bytes(), previous.read_bytes()
    for _ in range(EACH):
        path.write_bytes(damage(whole))
        previous.write_bytes(damage(before) if both else before)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert loop(5) == 15.0


@pytest.mark.timeout(3000)
def test_a_damaged_data_file_is_a_message(tmp_path):
    path, damage = tmp_path / "own.npz", Damage(40)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (12, 8, 8), dtype=np.uint8)
    arrays = {"x_train": images, "x_test": images, "y_train": np.arange(12) % 3,
              "y_test": np.arange(12) % 3}  # fmt: skip
    found: Counter[str] = Counter()
    for number in range(EACH):
        np.savez(path, **arrays) if number % 2 else np.savez_compressed(path, **arrays)
        path.write_bytes(damage(path.read_bytes()))
        try:
            npz.describe(f"file:{path}")
            for split in ("train", "test"):
                npz.read(f"file:{path}", split)
        except UserError:
            found["refused"] += 1
    assert found["refused"]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "outcome",
    [
        SyntheticSet(torch.rand(4, 1, 3, 3), torch.arange(4)),
        ReleasedModel({"weight": torch.rand(3, 2)}, 4),
    ],
    ids=["set", "model"],
)
def test_a_damaged_release_is_a_message(tmp_path, outcome):
    path, damage = tmp_path / "stage-1.npz", Damage(50)
    whole, refused = write_archive(tmp_path / "whole.npz", outcome).read_bytes(), 0
    for _ in range(EACH):
        path.write_bytes(damage(whole))
        try:
            unarchive(path)
        except UserError:
            refused += 1
    assert refused


def masked_sum(folder: Path, after: Callable[[str, Path], None]) -> None:
    """A secure sum of three parties; `after` sees the folder of party 0 after each stage."""
    question = Request("gradient", 0)
    digest = question.digest()

    def ask(
        kind: str, arrays: dict[int, dict[str, torch.Tensor]], **scalars: object
    ) -> list[Release]:
        more = {"session": "s", "question": digest, "threshold": 3, **scalars}
        answers = [
            answer_in_stage(
                folder / str(p),
                p,
                3,
                Request(kind, 0, own, more),
                lambda _, p=p: Release(p, {"a": torch.full((4,), p)}, ("e",), {}, True),
                parties=range(3),
            )
            for p, own in arrays.items()
        ]
        after(kind, folder / "0")
        return answers

    keys = {a.party: a.arrays for a in ask(SETUP, {p: {} for p in range(3)})}
    every = {f"{name} {p}": value for p, own in keys.items() for name, value in own.items()}
    shared = {a.party: a.arrays for a in ask(SHARE, dict.fromkeys(range(3), every))}
    collect = {p: {f"from {q}": shared[q][f"to {p}"] for q in range(3) if q != p} for p in range(3)}
    ask(COLLECT, collect, **{"asked/": "gradient"})
    ask(UNMASK, {p: {"answered": torch.arange(3)} for p in range(3)})


@pytest.mark.timeout(3000)
def test_a_damaged_state_of_a_secure_sum_is_refused(tmp_path):
    masked_sum(tmp_path / "whole", lambda *_: None)
    damage, refused = Damage(60), 0
    for number in range(EACH):
        stage = (SETUP, SHARE, COLLECT)[number % 3]

        def spoil(kind: str, folder: Path, stage: str = stage) -> None:
            if kind == stage:
                path = folder / "secure-sum.checkpoint"
                path.write_bytes(damage(path.read_bytes()))

        try:
            masked_sum(tmp_path / str(number), spoil)
        except UserError:
            refused += 1
    assert refused > EACH / 2


@pytest.mark.timeout(3000)
def test_a_damaged_policy_is_a_message_or_a_policy(tmp_path):
    """An altered limit that is still one is its owner's word; nothing else passes for a policy."""
    path, damage = tmp_path / "party.yaml", Damage(70)
    policy = f"{POLICY}most_rounds: 30\npeers: {{1: {'a1' * 32}}}\nplugins: [own.py]\n".encode()
    refused = 0
    for _ in range(EACH):
        path.write_bytes(damage(policy))
        try:
            assert isinstance(read_policy(path), PartyPolicy)
        except UserError:
            refused += 1
    assert refused > EACH / 4


@pytest.mark.timeout(3000)
def test_a_damaged_book_makes_no_room_in_the_lifetime(tmp_path):
    """A party that has spent its lifetime, restarted with a damaged book: whatever a server asks
    for, all releases together stay within the budget, and refusals have a code."""
    party = RealParty(tmp_path / "party")
    seeds = [s for s in range(6) if party.ask(proposal(seed=s), ASK).release is not None]
    book, ledger = party.folder / "jobs.jsonl", party.folder / "ledger.jsonl"
    whole, kept = book.read_bytes(), {p: p.read_bytes() for p in party.folder.glob("ledger.*")}
    damage, codes = Damage(80), Counter()
    for number in range(EACH):
        for path, data in kept.items():
            path.write_bytes(data)
        book.write_bytes(damage(whole))
        client_session.forget_parties()
        for seed in (seeds[0], 100 + number):
            reply = party.ask(proposal(seed=seed), ASK)
            codes[reply.refusal] += 1
        assert epsilon(total(read_entries(ledger)), 1e-3) <= 4
    assert codes[Refusal.LEDGER]
    assert set(codes) <= {None, Refusal.LEDGER, Refusal.BUDGET, Refusal.INTERNAL}


@pytest.mark.timeout(3000)
def test_a_damaged_certificate_or_its_record_is_found(tmp_path, here):
    job = certified.released("dp_merf", tmp_path / "run", here, "together")
    folder, damage = certified.folder_of(job), Damage(90)
    certificate = folder / "stage-1.privacy.json"
    for number in range(EACH):
        path = certificate if number % 3 else folder / "stage-1.registry.yaml"
        content = path.read_bytes()
        path.write_bytes(damage(content))
        with contextlib.suppress(UserError):
            assert check(certificate).problems
        path.write_bytes(content)
    assert not check(certificate).problems
