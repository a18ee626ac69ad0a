"""DPMix: mixtures against naive means, and labels that are shares whatever the noise did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from guarded import FREE, guard, private

from fedsynth.core.messages import Request
from fedsynth.core.plan import Plan
from fedsynth.core.settings import build
from fedsynth.core.types import DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.dpmix import label_shares
from fedsynth.methods.method import PartyContext
from fedsynth.methods.registry import method
from fedsynth.privacy.ledger import read_entries, total

FACTS = DatasetInfo("tiny", (1, 8, 8), 5, (0.5,), (0.25,))


def records() -> Records:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return Records(images, torch.tensor([4, 1, 1, 4, 4, 4, 4, 4]))


def released(path: Path, **settings):
    """The release of a party of eight records of classes 1 and 4, and its plan."""
    info = PartyInfo(0, 8, {1: 2, 4: 6})
    dpmix = method("dpmix")
    cfg = build(dpmix.Config, {"spc": 2, **settings})
    plan: Plan = dpmix.plan(cfg, Stage(FACTS, 0, 1, (info,), (1, 4), (1, 4)), FREE)
    share = plan.of(0)
    home = private(records(), path)
    ctx = PartyContext(cfg, plan, home, guard(path, plan=share))
    return dpmix.party(ctx, Request()).arrays, share


@pytest.mark.parametrize("label_share", [0.1, 0.5])
def test_without_noise_a_mixture_of_all_is_the_mean_with_its_label_shares(tmp_path, label_share):
    arrays, share = released(tmp_path, group=8, noise=1e-7, label_share=label_share)
    assert share.steps == 4
    for image, soft, label in zip(*(arrays[k] for k in ("images", "soft", "labels")), strict=True):
        torch.testing.assert_close(image, records().pixels().mean(0), rtol=0, atol=1e-4)
        expected = torch.tensor([0, 0.25, 0, 0, 0.75])
        torch.testing.assert_close(soft, expected, rtol=0, atol=1e-4)
        assert label in (1, 4)
    assert sorted(arrays["labels"].tolist()) == [1, 4, 4, 4]  # the largest share, and no class bare
    assert total(read_entries(tmp_path / "ledger.jsonl")) == total_of(share)


def total_of(share):
    """The plan's event, wrapped as a ledger wraps its entries."""
    from fedsynth.privacy.accounting.events import composed

    return composed([share.event])


def test_pixels_and_labels_share_one_noise_by_the_chosen_shares(tmp_path):
    """Noise 4 on a unit vector, undone by each part's weight and the expected size 2."""
    arrays, _ = released(tmp_path, group=2, noise=40.0, label_share=0.2, spc=200)
    wanted = 40.0 / 2 * (64 / 0.8) ** 0.5 * 0.5  # half: pixels are half the [-1, 1] scale
    assert arrays["images"].std().item() == pytest.approx(wanted, rel=0.05)


def test_shares_add_up_to_one_and_know_no_negative():
    found = label_shares(torch.tensor([[0.5, -0.2, 1.5], [-1.0, -2.0, -0.1], [0.0, 0.0, 3.0]]))
    expected = torch.tensor([[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(found, expected)
