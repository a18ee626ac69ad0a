"""The progress display: plain lines without a terminal, bars on one."""

from __future__ import annotations

import io
import os
import pty
import re
import threading

import pytest

from fedsynth.api import progress as module
from fedsynth.api.progress import Progress
from fedsynth.experiment.progress import StageProgress


def play(display: Progress) -> None:
    with display:
        display.job("psg eps=10", 2)
        display.job("dp_sgd [red]eps=1", 2)
        for stage in (1, 2):
            for done in range(0, 101, 10):
                at = StageProgress(stage, done, 100)
                display.update("psg eps=10", at, spent=stage + done / 100, released=done == 100)
        display.update("dp_sgd [red]eps=1", StageProgress(1, 30, 100))
        display.update("dp_sgd [red]eps=1", StageProgress(2, 0, 100), note="[bold]waiting")
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


def test_a_finished_piece_of_work_does_not_end_its_stage() -> None:
    """The warm-up of a critic has steps of its own; the stage goes on after it."""
    stream = io.StringIO()
    display = Progress(stream=stream)
    display.job("gs_wgan", 1)
    display.update("gs_wgan", StageProgress(1, 60, 60))
    display.update("gs_wgan", StageProgress(1, 77, 1420))
    assert stream.getvalue() == ""
    display.update("gs_wgan", StageProgress(1, 1, 1), released=True)
    assert stream.getvalue().count("stage 1/1 done") == 1


def test_silence_is_silent() -> None:
    stream = io.StringIO()
    play(Progress(silent=True, stream=stream))
    assert stream.getvalue() == ""


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> str:
    """The output on a terminal of so many columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
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
    return b"".join(seen).decode()


def test_a_terminal_shows_bars_and_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    text = on_terminal(monkeypatch, 120)
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for words in ("all jobs", "dp_sgd [red]eps=1", "stage 2/2", "[bold]waiting", "a [blue]word"):
        assert words in plain
    assert "psg eps=10: accuracy 0.9" in plain


def test_50_columns_without_colour_cut_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = on_terminal(monkeypatch, 50)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)  # no colour
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "…" not in plain
    for words in ("all jobs", "psg eps=10", "2/2  100/100  ε 3", "2/2  0/100"):
        assert words in plain
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 50


def test_the_share_of_a_run_counts_its_evaluations_too() -> None:
    display = Progress(silent=True)
    for name in ("a", "b"):
        display.job(name, 1)
    display.update("a", StageProgress(1, 10, 10))
    assert display._run.share == 0.25  # a is released, and not evaluated
    display.evaluation("a", 1, 2)
    assert display._run.share == 0.375
    display.evaluation("a", 2, 2)
    assert display._run.share == 0.5
    display.finish("a", "done")
    display.update("b", StageProgress(1, 5, 10))
    assert display._run.share == 0.625


def test_many_threads_may_report() -> None:
    stream = io.StringIO()
    with Progress(stream=stream) as display:

        def work(name: str) -> None:
            display.job(name, 20)
            for stage in range(1, 21):
                for done in (0, 5, 10):
                    at = StageProgress(stage, done, 10)
                    display.update(name, at, released=done == 10)
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
