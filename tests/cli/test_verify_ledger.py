"""Checking a ledger from outside: what it cost is counted anew, and a changed line is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.cli.verify import main
from fedsynth.cli.verify_ledger import accounts
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.ledger import Ledger, LedgerDamaged
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey
from fedsynth.storage.run_directory import RunDirectory

STEP = poisson(0.02, gaussian(1.5))
JOB = "psg-eps8-seed0"


@pytest.fixture
def merged(tmp_path) -> Path:
    """Two parties' ledgers in one file, as a run leaves it."""
    text = ""
    for party in (0, 1):
        path = tmp_path / f"{party}.jsonl"
        key = NoiseKey.from_seed(0, f"party {party}")
        book = Ledger(
            path,
            job=JOB,
            party=party,
            budget=Budget(8.0, 1e-5),
            noise_key=key,
            party_key=PartyKey.of_owner(tmp_path, str(party), 0),
        )
        for call in range(3 + party):
            book.reserve(repeated(STEP, 10), stage=0, label=f"call {call}", digest="")
        text += path.read_text()
    (tmp_path / "ledger.jsonl").write_text(text)
    return tmp_path / "ledger.jsonl"


def test_every_chain_is_counted_anew(merged):
    found = accounts(merged, 1e-5)
    assert [(a.job, a.party, a.entries) for a in found] == [(JOB, 0, 3), (JOB, 1, 4)]
    for account, steps in zip(found, (30, 40), strict=True):
        assert account.pld == pytest.approx(epsilon(repeated(STEP, steps), 1e-5, "pld"))
        assert account.rdp > account.pld


def test_the_command_prints_the_accounts(merged, capsys):
    assert main([str(merged), "--delta", "1e-6"]) == 0
    out = capsys.readouterr().out
    assert "psg-eps8-seed0, party 1" in out
    assert "delta=1e-06" in out
    assert "2 chains, 7 entries: every hash holds." in out


def test_the_protected_unit_is_the_runs_or_named_or_said_to_be_unknown(merged, capsys):
    def unit(*more: str) -> str:
        assert main([str(merged), *more]) == 0
        return capsys.readouterr().out.split("at delta=1e-05, ")[1].split(", add/remove")[0]

    assert "not in the ledger" in unit()
    assert unit("--unit", "user") == "user"
    for name in ("user", "record"):
        (merged.parent / "config.yaml").write_text(f"scenario: some\nunit: {name}\n")
        assert unit() == name


def test_other_programs_agree(merged):
    """Opacus's PRV accountant bounds the same loss as PLD, its RDP accountant the looser way."""
    for account in accounts(merged, 1e-5, opacus=True):
        assert account.others["opacus_prv"] == pytest.approx(account.pld, abs=0.03)
        assert account.others["opacus_rdp"] == pytest.approx(account.rdp, rel=0.02)
        assert account.others["dp_accounting_pld"] == pytest.approx(account.pld, rel=1e-6)


def test_a_removed_line_is_found_and_named(merged, capsys):
    lines = merged.read_text().splitlines(keepends=True)
    merged.write_text("".join(lines[:4] + lines[5:]))
    with pytest.raises(LedgerDamaged):
        accounts(merged, 1e-5)
    assert main([str(merged)]) == 2
    assert "party 1" in capsys.readouterr().err


def test_lines_cut_off_from_the_end_are_found_by_the_runs_own_numbers(merged, capsys):
    """A chain of hashes cannot see them."""
    whole = merged.read_text()
    cut = "".join(whole.splitlines(keepends=True)[:-1])
    merged.write_text(cut)
    assert main([str(merged)]) == 0
    assert "Lines cut off from the end of a chain cannot be seen here" in capsys.readouterr().out
    run = RunDirectory(merged.parent)
    run.write_config({"delta": 1e-5, "unit": "record"})
    spent = epsilon(repeated(STEP, 40), 1e-5, "pld")
    run.add_metrics([("psg", 8.0, 0, 1, "epsilon_pld", spent / 2)])
    run.add_metrics([("psg", 8.0, 0, 2, "epsilon_pld", spent)])
    assert main([str(merged)]) == 2
    assert "psg-eps8-seed0 come to epsilon" in capsys.readouterr().err
    merged.write_text(whole)
    assert main([str(merged)]) == 0
    assert "every hash holds, and the run's own numbers agree." in capsys.readouterr().out
    run.add_metrics([("dp_merf", 8.0, 0, 1, "epsilon_pld", 8.0)])  # whose chains are all gone
    assert main([str(merged)]) == 2
    assert "dp_merf-eps8-seed0 come to epsilon 0," in capsys.readouterr().err


def test_an_empty_ledger_holds_nothing_to_trust(merged, capsys):
    merged.write_text("")
    assert main([str(merged)]) == 2
    assert "holds no entries" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nothing.jsonl"], ["{ledger}", "--delta", "2"]])
def test_bad_input_is_one_clear_message(merged, words, capsys):
    assert main([word.format(ledger=merged) for word in words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_epsilons_are_counted_for_the_relation_of_the_run_or_the_one_given(merged, capsys):
    assert main([str(merged), "--relation", "replace_one"]) == 0
    given = capsys.readouterr().out
    assert "replace one; view" in given
    spent = epsilon(repeated(STEP, 40), 1e-5, relation="replace_one")
    assert f"epsilon {spent:.4g} (PLD)" in given
    RunDirectory(merged.parent).write_config({"unit": "record", "relation": "replace_one"})
    assert main([str(merged), "--unit", "record"]) == 0
    assert f"epsilon {spent:.4g} (PLD)" in capsys.readouterr().out


def test_the_published_ledger_holds_and_agrees_with_its_numbers(capsys):
    assert main([str(Path(__file__).parents[2] / "results/split_mnist/ledger.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "120 chains, 240 entries: every hash holds, and the run's own numbers agree" in out
