"""Messages that teach, and refusals that keep their code on their way between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from fedsynth.core.errors import Refusal, Refused, UserError, allowed, exit_code, nearest, unknown


@pytest.mark.parametrize("code", list(Refusal))
def test_a_refusal_keeps_code_and_text_in_a_copy_and_in_a_pickle(code: Refusal) -> None:
    error = Refused(code, "not this")
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), other.code, str(other)) == (Refused, code, "not this")


def test_names_are_suggested_and_long_lists_are_cut() -> None:
    assert nearest("epsilonn", ["epsilon", "delta"]) == " Did you mean 'epsilon'?"
    assert nearest("xyz", ["epsilon"]) == ""
    text = allowed([f"name{number}" for number in range(100)], "fedsynth list")
    assert text.endswith("... (`fedsynth list` lists all 100).")
    assert "unknown method 'psgg'. Did you mean 'psg'?" in str(unknown("method", "psgg", ["psg"]))


def test_a_user_error_is_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UserError("key=3 is wrong.")

    assert exit_code(fail) == 2
    assert capsys.readouterr().err == "error: key=3 is wrong.\n"
    assert exit_code(lambda: None) == 0
