"""`fedsynth export`: what it prints, and each mistake with its message."""

from __future__ import annotations

from pathlib import Path

import certified
import pytest

from fedsynth.api.locate import find_release
from fedsynth.cli.export import main
from fedsynth.engine.base import Engine


@pytest.fixture(scope="module")
def folder(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The releases of two stages."""
    out = tmp_path_factory.mktemp("exported") / "run"
    return certified.folder_of(certified.released("dp_merf", out, here, "in_turn"))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy of them that a mistake could damage."""
    return certified.copied(folder, tmp_path)


def test_a_release_is_exported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert main([str(folder), "--as", "csv", "--out", str(target)]) == 0
    shown = capsys.readouterr().out
    assert f"{folder.name}/stage-2 as csv: {target}" in shown
    assert f"check it: fedsynth verify {target}" in shown
    assert (find_release(target).images == find_release(folder / "stage-2.npz").images).all()
    assert main([str(target), "--as", "csv", "--out", str(tmp_path / "again")]) == 0
    for name in ("data.csv", "README.md", "export.json"):
        assert (tmp_path / "again" / name).read_bytes() == (target / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stage-1.npz", "--as", "cvs", "--out", "x"], "csv"),
        (["stage-1.npz", "--as", "csv"], "--out"),
        (["stage-1.npz", "--as", "csv", "--uot", "x"], "--out"),
        (["stage-1.npy", "--as", "csv", "--out", "x"], "Did you mean 'stage-1.npz'?"),
        (["stage-1.png", "--as", "csv", "--out", "x"], "is not a released file"),
        (["empty", "--as", "csv", "--out", "x"], "holds no release"),
        (["stage-1.npz", "--as", "csv", "--out", "stage-1.npz"], "exists"),
        (["stage-1.npz", "--as", "csv", "--out", "stage-1.npz/x"], "a file is where"),
    ],
)
def test_a_mistake_is_one_message(
    copy: Path,
    words: list[str],
    message: str,
    monkeypatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = copy
    (place / "empty").mkdir()
    before = sorted(place.iterdir())
    monkeypatch.chdir(place)
    try:
        code = main(words)
    except SystemExit as stop:  # a wrong option
        code = int(stop.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert sorted(place.iterdir()) == before
