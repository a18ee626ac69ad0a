"""The log of requests: a limit on their number, and one form per share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.privacy.request_log import Form, RequestLog


def test_no_more_requests_than_allowed_also_after_a_restart(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "stage", 2)
    for digest in ("a", "b", "a", "b"):
        log.count(digest)
    for again in (log, RequestLog(tmp_path / "stage", 2)):
        again.count("a")
        with pytest.raises(Refused, match="has made 2 requests") as caught:
            again.count("c")
        assert caught.value.code is Refusal.POLICY


@pytest.mark.parametrize(
    ("first", "second"), [(Form.MASKED, Form.IDEAL), (Form.IDEAL, Form.MASKED)]
)
def test_an_answer_leaves_in_one_form_also_after_a_restart(
    tmp_path: Path, first: Form, second: Form
) -> None:
    log = RequestLog(tmp_path, 9)
    log.bind("a", first)
    log.bind("a", first)
    log.bind("b", second)
    for again in (log, RequestLog(tmp_path, 9)):
        with pytest.raises(Refused, match="another kind of sum"):
            again.bind("a", second)


def test_a_line_that_a_crash_cut_off_does_not_count_and_other_lines_are_damage(
    tmp_path: Path,
) -> None:
    log = RequestLog(tmp_path, 9)
    log.bind("a", Form.MASKED)
    path = tmp_path / "requests.log"
    path.write_text(path.read_text() + "masked b")
    RequestLog(tmp_path, 9).bind("b", Form.IDEAL)
    path.write_text("anything else\n")
    with pytest.raises(UserError, match="damaged"):
        RequestLog(tmp_path, 9)
