"""The joint form of sketch_teach: what a party keeps of what it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
from guarded import guard

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.types import PartyInfo
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.methods.sketch_teach.config import SketchTeachConfig
from fedsynth.methods.sketch_teach.joint import _rows, features_digest, keep_features
from fedsynth.privacy.party_data import PartyData, Records
from tests.methods.sketch_teach.test_linear_teacher import feature_map

CPU = torch.device("cpu")


def home(path: Path) -> PartyData:
    images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
    info = PartyInfo(0, 6, {0: 2, 1: 2, 2: 2})
    return PartyData(Records(images, torch.arange(6) % 3), info, workshop=path, fingerprint="x")


def test_a_party_keeps_features_under_what_they_are_and_misses_what_it_was_not_sent(
    tmp_path: Path,
) -> None:
    features, _ = feature_map()
    sent = {**features.arrays(), "order": torch.tensor([2, 0, 1])}
    digest, party = features_digest(sent), home(tmp_path)
    cfg = SketchTeachConfig(width=4)
    compute = party.records.map
    with pytest.raises(UserError, match="has not been sent the features"):
        compute(lambda records: _rows(cfg, party, digest, CPU, records))
    keep_features(party, Request("teach", 2, arrays={"weights": torch.zeros(3, 4)}))
    assert not list(tmp_path.iterdir())
    other = {**sent, "centre": sent["centre"] + 1}
    keep_features(party, Request("teach", 1, arrays={"weights": torch.zeros(3, 4), **other}))
    with pytest.raises(UserError, match="has not been sent the features"):
        compute(lambda records: _rows(cfg, party, digest, CPU, records))
    keep_features(party, Request("teach", 1, arrays={"weights": torch.zeros(3, 4), **sent}))
    seen: list[tuple[Records, tuple[torch.Tensor, torch.Tensor]]] = []
    compute(lambda records: seen.append((records, _rows(cfg, party, digest, CPU, records))))
    records, (rows, places) = seen[0]
    assert torch.equal(rows, features(records.pixels()))
    assert places.tolist() == [1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("kind", ["common", "spreads"])
def test_whether_a_party_refuses_a_broken_question_says_nothing_about_its_records(
    kind: str, tmp_path: Path
) -> None:
    """The means of one class are missing: parties with and without records of it refuse alike,
    and nothing is charged."""
    job = tiny.tiny_job("sketch_teach_joint", tmp_path / "run", "together", {"pose": "none"})
    plan, joint = job.plan(0), method("sketch_teach_joint")
    width = 6 + 1  # the corner of 3 x 3, and the norm
    whole = {
        "means": torch.zeros(10, width),
        "basis": torch.eye(width),
        "radii": torch.ones(10, 1),
    }
    broken = {**whole, "means": whole["means"][:9]}
    for name, held in (("nobody", torch.arange(6)), ("everybody", torch.full((6,), 9))):
        images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
        info = PartyInfo(0, 6, dict.fromkeys(range(10), 1))
        party = PartyData(Records(images, held), info, workshop=tmp_path, fingerprint="x")
        share = guard(tmp_path / name, plan=plan.of(0), budget=job.budget)
        ctx = PartyContext(job.config, plan, party, share)
        with pytest.raises(UserError, match="radii"):
            joint.party(ctx, Request(kind, 1, arrays=broken))
        assert not (tmp_path / name / "ledger.jsonl").exists()
        joint.party(ctx, Request(kind, 1, arrays=whole))
        assert (tmp_path / name / "ledger.jsonl").exists()
