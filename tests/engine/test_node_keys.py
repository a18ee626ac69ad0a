"""Keys and certificates of nodes: TLS accepts them, and nobody else can read the private ones."""

from __future__ import annotations

import socket
import ssl
import stat
import threading

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedsynth.core.errors import UserError
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


def handshake(folder, name: str, authority) -> None:
    """A TLS connection over a pair of sockets."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    client = ssl.create_default_context(cafile=str(authority))
    near, far = socket.socketpair()
    near.settimeout(5.0)
    far.settimeout(5.0)

    def answer() -> None:
        try:
            server.wrap_socket(far, server_side=True).close()
        except OSError:
            far.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client.wrap_socket(near, server_hostname=name).close()
    finally:
        near.close()
        thread.join()


def test_a_client_that_knows_the_authority_connects_and_no_other(tmp_path):
    make_certificates(tmp_path / "a", ["superlink.example.org", "10.1.2.3"])
    make_certificates(tmp_path / "b", ["superlink.example.org"])
    for name in ("superlink.example.org", "10.1.2.3", "127.0.0.1", "localhost"):
        handshake(tmp_path / "a", name, tmp_path / "a" / AUTHORITY)
    for name, authority in (("other.example.org", "a"), ("localhost", "b")):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(tmp_path / "a", name, tmp_path / authority / AUTHORITY)


def test_private_files_are_for_their_owner_and_the_authoritys_key_is_nowhere(tmp_path):
    make_certificates(tmp_path, [])
    make_node_key(tmp_path)
    for name in (KEY, NODE_KEY, SECRET):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [AUTHORITY, CERTIFICATE, KEY, NODE_KEY, NODE_PUBLIC_KEY, SECRET]
    )


def test_a_node_keeps_its_key_in_the_form_that_flower_reads(tmp_path):
    make_node_key(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make_node_key(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    private = load_ssh_private_key(before[NODE_KEY], None)
    public = load_ssh_public_key(before[NODE_PUBLIC_KEY].strip())
    assert private.public_key().public_numbers() == public.public_numbers()


@pytest.mark.parametrize("host", ["https://a.b", "a b", "a:8000", "ä.de"])
def test_what_is_no_host_is_an_error(tmp_path, host):
    with pytest.raises(UserError, match="is no name or address of a machine"):
        make_certificates(tmp_path, [host])
    assert not list(tmp_path.iterdir())
