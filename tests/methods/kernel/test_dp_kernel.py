"""DP-kernel: what a step follows, and the published noise."""

from __future__ import annotations

import math

import pytest
import torch

from fedsynth.core.types import Budget
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.kernel.dp_kernel import ClassEmbeddings, DPKernelConfig
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon

CFG = DPKernelConfig(images=3, min_length_scale=1.0, length_scales=3)


def images(n: int, seed: int) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


def test_without_noise_a_step_goes_down_the_mmd_of_every_class():
    """Classes 2 and 7: the gradient of sum_c mmd^2(real_c, generated_c), by differentiation."""
    real, names = images(9, 0), torch.tensor([2, 7, 7, 2, 2, 7, 7, 7, 7])
    points = (images(6, 1).flatten(1) * 2 - 1).requires_grad_()

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        squares = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
        return sum(torch.exp(-squares / (2 * s * s)) for s in CFG.scales) / 3

    loss = torch.zeros(())
    for name, mine in zip((2, 7), points.split(3), strict=True):
        x = real[names == name].flatten(1) * 2 - 1
        squares = (mine[:, None] - mine[None] + 1e-12).square().sum(-1)
        own = sum(torch.exp(-squares / (2 * s * s)) for s in CFG.scales) / 3
        loss = loss + own.mean() - 2 * kernel(mine, x).mean()
    (expected,) = torch.autograd.grad(loss, points)

    embedding = ClassEmbeddings([2, 7], points.detach(), CFG)
    rows = embedding.rows(real, names)
    sums = torch.stack([rows[names == name].sum(0) for name in (2, 7)])
    found = embedding.gradients(sums, torch.tensor([3.0, 6.0]))
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(("noise", "wanted"), [(0.6, 10), (1.95, 1), (8.0, 0.2)])
def test_the_published_noise_is_within_the_stated_budget_of_a_swap_and_ours_of_a_record(
    noise, wanted
):
    """60 of 60,000 records in each of 200,000 steps; their multiplier is over a swap's sqrt(2)."""
    (stage,) = scenario_stages(
        ScenarioConfig(data="fashion_mnist", partition="single", parties=1, stages="together")
    )
    cfg = DPKernelConfig(noise=noise * math.sqrt(2))
    (share,) = method("dp_kernel").plan(cfg, stage, Budget(wanted, 1e-5)).parties
    assert share.sampling_rate == pytest.approx(1e-3)
    assert share.steps == 200_000
    assert share.paper_event is not None
    theirs = epsilon(share.paper_event, 1e-5, method("dp_kernel").paper_convention)
    assert theirs == pytest.approx(wanted, rel=0.03)
    assert epsilon(share.event, 1e-5, "rdp") < 0.8 * theirs
