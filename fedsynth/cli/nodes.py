"""The same apps on real Flower nodes: the app folder that `flwr run` takes, and a rehearsal.

    python -m fedsynth.cli.nodes app FOLDER                    write the app folder
    python -m fedsynth.cli.nodes config JOB.json RUN.toml --parties 2
    python -m fedsynth.cli.nodes rehearse JOB.json --parties 2

In production: start `flower-superlink` at the server and, at each party, `flower-supernode
--node-config 'partition-id=0 party-config="/path/party.yaml"'` with its own number and policy. Then
`flwr run FOLDER SUPERLINK --run-config RUN.toml`. The job file stays at the server: RUN.toml holds
its path, and the proposal that parties receive. fedsynth must be installed on every machine: the
app folder holds names and defaults, no code and no data. A round costs seconds, because Flower
starts a process for every message. `rehearse` does all of it on the loopback interface of this
machine, without encryption, with the policies of simulated parties unless it is given others, and
ends everything it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.errors import UserError
from fedsynth.engine.client_app import PARTY_CONFIG
from fedsynth.storage.files import write_file

_START_SECONDS = 60.0

_APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedsynthapp"
version = "1.0.0"
description = "fedsynth on real nodes"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedsynth"

[tool.flwr.app.components]
serverapp = "fedsynthapp:server_app"
clientapp = "fedsynthapp:client_app"

[tool.flwr.app.config]
job = ""
proposal = ""
parties = 1
timeout = 3600.0
"""

_CONNECTION = """\
[superlink]
default = "rehearsal"

[superlink.rehearsal]
address = "{address}"
insecure = true
"""


def write_app(folder: Path, apps: str = "fedsynth.experiment.flower_apps") -> None:
    """Write the folder that `flwr run` takes; it names `client_app` and `server_app` of a module
    that every node has installed."""
    package = folder / "fedsynthapp"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(_APP, encoding="utf-8")
    (package / "__init__.py").write_text(
        f'"""The apps of fedsynth."""\n\nfrom {apps} import client_app, server_app\n\n'
        '__all__ = ["client_app", "server_app"]\n',
        encoding="utf-8",
    )


def run_config(job: Path, proposal: str, parties: int, timeout: float) -> str:
    """The TOML of a run's configuration: the server's job file, and the proposal for parties."""
    entries = {"job": str(job.resolve()), "proposal": proposal}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in entries.items()]
    return "".join([*lines, f"parties = {parties}\ntimeout = {float(timeout)}\n"])


def proposal_of(job: Path) -> str:
    """The proposal of a job file.

    Raises:
        UserError: It is not a job.
    """
    from fedsynth.experiment.job import Job
    from fedsynth.experiment.proposal import proposal_text

    try:
        return proposal_text(Job.parse(job.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{job} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{job} is not a job: {type(error).__name__}: {error}.") from error


def rehearse(
    job: Path,
    parties: int,
    *,
    proposal: str,
    policies: Sequence[Path] = (),
    timeout: float = 600.0,
    apps: str = "fedsynth.experiment.flower_apps",
) -> None:
    """Run a job on one SuperLink and `parties` SuperNodes on this machine, to its end.

    Args:
        job: The server's job file.
        parties: The number of parties.
        proposal: The text that parties receive.
        policies: The `party.yaml` of each party.
        timeout: The seconds that a party may take per answer.
        apps: The module with both apps.

    Raises:
        UserError: The run did not complete; in Flower's own words.
    """
    with tempfile.TemporaryDirectory(prefix="fedsynth-nodes-") as text:
        folder = Path(text)
        write_app(folder / "app", apps)
        link, *ports = _free_ports(1 + parties)
        address = f"127.0.0.1:{link}"
        (folder / "config.toml").write_text(_CONNECTION.format(address=address), encoding="utf-8")
        commands = [["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(link)]]
        commands += [
            [
                *("flower-supernode", "--insecure", "--superlink", address, "--port", str(port)),
                *("--node-config", _node_config(party, parties, policies)),
            ]
            for party, port in enumerate(ports)
        ]
        config = folder / "run.toml"
        config.write_text(run_config(job, proposal, parties, timeout), encoding="utf-8")
        with _running(commands, folder, address):
            log = _flwr(
                ["run", str(folder / "app"), "--stream", "--run-config", str(config)], folder
            )
            (run,) = json.loads(_flwr(["ls", "--format", "json"], folder))["runs"]
        if run["status"] != "finished:completed":
            raise UserError(f"the nodes ended with {run['status']}: {run['status-details']}\n{log}")


def _node_config(party: int, parties: int, policies: Sequence[Path]) -> str:
    text = f"partition-id={party} num-partitions={parties}"
    if not policies:
        return text
    return f"{text} {PARTY_CONFIG}={json.dumps(str(policies[party].resolve()))}"


@contextlib.contextmanager
def _running(commands: Sequence[Sequence[str]], folder: Path, address: str) -> Iterator[None]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log-{number}.txt").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        _found(command), env=_environment(folder), stdout=log, stderr=log
                    )
                )
            if number == 0:
                _await(address, processes[0], folder / "log-0.txt")
        yield
    finally:
        _end(processes)


def _await(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1.0):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise UserError(f"the SuperLink does not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    tree: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            tree += [*root.children(recursive=True), root]
    for member in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    for process in processes:
        process.wait()


def _flwr(arguments: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        _found(["flwr", *arguments]),
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(f"flwr {arguments[0]} failed:\n{done.stdout}")
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path),
        "FLWR_HOME": str(folder),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def _found(command: Sequence[str]) -> list[str]:
    """Flower's command of this very environment, not another one on the PATH."""
    return [str(Path(sys.executable).with_name(command[0])), *command[1:]]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _policies(job: Path, given: Sequence[Path], parties: int) -> list[Path]:
    """The policies of a rehearsal: those given, or those of simulated parties, written here."""
    from fedsynth.experiment.job import Job
    from fedsynth.experiment.simulated_parties import PARTY_FILE, write_policies

    if given and len(given) != parties:
        raise UserError(f"{len(given)} policies for {parties} parties: give --policy once each.")
    if given:
        return list(given)
    parsed = Job.parse(job.read_text(encoding="utf-8"))
    folder = Path(write_policies(parsed))
    return [folder / f"party-{party}" / PARTY_FILE for party in range(parties)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module's text."""
    parser = ArgumentParser(prog="fedsynth nodes")
    commands = parser.add_subparsers(dest="command", required=True)
    app = commands.add_parser("app", help="write the folder that flwr run takes")
    app.add_argument("folder", type=Path)
    run = commands.add_parser("rehearse", help="run a job on nodes on this machine")
    config = commands.add_parser("config", help="write the run's configuration of a job")
    config.add_argument("job", type=Path)
    config.add_argument("file", type=Path)
    run.add_argument("job", type=Path)
    run.add_argument("--policy", type=Path, action="append", default=[], help="one per party")
    for each in (run, config):
        each.add_argument("--parties", type=int, required=True)
        each.add_argument("--timeout", type=float, default=600.0)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "app":
            write_app(chosen.folder)
        elif chosen.command == "config":
            text = run_config(chosen.job, proposal_of(chosen.job), chosen.parties, chosen.timeout)
            write_file(chosen.file, text.encode())
        else:
            rehearse(
                chosen.job,
                chosen.parties,
                proposal=proposal_of(chosen.job),
                policies=_policies(chosen.job, chosen.policy, chosen.parties),
                timeout=chosen.timeout,
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
