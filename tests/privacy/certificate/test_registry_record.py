"""Every release comes with a record at the registry's highest tier, made of its certificate."""

from __future__ import annotations

import math

import certified
import pytest
import yaml

from fedsynth.engine.base import Engine
from fedsynth.privacy.certificate import CertificateDamaged, check
from fedsynth.privacy.certificate.registry_record import (
    headline_of,
    parsed_record,
    problems_of,
    registry_record,
)

CASES = [
    ("dp_merf", "in_turn", {}),
    ("dp_merf", "table", {}),
    ("dp_sgd_joint", "together", {"noise_at": "distributed"}),
    ("dp_merf_joint", "together", {"noise_at": "aggregate"}),
    ("gradient_matching", "together", {}),
    ("datalens", "together", {"assignment": "stratified"}),
]


@pytest.mark.parametrize(("method", "scenario", "changes"), CASES)
def test_the_record_of_a_release_is_valid_at_the_highest_tier(
    method: str, scenario: str, changes: dict[str, str], here: Engine, tmp_path
) -> None:
    job = certified.released(method, tmp_path / "run", here, scenario, **changes)
    for certificate in certified.folder_of(job).glob("*.privacy.json"):
        body = check(certificate).body
        stem = certificate.name.removesuffix(".privacy.json")
        record = yaml.safe_load(certificate.with_name(f"{stem}.registry.yaml").read_text())
        assert problems_of(record) == []
        assert record["tier"] == 3
        assert record == registry_record(body)
        loss = record["deployment"]["privacy_loss"]
        stated = loss["privacy_parameters"]["epsilon"]
        dealt_by_class = changes.get("assignment") == "stratified"
        assert ("have the same class" in loss["privacy_unit_details"]) == dealt_by_class
        if job.method_impl.private:
            assert stated == pytest.approx(10.0, rel=0.4)
            assert stated <= job.budget.epsilon
        else:
            assert math.isinf(stated)
            assert "do not hand in" in record["deployment"]["administrative"]["notes"]
        for row in body["derived"]["guarantee"]:
            assert row["observer"] in loss["privacy_parameters_details"]


def test_the_record_states_the_observer_that_sees_most_with_a_finite_epsilon() -> None:
    def row(observer: str, epsilon: float | str) -> dict[str, object]:
        return {"observer": observer, "relation": "add_remove", "epsilon_add_remove": epsilon}

    def chosen(*rows: dict[str, object]) -> object:
        return headline_of({"derived": {"guarantee": list(rows)}})["observer"]

    server, public = row("server", 1.0), row("public", 0.5)
    colluding = row("server with 1 colluding party", 3.0)
    sums = row("server that sees sums of 2 or more shares", 1.0)
    assert chosen(public, server) == "server"
    assert chosen(row("server", "infinity"), public) == "public"
    assert chosen(colluding, sums) == sums["observer"]
    assert chosen(row("server", "infinity")) == "server"
    assert headline_of({"derived": {"guarantee": []}})["epsilon_add_remove"] == "infinity"


@pytest.mark.parametrize("data", [b"\xff", b"a: [", b"a: !!python/object:os.system 1"])
def test_other_files_are_no_records(data: bytes) -> None:
    with pytest.raises(CertificateDamaged, match="cannot be read"):
        parsed_record(data, "it")
