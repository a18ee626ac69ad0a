"""The run directory: round trips, refusals, and a disk that says no."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_outcomes import synthetic

from fedsynth.core.errors import UserError
from fedsynth.storage.run_directory import RunDirectory

CONFIG = {"scenario": "split_mnist", "epsilon": [1.0, float("inf")], "delta": 1e-5, "note": "ü: #"}


def started(path: Path) -> RunDirectory:
    run = RunDirectory.create(path)
    run.write_config(CONFIG)
    return run


def leftovers(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.name.endswith(".part")]


@contextlib.contextmanager
def tiny_disk(path: Path) -> Iterator[None]:
    """`path` becomes a 256 kB disk; where mounting is not allowed, files may not exceed 100 kB."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if (
        os.geteuid() == 0
        and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    ):
        try:
            yield
        finally:
            subprocess.run(["umount", str(path)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def somebody_else() -> Iterator[None]:
    """Act without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_configuration_and_texts_come_back(tmp_path: Path) -> None:
    run = started(tmp_path / "deep" / "run")
    run.write_text("ledger.jsonl", "{}\n")
    run.log("stage 1 done")
    again = RunDirectory.open(tmp_path / "deep" / "run")
    assert again.read_config() == CONFIG
    assert (again.path / "ledger.jsonl").read_text() == "{}\n"
    assert (again.path / "log.txt").read_text().endswith(" stage 1 done\n")


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", "a\\b", "a\nb"])
def test_names_cannot_leave_the_run_directory(tmp_path: Path, name: str) -> None:
    run = started(tmp_path / "run")
    with pytest.raises(ValueError, match="not a name"):
        run.releases.save(name, 1, synthetic())
    with pytest.raises(ValueError, match="outside"):
        run.write_text(f"../{name or 'x'}", "")


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    run = started(tmp_path / "run")
    with pytest.raises(UserError, match=r"an unfinished run.*--resume.*out="):
        RunDirectory.create(run.path)
    run.write_text("report.html", "<p>")
    assert run.finished
    with pytest.raises(UserError, match=r"a finished run.*--resume.*out="):
        RunDirectory.create(run.path)


def test_foreign_directories_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.txt").write_text("cat")
    (tmp_path / "file").write_text("file")
    for make in (RunDirectory.create, RunDirectory.open, RunDirectory.read):
        for path in (tmp_path / "photos", tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(UserError):
                make(path)
    with pytest.raises(UserError, match="does not exist"):
        RunDirectory.open(tmp_path / "nowhere")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["cat.txt", "file", "photos"]


def test_reading_a_run_changes_nothing_in_it(tmp_path: Path) -> None:
    """It may be at work: a file in the making is not an old one left behind."""
    run = started(tmp_path / "run")
    for value in (0.5, 0.25):
        run.add_metrics([("psg", 1.0, 0, 1, "accuracy", value)])
    (run.path / ".stage-1.npz.1-1.part").write_text("half")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    again = RunDirectory.read(run.path)
    assert [row.value for row in again.metrics()] == [0.25]
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_what_a_crash_left_at_the_start_is_no_obstacle(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run")  # killed before its configuration was written
    (tmp_path / "run" / ".config.yaml.1-1.part").write_text("scen")
    run = started(tmp_path / "run")
    assert RunDirectory.open(run.path).read_config() == CONFIG
    assert not leftovers(run.path)


def test_an_unwritable_place_is_one_clear_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        with somebody_else(), pytest.raises(UserError, match="not writable"):
            RunDirectory.create(Path(folder) / "a" / "b")
        assert os.listdir(folder) == []
        os.chmod(folder, 0o755)


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk"):
        run = started(tmp_path / "disk" / "run")
        run.add_metrics([("psg", 1.0, 0, 1, "accuracy", 0.5)])
        with pytest.raises(UserError, match=r"no space is left.*out="):
            run.releases.save("psg", 1, synthetic(200))
        with pytest.raises(UserError, match="no space is left"):
            run.write_text("config.yaml", "x" * 1_000_000)
        before = (run.path / "metrics.csv").read_bytes()
        many = [("psg", 1.0, 0, i, f"accuracy_{i:0200d}", i) for i in range(5000)]
        with pytest.raises(UserError, match="no space is left"):
            run.add_metrics(many)
        assert (run.path / "metrics.csv").read_bytes() == before
        assert run.read_config() == CONFIG
        assert not run.releases.exists("psg", 1)
        assert not leftovers(run.path)


def test_kill_9_while_writing_leaves_one_whole_file(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedsynth.storage.files import atomic_write\n"
        "for i in range(10**6):\n"
        "    atomic_write(Path(sys.argv[1]), bytes([65 + i % 26]) * 3_000_000)\n"
        "    print(flush=True)\n"
    )
    path = tmp_path / "config.yaml"
    for pause in (0.0, 0.003):
        writer = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
            data = path.read_bytes()
            assert (len(data), len(set(data))) == (3_000_000, 1)
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        data = path.read_bytes()
        assert (len(data), len(set(data))) == (3_000_000, 1)
    RunDirectory.open(tmp_path)
    assert not leftovers(tmp_path)
