"""A certificate in words names observer, unit, relation, delta, assumptions and signers."""

from __future__ import annotations

import certified
import pytest

from fedsynth.engine.base import Engine
from fedsynth.privacy.certificate import check
from fedsynth.privacy.certificate.words import explanation, summary


def text_of(here: Engine, tmp_path, method: str, scenario: str, **changes: str) -> tuple[str, str]:
    job = certified.released(method, tmp_path / "run", here, scenario, **changes)
    (first, *_) = sorted(certified.folder_of(job).glob("*.privacy.json"))
    verdict = check(first)
    return "\n".join(explanation(verdict)), summary(verdict)


def test_it_says_what_is_promised_to_whom(here: Engine, tmp_path) -> None:
    text, short = text_of(here, tmp_path, "dp_merf_joint", "together", noise_at="distributed")
    for words in (
        "towards server that sees sums of 3 or more shares (sums of the messages of 3 or more",
        "towards server with 1 colluding party",
        "at delta=0.001, unit record, relation add_remove; epsilon",
        "for replace_one",
        "by privacy loss distributions",
        "by Renyi divergences",
        "parties 0, 1, 2:",
        "the program stood in for a secure sum",
        "This is a simulation: the noise comes from a seed. No privacy holds against who knows",
        "2^-100 per number",
        "treated as public:",
        "audit of the code of dp_merf_joint at small size, towards server, unit record",
        "not on this release or its records",
        "post-processing",
        "who signed it is not established: party 0, party 1, party 2, server",
    ):
        assert words in text
    assert "signers not established" in short


def test_an_aggregator_that_adds_the_noise_gets_no_promise(here: Engine, tmp_path) -> None:
    text, short = text_of(here, tmp_path, "dp_merf_joint", "together", noise_at="aggregate")
    assert "towards server (every message of this party, and all that is computed" in text
    assert "no promise. Epsilon is infinite" in text
    assert "towards public (the published result, and no message of a party): whether" in text
    assert "server ∞, public 9" in short


@pytest.mark.parametrize("method", ["gradient_matching"])
def test_a_reference_is_said_to_promise_nothing(here: Engine, tmp_path, method: str) -> None:
    text, _ = text_of(here, tmp_path, method, "together")
    assert "no promise. Epsilon is infinite" in text
    assert "must not be published" in text
    assert "whether" not in text


def test_where_classes_are_public_an_exchange_is_promised_within_a_class_only(
    here: Engine, tmp_path
) -> None:
    job = certified.released(
        "datalens", tmp_path / "run", here, "together", assignment="stratified"
    )
    verdict = check(next(certified.folder_of(job).glob("*.privacy.json")))
    text = "\n".join(explanation(verdict))
    assert "whether one record is replaced by any other of its class changes" in text
    assert "relation replace_one; epsilon \N{INFINITY} for add_remove" in text
    assert "treated as public: the class of each record and its place" in text
