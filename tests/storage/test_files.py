"""Files that appear complete or not at all, and folders that are made or left alone."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedsynth.core.errors import UserError
from fedsynth.storage import files


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "state"
    files.atomic_write(path, b"old")

    def write_half() -> None:
        with files.atomic_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_replaced_file_is_kept_where_this_is_asked_for(tmp_path):
    path, previous = tmp_path / "state", tmp_path / "state.previous"
    for text in (b"first", b"second"):
        with files.atomic_file(path, previous=previous) as file:
            file.write(text)
    assert (path.read_bytes(), previous.read_bytes()) == (b"second", b"first")


def test_permissions_hold_from_the_first_byte(tmp_path):
    path = tmp_path / "noise.key"
    with files.atomic_file(path, mode=0o600) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_append_that_fails_leaves_the_former_length(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    files.durable_append(path, b"one\n")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="full"):
            files.durable_append(path, b"two\n")
    assert path.read_bytes() == b"one\n"
    files.durable_append(path, b"three\n")
    assert path.read_bytes() == b"one\nthree\n"


def test_folders_are_made_all_or_none_and_the_new_ones_are_named(tmp_path):
    inner = tmp_path / "a" / "b"
    made = files.make_directories(inner)
    assert made == [inner, tmp_path / "a"]
    assert files.make_directories(inner) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        files.make_directories(tmp_path / "file")
    (inner / "kept").write_bytes(b"")
    files.remove_directories(made)
    assert (inner / "kept").is_file()


def test_the_parents_that_were_made_go_again_when_one_cannot_be(tmp_path, monkeypatch):
    real = files.Path.mkdir

    def refuse(path, *arguments, **named):
        if path.name == "c":
            raise OSError(errno.EACCES, "no")
        real(path, *arguments, **named)

    monkeypatch.setattr(files.Path, "mkdir", refuse)
    with pytest.raises(OSError, match="no"):
        files.make_directories(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "no space is left"),
        (errno.EROFS, "this place is not writable"),
        (errno.ENOTDIR, "a file is where a directory should be"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_every_refusal_of_the_disk_is_one_error_with_advice(tmp_path, code, advice):
    message = rf"cannot write .*out: {advice}.*with out="
    with pytest.raises(UserError, match=message), files.disk_errors(tmp_path / "out"):
        raise OSError(code, os.strerror(code))


def test_the_advice_for_a_partys_own_files_names_its_policy(tmp_path):
    message = r"no space is left on the disk. Free some, or choose .* with `ledger` of party.yaml"
    with pytest.raises(UserError, match=message), files.disk_errors(tmp_path, files.OF_PARTY):
        raise OSError(errno.ENOSPC, "full")


def test_a_file_is_written_with_the_folders_it_needs(tmp_path):
    path = files.write_file(tmp_path / "a" / "b.txt", b"text")
    assert path.read_bytes() == b"text"
    with pytest.raises(UserError, match="a file is where a directory should be"):
        files.write_file(path / "c", b"")


def test_of_many_who_need_a_file_one_makes_it(tmp_path):
    made = []

    def create(path):
        made.append(path)
        path.write_bytes(str(len(made)).encode())

    path = tmp_path / "new" / "key"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: files.read_or_create(path, create), range(16)))
    assert found == [b"1"] * 16
    assert made == [path]
