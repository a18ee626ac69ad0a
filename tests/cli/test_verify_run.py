"""A run is checked: a changed cell, a rewritten event and an exchanged release are found."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import certified
import pytest

from fedsynth.cli.run import main as run_main
from fedsynth.cli.verify import main
from fedsynth.experiment.run_seal import SEAL, seal_run
from fedsynth.privacy.accounting.events import gaussian, to_json
from fedsynth.privacy.certificate import check
from fedsynth.privacy.ledger_entry import CHARGE, read_chains, signed_entry
from fedsynth.privacy.ledger_head import GENESIS
from fedsynth.storage.run_directory import RunDirectory

WORDS = (
    *("scenario=split_mnist", "data=shapes", "parties=2", "holdout=1600", "engine=inprocess"),
    *("evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50", "ldpdc.spc=2"),
    *("noise_seed=3", "delta=1e-3", "method=ldpdc,upper_bound", "epsilon=10", "--quiet"),
)
JOB = "ldpdc-eps10-seed0"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("verified") / "run"
    assert run_main([*WORDS, f"out={folder}"]) == 0
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def refused(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message of a check that fails."""
    assert main([str(run), *words]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("error: ")
    return shown.err


def cells(run: Path) -> list[list[str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_a_finished_run_holds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run)]) == 0
    out = capsys.readouterr().out
    assert f"{JOB}, stage 1: epsilon by observer: server " in out
    assert "2 releases, 4 ledgers" in out


def test_every_changed_cell_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the epsilons by a new count, of the other numbers by the seal."""
    rows = cells(run)
    names = {row[4] for row in rows[1:]}
    assert {"accuracy", "epsilon_pld", "epsilon_rdp", "epsilon_paper", "steps"} <= names
    whole = (run / "metrics.csv").read_text()
    for name in sorted(names):
        number = next(i for i, row in enumerate(rows) if row[4] == name)
        changed = [list(row) for row in rows]
        changed[number][5] = "0.125"
        text = "".join(",".join(row) + "\n" for row in changed)
        (run / "metrics.csv").write_text(text)
        error = refused(run, capsys)
        assert "metrics.csv was changed after the run" in error
        if name.startswith("epsilon"):
            assert f"metrics.csv says {name}=0.125 for " in error
    (run / "metrics.csv").write_text(whole)
    assert main([str(run)]) == 0


def rewritten(run: Path, event: dict[str, Any]) -> None:
    """Change the event of a charge, and sign the chain anew with another key."""
    chains = read_chains(run / "ledger.jsonl")
    for chain in chains:
        if chain[0].job != JOB:
            continue
        prev = GENESIS
        for place, entry in enumerate(chain):
            values = {k: v for k, v in vars(entry).items() if k not in certified.SIGNED}
            values |= {"prev": prev, "event": event if entry.kind == CHARGE else entry.event}
            chain[place] = signed_entry(values, certified.forger())
            prev = chain[place].link
    lines = [entry.line() + "\n" for chain in chains for entry in chain]
    (run / "ledger.jsonl").write_text("".join(lines))


def test_a_rewritten_event_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its chain is whole again; what the party signed is not, and the numbers are others."""
    rewritten(run, to_json(gaussian(50.0)))
    error = refused(run, capsys)
    assert "that the party signed: it was rewritten" in error
    assert "ledger and plan come to" in error


def test_a_removed_chain_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = run / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if '"party":1' not in line))
    assert "lacks" in refused(run, capsys)


def test_exchanged_releases_are_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (run / f"releases/{JOB}/stage-{n}.npz" for n in (1, 2))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    error = refused(run, capsys)
    assert "stage-1.npz was changed" in error
    assert "stage-2.npz was changed" in error


@pytest.mark.parametrize("name", ["stage-1.privacy.json", "stage-2.npz"])
def test_a_missing_file_is_found(run: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (run / "releases" / JOB / name).unlink()
    assert name in refused(run, capsys)


def test_who_knows_the_keys_finds_a_run_that_another_sealed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = check(run / "releases" / JOB / "stage-1.privacy.json")
    server = next(signer.key for signer in verdict.signers if signer.name == "server")
    keys = run.parent / "keys.txt"
    keys.write_text(f"{server} server\n")
    text = (run / "metrics.csv").read_text().replace(",accuracy,", ",accuracy,1", 1)
    (run / "metrics.csv").write_text(text)
    seal_run(RunDirectory(run), 4)
    assert main([str(run)]) == 0
    capsys.readouterr()
    assert f"{SEAL} is signed with" in refused(run, capsys, "--keys", str(keys))


def test_an_unfinished_run_is_said_to_be_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / SEAL).unlink()
    assert "never sealed" in refused(run, capsys)
    (run / "ledger.jsonl").unlink()
    assert "not finished" in refused(run, capsys)
