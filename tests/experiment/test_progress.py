"""Progress files of parties, and durations in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsynth.experiment import progress as module
from fedsynth.experiment.progress import StageProgress, duration, read_progress, write_progress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (7800, "2 h 10 min")],
)
def test_durations_read_well(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_party_files_come_back_sorted_and_broken_ones_are_left_out(tmp_path: Path) -> None:
    for party in (11, 2, 0):
        write_progress(tmp_path / "p", party, 1, party, 20)
    (tmp_path / "p" / "party-3.json").write_text('{"party": 3, "sta')
    (tmp_path / "p" / "party-4.json").write_text("[]")
    assert list(read_progress(tmp_path / "p").items()) == [
        (party, StageProgress(1, party, 20)) for party in (0, 2, 11)
    ]
    assert read_progress(tmp_path / "nowhere") == {}


def test_party_files_are_written_twice_a_second_and_at_every_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    written: list[int] = []

    def note(_path: Path, data: bytes, *, durable: bool) -> None:
        assert not durable
        written.append(json.loads(data)["done"])

    monkeypatch.setattr(module, "atomic_write", note)
    for step in range(1001):  # ten seconds of steps
        clock[0] = step / 100
        write_progress(tmp_path, 0, 1, step, 1001)
    assert 19 <= len(written) <= 21
    write_progress(tmp_path, 0, 1, 1001, 1001)
    write_progress(tmp_path, 0, 2, 0, 7)
    assert written[-2:] == [1001, 0]


def test_progress_never_stops_a_party(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    write_progress(tmp_path / "file", 0, 1, 1, 2)
    assert read_progress(tmp_path / "file") == {}
