"""DP-Sinkhorn: the gradient of the loss, and the private part of it."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.types import Budget
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.registry import method
from fedsynth.methods.sinkhorn.dp_sinkhorn import DPSinkhornConfig, StepClouds
from fedsynth.methods.sinkhorn.transport import PointCloud, cost, transport_plan
from fedsynth.privacy.accounting.accountant import epsilon

CFG = DPSinkhornConfig(images=10, debiased=0.2)


def drawn(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand((n, 16), generator=generator, dtype=torch.float64) * 2 - 1
    return points, torch.randint(3, (n,), generator=generator)


def test_the_gradient_is_that_of_the_semi_debiased_loss():
    """2 W(fake, real) - W(fake, fake without the first fifth and with the extra ones)."""
    points, labels = drawn(12, 0)
    real, names = drawn(8, 1)
    free = points.clone().requires_grad_()

    def transport(one: torch.Tensor, its: torch.Tensor, other: torch.Tensor, others: torch.Tensor):
        """The mean cost of either cloud under the plan that takes it to the other."""
        costs = cost(PointCloud(one, its), PointCloud(other, others), CFG.l1)
        shares = transport_plan(costs.detach(), CFG.blur)
        return (shares * costs).sum(1).mean()

    fake, its = free[:10], labels[:10]
    others, theirs = free[2:], labels[2:]
    loss = 2 * transport(fake, its, real, names)
    loss = loss - transport(fake, its, others.detach(), theirs)
    loss = loss - transport(others, theirs, fake.detach(), its)
    (expected,) = torch.autograd.grad(loss, free)

    clouds = StepClouds(CFG, points, labels)
    pixels = ((real + 1) / 2).view(8, 1, 4, 4)
    torch.testing.assert_close(
        clouds.private_gradient(torch.arange(3), pixels, names), expected[:10]
    )
    extra = expected[10:] * min(1.0, CFG.clip / float(expected[10:].norm()))
    torch.testing.assert_close(clouds.extra_gradient(), extra, rtol=1e-4, atol=0)


def test_extra_images_need_no_record_and_may_be_none():
    points, labels = drawn(10, 0)
    clouds = StepClouds(DPSinkhornConfig(images=10, debiased=0.0), points, labels)
    assert clouds.extra_gradient().shape == (0, 16)


@pytest.mark.parametrize(("noise", "passes"), [(1.1, 2872), (0.9, 1510)])
def test_the_published_noise_lasts_as_many_passes_as_the_specification_says(noise, passes):
    (stage,) = scenario_stages(
        ScenarioConfig(data="fashion_mnist", partition="single", parties=1, stages="together")
    )
    some, budget = method("dp_sinkhorn"), Budget(10.0, 1e-5)
    (share,) = some.plan(DPSinkhornConfig(noise=noise, steps=passes * 1200), stage, budget).parties
    assert epsilon(share.event, 1e-5, some.paper_convention) == pytest.approx(10, rel=1e-3)
    assert epsilon(share.event, 1e-5, "rdp") < 9.2
    assert DPSinkhornConfig().steps == 2872 * 1200
