"""`fedsynth ledger`: the table, the checks with what they cannot see, and the copy for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsynth.cli.ledger import main
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian, repeated
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.ledger_entry import Entry, verified_chain
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey

FORMER = Path(__file__).parents[2] / "results/split_mnist/float_noise/ledger.jsonl"
FINGERPRINT = "0123abcd of the records"


@pytest.fixture
def path(tmp_path) -> Path:
    """A ledger of two jobs with three charges and a release."""
    key = NoiseKey.from_seed(1, "party 0")
    for job in ("first", "second"):
        book = Ledger(
            tmp_path / "ledger.jsonl",
            party_key=PartyKey.of_owner(tmp_path, "party 0"),
            noise_key=key,
            job=job,
            party=0,
            budget=Budget(8.0, 1e-6),
        )
        for call in range(2 if job == "first" else 1):
            label = f"call {call}\x1b[2J"
            book.reserve(gaussian(4.0), stage=0, label=label, digest="d", data=FINGERPRINT)
        book.record_release("sha256:0123", stage=0, digest="d", data=FINGERPRINT)
    return tmp_path / "ledger.jsonl"


def run(capsys, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_table_adds_up_over_jobs(path, capsys):
    code, out, _ = run(capsys, "show", path)
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["0", "1", "2", "3", "4"]
    spent = [epsilon(repeated(gaussian(4.0), n), 1e-6, "pld") for n in (1, 2, 2, 3, 3)]
    assert [line.split()[-1] for line in lines[1:6]] == [f"{value:.4g}" for value in spent]
    assert "Gaussian(sigma=4)" in lines[1]
    assert "release" in lines[3]
    assert f"epsilon {spent[-1]:.4g} at delta=1e-06, record, add_remove" in lines[-1]
    assert "\x1b" not in out, "a label must not steer the terminal"


def test_the_last_rows_of_a_long_table(path, capsys):
    _, out, _ = run(capsys, "show", path, "--rows", 1)
    assert "4 earlier entries" in out
    assert [line for line in out.splitlines() if line.startswith("4")]
    assert run(capsys, "show", path, "--rows", 0)[0] == 2


def test_a_whole_ledger_verifies_and_says_what_is_not_seen(path, capsys):
    key = PartyKey.of_owner(path.parent, "party 0").public
    code, out, _ = run(capsys, "verify", path, "--key", key)
    assert code == 0
    assert "5 entries, every hash and signature holds" in out
    assert "no entry is missing" in out
    assert "Not seen here" in out


def test_missing_entries_other_keys_and_false_signatures_are_found(path, capsys):
    whole = path.read_bytes()
    code, _, err = run(capsys, "verify", path, "--key", "00" * 32)
    assert (code, "not by" in err) == (2, True)
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    code, _, err = run(capsys, "verify", path)
    assert (code, "4 entries are left of the 5" in err) == (2, True)
    path.with_suffix(".head").rename(path.with_suffix(".elsewhere"))
    code, out, _ = run(capsys, "verify", path)
    assert (code, "No head was checked" in out) == (0, True)
    assert run(capsys, "verify", path, "--head", path.with_suffix(".elsewhere"))[0] == 2
    assert run(capsys, "verify", path, "--head", path.with_suffix(".absent"))[0] == 2
    lines = whole.splitlines(keepends=True)
    signature = json.loads(lines[-1])["signature"].encode()
    path.write_bytes(whole.replace(signature, b"0" * 128))
    code, _, err = run(capsys, "verify", path)
    assert (code, "signature is false" in err) == (2, True)


def test_an_export_can_be_checked_and_links_no_data(path, capsys, tmp_path):
    assert run(capsys, "export", path, "--out", tmp_path / "copy.json")[0] == 0
    copy = (tmp_path / "copy.json").read_text()
    (chain,) = json.loads(copy)["chains"]
    entries = [Entry(**fields) for fields in chain]
    lines = "".join(entry.line() + "\n" for entry in entries).encode()
    assert verified_chain(lines, "copy") == entries
    assert FINGERPRINT not in copy
    marks = [entry.data for entry in entries]
    assert len(set(marks)) == len(marks)
    assert run(capsys, "export", path)[1] == copy
    code, out, _ = run(capsys, "verify", tmp_path / "copy.json")
    assert (code, "every hash and signature holds" in out) == (0, True)
    assert run(capsys, "show", tmp_path / "copy.json")[0] == 0
    (tmp_path / "copy.json").write_text(copy.replace('"label": "call 1', '"label": "call 7'))
    code, _, err = run(capsys, "verify", tmp_path / "copy.json")
    assert (code, "copy.json, chain 1, line 2" in err) == (2, True)


def test_ledgers_of_earlier_versions_are_shown(capsys):
    assert run(capsys, "show", FORMER, "--rows", 1)[0] == 0
    code, out, _ = run(capsys, "verify", FORMER)
    assert (code, "not signed" in out) == (0, True)
    assert "curator" not in run(capsys, "show", FORMER, "--rows", 1)[1]


@pytest.mark.parametrize("content", [b"", b"[" * 100_000 + b"\n", b"\xff\n", b"{}\n"])
@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_what_is_no_ledger_is_one_message(tmp_path, capsys, command, content):
    (tmp_path / "x").write_bytes(content)
    code, out, err = run(capsys, command, tmp_path / "x")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert run(capsys, command, tmp_path / "absent")[0] == 2


def test_closing_destroys_the_noise_key_and_nothing_else(path, capsys):
    key = NoiseKey.of_owner(path.parent, "party 0", None)
    (path.parent / "job").mkdir()
    (path.parent / "job" / "loop.checkpoint").write_bytes(b"half of a job")
    held = path.read_bytes()
    code, out, _ = run(capsys, "close", path)
    assert code == 0
    assert "2 jobs are closed" in out
    assert not (path.parent / "noise.key").exists()
    assert not (path.parent / "job" / "loop.checkpoint").exists()
    assert path.read_bytes() == held
    assert NoiseKey.of_owner(path.parent, "party 0", None) != key
    (path.parent / "noise.key").unlink()
    code, _, err = run(capsys, "close", path)
    assert code == 2
    assert "no noise.key: its jobs are closed already" in err


def test_what_is_no_ledger_is_not_closed(tmp_path, capsys):
    NoiseKey.of_owner(tmp_path, "party 0", None)
    (tmp_path / "ledger.jsonl").write_text("nonsense\n")
    for path in (tmp_path / "ledger.jsonl", tmp_path / "gone.jsonl"):
        assert run(capsys, "close", path)[0] == 2
    assert (tmp_path / "noise.key").exists()
