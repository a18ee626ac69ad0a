"""DP-MERF: the specification's own checks, and the release against a naive mean."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from guarded import guard, private
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fedsynth.core.messages import Request
from fedsynth.core.plan import PartyPlan
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo
from fedsynth.data import registry as datasets
from fedsynth.data import tables
from fedsynth.data.records import Records
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.mean_embedding.base import (
    GeneratorTrainer,
    embedding_event,
    paper_embedding_event,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERFConfig, RandomFourier
from fedsynth.methods.mean_embedding.output_space import output_space
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.ledger import read_charges, total

MERF = method("dp_merf")
FACTS = DatasetInfo("tiny", (1, 8, 8), 4, (0.5,), (0.25,))
CFG = DPMERFConfig(features=200, scale=8.0, spc=5, steps=3)


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 8, 8), generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 1000), st.floats(0.1, 500.0), st.integers(2, 60))
@settings(max_examples=30, deadline=None)
def test_features_have_norm_one(seed, scale, features):
    phi = RandomFourier(64, features, scale, ("test", seed))
    rows = phi(pixels(5, seed) * 3)
    assert rows.shape == (5, phi.width)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(5), rtol=0, atol=1e-6)


def test_products_of_features_approximate_the_gaussian_kernel():
    x = pixels(20)
    rows = RandomFourier(64, 1000, 20.0, ("kernel",))(x)
    kernel = torch.exp(-(torch.cdist(x.flatten(1), x.flatten(1)) ** 2) / (2 * 20.0))
    assert 0.1 < kernel.min() < 0.8
    assert (rows @ rows.t() - kernel).abs().max() < 0.1


def mean_embedding(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(1/m) sum_i phi(x_i) x onehot(y_i), record by record."""
    phi = RandomFourier(64, CFG.features, 8.0, (0, "dp_merf", "frequencies"))
    total = torch.zeros(4, phi.width)
    for image, label in zip(x, labels, strict=True):
        total[label] += phi(image[None])[0] / len(x)
    return total


@given(st.integers(0, 10_000), st.integers(0, 3), st.booleans())
@settings(max_examples=20, deadline=None)
def test_replacing_one_record_moves_the_mean_by_at_most_two_over_m(seed, label, keep_image):
    x, labels = pixels(12, seed), torch.arange(12) % 4
    other, names = x.clone(), labels.clone()
    if not keep_image:
        other[3] = pixels(1, seed + 1)[0]
    names[3] = label
    moved = (mean_embedding(x, labels) - mean_embedding(other, names)).norm().item()
    assert moved <= 2 / 12 + 1e-6
    if keep_image and label != 3:
        assert moved == pytest.approx(math.sqrt(2) / 12, rel=1e-4)


def party_release(tmp_path, noise: float, **changes):
    """The release of a party of twelve records, and its plan."""
    images = (pixels(12) * 255).to(torch.uint8)
    records = Records(images, torch.arange(12) % 4)
    info = PartyInfo(0, 12, dict.fromkeys(range(4), 3))
    (stage,) = scenario_stages(
        ScenarioConfig(data="mnist", partition="single", parties=1, stages="together")
    )
    stage = type(stage)(FACTS, 0, 1, (info,), tuple(range(4)), tuple(range(4)))
    cfg = build(DPMERFConfig, {"features": 200, "scale": 8.0, "noise": noise, "spc": 5, **changes})
    budget = Budget(float("inf"), 1e-5)
    plan = MERF.plan(cfg, stage, budget)
    share: PartyPlan = plan.of(0)
    home = private(records, tmp_path)
    ctx = PartyContext(cfg, plan, home, guard(tmp_path, plan=share))
    release = MERF.party(ctx, Request(scalars={"seed": 0}))
    return records, share, release


def test_the_release_is_the_naive_mean_plus_noise_of_the_stated_scale(tmp_path):
    records, share, release = party_release(tmp_path, 3.0)
    noise = release.arrays["embedding"] - mean_embedding(records.pixels(), records.labels)
    assert noise.std().item() == pytest.approx(3.0 / 12, rel=0.1)
    assert share.bytes_up == 4 * release.arrays["embedding"].numel()
    _, _, exact = party_release(tmp_path / "exact", 1e-6)
    torch.testing.assert_close(
        exact.arrays["embedding"],
        mean_embedding(records.pixels(), records.labels),
        rtol=0,
        atol=1e-5,
    )


def test_class_weights_cost_a_second_mechanism_and_are_the_shares(tmp_path):
    _, share, release = party_release(tmp_path, 1e-6, labels="noised")
    torch.testing.assert_close(release.arrays["weights"], torch.full((4, 1), 0.25))
    entries = read_charges(tmp_path / "ledger.jsonl")
    assert len(entries) == 2
    assert epsilon(total(entries), 1e-5) == epsilon(share.event, 1e-5)
    plan_event = embedding_event(DPMERFConfig(labels="noised"), 4.0)
    assert epsilon(plan_event, 1e-5) == pytest.approx(gdp_epsilon(math.sqrt(2) / 4, 1e-5))


@pytest.mark.parametrize(
    ("sigma", "tight", "improved", "classic"),
    [(5, 0.7255, 0.7945, 0.9797), (0.568, 8.553, 9.189, 9.998), (0.5, 9.997, 10.726, 11.597)],
)
def test_published_multipliers_cost_what_the_papers_say(sigma, tight, improved, classic):
    """Their sigma refers to a sensitivity of 2/m, so the same noise is twice that to add/remove."""
    published = paper_embedding_event(CFG, 2 * sigma)
    found = [epsilon(published, 1e-5, way) for way in ("pld", "rdp_improved", "rdp_classic")]
    assert found == pytest.approx([tight, improved, classic], rel=2e-3)
    assert epsilon(embedding_event(CFG, 2 * sigma), 1e-5) < tight


@pytest.mark.parametrize("labels", ["balanced", "noised"])
def test_calibration_meets_the_budget_in_ours_or_in_the_papers_words(labels):
    (stage,) = scenario_stages(
        ScenarioConfig(data="mnist", partition="single", parties=1, stages="together")
    )
    cfg = build(DPMERFConfig, {"labels": labels})
    ours = MERF.plan(cfg, stage, Budget(1.0, 1e-5)).parties[0]
    assert 0.999 <= epsilon(ours.event, 1e-5) <= 1.0
    if labels == "balanced":
        assert ours.noise_multiplier == pytest.approx(3.7306, rel=1e-3)
    theirs = MERF.plan(cfg, stage, Budget(1.0, 1e-5, accounting="rdp_classic")).parties[0]
    assert theirs.paper_event is not None
    assert 0.999 <= epsilon(theirs.paper_event, 1e-5, "rdp_classic") <= 1.0
    assert epsilon(theirs.event, 1e-5) < 0.5


TABLE = datasets.find("made_table").info


def table(n: int, seed: int = 0) -> torch.Tensor:
    """Records of the made table: numbers anywhere, categories at their codes."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand((n, len(TABLE.columns), 1, 1), generator=generator)
    numbers, categories = tables.one_hot(TABLE, rows)
    return tables.from_one_hot(TABLE, numbers, categories)


@given(st.integers(0, 1000), st.floats(0.0, 0.99), st.integers(2, 50))
@settings(max_examples=20, deadline=None)
def test_features_of_tables_have_norm_one(seed, categories, features):
    cfg = DPMERFConfig(features=features, categories=categories)
    phi = MERF.features(cfg, TABLE, seed)
    rows = phi(table(6, seed))
    assert rows.shape == (6, MERF.width(cfg, TABLE)) == (6, phi.width)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6), rtol=0, atol=1e-6)


def test_products_of_table_features_are_a_gaussian_kernel_and_the_share_that_agrees():
    rows = table(12)
    phi = MERF.features(DPMERFConfig(features=4000, scale=0.5, categories=0.3), TABLE, 0)
    numeric = [i for i, c in enumerate(TABLE.columns) if not c.categories]
    named = [i for i, c in enumerate(TABLE.columns) if c.categories]
    x, names = rows[:, numeric].flatten(1), rows[:, named].flatten(1)
    kernel = torch.exp(-torch.cdist(x, x).square() / (2 * 0.5))
    agree = (names[:, None] == names[None]).float().mean(-1)
    found = phi(rows) @ phi(rows).t()
    torch.testing.assert_close(found, 0.7 * kernel + 0.3 * agree, rtol=0, atol=0.06)


def test_a_table_is_drawn_that_resembles_the_one_embedded():
    """Class 1 is old and smokes; class 0 is young, rarer, and does not."""
    rows, labels = table(400), (torch.arange(400) % 4 > 0).long()
    place = {column.name: i for i, column in enumerate(TABLE.columns)}
    rows[:, place["age"], 0, 0] = torch.where(labels == 1, 0.8, 0.2)
    rows[:, place["smokes"], 0, 0] = labels.float()
    cfg = DPMERFConfig(features=200, steps=150, spc=100, labels="noised")
    phi = MERF.features(cfg, TABLE, 0)
    wanted = F.one_hot(labels).float().t() @ phi(rows) / 400
    trainer = GeneratorTrainer(cfg, output_space(TABLE), torch.tensor([0.25, 0.75]), ("table",))
    for step in range(cfg.steps):
        trainer.step(step, phi, wanted)
    drawn = trainer.sample((0, 1))
    assert drawn.images.shape == (200, len(TABLE.columns), 1, 1)
    assert Counter(drawn.labels.tolist()) == {0: 50, 1: 150}
    codes, _ = tables.one_hot(TABLE, drawn.images)
    for name, age in ((0, 0.2), (1, 0.8)):
        mine = drawn.images[drawn.labels == name]
        assert mine[:, place["age"]].mean().item() == pytest.approx(age, abs=0.1)
        assert (mine[:, place["smokes"]] == name).float().mean() > 0.9
    assert 0 <= codes.min() <= codes.max() <= 1
