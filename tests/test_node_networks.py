"""Nodes in a network of their own: a link that is cut, nodes that stop or are killed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_runs as tiny
from guides import ROOT
from processes import directory_of, family, kill_all

from fedsynth.cli.main import with_scenario
from fedsynth.cli.node_processes import end_all, environment, free_ports
from fedsynth.cli.node_submission import open_run
from fedsynth.cli.nodes import main
from fedsynth.cli.run import main as run_main
from fedsynth.experiment.job import Job
from fedsynth.experiment.node_states import read_states
from fedsynth.experiment.simulated_parties import policy_of
from fedsynth.privacy.policy import policy_text

WORDS = [
    *("split_mnist", "data=shapes", "parties=2", "partition=iid", "options={}", "stages=together"),
    *("holdout=1600", "method=psg_joint", "epsilon=10", "delta=1e-3", "accounting=rdp"),
    *("engine=inprocess", "noise_seed=3", "psg_joint.width=4", "psg_joint.spc=2"),
    *("psg_joint.runs=4", "psg_joint.batches=2", "psg_joint.updates=1"),
    *("evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50"),
]
FAULT_SECONDS = 3.0
PATIENCE = 300.0


@dataclass(frozen=True)
class Network:
    """A network namespace that one link joins with this one."""

    name: str
    link: str
    host: str  # this side's address

    def set_link(self, state: str) -> None:
        """Cut the link, or join it again."""
        subprocess.run(["ip", "link", "set", self.link, state], check=True)


@pytest.fixture
def network() -> Iterator[Network]:
    number = os.getpid() % 60_000
    name, here, there = f"fs{number}", f"fsa{number}", f"fsb{number}"
    prefix = f"10.213.{number % 250}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name {there} netns {name}",
        f"ip addr add {prefix}.1/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {name} addr add {prefix}.2/30 dev {there}",
        f"ip -n {name} link set {there} up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield Network(name, here, f"{prefix}.1")
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def started(
    words: list[str], folder: Path, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a node of this command line."""
    command = [*prefix, sys.executable, "-m", "fedsynth", "nodes", "start", *words]
    path = {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env={**environment(folder / "flower"), **path})


@contextlib.contextmanager
def in_background(work: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Do this work beside the block; what it raises is in the list at the end."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    yield failures
    thread.join()


def await_answers(job, number: int) -> None:
    """Wait until the server has so many answers of party 0."""
    end = time.monotonic() + PATIENCE
    while (state := read_states(job).get(0)) is None or state.answers < number:
        assert time.monotonic() < end
        time.sleep(0.1)


@dataclass(frozen=True)
class Federation:
    """The folders of a server and of two wards, and the proposal of a run."""

    run: Path
    server: Path
    wards: list[Path]
    job: Job

    @property
    def reach(self) -> list[str]:
        """The words by which a command reaches the server."""
        return ["--server", str(self.server), "--patience", "120"]

    def register(self) -> None:
        """Admit both nodes."""
        keys = [str(ward / "node.pub") for ward in self.wards]
        assert main(["register", *keys, *self.reach]) == 0


def federation(folder: Path, host: str, words: list[str]) -> Federation:
    """Write all folders and the proposal; nothing is started."""
    run, server = folder / "run", folder / "server"
    wards = [folder / "ward-0", folder / "ward-1"]
    port, *inner = free_ports(3)
    assert main(["init", str(server), "--server", "--host", host, "--port", str(port)]) == 0
    assert main(["proposal", *words, f"out={run}"]) == 0
    (job,) = open_run(run)[1]
    policy = dataclasses.replace(policy_of(job), progress=None)
    for party, ward in enumerate(wards):
        ward.mkdir()
        (ward / "party.yaml").write_text(policy_text(policy))
        options = ["--party", str(party), "--parties", "2", "--ca", str(server / "ca.crt")]
        options += ["--port", str(inner[party]), "--superlink", f"{host}:{port}"]
        assert main(["init", str(ward), *options]) == 0
    return Federation(run, server, wards, job)


def assert_released_as_simulated(found: Federation, words: list[str], one: Path) -> None:
    """The releases of the nodes have the bytes of a run in one process."""
    assert run_main(with_scenario([*words, f"out={one}", "--quiet"])) == 0
    ours, theirs = tiny.outputs(found.run), tiny.outputs(one)
    releases = [name for name in theirs if name.startswith("releases")]
    assert any(name.endswith(".npz") for name in releases)
    assert {name: ours[name] for name in releases} == {name: theirs[name] for name in releases}


@pytest.mark.timeout(600)
def test_a_cut_link_and_a_stopped_node_delay_a_run_and_change_no_bit(network, tmp_path, capsys):
    """The nodes are in a namespace of their own; the conversation goes on where it was."""
    found = federation(tmp_path, network.host, WORDS)
    job, wards = found.job, found.wards

    def faults() -> None:
        await_answers(job, 1)
        network.set_link("down")
        time.sleep(FAULT_SECONDS)
        network.set_link("up")
        await_answers(job, 3)
        ward = [p for p in family(os.getpid()) if directory_of(p) == str(wards[1])]
        assert len(ward) == 3
        for process in ward:
            process.suspend()
        time.sleep(FAULT_SECONDS)
        for process in ward:
            process.resume()

    processes = [started([str(found.server)], found.server)]
    try:
        prefix = ("ip", "netns", "exec", network.name)
        processes.append(started([str(ward) for ward in wards], tmp_path, prefix))
        found.register()
        with in_background(faults) as failures:
            command = ["run", str(found.run), *found.reach, "--wait"]
            assert main(command) == 0, capsys.readouterr()
        assert failures == []
    finally:
        end_all(processes)
    assert_released_as_simulated(found, WORDS, tmp_path / "one")


@pytest.mark.timeout(600)
def test_a_killed_node_is_named_and_the_run_goes_on_when_it_is_back(tmp_path, capsys):
    """Flower notices a dead node after a minute, which this test waits for."""
    words = [word.replace("runs=4", "runs=10") for word in WORDS]
    found = federation(tmp_path, "127.0.0.1", words)
    processes = [started([str(found.server)], found.server)]
    command = ["run", str(found.run), *found.reach, "--wait"]
    try:
        nodes = [started([str(ward)], tmp_path) for ward in found.wards]
        processes += nodes
        found.register()

        def kill() -> None:
            await_answers(found.job, 3)
            kill_all(family(nodes[1].pid))

        with in_background(kill) as failures:
            assert main(command) == 1
        assert failures == []
        message = "party 1 is gone: its node or its process died"
        assert message in (errors := capsys.readouterr().err), errors
        assert "run it again to continue" in errors
        processes.append(started([str(found.wards[1])], tmp_path))
        assert main(command) == 0, capsys.readouterr()
    finally:
        end_all(processes)
    assert_released_as_simulated(found, words, tmp_path / "one")
