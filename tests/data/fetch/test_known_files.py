"""A file is used only if its hash matches, whether it is compressed or not."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import known_files as files


@pytest.mark.parametrize("compressed", [False, True])
def test_the_hash_is_that_of_the_uncompressed_content(tmp_path, compressed):
    known = files.VerifiedFile("a", hashlib.sha256(b"hello").hexdigest())
    path = tmp_path / ("a.gz" if compressed else "a")
    path.write_bytes(gzip.compress(b"hello") if compressed else b"hello")
    assert files.locate(tmp_path, known) == path
    assert files.read_known(path, known) == b"hello"
    path.write_bytes(gzip.compress(b"hullo") if compressed else b"hullo")
    with pytest.raises(files.WrongContent, match="expected SHA-256 2cf24dba"):
        files.read_known(path, known)


def test_a_hash_may_be_an_md5_where_no_other_is_known(tmp_path):
    known = files.VerifiedFile("a", md5="5d41402abc4b2a76b9719d911017c592")
    (tmp_path / "a").write_bytes(b"hello")
    assert files.read_known(tmp_path / "a", known) == b"hello"
    (tmp_path / "a").write_bytes(b"hullo")
    with pytest.raises(files.WrongContent, match="expected MD5 5d41402abc4b2a76b9719d911017c592"):
        files.read_known(tmp_path / "a", known)


def test_a_list_has_the_lines_of_a_verified_file(tmp_path):
    known = files.VerifiedFile("list.txt", hashlib.sha256(b"a 1\n\nb 2\n").hexdigest())
    with pytest.raises(UserError, match="put it there"):
        files.read_list(tmp_path / "list.txt", known, "put it there")
    (tmp_path / "list.txt").write_bytes(b"a 1\n\nb 2\n")
    assert files.read_list(tmp_path / "list.txt", known, "") == ["a 1", "b 2"]
