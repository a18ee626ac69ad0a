"""A certificate says of a release what the parties' statements and the release itself show."""

from __future__ import annotations

import copy
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import certified
import pytest
from tiny_outcomes import model, synthetic

from fedsynth.core.messages import Release
from fedsynth.engine.base import Engine
from fedsynth.privacy.certificate import document
from fedsynth.privacy.certificate.canonical import CertificateDamaged, opened, read_document, sealed
from fedsynth.privacy.certificate.statement import Statement
from fedsynth.storage.releases import CERTIFICATE_SUFFIX


def sent(party: int, *hashes: str) -> Statement:
    """A statement of which only what the party released is looked at."""
    return cast(Statement, SimpleNamespace(party=party, released=set(hashes)))


@pytest.mark.parametrize("outcome", [synthetic(), model()])
def test_senders_are_those_whose_ledgers_hold_the_very_arrays(outcome):
    arrays = outcome.state if hasattr(outcome, "state") else outcome.to_arrays()
    same = Release(3, arrays, ()).payload_hash()
    first, *rest = arrays
    changed = {first: arrays[first] + 1, **{name: arrays[name] for name in rest}}
    other = Release(3, changed, ()).payload_hash()
    statements = [sent(0, other), sent(1, same), sent(2), sent(3, other, same)]
    assert document.senders(outcome, statements) == [1, 3]


@pytest.mark.parametrize(
    ("observers", "sources"),
    [
        (["server"], ["noise_seed=1"]),
        (["server", "public"], ["noise_seed=1", "operating system entropy"]),
    ],
)
def test_the_servers_noise_counts_where_it_is_the_aggregator(observers, sources):
    numbers = {
        "noise_sources": ["noise_seed=1"],
        "guarantee": [{"observer": observer} for observer in observers],
    }
    assert document.noise_sources(numbers, "operating system entropy") == sources


def test_files_are_named_with_their_size_and_hash(tmp_path):
    path = tmp_path / "stage-1.npz"
    path.write_bytes(b"released")
    before = {"form": document.FORM, "files": {}}
    found = document.with_files(before, [path])
    digest = hashlib.sha256(b"released").hexdigest()
    assert found["files"] == {"stage-1.npz": {"bytes": 8, "sha256": digest}}
    assert before["files"] == {}


@pytest.fixture(scope="module")
def statements(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The signed statements of two parties, as a certificate holds them."""
    out = tmp_path_factory.mktemp("job") / "run"
    job = certified.released("dp_merf", out, here, "together")
    (certificate, *_) = sorted(certified.folder_of(job).glob(f"*{CERTIFICATE_SUFFIX}"))
    body, _ = opened(read_document(certificate), "the certificate")
    found: list[dict[str, Any]] = body["statements"]
    return found


def test_statements_are_read_in_their_order(statements):
    assert [each.party for each in document.read_statements(statements)] == [0, 1, 2]


@pytest.mark.parametrize("signed_again", [False, True])
def test_a_statement_that_was_changed_is_named(statements, signed_again):
    changed = copy.deepcopy(statements)
    body = changed[1]["body"]
    body["delta"] = "small"
    if signed_again:
        changed[1] = sealed(body, certified.forger())
    message = "the statement of party 1 is not consistent" if signed_again else "statement 2"
    with pytest.raises(CertificateDamaged, match=message):
        document.read_statements(changed)
