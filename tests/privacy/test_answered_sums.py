"""One sum per request: also after a restart, a crash in the middle of a line, and on a bad disk."""

from __future__ import annotations

import pytest

from fedsynth.core.errors import UserError
from fedsynth.privacy.answered_sums import AnsweredSums


def test_other_sums_for_one_request_are_refused_after_a_restart(tmp_path):
    path = tmp_path / "server" / "answered.jsonl"
    first = AnsweredSums(path)
    for number in range(3):
        first.record(f"request {number}", "mark")
    first.record("request 1", "mark")
    for later in (first, AnsweredSums(path)):
        later.record("request 1", "mark")
        with pytest.raises(PermissionError, match="other sums"):
            later.record("request 1", "another mark")
        later.record("request 3", "another mark")


def test_two_processes_know_of_each_other(tmp_path):
    left, right = AnsweredSums(tmp_path / "a"), AnsweredSums(tmp_path / "a")
    left.record("x", "1")
    with pytest.raises(PermissionError):
        right.record("x", "2")
    right.record("y", "2")
    with pytest.raises(PermissionError):
        left.record("y", "1")


@pytest.mark.parametrize("cut", [1, 5, 14])
def test_a_line_that_a_crash_cut_off_was_no_answer(tmp_path, cut):
    path = tmp_path / "a"
    for request in "xy":
        AnsweredSums(path).record(request, "mark")
    path.write_bytes(path.read_bytes()[:-cut])
    again = AnsweredSums(path)
    again.record("y", "other")
    again.record("z", "mark")
    with pytest.raises(PermissionError):
        AnsweredSums(path).record("x", "other")
    AnsweredSums(path).record("y", "other")


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"x": 1}', b"\xff", b"[1, 2]", b"null", b""])
def test_a_damaged_file_is_named(tmp_path, line):
    path = tmp_path / "a"
    path.write_bytes(line + b"\n")
    with pytest.raises(UserError, match="damaged"):
        AnsweredSums(path).record("x", "mark")


def test_a_file_that_lost_lines_under_a_process_is_refused(tmp_path):
    path = tmp_path / "a"
    answered = AnsweredSums(path)
    answered.record("x", "mark")
    path.unlink()
    with pytest.raises(UserError, match="lost lines"):
        answered.record("x", "other")


def test_a_full_disk_means_no_noise(tmp_path):
    (tmp_path / "a").symlink_to("/dev/full")
    with pytest.raises(UserError, match="no space"):
        AnsweredSums(tmp_path / "a").record("x", "mark")
