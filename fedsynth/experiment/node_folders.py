"""The folders of real nodes: one per party on its own disk, and one of the server.

The folder of a party holds its policy, its records, its keys and later its ledger. `node.yaml` and
`server.yaml` say how the nodes reach each other; nothing in them is part of a message.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build, setting
from fedsynth.data import registry as datasets
from fedsynth.engine.node_keys import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    NODE_KEY,
    NODE_PUBLIC_KEY,
    SECRET,
    make_certificates,
    make_node_key,
)
from fedsynth.engine.placement import PARTY_FILE
from fedsynth.experiment.own_records import write_own_records
from fedsynth.experiment.proposal import own_scenario
from fedsynth.privacy.policy import PolicyData, parse_policy
from fedsynth.storage.files import write_file

NODE_FILE, SERVER_FILE, START = "node.yaml", "server.yaml", "start.sh"
RECORDS, LEDGER, FLOWER = "records.npz", "ledger", "flower"
DEFAULT_SUPERLINK = "127.0.0.1:8000"
FIRST_PORT = 9094  # of a node's own interface on its machine, as Flower numbers them
C = TypeVar("C")


@dataclass(frozen=True)
class PartyNode:
    """The node of a party: `node.yaml`."""

    party: int = setting(-1, "number of the party", at_least=0)
    parties: int = setting(0, "number of all parties", at_least=1)
    policy: str = setting(PARTY_FILE, "path of the party's policy, seen from this folder")
    superlink: str = setting(DEFAULT_SUPERLINK, "host and port of the SuperLink")
    port: int = setting(FIRST_PORT, "port of the node's own interface", at_least=1, at_most=65535)
    insecure: bool = setting(False, "no encryption: on one machine only")
    poll: float = setting(
        1.0, "seconds between two looks for messages", at_least=0.05, at_most=60.0
    )


@dataclass(frozen=True)
class ServerNode:
    """The SuperLink of a server: `server.yaml`."""

    host: str = setting("127.0.0.1", "address that the SuperLink listens on")
    port: int = setting(8000, "port of the SuperLink", at_least=1, at_most=65535)
    insecure: bool = setting(False, "no encryption: on one machine only")

    @property
    def address(self) -> str:
        """The address by which this machine reaches it."""
        local = self.host in ("0.0.0.0", "::")
        return f"{'127.0.0.1' if local else self.host}:{self.port}"


def make_party_folder(
    folder: Path, node: PartyNode, policy: Mapping[str, Any], authority: Path | None
) -> None:
    """Write the folder of a party. Records, keys and a policy that exist are kept.

    Args:
        folder: The folder; it may hold files of the party already.
        node: How the node reaches the SuperLink.
        policy: The keys of `party.yaml`; the number of parties and the places are added.
        authority: The certificate `ca.crt` of the SuperLink's authority; None: there is none yet.

    Raises:
        UserError: A key is wrong, the data are not here, or the disk refuses.
    """
    _check_address(node.superlink)
    text = _policy_text(folder, node, policy)
    parsed = parse_policy(text).at(folder)
    if (certificate := authority) is not None and not certificate.is_file():
        raise UserError(f"--ca {certificate}: there is no such file.")
    if parsed.data.records is not None and not Path(parsed.data.records).exists():
        given = _data_section(policy).get("folder")  # where the whole data set lies
        source = None if given is None else str((folder / str(given)).absolute())
        scenario = own_scenario(dataclasses.replace(parsed.data, folder=source))
        if not 0 <= node.party < node.parties:
            raise UserError(f"--party {node.party}: parties are numbered 0 to {node.parties - 1}.")
        write_own_records(scenario, node.party, Path(parsed.data.records))
    if not (folder / PARTY_FILE).exists():
        write_file(folder / PARTY_FILE, text.encode())
    if certificate is not None:
        write_file(folder / AUTHORITY, certificate.read_bytes())
    make_node_folder(folder, node)


def make_node_folder(folder: Path, node: PartyNode) -> None:
    """Write the settings, the keys and the start script of a node whose policy is there."""
    make_node_key(folder)
    write_file(folder / NODE_FILE, _yaml(node))
    _write_start(folder, ["nodes", "start", "."], supernode_command(Path(), node, shell=True))


def make_server_folder(folder: Path, server: ServerNode, hosts: Sequence[str]) -> None:
    """Write the folder of a server; certificates that exist are kept.

    Args:
        folder: The folder.
        server: The SuperLink.
        hosts: The names and addresses by which nodes reach it.
    """
    if not server.insecure and not (folder / CERTIFICATE).exists():
        make_certificates(folder, [*hosts, server.host])
    write_file(folder / SERVER_FILE, _yaml(server))
    _write_start(folder, ["nodes", "start", "."], superlink_command(Path(), server))


def read_party_folder(folder: Path) -> PartyNode:
    """The settings of a party's node.

    Raises:
        UserError: This is no folder of a party, or a setting is wrong.
    """
    return _read(folder, NODE_FILE, PartyNode)


def read_server_folder(folder: Path) -> ServerNode:
    """The settings of a server's SuperLink.

    Raises:
        UserError: This is no folder of a server, or a setting is wrong.
    """
    return _read(folder, SERVER_FILE, ServerNode)


def party_folders(folder: Path) -> list[Path]:
    """The folders of parties below a folder, by the number of the party.

    Raises:
        UserError: There are none, or their numbers are not 0, 1, 2, ...
    """
    found = {read_party_folder(p.parent).party: p.parent for p in folder.glob(f"*/{NODE_FILE}")}
    if not found or sorted(found) != list(range(len(found))):
        numbers = ", ".join(map(str, sorted(found))) or "none"
        raise UserError(
            f"{folder} has folders of the parties {numbers}; all from 0 on are needed. "
            "`fedsynth nodes init FOLDER --parties N` writes them."
        )
    return [found[party] for party in sorted(found)]


def supernode_command(folder: Path, node: PartyNode, *, shell: bool = False) -> list[str]:
    """The words of `flower-supernode` of a party.

    Args:
        folder: The folder of the party, as the command sees it.
        node: Its settings.
        shell: For a person to start, without the process of this package that answers.
    """
    policy = folder / node.policy if shell else (folder / node.policy).resolve()
    config = f'partition-id={node.party} num-partitions={node.parties} party-config="{policy}"'
    words = ["flower-supernode", "--superlink", node.superlink, "--port", str(node.port)]
    if node.insecure:
        words.append("--insecure")
    else:
        words += ["--root-certificates", str(folder / AUTHORITY)]
        words += ["--auth-supernode-private-key", str(folder / NODE_KEY)]
    words += ["--node-config", config]
    if not shell:
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(folder / SECRET)]
    return words


def superlink_command(folder: Path, server: ServerNode) -> list[str]:
    """The words of `flower-superlink` of a server."""
    words = ["flower-superlink", "--host", server.host, "--port", str(server.port)]
    words += ["--disable-runtime-dependency-installation"]
    if server.insecure:
        return [*words, "--insecure"]
    words += ["--ssl-ca-certfile", str(folder / AUTHORITY)]
    words += ["--ssl-certfile", str(folder / CERTIFICATE), "--ssl-keyfile", str(folder / KEY)]
    return [*words, "--enable-supernode-auth"]


def public_key(folder: Path) -> Path:
    """The file with the public key of a party's node, which the server registers."""
    return folder / NODE_PUBLIC_KEY


def _policy_text(folder: Path, node: PartyNode, policy: Mapping[str, Any]) -> str:
    """The text of the policy: the one that is there, or a new one."""
    path = folder / PARTY_FILE
    if path.exists():
        if policy:
            raise UserError(
                f"{path} exists and is not changed: edit it, or leave {next(iter(policy))} out."
            )
        return path.read_text(encoding="utf-8")
    data = {"parties": node.parties, **_data_section(policy)}
    values = {"ledger": LEDGER, **policy, "data": data}
    if "file" not in data and "records" not in data and data.get("name"):
        data["records"] = RECORDS
        if datasets.find(str(data["name"]), data.get("folder")).train:
            data["folder"] = "data"  # nothing is read there: the counts are published
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _data_section(policy: Mapping[str, Any]) -> dict[str, Any]:
    section = policy.get("data", {})
    if not isinstance(section, Mapping):
        names = [f.name for f in dataclasses.fields(PolicyData)]
        raise UserError(f"data={section!r}: give data.name=NAME. Keys: {', '.join(names)}.")
    return dict(section)


def _yaml(settings: Any) -> bytes:
    return yaml.safe_dump(dataclasses.asdict(settings), sort_keys=False).encode()


def _read(folder: Path, name: str, kind: type[C]) -> C:
    path = folder / name
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. `fedsynth nodes init` writes it."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no keys and values.")
    try:
        return build(kind, {str(key): value for key, value in values.items()})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _check_address(address: str) -> None:
    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:/]+):\d{1,5}", address):
        raise UserError(f"--superlink {address!r} is not HOST:PORT, without http://.")


def _write_start(folder: Path, words: Sequence[str], plain: Sequence[str]) -> None:
    """The script that starts a node, and Flower's own command in a comment."""
    text = (
        "#!/bin/sh\n"
        f"# Flower's own command, which starts a process per message: {shlex.join(plain)}\n"
        f'cd "$(dirname "$0")" && exec "${{PYTHON:-python}}" -m fedsynth {shlex.join(words)}\n'
    )
    path = write_file(folder / START, text.encode())
    path.chmod(0o755)
