"""`fedsynth verify`: a release, a folder of them or a ledger; what it prints and its exit code."""

from __future__ import annotations

from pathlib import Path

import certified
import pytest

from fedsynth.cli.verify import main
from fedsynth.engine.base import Engine
from fedsynth.privacy.certificate import check


@pytest.fixture(scope="module")
def original(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The releases of two stages."""
    out = tmp_path_factory.mktemp("verified") / "run"
    return certified.folder_of(certified.released("dp_merf", out, here, "in_turn"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of them, far from the run."""
    return certified.copied(original, tmp_path)


@pytest.mark.parametrize("name", ["stage-1.npz", "stage-1.privacy.json", "stage-1.registry.yaml"])
def test_a_release_is_explained(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder / name)]) == 0
    out = capsys.readouterr().out
    for words in ("stage 1 of 2", "towards server", "unit record", "relation add_remove"):
        assert words in out
    assert "who signed it is not established: party 0, server" in out


def test_a_folder_of_releases_is_checked_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder.parent)]) == 0
    assert "stage 2 of 2" in capsys.readouterr().out
    (folder / "stage-2.png").write_bytes(b"other")
    assert main([str(folder)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert "stage-2.png was changed" in shown.err


def test_keys_establish_who_signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = folder / "stage-1.privacy.json"
    keys = [signer.key for signer in check(release).signers]
    assert main([str(release), "--key", keys[0], "--key", keys[1]]) == 0
    assert "signed, by keys that you named: party 0, server" in capsys.readouterr().out
    assert main([str(release), "--key", "ab" * 32]) == 2
    assert "none of the keys that you named" in capsys.readouterr().err


def test_a_release_without_its_certificate_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stage-1.privacy.json").unlink()
    for path in (folder, folder / "stage-1.npz"):
        assert main([str(path)]) == 2
        assert "has no certificate" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nothing"], ["."], [".", "--key", "x"], [".", "--delta", "2"]])
def test_bad_input_is_one_clear_message(
    words: list[str], tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
