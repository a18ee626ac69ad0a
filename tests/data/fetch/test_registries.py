"""Mirrors and clients that hang, dribble, fail or bring the wrong things."""

import subprocess
import time

import pytest
import tiny_data as tiny

from fedsynth.data.fetch import registries as clients
from fedsynth.data.fetch.registries import Unavailable


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
