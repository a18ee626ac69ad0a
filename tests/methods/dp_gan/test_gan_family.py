"""DP-CGAN and DP-GAN: what was published of their cost, and what they really cost."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.dp_gan.dp_cgan import DPCGANConfig
from fedsynth.methods.dp_gan.dp_gan import DPGANConfig, PerClassGenerators
from fedsynth.methods.registry import method
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    by_part,
    flatten,
    gaussian,
    poisson,
    repeated,
    unflatten,
)
from fedsynth.privacy.accounting.rdp import CONVENTIONS, Convention, renyi_epsilon

DELTA = 1e-5
BUDGET = Budget(10.0, DELTA)
CGAN, GAN = method("dp_cgan"), method("dp_gan")


def a_task(counts: dict[int, int] | None = None, parties: int = 1) -> Stage:
    counts = counts or dict.fromkeys(range(10), 6000)
    info = tuple(PartyInfo(p, sum(counts.values()), counts) for p in range(parties))
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(counts), tuple(counts))


# DP-CGAN


@pytest.mark.parametrize(
    ("sigma", "improved", "classic"), [(2.1, 4.08, 4.605), (2.1 * 1.1, 3.62, 4.107)]
)
def test_the_published_noise_does_not_cost_the_published_ten(sigma, improved, classic):
    share = CGAN.plan(DPCGANConfig(noise=sigma), a_task(), BUDGET).parties[0]
    assert share.steps == 30_000
    assert epsilon(share.event, DELTA, "rdp_improved") == pytest.approx(improved, abs=0.005)
    assert epsilon(share.event, DELTA, "rdp_classic") == pytest.approx(classic, abs=0.005)
    assert epsilon(share.event, DELTA) < improved


@pytest.mark.parametrize(("sigma", "last"), [(1.12 * 1.1, 30_303), (1.12, 22_977)])
def test_the_copy_stops_where_its_accountant_says_nine_point_six(sigma, last):
    """It counts sigma times C where the noise multiplier is sigma: with orders up to 63."""
    classic = Convention(CONVENTIONS["rdp_improved"].orders, improved=False)
    counted = [
        renyi_epsilon(0.0, {("poisson", 0.01, sigma): steps}, DELTA, classic)
        for steps in (last, last + 1)
    ]
    assert counted[0] <= 9.6 < counted[1] + 5e-4
    assert counted[0] == pytest.approx(9.6, abs=1e-3)


def test_calibration_needs_less_noise_than_either():
    share = CGAN.plan(DPCGANConfig(), a_task(), BUDGET).parties[0]
    assert share.sampling_rate == 0.01
    assert 9.9 < epsilon(share.event, DELTA) <= 10
    assert 1.0 < share.noise_multiplier < 1.12 * 1.1


def test_the_discriminators_pace_falls_over_ten_thousand_steps():
    cfg = DPCGANConfig()
    assert [cfg.pace_at(s) for s in (0, 5000, 10_000, 29_999)] == pytest.approx(
        [0.1, 0.076, 0.052, 0.052]
    )


def test_sizes_are_the_published_ones():
    generator = MLPGenerator(100, 10, (1, 28, 28), (128,))
    assert sum(p.numel() for p in generator.parameters()) == 111 * 128 + 129 * 784
    assert sum(p.numel() for p in mlp_discriminator(794, (128,)).parameters()) == 795 * 128 + 129
    large = DPGANConfig().generator((1, 28, 28))
    linear = [m for m in large.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.in_features for m in linear] == [100, 128, 256, 512, 1024]


# DP-GAN


def test_a_record_pays_for_its_class_and_the_paper_counts_all_classes():
    cfg = DPGANConfig(noise=2.82)
    share = GAN.plan(cfg, a_task(), BUDGET).parties[0]
    q, steps = cfg.sampling_rate(6000), 20 * 93
    one = repeated(poisson(q, gaussian(2.82)), steps)
    assert epsilon(share.event, DELTA) == epsilon(one, DELTA)
    swapped = repeated(poisson(q, gaussian(1.41)), 10 * steps)
    assert epsilon(share.paper_event, DELTA, "rdp_classic") == epsilon(
        swapped, DELTA, "rdp_classic"
    )
    assert epsilon(share.event, DELTA) < 0.1 * epsilon(share.paper_event, DELTA, "rdp_classic")


def test_every_class_is_calibrated_to_the_whole_budget():
    counts = {0: 5000, 3: 130, 7: 40}
    share = GAN.plan(DPGANConfig(epochs=2), a_task(counts), BUDGET).parties[0]
    _, by_class = by_part(flatten(share.event))
    costs = [epsilon(unflatten(flat), DELTA) for flat in by_class[("classes", 10)].values()]
    assert len(costs) == 3
    assert all(9.99 < cost <= 10 * (1 + 1e-9) for cost in costs)
    assert epsilon(share.event, DELTA) == max(costs)


@pytest.mark.parametrize("records", [1, 40, 63, 64, 65, 500, 6742])
def test_rates_are_few_and_batches_never_smaller_than_asked(records):
    q = DPGANConfig().sampling_rate(records)
    assert min(64, records) <= q * records + 1e-9 <= 64 * math.sqrt(2) + 1e-6
    assert q == 1 or (2 * math.log2(q)) == pytest.approx(round(2 * math.log2(q)))


def test_labels_choose_the_generator():
    nets = [MLPGenerator(3, 1, (1, 2, 2), (4,)) for _ in range(3)]
    whole = PerClassGenerators(list(nets)).eval()
    codes, labels = torch.rand(7, 3), torch.tensor([2, 0, 0, 1, 2, 0, 2])
    images = whole(codes, labels)
    for code, label, image in zip(codes, labels, images, strict=True):
        alone = nets[int(label)](code[None], label[None])[0]
        torch.testing.assert_close(image, alone)


def test_losses_are_the_usual_ones():
    from fedsynth.methods.dp_gan.dp_cgan import fake_loss, real_loss

    scores = torch.linspace(-3, 3, 7)[:, None]
    labels = torch.zeros(7)
    one = torch.ones(7)
    expected = F.binary_cross_entropy_with_logits(scores[:, 0], one, reduction="none")
    torch.testing.assert_close(real_loss(scores, labels), expected)
    expected = F.binary_cross_entropy_with_logits(scores[:, 0], 0 * one, reduction="none")
    torch.testing.assert_close(fake_loss(scores, labels), expected)
