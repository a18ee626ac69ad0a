"""Documents that are signed: one text per content, read strictly, sealed by an Ed25519 key.

A document has exactly one form on disk. A file that holds the same values in another form (another
order, another space, a number written differently) is not accepted, so that a change of any byte is
found before any value is looked at.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.privacy.party_key import PartyKey, verify

INFINITY = "infinity"  # JSON has no such number
LARGEST_FILE = 1 << 28  # bytes; beyond it a file is not read

Document = Mapping[str, Any]


class CertificateDamaged(UserError):
    """A certificate that was changed after it was made, or is none."""


def number(value: float) -> float | str:
    """A number as it is stored: infinity is a text."""
    if math.isnan(value):
        raise ValueError("not a number cannot be stored")
    return INFINITY if math.isinf(value) else float(value)


def read_number(value: object) -> float:
    """The number that `number` stored.

    Raises:
        ValueError: The value is no number.
    """
    if value == INFINITY:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def canonical(document: Document) -> bytes:
    """The bytes of a document that are signed and hashed."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def digest(document: Document) -> str:
    """SHA-256 of a document."""
    return hashlib.sha256(canonical(document)).hexdigest()


def rendered(document: Document) -> bytes:
    """The bytes of a document on disk, one value per line."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """The document that `rendered` wrote.

    Raises:
        CertificateDamaged: The bytes are in any other form.
    """
    try:
        document = json.loads(data, parse_constant=_refuse)
        if isinstance(document, dict) and rendered(document) == data:
            return document
    except (ValueError, RecursionError):
        pass
    raise CertificateDamaged(
        f"{name} is damaged: it is not in the one form in which a certificate is written, so that "
        "bytes of it were changed."
    )


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def read_document(path: Path) -> dict[str, Any]:
    """The document in a file.

    Raises:
        CertificateDamaged: The file is in any other form than `rendered` gives.
        UserError: The file cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise CertificateDamaged(f"{path} is too large to be a certificate.")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    return parsed(data, path.name)


def sealed(body: Document, key: PartyKey) -> dict[str, Any]:
    """The body with the public key and the signature of its owner."""
    return {"body": dict(body), "key": key.public, "signature": key.sign(canonical(body))}


def opened(document: object, name: str) -> tuple[dict[str, Any], str]:
    """The body of a sealed document and the public key that signed it.

    Raises:
        CertificateDamaged: The document has another form, or the signature is not of this body.
    """
    if not isinstance(document, dict) or set(document) != {"body", "key", "signature"}:
        raise CertificateDamaged(f"{name} is not a signed document.")
    body, key, signature = document["body"], document["key"], document["signature"]
    if not (isinstance(body, dict) and isinstance(key, str) and isinstance(signature, str)):
        raise CertificateDamaged(f"{name} is not a signed document.")
    if key != key.lower() or signature != signature.lower():
        raise CertificateDamaged(f"{name}: its key or its signature was changed.")
    if not verify(key, canonical(body), signature):
        raise CertificateDamaged(
            f"{name}: the signature does not belong to its content, so that one of them was "
            "changed."
        )
    return body, key
