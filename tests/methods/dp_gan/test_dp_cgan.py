"""DP-CGAN: the published epsilon, the true one, and calibration."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.dp_gan.dp_cgan import DPCGAN, DPCGANConfig, fake_loss, real_loss
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.rdp import CONVENTIONS, Convention, renyi_epsilon

DELTA = 1e-5
BUDGET = Budget(10.0, DELTA)


def stage_of() -> Stage:
    counts = dict.fromkeys(range(10), 6000)
    info = (PartyInfo(0, 60_000, counts),)
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(counts), tuple(counts))


@pytest.mark.parametrize(
    ("sigma", "improved", "classic"), [(2.1, 4.08, 4.605), (2.1 * 1.1, 3.62, 4.107)]
)
def test_the_published_noise_does_not_cost_the_published_ten(sigma, improved, classic):
    party_plan = DPCGAN().plan(DPCGANConfig(noise=sigma), stage_of(), BUDGET).parties[0]
    assert party_plan.steps == 30_000
    assert epsilon(party_plan.event, DELTA, "rdp_improved") == pytest.approx(improved, abs=0.005)
    assert epsilon(party_plan.event, DELTA, "rdp_classic") == pytest.approx(classic, abs=0.005)
    assert epsilon(party_plan.event, DELTA) < improved


@pytest.mark.parametrize(("sigma", "last"), [(1.12 * 1.1, 30_303), (1.12, 22_977)])
def test_the_published_copy_stops_where_its_accountant_gives_nine_point_six(sigma, last):
    """Its accountant takes sigma times C for the noise multiplier sigma, with orders up to 63."""
    classic = Convention(CONVENTIONS["rdp_improved"].orders, improved=False)
    counted = [
        renyi_epsilon(0.0, {("poisson", 0.01, sigma): steps}, DELTA, classic)
        for steps in (last, last + 1)
    ]
    assert counted[0] <= 9.6 < counted[1] + 5e-4
    assert counted[0] == pytest.approx(9.6, abs=1e-3)


def test_calibration_needs_less_noise_than_either():
    party_plan = DPCGAN().plan(DPCGANConfig(), stage_of(), BUDGET).parties[0]
    assert party_plan.sampling_rate == 0.01
    assert 9.9 < epsilon(party_plan.event, DELTA) <= 10
    assert 1.0 < party_plan.noise_multiplier < 1.12 * 1.1


def test_the_discriminators_learning_rate_falls_over_ten_thousand_steps():
    cfg = DPCGANConfig()
    assert [cfg.discriminator_learning_rate(s) for s in (0, 5000, 10_000, 29_999)] == pytest.approx(
        [0.1, 0.076, 0.052, 0.052]
    )


def test_sizes_are_as_published():
    generator = MLPGenerator(100, 10, (1, 28, 28), (128,))
    assert sum(p.numel() for p in generator.parameters()) == 111 * 128 + 129 * 784
    assert sum(p.numel() for p in mlp_discriminator(794, (128,)).parameters()) == 795 * 128 + 129
    assert DPCGANConfig().label_scale == 1


def test_losses_are_binary_cross_entropies():
    scores = torch.linspace(-3, 3, 7)[:, None]
    labels = torch.zeros(7)
    one = torch.ones(7)
    expected = F.binary_cross_entropy_with_logits(scores[:, 0], one, reduction="none")
    torch.testing.assert_close(real_loss(scores, labels), expected)
    expected = F.binary_cross_entropy_with_logits(scores[:, 0], 0 * one, reduction="none")
    torch.testing.assert_close(fake_loss(scores, labels), expected)
