"""MST: it learns without noise and with it, and releases the rows that it is asked for."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
import torch
from guarded import FREE, guard, private
from sklearn.ensemble import RandomForestClassifier

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.privacy.guard import Guard

INFO = datasets.find("made_table").info
TRAIN = Records(*datasets.load("made_table", "train", None))
TEST = Records(*datasets.load("made_table", "test", None))


def released(
    path: Path, records: Records = TRAIN, *, budget: Budget | None = None, **settings
) -> SyntheticSet:
    """The release of a party with these records; without a budget its guard adds no noise."""
    counts = Counter(records.labels.tolist())
    info = PartyInfo(0, len(records.labels), counts)
    mst = method("mst")
    cfg = build(mst.Config, settings)
    stage = Stage(INFO, 0, 1, (info,), tuple(counts), tuple(counts))
    plan = mst.plan(cfg, stage, budget or Budget(1.0, 1e-5))
    share = dataclasses.replace(plan.of(0), without_noise=budget is None)
    data = private(records, path)
    data.info = info
    ctx = PartyContext(cfg, plan, data, guard(path, plan=share, budget=budget or FREE))
    rows = mst.synthesize(ctx, Request(scalars={"seed": 0}))
    assert len(rows.labels) == plan.images
    return rows


def forest_accuracy(rows: SyntheticSet | Records) -> float:
    """The accuracy on the test set of a forest that was trained on these rows."""
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0, n_jobs=1)
    forest.fit(rows.images.flatten(1).numpy(), rows.labels.numpy())
    return float(forest.score(TEST.images.flatten(1).numpy(), TEST.labels.numpy()))


@pytest.mark.parametrize("by_class", [False, True])
def test_it_learns_without_noise_and_at_a_budget_but_not_from_shuffled_answers(
    by_class, tmp_path, monkeypatch
):
    real = forest_accuracy(TRAIN)
    assert real > 0.8
    assert forest_accuracy(released(tmp_path / "none", by_class=by_class)) > real - 0.06
    at_ten = released(tmp_path / "ten", budget=Budget(10, 1e-5), by_class=by_class)
    assert forest_accuracy(at_ten) > real - 0.1
    add_noise = Guard._add_noise
    generator = torch.Generator().manual_seed(0)

    def shuffled(*arguments, **named):
        values = add_noise(*arguments, **named)
        return [v[torch.randperm(len(v), generator=generator)] for v in values]

    monkeypatch.setattr(Guard, "_add_noise", shuffled)
    wrong = released(tmp_path / "shuffled", by_class=by_class)
    assert forest_accuracy(wrong) < real - 0.12


def test_rows_are_as_many_of_each_class_as_the_party_has_records(tmp_path):
    rows = released(tmp_path)
    assert Counter(rows.labels.tolist()) == Counter(TRAIN.labels.tolist())


@pytest.mark.parametrize("by_class", [False, True])
def test_noise_far_above_the_counts_of_five_records_of_one_class_gives_rows_all_the_same(
    by_class, tmp_path
):
    one = torch.nonzero(TRAIN.labels == 1).flatten()[:5]
    few = Records(TRAIN.images[one], TRAIN.labels[one])
    rows = released(tmp_path, few, budget=Budget(0.1, 1e-5), spc=30, by_class=by_class)
    assert rows.labels.tolist() == [1] * 30
    assert rows.images.shape == (30, *INFO.shape)
    assert 0 <= float(rows.images.min()) <= float(rows.images.max()) <= 1


def test_images_are_refused_with_a_reason():
    assert "table" in method("mst").unfit(datasets.find("shapes").info)
