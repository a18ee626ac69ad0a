"""DP-GAN: charges per class, calibration and sampling rates."""

from __future__ import annotations

import math

import pytest
import torch

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.dp_gan.dp_gan import DPGAN, DPGANConfig, PerClassGenerators
from fedsynth.nn.gan.mlp import MLPGenerator
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    by_part,
    flatten,
    gaussian,
    poisson,
    repeated,
    unflatten,
)

DELTA = 1e-5
BUDGET = Budget(10.0, DELTA)


def stage_of(counts: dict[int, int] | None = None) -> Stage:
    counts = counts or dict.fromkeys(range(10), 6000)
    info = (PartyInfo(0, sum(counts.values()), counts),)
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(counts), tuple(counts))


def test_sizes_are_as_published():
    large = DPGANConfig().generator((1, 28, 28))
    linear = [m for m in large.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.in_features for m in linear] == [100, 128, 256, 512, 1024]


def test_a_record_is_charged_for_its_class_and_the_paper_counts_all_classes():
    cfg = DPGANConfig(noise=2.82)
    party_plan = DPGAN().plan(cfg, stage_of(), BUDGET).parties[0]
    q, steps = cfg.sampling_rate(6000), 20 * 93
    one = repeated(poisson(q, gaussian(2.82)), steps)
    assert epsilon(party_plan.event, DELTA) == epsilon(one, DELTA)
    swapped = repeated(poisson(q, gaussian(1.41)), 10 * steps)
    assert epsilon(party_plan.paper_event, DELTA, "rdp_classic") == epsilon(
        swapped, DELTA, "rdp_classic"
    )
    assert epsilon(party_plan.event, DELTA) < 0.1 * epsilon(
        party_plan.paper_event, DELTA, "rdp_classic"
    )


def test_every_class_is_calibrated_to_the_whole_budget():
    counts = {0: 5000, 3: 130, 7: 40}
    party_plan = DPGAN().plan(DPGANConfig(epochs=2), stage_of(counts), BUDGET).parties[0]
    _, by_class = by_part(flatten(party_plan.event))
    costs = [epsilon(unflatten(flat), DELTA) for flat in by_class[("classes", 10)].values()]
    assert len(costs) == 3
    assert all(9.99 < cost <= 10 * (1 + 1e-9) for cost in costs)
    assert epsilon(party_plan.event, DELTA) == max(costs)


@pytest.mark.parametrize("records", [1, 40, 63, 64, 65, 500, 6742])
def test_sampling_rates_are_few_and_batches_at_least_as_large_as_set(records):
    q = DPGANConfig().sampling_rate(records)
    assert min(64, records) <= q * records + 1e-9 <= 64 * math.sqrt(2) + 1e-6
    assert q == 1 or (2 * math.log2(q)) == pytest.approx(round(2 * math.log2(q)))


def test_labels_select_the_generator():
    nets = [MLPGenerator(3, 1, (1, 2, 2), (4,)) for _ in range(3)]
    whole = PerClassGenerators(list(nets)).eval()
    latents, labels = torch.rand(7, 3), torch.tensor([2, 0, 0, 1, 2, 0, 2])
    images = whole(latents, labels)
    for latent, label, image in zip(latents, labels, images, strict=True):
        alone = nets[int(label)](latent[None], label[None])[0]
        torch.testing.assert_close(image, alone)
