"""Tests of the joint form of sketch_teach: features that a party stores, and queries it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
from guarded import guard

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.messages import Request
from fedsynth.core.types import DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.methods.sketch_teach.joint import (
    SketchTeachJointConfig,
    _rows,
    features_digest,
    store_features,
)
from fedsynth.privacy.party_data import PartyData
from tests.methods.sketch_teach.test_linear_teacher import feature_map

CPU = torch.device("cpu")


def party_data(path: Path) -> PartyData:
    images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
    info = PartyInfo(0, 6, {0: 2, 1: 2, 2: 2})
    return PartyData(Records(images, torch.arange(6) % 3), info, work_dir=path, fingerprint="x")


CFG = SketchTeachJointConfig(width=4)
STAGE = Stage(
    DatasetInfo("tiny", (1, 28, 28), 3, (0.5,), (0.5,)),
    0,
    1,
    (PartyInfo(0, 6, {0: 2, 1: 2, 2: 2}),),
    (0, 1, 2),
    (0, 1, 2),
)


def teach(digest: str, arrays: Mapping[str, torch.Tensor] | None = None) -> Request:
    sent = {"weights": torch.zeros(3, 4), **(arrays or {})}
    return Request("teach", 1, arrays=sent, scalars={"features": digest})


def test_a_party_stores_features_under_their_digest_and_refuses_unknown_ones(
    tmp_path: Path,
) -> None:
    features, _ = feature_map()
    arrays = {**features.arrays(), "order": torch.tensor([2, 0, 1])}
    digest, party = features_digest(arrays), party_data(tmp_path)
    for unknown in (digest, "../../elsewhere", ""):
        with pytest.raises(Refused, match="features that this party does not have"):
            store_features(party, CFG, STAGE, teach(unknown))
    other = {**arrays, "centre": arrays["centre"] + 1}
    with pytest.raises(Refused, match="by a digest that is not theirs"):
        store_features(party, CFG, STAGE, teach(digest, other))
    assert not list(tmp_path.iterdir())
    store_features(party, CFG, STAGE, teach(digest, arrays))
    assert store_features(party, CFG, STAGE, teach(digest)) == digest
    seen: list[tuple[Records, tuple[torch.Tensor, torch.Tensor]]] = []
    party.records.map(
        lambda records: seen.append((records, _rows(CFG, party, digest, CPU, records)))
    )
    records, (rows, places) = seen[0]
    assert torch.equal(rows, features(records.pixels()))
    assert places.tolist() == [1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"order": torch.tensor([2, 0, 0])},
        {"order": torch.tensor([2, 0, 7])},
        {"order": torch.tensor([2, 0])},
        {"scales": torch.ones(3)},
        {"centre": torch.full((801,), torch.nan)},
        {"extra": torch.ones(3)},
    ],
    ids=str,
)
def test_features_of_another_form_are_refused_and_not_stored(tmp_path: Path, change: dict) -> None:
    arrays = {**feature_map()[0].arrays(), "order": torch.tensor([2, 0, 1]), **change}
    request = teach(features_digest(arrays), arrays)
    with pytest.raises(Refused) as caught:
        store_features(party_data(tmp_path), CFG, STAGE, request)
    assert caught.value.code is Refusal.REQUEST
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["common", "spreads"])
def test_refusing_a_malformed_query_does_not_depend_on_the_records(
    kind: str, tmp_path: Path
) -> None:
    """Parties with and without records of a class whose mean is missing refuse the query alike,
    and nothing is charged."""
    job = tiny.tiny_job("sketch_teach_joint", tmp_path / "run", "together", {"pose": "none"})
    plan, joint = job.plan(0), method("sketch_teach_joint")
    width = 6 + 1  # the corner of 3 x 3, and the norm
    complete = {
        "means": torch.zeros(10, width),
        "basis": torch.eye(width),
        "radii": torch.ones(10, 1),
    }
    broken = {**complete, "means": complete["means"][:9]}
    for name, labels in (("without", torch.arange(6)), ("with", torch.full((6,), 9))):
        images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
        info = PartyInfo(0, 6, dict.fromkeys(range(10), 1))
        party = PartyData(Records(images, labels), info, work_dir=tmp_path, fingerprint="x")
        party_guard = guard(tmp_path / name, plan=plan.of(0), budget=job.budget)
        ctx = PartyContext(job.config, plan, party, party_guard)
        with pytest.raises(UserError, match="radii"):
            joint.party(ctx, Request(kind, 1, arrays=broken))
        assert not (tmp_path / name / "ledger.jsonl").exists()
        joint.party(ctx, Request(kind, 1, arrays=complete))
        assert (tmp_path / name / "ledger.jsonl").exists()
