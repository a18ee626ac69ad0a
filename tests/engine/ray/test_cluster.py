"""Starting and ending: nothing of an engine outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import fakes
import psutil
import pytest
from processes import command_of, is_alive, kill_all, name_of
from waiting import on_this_machine

from fedsynth.core.errors import UserError
from fedsynth.engine.ray import cluster
from fedsynth.engine.ray.cluster import answering

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "support"
PATH = os.pathsep.join([str(ROOT), str(HERE)])

_BUSY = """
import threading, fakes, psutil
from fedsynth.core.messages import (Request)

def report():
    print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)

with fakes.open_stage("ray", workers=2) as stage:
    def part(ask):
        ask([0, 1], 0, Request())
        report()
        ask([2, 3], 0, Request())
    stage.play(part, mishap={"2": "hang", "3": "hang"})
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A driver in a process group of its own, as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": PATH, "RAY_worker_niceness": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_service(process: psutil.Process) -> bool:
    """True for an agent, a monitor or the dashboard of Ray, none of which holds data."""
    words = " ".join(command_of(process)[:4])
    services = ("Agent", "/agent", "monitor.py", "dashboard.py")
    return name_of(process) not in ("raylet", "gcs_server") and any(s in words for s in services)


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "kill -9"])
def test_nothing_is_left_after_the_driver_is_stopped(how):
    """Within five seconds of a free machine, with both workers busy in an answer that never ends.

    A driver that is killed outright, or by a signal that it does not handle, cannot clean up: Ray's
    own services, which hold no data, then take their time to notice. Commands handle it."""
    driver = start(_BUSY)
    assert driver.stdout is not None
    line = driver.stdout.readline()
    pids = [int(pid) for pid in line.split() if psutil.pid_exists(int(pid))]
    processes = [psutil.Process(pid) for pid in pids]
    assert len(processes) >= 4, driver.communicate()
    time.sleep(0.3)
    assert {"gcs_server", "raylet"} < {name_of(p) for p in processes}
    services = [p for p in processes if is_service(p)] if how != "ctrl-c" else []
    processes = [p for p in processes if p not in services]
    assert len(processes) >= 4, "gcs_server, raylet and two workers"
    begun, limit = time.monotonic(), on_this_machine(5)
    if how == "ctrl-c":
        os.killpg(driver.pid, signal.SIGINT)
    else:
        driver.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGKILL)
    while (left := list(filter(is_alive, processes))) and time.monotonic() - begun < limit:
        time.sleep(0.05)
    kill_all(services)
    assert not left, [name_of(process) for process in left]
    _, errors = driver.communicate(timeout=limit)
    assert driver.returncode != 0
    if how == "ctrl-c":
        assert "KeyboardInterrupt" in errors
    assert time.monotonic() - begun < limit + 1


_ERROR = """
import fakes, psutil
from fedsynth.core.messages import (Request)
try:
    with fakes.open_stage("ray", workers=3, num_cpus=1) as stage:
        stage.play(lambda ask: ask([0], 0, Request()), mishap={"0": "secret"})
except Exception as error:
    print(type(error).__name__)
print(len(psutil.Process().children(recursive=True)))
"""


def test_an_error_ends_everything_and_the_party_side_log_is_seen():
    """The error at the server holds no private text; the party's own log does, marked as such."""
    driver = start(_ERROR)
    output, errors = driver.communicate(timeout=on_this_machine(60))
    lines = output.splitlines()
    assert "PartyFailed" in lines
    assert lines[-1] == "0"
    logged = [line for line in (output + errors).splitlines() if "4711" in line]
    assert logged
    assert all("RayWorker" in line for line in logged)
    if (os.cpu_count() or 1) < 3:
        assert "workers=3 share" in errors


_BROKEN = """
import fakes
from fedsynth.core.messages import (Request)
from fedsynth.experiment.flower_apps import open_job_engine

class Unloadable:
    def __reduce__(self):
        return (divmod, (1, 0))
    def __call__(self, *_): ...

try:
    with open_job_engine("ray", workers=1, answer=Unloadable(), serve=lambda job, ask, *_:
            ask([0], 0, Request())) as engine:
        engine.run("{}", 1)
except Exception as error:
    print(type(error).__name__, "cannot start" in str(error), "ZeroDivisionError" in str(error))
"""


def test_workers_that_cannot_start_are_an_error_not_a_loop():
    """The reason is in the message."""
    output, errors = start(_BROKEN).communicate(timeout=120)
    assert output.strip() == "RuntimeError True True", errors


_JOIN = """
import pathlib, subprocess, sys, tempfile, time, fakes, ray
from fedsynth.core.messages import (Request)
from fedsynth.core.errors import UserError

command = str(pathlib.Path(sys.executable).with_name("ray"))
port = sys.argv[1]
folder = tempfile.TemporaryDirectory(prefix="ray-")  # short: sockets live in it
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
head = subprocess.Popen(
    [command, "start", "--head", "--port", port, "--num-cpus", "2", "--include-dashboard", "false",
     "--block", "--object-store-memory", "100000000", "--disable-usage-stats",
     "--temp-dir", folder.name], **quiet)
address = "127.0.0.1:" + port
for _ in range(100):
    try:
        with fakes.open_stage("ray", workers=2, address=address) as stage:
            print(fakes.plain(stage.ask_all([3, 0, 2], rounds=2)))
        break
    except UserError as error:
        assert "no Ray cluster" in str(error), error
        time.sleep(0.3)
try:
    with fakes.open_stage("ray", workers=3, address=address):
        print("opened")
except UserError as error:
    print(error)
ray.init(address, logging_level="ERROR")
for _ in range(100):
    if ray.available_resources().get("CPU") == 2:
        break
    time.sleep(0.1)
print(ray.available_resources().get("CPU"))
ray.shutdown()
head.terminate()
head.wait()
folder.cleanup()
"""


def test_a_running_cluster_is_joined_and_left_as_it_was(local_stage):
    """Same bits; too many workers are refused, not waited for; the cluster outlives the engine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output, errors = start(_JOIN, str(port)).communicate(timeout=120)
    lines = [line for line in output.splitlines() if not line.startswith("\x1b")]
    assert lines == [
        fakes.plain(local_stage.ask_all([3, 0, 2], rounds=2)),
        "workers=3 with num_cpus=1 need 3 CPUs, and the cluster offers 2",
        "2.0",
    ], errors


_LAZY = """
import sys
import fedsynth.experiment.config
print({"flwr", "ray"} & set(sys.modules))
from fedsynth.experiment.flower_apps import open_job_engine
with open_job_engine("inprocess") as engine:
    print("ray" in sys.modules, "flwr.simulation" in sys.modules)
"""


def test_nothing_is_imported_before_it_is_needed():
    """The command starts fast: Ray and Flower's simulation cost seconds."""
    output, errors = start(_LAZY).communicate(timeout=60)
    assert output.splitlines() == ["set()", "False False"], errors


def test_an_address_to_nowhere_ends_soon_with_a_sentence():
    """Nothing listens there; or something that never answers."""
    with socket.socket() as silent, socket.socket() as unused:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        unused.bind(("127.0.0.1", 0))
        for place in (silent, unused):
            address = "127.0.0.1:{1}".format(*place.getsockname())
            begun = time.monotonic()
            with pytest.raises(UserError, match=r"no Ray cluster to join: .* does not answer"):
                answering(address)
            assert time.monotonic() - begun < on_this_machine(10)


def test_a_ray_that_does_not_start_in_time_is_a_message(monkeypatch):
    """Ray raises a plain exception for it, as under a load of thirty processes on two cores."""

    def never(**_):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(cluster.ray, "init", never)
    with pytest.raises(UserError, match=r"did not start in time .* engine=inprocess"):
        cluster._connect(1, None)
