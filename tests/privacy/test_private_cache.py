"""The private cache: found again by its party alone, and never trusted when damaged."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fedsynth.privacy.private_cache import FOLDER, PrivateCache


def never() -> bytes:
    raise AssertionError("this is known")


def files(top: Path) -> list[Path]:
    return [p for p in top.rglob("*") if p.is_file() and p.suffix not in (".lock", ".key")]


def test_what_depends_on_the_same_is_made_once_and_what_does_not_anew(tmp_path):
    assert PrivateCache(tmp_path, 0).get_or_compute((b"a", b"bc"), lambda: b"first") == b"first"
    assert PrivateCache(tmp_path, 0).get_or_compute((b"a", b"bc"), never) == b"first"
    assert PrivateCache(tmp_path, 0).get_or_compute((b"ab", b"c"), lambda: b"other") == b"other"
    assert (
        PrivateCache(tmp_path, 1).get_or_compute((b"a", b"bc"), lambda: b"another's")
        == b"another's"
    )


def test_folders_are_the_owners_alone_and_names_differ_between_vaults(tmp_path):
    for place in ("x", "y"):
        PrivateCache(tmp_path / place, 3).get_or_compute((b"records",), lambda: b"critic")
        for folder in (FOLDER, f"{FOLDER}/party-3"):
            assert (tmp_path / place / folder).stat().st_mode & 0o777 == 0o700
    (first,), (second,) = files(tmp_path / "x"), files(tmp_path / "y")
    assert first.name != second.name


def test_a_folder_that_was_open_is_closed(tmp_path):
    folder = tmp_path / FOLDER / "party-0"
    folder.mkdir(parents=True, mode=0o755)
    PrivateCache(tmp_path, 0).get_or_compute((b"a",), lambda: b"x")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_counts_as_none(tmp_path, damage):
    PrivateCache(tmp_path, 0).get_or_compute((b"a",), lambda: b"right")
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?" if damage is None else damage)
    assert PrivateCache(tmp_path, 0).get_or_compute((b"a",), lambda: b"again") == b"again"
    assert PrivateCache(tmp_path, 0).get_or_compute((b"a",), never) == b"again"


def test_a_failed_computation_leaves_nothing(tmp_path):
    def fail() -> bytes:
        raise OSError("in the middle")

    with pytest.raises(OSError, match="in the middle"):
        PrivateCache(tmp_path, 0).get_or_compute((b"a",), fail)
    assert PrivateCache(tmp_path, 0).get_or_compute((b"a",), lambda: b"x") == b"x"


def test_where_nothing_can_be_kept_it_is_computed(tmp_path):
    (tmp_path / FOLDER).write_text("a file is in the way")
    for made in (b"one", b"two"):
        assert PrivateCache(tmp_path, 0).get_or_compute((b"a",), lambda made=made: made) == made


def test_who_comes_second_waits_for_the_first(tmp_path):
    begun, go = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        assert go.wait(20)
        return os.urandom(8)

    found: list[bytes] = []
    first = threading.Thread(
        target=lambda: found.append(PrivateCache(tmp_path, 0).get_or_compute((b"a",), slow))
    )
    first.start()
    assert begun.wait(20)
    second = threading.Thread(
        target=lambda: found.append(PrivateCache(tmp_path, 0).get_or_compute((b"a",), never))
    )
    second.start()
    go.set()
    first.join(20)
    second.join(20)
    assert len(found) == 2
    assert found[0] == found[1]
