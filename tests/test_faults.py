"""Real faults: killed workers, killed runs, Ctrl-C and full disks end in the same bytes."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import tiny_runs as tiny
import yaml
from processes import family, kill_all, name_of
from waiting import on_this_machine

from fedsynth.cli.run import main
from fedsynth.experiment.config import assemble
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total

# A conversation, a relay, a loop at home and a reference: together a few seconds of work.
WORDS = [
    "data=shapes",
    "parties=2",
    "holdout=1600",
    "method=psg_joint,dp_sgd,psg,upper_bound",
    "epsilon=10",
    "delta=1e-3",
    "accounting=rdp",
    "psg_joint.width=4",
    "psg_joint.spc=2",
    "psg_joint.runs=10",
    "psg_joint.batches=2",
    "psg_joint.updates=1",
    "dp_sgd.width=8",
    "dp_sgd.epochs=4",
    "dp_sgd.batch=32",
    "psg.width=8",
    "psg.spc=2",
    "psg.runs=6",
    "psg.batches=2",
    "psg.updates=1",
    "evaluation.width=4",
    "evaluation.nets=1",
    "evaluation.max_images=50",
]
PATIENCE = 200.0  # for a machine that is busy with other things


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    """The files of an undisturbed run."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main([*WORDS, "noise_seed=3", "engine=inprocess", f"out={out}", "--quiet"]) == 0
    return tiny.outputs(out)


def start(*words: str) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedsynth.run", *words],
        env={**os.environ, "PYTHONPATH": str(tiny.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(run: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for its end; returns what it said of errors."""
    _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == code, errors
    return errors


def wait_until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait for a moment in the middle of a run."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert run.poll() is None, f"it ended too early: {run.communicate()}"
        assert time.monotonic() < end
        time.sleep(0.01)


def at_work(out: Path) -> bool:
    """Some party of the conversation and one of a loop at home have begun."""
    begun = {p.parts[-3].split("-")[0] for p in out.glob("parties/*/*/ledger.jsonl")}
    return {"psg_joint", "psg"} <= begun


def answers(out: Path) -> int:
    """The size of all ledgers: it grows with every new answer of a party."""
    return sum(path.stat().st_size for path in out.glob("parties/*/*/ledger.jsonl"))


def verdicts(out: Path) -> int:
    return len(list(out.glob("server/*/evaluation-*.json")))


def jobs_of(out: Path) -> list[Job]:
    values = yaml.safe_load((out / "config.yaml").read_text())
    config = assemble([{k: v for k, v in values.items() if k != "about"}], None, "")
    return list(Experiment.of(config, out).jobs)


def all_paid(out: Path) -> None:
    for job in jobs_of(out):
        tiny.assert_releases_are_charged(job)


def test_killed_workers_change_nothing(undisturbed, tmp_path):
    """kill -9 of both workers, one after the other, while parties are at work."""
    out = tmp_path / "run"
    run = start(*WORDS, "noise_seed=3", "engine=ray", "workers=2", f"out={out}")
    wait_until(lambda: at_work(out), run)
    killed: set[int] = set()
    for _ in range(2):
        workers = [
            process
            for process in family(run.pid)
            if name_of(process).startswith("ray::RayWorker") and process.pid not in killed
        ]
        victim = random.choice(workers)
        kill_all([victim])
        killed.add(victim.pid)
        assert run.poll() is None
        time.sleep(random.uniform(0.0, 1.0))
    errors = finish(run)
    assert "Traceback" not in errors
    assert tiny.outputs(out) == undisturbed
    all_paid(out)


def test_a_killed_run_goes_on_and_ends_the_same(undisturbed, tmp_path):
    """kill -9 of the run in the middle, then of its continuation elsewhere, then to the end."""
    out = tmp_path / "run"
    run = start(*WORDS, "noise_seed=3", "engine=ray", "workers=2", f"out={out}")
    wait_until(lambda: at_work(out), run)
    time.sleep(random.uniform(0.0, 0.5))
    run.kill()
    all_paid(out)
    run.communicate()
    assert not (out / "report.html").exists()
    run = start("--resume", str(out), "engine=inprocess")
    before = verdicts(out)
    wait_until(lambda: verdicts(out) > before + 1, run)
    run.kill()
    all_paid(out)
    run.communicate()
    assert not (out / "report.html").exists()
    assert main(["--resume", str(out), "engine=inprocess", "--quiet"]) == 0
    assert tiny.outputs(out) == undisturbed
    assert not list(out.glob("disclosed/**/*"))


def test_a_killed_run_with_real_noise_spends_what_was_planned(tmp_path):
    """No noise_seed: the keys lie with the parties until the end, and nothing is charged twice."""
    out = tmp_path / "run"
    run = start(*WORDS, "engine=inprocess", f"out={out}")
    wait_until(lambda: at_work(out), run)
    run.kill()
    all_paid(out)
    run.communicate()
    keys = {path: path.read_bytes() for path in out.rglob("noise.key")}
    assert keys
    assert all(path.stat().st_mode & 0o077 == 0 for path in keys)
    assert main(["--resume", str(out), "engine=inprocess", "--quiet"]) == 0
    for job in jobs_of(out):
        for stage in range(2):
            for share in job.plan(stage).parties:
                entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
                assert flatten(total(entries)) == flatten(share.event)
                assert {entry.noise for entry in entries} == {"operating system entropy"}
    assert not list(out.rglob("noise.key"))


def test_a_signal_ends_all_processes_and_the_run_goes_on_later(undisturbed, tmp_path):
    """Ctrl-C in a terminal, and then, while it goes on, the request of a batch system to end."""
    out = tmp_path / "run"
    begin = [*WORDS, "noise_seed=3", "engine=ray", "workers=2", f"out={out}"]
    for words, number in ((begin, signal.SIGINT), (["--resume", str(out)], signal.SIGTERM)):
        before = answers(out)
        run = start(*words)
        wait_until(lambda before=before: at_work(out) and answers(out) > before, run)
        started = family(run.pid)
        assert len(started) > 3
        begun, limit = time.monotonic(), on_this_machine(5)
        os.killpg(run.pid, number) if number == signal.SIGINT else run.send_signal(number)
        _, errors = run.communicate(timeout=limit)
        assert run.returncode == 128 + number, errors
        _, alive = psutil.wait_procs(started, timeout=max(0.0, begun + limit - time.monotonic()))
        assert not alive, [name_of(process) for process in alive]
        assert f"go on with --resume {out}" in errors
        assert errors.rstrip().endswith("interrupted.")
        assert "Traceback" not in errors
        assert "***" not in errors, "a stack of C++"
        all_paid(out)
    assert main(["--resume", str(out), "engine=inprocess", "--quiet"]) == 0
    assert tiny.outputs(out) == undisturbed


@contextlib.contextmanager
def full_disk(path: Path) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """`path` is a disk with too little room, or, where mounting is not allowed, the files of a
    process cannot grow. Gives what makes a process meet it, and what makes room."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield _forbid_large_files, lambda: None
        return
    try:
        yield lambda _pid: None, lambda: _enlarge(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _forbid_large_files(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, 20_000))


def _enlarge(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=50m", str(path)], check=True)


def test_a_full_disk_is_one_message_and_the_run_goes_on_with_more_room(undisturbed, tmp_path):
    with full_disk(tmp_path / "disk") as (strike, make_room):
        out = tmp_path / "disk" / "run"
        run = start(*WORDS, "noise_seed=3", "engine=inprocess", f"out={out}")
        strike(run.pid)
        errors = finish(run, code=2)
        assert "Traceback" not in errors
        assert "space" in errors or "too large" in errors
        assert errors.count("error: ") == 1
        assert not list(out.rglob("*.part"))
        all_paid(out)
        make_room()
        assert main(["--resume", str(out), "engine=inprocess", "--quiet"]) == 0
        assert tiny.outputs(out) == undisturbed
