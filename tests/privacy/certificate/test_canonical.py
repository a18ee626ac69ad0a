"""Documents have one form on disk, and a signature that belongs to their content."""

from __future__ import annotations

import math

import certified
import pytest

from fedsynth.core.errors import UserError
from fedsynth.privacy.certificate.canonical import (
    CertificateDamaged,
    canonical,
    digest,
    number,
    opened,
    parsed,
    read_document,
    read_number,
    rendered,
    sealed,
)

DOCUMENT = {"b": [1, 2.5, None], "a": {"x": "é", "y": 1e-05}}


def test_a_document_is_read_as_it_was_written(tmp_path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(rendered(DOCUMENT))
    assert read_document(path) == DOCUMENT
    assert canonical(DOCUMENT) == b'{"a":{"x":"\\u00e9","y":1e-05},"b":[1,2.5,null]}'
    assert digest(DOCUMENT) == digest({"a": DOCUMENT["a"], "b": DOCUMENT["b"]})


@pytest.mark.parametrize(
    ("old", "new"),
    [(b" ", b""), (b"1e-05", b"0.00001"), (b"2.5", b"2.50"), (b"\n", b"\r\n"), (b"2.5", b"NaN")],
)
def test_another_form_of_the_same_values_is_refused(old: bytes, new: bytes) -> None:
    changed = rendered(DOCUMENT).replace(old, new, 1)
    assert changed != rendered(DOCUMENT)
    with pytest.raises(CertificateDamaged, match="one form"):
        parsed(changed, "a document")


def test_a_repeated_field_is_refused() -> None:
    with pytest.raises(CertificateDamaged):
        parsed(b'{\n "a": 1,\n "a": 1\n}\n', "a document")


@pytest.mark.parametrize("value", [0.0, 0.1, 1e300, math.inf])
def test_numbers_are_stored_to_the_bit(value: float) -> None:
    assert read_number(number(value)) == value


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        number(math.nan)
    for value in ("inf", None, True):
        with pytest.raises(ValueError, match="not a number"):
            read_number(value)


def test_a_seal_belongs_to_its_content_and_its_key() -> None:
    key, other = certified.forger("a"), certified.forger("b")
    document = sealed(DOCUMENT, key)
    assert opened(document, "it") == (DOCUMENT, key.public)
    for change in (
        {"body": {**DOCUMENT, "b": []}},
        {"key": other.public},
        {"signature": other.sign(canonical(DOCUMENT))},
        {"signature": document["signature"].upper()},
        {"signature": ""},
        {"key": 3},
        {"more": 1},
    ):
        with pytest.raises(CertificateDamaged):
            opened({**document, **change}, "it")


def test_a_missing_or_oversized_file_is_one_message(tmp_path, monkeypatch) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_document(tmp_path / "none.json")
    monkeypatch.setattr("fedsynth.privacy.certificate.canonical.LARGEST_FILE", 3)
    (tmp_path / "large.json").write_bytes(rendered(DOCUMENT))
    with pytest.raises(CertificateDamaged, match="too large"):
        read_document(tmp_path / "large.json")
