"""The folders of real nodes: what they hold, what is kept, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from fedsynth.core.errors import UserError
from fedsynth.engine.node_keys import AUTHORITY, NODE_KEY, NODE_PUBLIC_KEY
from fedsynth.experiment.node_folders import (
    LEDGER,
    PartyNode,
    ServerNode,
    make_party_folder,
    make_server_folder,
    party_folders,
    read_party_folder,
    read_server_folder,
    superlink_command,
    supernode_command,
)
from fedsynth.privacy.policy import read_policy

POLICY = {"data": {"name": "shapes"}, "lifetime": {"epsilon": 4}}


@pytest.fixture
def server(tmp_path):
    make_server_folder(tmp_path / "server", ServerNode(), ["superlink.example.org"])
    return tmp_path / "server"


def test_a_party_has_its_policy_its_records_and_its_keys(tmp_path, server):
    folder = tmp_path / "b"
    make_party_folder(folder, PartyNode(1, 3, superlink="s:8000"), POLICY, server / AUTHORITY)
    policy = read_policy(folder / "party.yaml")
    assert (policy.data.parties, policy.data.records, policy.ledger) == (3, "records.npz", LEDGER)
    assert policy.noise == "system"
    assert not policy.simulation
    with np.load(folder / "records.npz") as file:
        assert 0 < len(file["y"]) < 1000  # a third of 2,000
    assert (folder / AUTHORITY).read_bytes() == (server / AUTHORITY).read_bytes()
    assert "fedsynth nodes start ." in (folder / "start.sh").read_text()


def test_what_a_party_has_is_kept(tmp_path, server):
    node = PartyNode(0, 2)
    make_party_folder(tmp_path / "a", node, POLICY, None)
    own = tmp_path / "a"
    before = {n: (own / n).read_bytes() for n in (NODE_KEY, NODE_PUBLIC_KEY, "party.yaml")}
    make_party_folder(own, PartyNode(0, 2, superlink="other:9000"), {}, server / AUTHORITY)
    assert {n: (own / n).read_bytes() for n in before} == before
    assert read_party_folder(own).superlink == "other:9000"
    with pytest.raises(UserError, match="exists and is not changed: edit it"):
        make_party_folder(own, node, POLICY, None)


@pytest.mark.parametrize(
    ("policy", "node", "said"),
    [
        ({"lifetime": {"epsilon": 4}}, PartyNode(0, 2), "data.name is missing"),
        ({"data": {"name": "shapes"}}, PartyNode(0, 2), "lifetime is missing"),
        ({**POLICY, "methodz": "psg"}, PartyNode(0, 2), "Did you mean 'methods'"),
        ({**POLICY, "data": "shapes"}, PartyNode(0, 2), "give data.name=NAME"),
        (POLICY, PartyNode(2, 2), "parties are numbered 0 to 1"),
        (POLICY, PartyNode(0, 2, superlink="https://a"), "is not HOST:PORT"),
    ],
)
def test_a_mistake_writes_nothing(tmp_path, policy, node, said):
    with pytest.raises(UserError, match=said):
        make_party_folder(tmp_path / "a", node, policy, None)
    assert not (tmp_path / "a").exists()


def test_commands_are_encrypted_and_authenticated_unless_told_otherwise(tmp_path, server):
    words = supernode_command(tmp_path, PartyNode(0, 2))
    assert "--auth-supernode-private-key" in words
    assert "--root-certificates" in words
    words = superlink_command(server, read_server_folder(server))
    assert {"--enable-supernode-auth", "--ssl-certfile", "--ssl-keyfile"} <= set(words)
    assert "--insecure" in supernode_command(tmp_path, PartyNode(0, 2, insecure=True))
    assert "--insecure" in superlink_command(server, ServerNode(insecure=True))


def test_settings_are_read_strictly(tmp_path, server):
    (server / "server.yaml").write_text(yaml.safe_dump({"hosts": "a"}))
    with pytest.raises(UserError, match=r"server.yaml: unknown key 'hosts'.*Did you mean 'host'"):
        read_server_folder(server)
    with pytest.raises(UserError, match="`fedsynth nodes init` writes it"):
        read_party_folder(tmp_path)
    with pytest.raises(UserError, match="folders of the parties none"):
        party_folders(tmp_path)
