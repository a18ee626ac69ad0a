"""The keys that a reader names on the command line."""

from __future__ import annotations

import pytest

from fedsynth.cli.trusted_keys import trusted_keys
from fedsynth.core.errors import UserError

A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_keys_of_options_and_files_are_joined(tmp_path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"# the parties\n{A} party 0\n\n  {B}   server\n{C}\n")
    assert trusted_keys([C.upper()], None) == {C: ""}
    assert trusted_keys([], None) == {}
    assert trusted_keys(["d" * 64], file) == {"d" * 64: "", A: "party 0", B: "server", C: ""}


@pytest.mark.parametrize("text", ["", "# nothing\n", "abc\n", f"{A} partei 0\n", f"{A}party 0\n"])
def test_a_malformed_file_is_one_message(tmp_path, text: str) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(text)
    with pytest.raises(UserError, match="--keys"):
        trusted_keys([], file)


def test_a_malformed_key_or_missing_file_is_one_message(tmp_path) -> None:
    with pytest.raises(UserError, match="64 hexadecimal digits"):
        trusted_keys(["xyz"], None)
    with pytest.raises(UserError, match="cannot be read"):
        trusted_keys([], tmp_path / "none")
