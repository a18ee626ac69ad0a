"""Keys and certificates of real nodes, in the forms that Flower reads.

The connection to a SuperLink is encrypted by TLS with a certificate of its own small authority,
whose key is thrown away. A SuperNode proves who it is with an elliptic-curve key; the SuperLink
admits only keys that were registered.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from fedsynth.core.errors import UserError
from fedsynth.storage.files import atomic_write, disk_errors, make_directories

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "superlink.crt", "superlink.key"
NODE_KEY, NODE_PUBLIC_KEY, SECRET = "node.key", "node.pub", "interface.secret"
DAYS = 825  # that a certificate holds
_LOCAL = ("localhost", "127.0.0.1", "::1")
_PRIVATE = 0o600


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write the authority, the certificate and the key of a SuperLink.

    Args:
        folder: The folder of the server.
        hosts: The names and addresses by which nodes reach it; those of this machine are added.

    Raises:
        UserError: A host is no name, or the disk refuses.
    """
    authority, key = _new_key(), _new_key()
    issuer = _name("fedsynth SuperLink authority")
    names = [_host(host) for host in dict.fromkeys((*hosts, *_LOCAL))]
    root = (
        _builder(issuer, issuer, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(_identifier(authority), critical=False)
        .sign(authority, hashes.SHA384())
    )
    certificate = (
        _builder(_name("fedsynth SuperLink"), issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA384())
    )
    _write(folder / AUTHORITY, root.public_bytes(Encoding.PEM))
    _write(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM))
    _write(folder / KEY, _private_bytes(key, PrivateFormat.PKCS8), _PRIVATE)


def make_node_key(folder: Path) -> None:
    """Write the key pair of a node and the secret of its two processes; keys that exist are kept.

    Raises:
        UserError: The disk refuses.
    """
    if not (folder / NODE_KEY).exists():
        key = _new_key()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        _write(folder / NODE_PUBLIC_KEY, public + b"\n")
        _write(folder / NODE_KEY, _private_bytes(key, PrivateFormat.OpenSSH), _PRIVATE)
    if not (folder / SECRET).exists():
        _write(folder / SECRET, os.urandom(32), _PRIVATE)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _private_bytes(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    with disk_errors(path):
        make_directories(path.parent)
        atomic_write(path, data, mode=mode)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii() or set(host) & set(" /:@"):
        raise UserError(f"--host {host!r} is no name or address of a machine, without its port.")
    return x509.DNSName(host)


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
