"""Real Flower nodes: folders, proposals, submission, state and report.

    fedsynth nodes init FOLDER --parties 3 data.name=mnist lifetime.epsilon=10     a rehearsal
    fedsynth nodes proposal SCENARIO method=psg out=RUN parties=3                  at the server
    fedsynth nodes run RUN --nodes FOLDER
    fedsynth nodes status RUN
    fedsynth nodes report RUN

`init` with `--party` writes the folder of one party on its own machine, with `--server` that of
the server; `start FOLDER` runs the node of either. `run RUN --server FOLDER` submits to a SuperLink
that runs. fedsynth must be installed on every machine: the app bundle holds names and defaults, no
code and no data. `app`, `config` and `rehearse` are for those who call Flower themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.errors import JobsFailed, UserError

if TYPE_CHECKING:
    import argparse

SERVER_FOLDER = "server"


def _init(chosen: argparse.Namespace) -> None:
    """Write the folder of a party, of the server, or of all of a rehearsal."""
    from fedsynth.engine.node_keys import AUTHORITY
    from fedsynth.engine.placement import PARTY_FILE
    from fedsynth.experiment import node_folders as folders
    from fedsynth.experiment.config import parse_overrides

    policy, folder = parse_overrides(chosen.words), chosen.folder
    authority = None if chosen.ca is None else Path(chosen.ca)
    if chosen.server:
        if policy or chosen.party is not None:
            raise UserError("--server takes no --party and no keys: the server has no records.")
        host, port = ("127.0.0.1", 8000) if chosen.insecure else ("0.0.0.0", 8000)
        node = folders.ServerNode(host, chosen.port or port, chosen.insecure)
        folders.make_server_folder(folder, node, chosen.host)
        print(f"{folder}: start it with `fedsynth nodes start {folder}`.")
        if not chosen.insecure:
            print(f"Every party needs {folder / AUTHORITY}: init --ca ca.crt.")
        return
    if chosen.parties is None:
        raise UserError("--parties N is needed: the number of all parties. --server has none.")
    if chosen.party is None:
        folders.make_server_folder(
            folder / SERVER_FOLDER, folders.ServerNode(insecure=chosen.insecure), chosen.host
        )
        authority = None if chosen.insecure else folder / SERVER_FOLDER / AUTHORITY
    numbers = range(chosen.parties) if chosen.party is None else [chosen.party]
    for party in numbers:
        node_of_party = folders.PartyNode(
            party,
            chosen.parties,
            superlink=chosen.superlink,
            port=chosen.port or folders.FIRST_PORT + party,
            insecure=chosen.insecure,
        )
        own = folder if chosen.party is not None else folder / f"party-{party}"
        folders.make_party_folder(own, node_of_party, policy, authority)
        print(f"{own}: party {party} of {chosen.parties}. Read {own / PARTY_FILE}.")
    if chosen.party is None:
        print(f"next: fedsynth nodes proposal SCENARIO ..., then run RUN --nodes {folder}")
        return
    if not chosen.insecure:
        if authority is None:
            print(f"Missing: {folder / AUTHORITY}, which the server's init has written.")
        print(f"The server registers {folders.public_key(folder)}.")
    print(f"Start the node with `fedsynth nodes start {folder}`.")


def _start(chosen: argparse.Namespace) -> int:
    """Run the nodes of parties, or the SuperLink of a server, until a signal ends them."""
    import dataclasses

    from fedsynth.cli.node_processes import environment, found
    from fedsynth.engine.node_keys import AUTHORITY
    from fedsynth.experiment import node_folders as folders

    paths = [folder.resolve() for folder in chosen.folders]
    if len(paths) == 1 and not (paths[0] / folders.NODE_FILE).exists():
        server = folders.read_server_folder(paths[0])
        command = found(folders.superlink_command(paths[0], server))
        os.chdir(paths[0])
        os.execve(command[0], command, environment(paths[0] / folders.FLOWER))
    nodes = []
    for number, folder in enumerate(paths):
        node = folders.read_party_folder(folder)
        port = None if chosen.port is None else chosen.port + number
        given = {"superlink": chosen.superlink, "port": port, "poll": chosen.poll}
        given = {key: value for key, value in given.items() if value is not None}
        nodes.append((folder, dataclasses.replace(node, **given)))
        if not node.insecure and not (folder / AUTHORITY).exists():
            raise UserError(f"{folder / AUTHORITY} is missing: copy it from the server's folder.")
    from fedsynth.cli.node_processes import serve_parties

    return serve_parties(nodes)


def _register(chosen: argparse.Namespace) -> None:
    """Admit SuperNodes by their public keys."""
    superlink = _superlink(chosen)
    for key in chosen.keys:
        if not key.is_file():
            raise UserError(f"{key}: there is no such file. `nodes init` of a party writes it.")
        superlink.register(key)
        print(f"{key}: registered")


def _proposal(chosen: argparse.Namespace) -> None:
    """Start a run directory with a proposal per job."""
    from fedsynth.api.launch import propose
    from fedsynth.cli.main import with_scenario
    from fedsynth.experiment.config import parse_overrides, resolve

    words = with_scenario(chosen.words)
    run, experiment = propose(resolve(parse_overrides(words)), words, note=_note)
    for job in experiment.jobs:
        parties, stages = job.scenario.parties, len(job.plans)
        budget = f"epsilon {job.budget.epsilon:g}" if job.method_impl.private else "no privacy"
        print(f"{job.name}: {parties} parties, {stages} stages, {budget}")
    print(f"run directory {run.path}; next: fedsynth nodes run {run.path} --nodes FOLDER")
    print(f"             or: fedsynth nodes run {run.path} --server FOLDER")


def _run(chosen: argparse.Namespace) -> None:
    """Submit the jobs of a run that are not released."""
    from fedsynth.cli import node_submission as submission
    from fedsynth.cli.node_processes import running_nodes
    from fedsynth.experiment.node_folders import party_folders

    run, jobs = submission.open_run(chosen.run)
    if chosen.nodes is None:
        submission.submit_all(run, jobs, _superlink(chosen), chosen.timeout)
        if chosen.wait:
            submission.await_all(run, jobs)
        return
    folders = party_folders(chosen.nodes)
    if len(folders) != jobs[0].scenario.parties:
        raise UserError(
            f"--nodes {chosen.nodes} has {len(folders)} parties, and the run has "
            f"{jobs[0].scenario.parties}."
        )
    with running_nodes(chosen.nodes / SERVER_FOLDER, folders) as superlink:
        submission.run_in_turn(run, jobs, superlink, chosen.timeout)
    print(f"next: fedsynth nodes report {chosen.run}")


def _status(chosen: argparse.Namespace) -> None:
    """Print the state of a run and of its parties."""
    from fedsynth.cli import node_submission as submission

    print("\n".join(submission.status_lines(*submission.open_run(chosen.run))))


def _report(chosen: argparse.Namespace) -> None:
    """Evaluate what was released, and write the report."""
    from fedsynth.cli.launch import resume
    from fedsynth.cli.node_submission import open_run
    from fedsynth.experiment.config import parse_overrides

    open_run(chosen.run)
    resume(chosen.run, parse_overrides(chosen.words), chosen.quiet)


def _app(chosen: argparse.Namespace) -> None:
    from fedsynth.engine.app_bundle import write_app

    write_app(chosen.folder)


def _config(chosen: argparse.Namespace) -> None:
    from fedsynth.cli.node_submission import proposal_of, run_config
    from fedsynth.storage.files import write_file

    text = run_config(chosen.job, proposal_of(chosen.job), chosen.parties, chosen.timeout)
    write_file(chosen.file, text.encode())


def _rehearse(chosen: argparse.Namespace) -> None:
    from fedsynth.cli.node_submission import rehearse

    rehearse(chosen.job, chosen.parties, policies=chosen.policy, timeout=chosen.timeout)


def _superlink(chosen: argparse.Namespace) -> Any:
    """The SuperLink that the options name."""
    from fedsynth.engine.flower_commands import SuperLink
    from fedsynth.engine.node_keys import AUTHORITY
    from fedsynth.experiment import node_folders as folders

    if chosen.server is not None:
        server = folders.read_server_folder(chosen.server)
        authority = None if server.insecure else chosen.server / AUTHORITY
        found = SuperLink(chosen.server / folders.FLOWER / "cli", server.address, authority)
        found.await_start(chosen.patience)
        return found
    if chosen.superlink is None:
        raise UserError("name the SuperLink: --server FOLDER, or --superlink HOST:PORT --ca FILE.")
    if chosen.ca is None and not chosen.insecure:
        raise UserError("--superlink needs --ca FILE, or --insecure on one machine.")
    home = Path.home() / ".fedsynth" / "flower" / chosen.superlink.replace(":", "-")
    found = SuperLink(home, chosen.superlink, chosen.ca)
    found.await_start(chosen.patience)
    return found


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="fedsynth nodes")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, about: str, call: Callable[[Any], int | None]) -> ArgumentParser:
        made: ArgumentParser = commands.add_parser(name, help=about, description=about)
        made.set_defaults(call=call)
        return made

    init = command("init", "write the folder of a party, of the server, or of all", _init)
    init.epilog = "KEY=VALUE: keys of party.yaml, such as data.name=mnist lifetime.epsilon=4"
    init.add_argument("folder", type=Path)
    init.add_argument("--party", type=int, help="the number of the party; none: all of them")
    init.add_argument("--parties", type=int, help="the number of all parties")
    init.add_argument("--server", action="store_true", help="the folder of the server")
    init.add_argument("--host", action="append", default=[], help="a name of the server")
    init.add_argument("--superlink", default="127.0.0.1:8000", help="HOST:PORT of the server")
    init.add_argument("--port", type=int, help="of the SuperLink, or of the node's interface")
    init.add_argument("--ca", type=Path, help="the server's ca.crt")

    start = command("start", "run the nodes of these folders", _start)
    start.add_argument("folders", type=Path, nargs="+", metavar="folder")
    start.add_argument("--superlink", help="another SuperLink than the folder's")
    start.add_argument("--port", type=int, help="another port for the interface of the first node")
    start.add_argument("--poll", type=float, help="seconds between two looks for messages")

    register = command("register", "admit nodes by their public keys", _register)
    register.add_argument("keys", type=Path, nargs="+", metavar="node.pub")

    proposal = command("proposal", "write the proposals of a run", _proposal)
    proposal.add_argument("words", nargs="+", metavar="SCENARIO|KEY=VALUE")

    run = command("run", "submit the jobs of a run", _run)
    run.add_argument("run", type=Path)
    run.add_argument("--nodes", type=Path, help="start all nodes of this folder here, and wait")
    run.add_argument("--wait", action="store_true", help="wait until all jobs have ended")
    run.add_argument("--timeout", type=float, default=3600.0, help="seconds per answer")

    for each in (register, run):
        each.add_argument("--server", type=Path, help="the folder of the server")
        each.add_argument("--superlink", help="HOST:PORT")
        each.add_argument(
            "--patience", type=float, default=10.0, help="seconds to wait for the SuperLink"
        )
        each.add_argument("--ca", type=Path, help="the certificate of its authority")
    for each in (init, register, run):
        each.add_argument("--insecure", action="store_true", help="no encryption")

    command("status", "the state of a run and its parties", _status).add_argument("run", type=Path)
    report = command("report", "evaluate the releases and write the report", _report)
    report.add_argument("run", type=Path)
    report.add_argument("--quiet", action="store_true")

    app = command("app", "write the folder that flwr run takes", _app)
    app.add_argument("folder", type=Path)
    config = command("config", "write the run's configuration of a job", _config)
    config.add_argument("job", type=Path)
    config.add_argument("file", type=Path)
    rehearsal = command("rehearse", "run a job on nodes on this machine", _rehearse)
    rehearsal.add_argument("job", type=Path)
    rehearsal.add_argument("--policy", type=Path, action="append", default=[], help="per party")
    for each in (rehearsal, config):
        each.add_argument("--parties", type=int, required=True)
        each.add_argument("--timeout", type=float, default=600.0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module's text."""
    options = list(sys.argv[1:] if arguments is None else arguments)
    words: list[str] = []
    if options[:1] in (["init"], ["report"]):  # their words may stand anywhere among the options
        words = [word for word in options if "=" in word and not word.startswith("-")]
        options = [word for word in options if word not in words]
    chosen = _parser().parse_args(options)
    chosen.words = [*words, *getattr(chosen, "words", ())]
    try:
        return chosen.call(chosen) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, JobsFailed) else 2


if __name__ == "__main__":
    sys.exit(main())
