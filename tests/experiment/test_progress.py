"""Progress messages of parties, and durations in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fedsynth.experiment import progress as module
from fedsynth.experiment.progress import PROGRESS, StageProgress, duration, write_progress
from fedsynth.storage.message_log import MessageReader


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (7800, "2 h 10 min")],
)
def test_durations_read_well(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_progress_of_a_party_is_a_message(tmp_path: Path) -> None:
    reader = MessageReader(tmp_path / "m")
    reader.start()
    for party in (11, 2):
        write_progress(tmp_path / "m", "psg-eps1-seed0", party, StageProgress(1, party, 20))
    assert reader.new() == [
        {"kind": PROGRESS, "job": "psg-eps1-seed0", "party": party, "at": [1, party, 20]}
        for party in (11, 2)
    ]


def test_messages_are_sent_twice_a_second_and_at_every_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    sent: list[int] = []
    monkeypatch.setattr(module, "send_message", lambda _, message: sent.append(message["at"][1]))
    for step in range(1001):  # ten seconds of steps
        clock[0] = step / 100
        write_progress(tmp_path, "a", 0, StageProgress(1, step, 1001))
    assert 19 <= len(sent) <= 21
    write_progress(tmp_path, "a", 0, StageProgress(1, 1001, 1001))
    write_progress(tmp_path, "a", 0, StageProgress(2, 0, 7))
    assert sent[-2:] == [1001, 0]
    write_progress(tmp_path, "b", 0, StageProgress(2, 3, 7))  # another job
    assert sent[-1] == 3


def test_progress_never_stops_a_party(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    write_progress(tmp_path / "file", "a", 0, StageProgress(1, 1, 2))


def test_reading_the_progress_of_1000_parties_takes_no_longer_than_its_news(tmp_path: Path) -> None:
    """A file per party cost 14 ms of CPU each time, whether anything was new or not."""
    reader = MessageReader(tmp_path / "m")
    reader.start()
    for party in range(1000):
        write_progress(tmp_path / "m", "c", party, StageProgress(1, 1, 20))
    assert len(reader.new()) == 1000
    start = time.process_time()
    for _ in range(100):
        assert reader.new() == []
    assert time.process_time() - start < 0.2  # 100 readings; about 0.004
