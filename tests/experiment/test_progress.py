"""Progress: plain where there is no terminal, bars where there is one, files between processes."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import threading
from pathlib import Path

import pytest

from fedsynth.experiment import progress as module
from fedsynth.experiment.progress import (
    PartyProgress,
    Progress,
    duration,
    read_progress,
    write_progress,
)


def play(display: Progress) -> None:
    with display:
        display.job("psg eps=10", 2)
        display.job("dp_sgd [red]eps=1", 2)
        for stage in (1, 2):
            for done in range(0, 101, 10):
                display.update("psg eps=10", stage, done, 100, spent=stage + done / 100)
        display.update("dp_sgd [red]eps=1", 1, 30, 100)
        display.update("dp_sgd [red]eps=1", 2, 0, 100, note="[bold]waiting")
        display.message("a [blue]word")
        display.evaluation("psg eps=10", 1, 3)
        display.evaluation("psg eps=10", 3, 3)
        display.evaluation("psg eps=10", 3, 3)  # asked again before the next thing has happened
        display.finish("psg eps=10", "accuracy 0.9")


def test_plain_progress_is_one_line_a_finished_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    play(Progress(stream=stream))
    text = stream.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    lines = [re.sub(r"in [\d.]+ s", "in T", line) for line in text.splitlines()]
    assert lines == [
        "psg eps=10: stage 1/2 done in T, epsilon spent 2",
        "psg eps=10: stage 2/2 done in T, epsilon spent 3",
        "dp_sgd [red]eps=1: stage 1/2 done in T",
        "a [blue]word",
        "psg eps=10: evaluation done, 3 classifiers",
        "psg eps=10: accuracy 0.9",
    ]


def test_silence_is_silent() -> None:
    stream = io.StringIO()
    play(Progress(silent=True, stream=stream))
    assert stream.getvalue() == ""


def test_a_terminal_shows_bars_and_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                seen.append(data)
        except OSError:  # how Linux says that the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as stream:
        play(Progress(stream=stream))
    reader.join(timeout=10)
    os.close(ours)
    text = b"".join(seen).decode()
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for words in ("all jobs", "dp_sgd [red]eps=1", "stage 2/2", "[bold]waiting", "a [blue]word"):
        assert words in plain
    assert "psg eps=10: accuracy 0.9" in plain


def test_many_threads_may_report() -> None:
    stream = io.StringIO()
    with Progress(stream=stream) as display:

        def work(name: str) -> None:
            display.job(name, 20)
            for stage in range(1, 21):
                for done in (0, 5, 10):
                    display.update(name, stage, done, 10)
            display.finish(name, "over")

        threads = [threading.Thread(target=work, args=(f"job {i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = stream.getvalue().splitlines()
    for i in range(8):
        mine = [line for line in lines if line.startswith(f"job {i}: ")]
        stages = [int(m[1]) for line in mine if (m := re.search(r"stage (\d+)/20", line))]
        assert stages == list(range(1, 21))
        assert mine[-1] == f"job {i}: over"
    assert len(lines) == 8 * 21


def test_time_left_follows_the_speed_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    line = module._Line("x", share=0.5)  # resumed halfway: the first half was not seen
    assert line.left(100.0) == ""
    line.share = 0.75
    assert line.left(130.0) == "30 s left"


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
        (party, PartyProgress(1, party, 20)) for party in (0, 2, 11)
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
