"""The public keys that a reader knows: `--key HEX` and `--keys FILE`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedsynth.core.errors import UserError

_KEY = re.compile(r"[0-9a-f]{64}")
_SIGNER = re.compile(r"server|party \d+")


def trusted_keys(keys: Sequence[str], file: Path | None) -> dict[str, str]:
    """The known keys with the signer of each; an empty name is any signer.

    Args:
        keys: Keys in hexadecimal, of any signer.
        file: A file with a key per line, and after it `party N` or `server`. A line that starts
            with `#` is a comment.

    Raises:
        UserError: A key or a name is malformed, or the file cannot be read.
    """
    found = {_checked(key, "--key"): "" for key in keys}
    if file is None:
        return found
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--keys {file} cannot be read: {error}.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        key, _, name = line.strip().partition(" ")
        name = " ".join(name.split())
        if not key or key.startswith("#"):
            continue
        if name and not _SIGNER.fullmatch(name):
            raise UserError(
                f"--keys {file}, line {number}: {name!r} is no signer. Allowed: server, party 0, "
                "party 1 and so on, or nothing."
            )
        found[_checked(key, f"--keys {file}, line {number}")] = name
    if not found:
        raise UserError(f"--keys {file} holds no key.")
    return found


def _checked(key: str, place: str) -> str:
    if not _KEY.fullmatch(key.lower()):
        raise UserError(
            f"{place}: {key!r} is not a public key. It has 64 hexadecimal digits, as `fedsynth "
            "verify` prints them."
        )
    return key.lower()
