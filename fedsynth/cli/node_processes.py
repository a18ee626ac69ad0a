"""The processes of a rehearsal: a SuperLink and all nodes on this machine, each in its own folder.

Everything that is started here is ended here. Ports are free ones, whatever the folders say.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import psutil
from flwr.clientapp import ClientApp
from flwr.supercore.app_utils import start_parent_process_monitor

from fedsynth.core.errors import UserError
from fedsynth.engine.flower_commands import SuperLink
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.engine.node_keys import AUTHORITY, SECRET
from fedsynth.experiment.node_folders import (
    FLOWER,
    PartyNode,
    ServerNode,
    public_key,
    read_party_folder,
    read_server_folder,
    superlink_command,
    supernode_command,
)

START_SECONDS = 60.0
END_SECONDS = 1.0
LOG = "node.log"
LOG_CHARACTERS = 2000  # of the end of a log, in a message
TASK_POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"  # seconds, of Flower's own starter of apps
POLL = 0.25  # seconds between two looks for messages, on this machine
TASK_POLL_SECONDS = "0.1"


@contextlib.contextmanager
def running_nodes(server: Path, parties: Sequence[Path]) -> Iterator[SuperLink]:
    """Run a SuperLink and the nodes of these folders on this machine.

    Args:
        server: The folder of the server.
        parties: The folders of the parties; each is the working directory of its node.

    Raises:
        UserError: The SuperLink does not start, or a folder is none.
    """
    settings = read_server_folder(server)
    for folder in parties:
        if read_party_folder(folder).insecure != settings.insecure:
            raise UserError(f"{folder} and {server} differ in insecure: write both anew.")
    (link,), (port, *_) = free_ports(1), free_ports(len(parties), in_a_row=True)
    here = ServerNode("127.0.0.1", link, settings.insecure)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(end_all, processes)
        command = superlink_command(server.resolve(), here)
        processes.append(_start(found(command), server))
        words = ["start", *(str(folder.resolve()) for folder in parties)]
        words += ["--superlink", here.address, "--port", str(port), "--poll", str(POLL)]
        command = [sys.executable, "-m", "fedsynth.cli.nodes", *words]
        processes.append(_start(command, server))
        authority = None if here.insecure else server / AUTHORITY
        superlink = SuperLink(server / FLOWER / "cli", here.address, authority)
        try:
            superlink.await_start(START_SECONDS, lambda: processes[0].poll() is None)
        except UserError as error:
            log = (server / LOG).read_text(errors="replace")[-LOG_CHARACTERS:]
            raise UserError(f"the SuperLink does not start:\n{log}") from error
        if not here.insecure:
            for folder in parties:
                superlink.register(public_key(folder))
        yield superlink


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Leave the block when the process is asked to end, so that what it started is ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def found(command: Sequence[str]) -> list[str]:
    """Flower's command of this very environment, not another one on the PATH."""
    return [str(Path(sys.executable).with_name(command[0])), *command[1:]]


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process of Flower, with Flower's own files in a folder."""
    quiet_flower()
    own = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([own, os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path),
        "FLWR_HOME": str(folder.resolve()),
        "OMP_NUM_THREADS": "1",
        TASK_POLL: TASK_POLL_SECONDS,
    }


def free_ports(count: int, *, in_a_row: bool = False) -> list[int]:
    """Ports that no process listens on now; in a row, one after the other."""
    while True:
        with contextlib.ExitStack() as stack:
            found: list[int] = []
            for _ in range(count):
                each = stack.enter_context(socket.socket())
                wanted = found[-1] + 1 if in_a_row and found else 0
                try:
                    each.bind(("127.0.0.1", wanted))
                except (OSError, OverflowError):
                    break
                found.append(each.getsockname()[1])
            if len(found) == count:
                return found


def end_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End these processes and all that they started."""
    tree: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            tree += [root, *root.children(recursive=True)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)
        tree = psutil.wait_procs(tree, timeout=END_SECONDS)[1]
    for process in processes:
        process.wait()


def serve_parties(nodes: Sequence[tuple[Path, PartyNode]]) -> int:
    """Run the nodes of parties, each in a process and a working directory of its own.

    What they import is imported once. Each writes its log into its folder, the node of a single
    folder to the terminal.

    Args:
        nodes: The folder and the settings of each party.

    Returns:
        The first exit code that is not 0.
    """
    from fedsynth.experiment import client_session, flower_apps

    client_session.forget_parties()  # imported here, before the processes part
    import_module("fedsynth.engine.flower_node")
    app = flower_apps.client_app
    if len(nodes) == 1:
        return _serve_party(*nodes[0], app)
    fork = multiprocessing.get_context("fork")
    children = [
        fork.Process(target=_serve_logged, args=(folder, node, app)) for folder, node in nodes
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for child in children:
            child.start()
        for child in children:
            child.join()
    except KeyboardInterrupt:
        pass
    finally:
        for child in children:
            if child.exitcode is None:
                child.terminate()
        for child in children:
            child.join()
    return next((child.exitcode for child in children if child.exitcode), 0)


def _serve_logged(folder: Path, node: PartyNode, app: ClientApp) -> None:
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    start_parent_process_monitor(os.getppid())
    sys.exit(_serve_party(folder, node, app))


def _serve_party(folder: Path, node: PartyNode, app: ClientApp) -> int:
    """Run the node of one party in this process."""
    from fedsynth.engine.app_bundle import refuse_bundle
    from fedsynth.engine.flower_node import run_node

    os.environ.update(environment(folder / FLOWER))
    os.chdir(folder)
    return run_node(
        supernode_command(folder, node),
        app,
        refuse_bundle,
        address=f"127.0.0.1:{node.port}",
        secret=folder / SECRET,
        poll=node.poll,
    )


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / LOG).open("ab") as log:
        log.write(f"$ {shlex.join(command)}\n".encode())
        log.flush()
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder / FLOWER),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
