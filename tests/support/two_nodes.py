"""A Ray cluster of two nodes on this machine, which do not share the disk of a folder.

The nodes are started by the commands of the guide to clusters, with another port and less room.
The second node has a mount namespace of its own, with an empty disk in memory over the folder.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from processes import family, kill_all, name_of

ROOT = Path(__file__).parents[2]
_GUIDE = ROOT / "docs/guides/ray_cluster.md"
_RAY = Path(sys.executable).with_name("ray")
_WITHOUT = ("--object-store-memory", "80000000", "--disable-usage-stats", "--block")


def guide_command(address: str, head: bool) -> list[str]:
    """The guide's command that starts the first machine, or one of the others."""
    host, _, port = address.partition(":")
    lines = (
        line for line in _GUIDE.read_text(encoding="utf-8").splitlines() if "ray start" in line
    )
    first, other = (shlex.split(line, comments=True) for line in lines)
    ray, *words = first if head else other
    assert ray == "ray"
    assert ("--head" in words) is head
    return [str(_RAY), *(w.replace("FIRST", host).replace("6379", port) for w in words)]


@dataclass
class Node:
    """One node: the processes below the command that started it."""

    command: subprocess.Popen[bytes]

    @property
    def processes(self) -> list[psutil.Process]:
        """The command and all below it."""
        return family(self.command.pid)

    def raylet(self) -> psutil.Process | None:
        """The process that is the node for the cluster."""
        return next((p for p in self.processes if name_of(p) == "raylet"), None)

    def kill(self) -> None:
        """End the node with all its processes at once, as a power cut does."""
        processes = self.processes
        kill_all(processes)
        self.command.wait()
        psutil.wait_procs(processes, timeout=10)


@dataclass
class Cluster:
    """The cluster: its address, the folder whose disk is not shared, and its nodes."""

    address: str
    folder: Path
    sessions: Path
    nodes: list[Node] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Of nodes and drivers."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return {
            **kept,
            "PYTHONPATH": path,
            "RAY_worker_niceness": "0",
            "RAY_memory_monitor_refresh_ms": "0",
        }

    def start_node(self, *, head: bool = False) -> Node:
        """Start a node; one that is not the head sees an empty disk in place of the folder."""
        name = "first" if head else f"second-{time.monotonic_ns()}"
        words = [*guide_command(self.address, head), "--num-cpus", "1", "--node-name", name]
        words += _WITHOUT
        if head:
            words += ["--include-dashboard", "false", "--temp-dir", str(self.sessions / name)]
        if not head:
            mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            words = ["unshare", "-m", "sh", "-c", mount, str(self.folder), *words]
        with open(self.sessions / f"{name}.log", "wb") as log:
            command = subprocess.Popen(
                words,
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        node = Node(command)
        self.nodes.append(node)
        return node

    def second(self) -> Node:
        """The second node; a new one with an empty disk if it was killed."""
        self.nodes[1:] = [node for node in self.nodes[1:] if node.command.poll() is None]
        if len(self.nodes) < 2:
            self.start_node()
            self.await_nodes()
        return self.nodes[1]

    def await_nodes(self, seconds: float = 120.0) -> None:
        """Wait until all nodes are up."""
        end = time.monotonic() + seconds
        while not all(node.raylet() for node in self.nodes):
            assert time.monotonic() < end, self.logs()
            assert all(node.command.poll() is None for node in self.nodes), self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        """The logs of the commands that started the nodes."""
        return "\n".join(path.read_text() for path in self.sessions.glob("*.log"))

    def drive(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a driver in the folder, which runs this code."""
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )

    def run(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Start a run of the command line on this cluster."""
        code = "import sys; from fedsynth.cli.run import entry; entry()"
        return self.drive(code, *words, "engine=ray", f"address={self.address}")


@contextlib.contextmanager
def open_cluster() -> Iterator[Cluster]:
    """A cluster of two nodes with one CPU each."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fs-")))
        sessions = Path(tempfile.mkdtemp(prefix="r-"))  # short: sockets live in it
        stack.callback(shutil.rmtree, sessions, ignore_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        cluster = Cluster(f"127.0.0.1:{port}", folder, sessions)
        stack.callback(lambda: [node.kill() for node in cluster.nodes])
        cluster.start_node(head=True)
        cluster.start_node()
        cluster.await_nodes()
        yield cluster


def seen_by(node: Node, path: Path) -> Path:
    """A path as a node sees it."""
    process = node.raylet()
    assert process is not None
    return Path(f"/proc/{process.pid}/root") / path.relative_to("/")
