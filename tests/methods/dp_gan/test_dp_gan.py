"""DP-GAN: charges per class, calibration and sampling rates."""

from __future__ import annotations

import math

import pytest
import torch

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.dp_gan.dp_gan import DPGAN, DPGANConfig, PerClassGenerators, _ClassGAN
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


def test_networks_and_training_are_as_published():
    cfg = DPGANConfig()
    generator = cfg.generator((1, 28, 28))
    linear = [m for m in generator.modules() if isinstance(m, torch.nn.Linear)]
    assert [m.in_features for m in linear] == [100, 128, 256, 512, 1024]
    norms = [m for m in generator.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert [(m.num_features, m.eps) for m in norms] == [(256, 0.8), (512, 0.8), (1024, 0.8)]
    assert (cfg.epochs, cfg.batch, cfg.critic_steps, cfg.weights) == (20, 64, 5, 0.01)
    assert cfg.clip / cfg.batch == 0.01  # of a record's part of the mean
    latents = DPGAN().latents(100, cfg, torch.Generator().manual_seed(0))
    assert latents.std() == pytest.approx(1, abs=0.05)


def test_the_critic_follows_clipped_gradients_on_records_and_images_alike():
    """The published program bounds both; a larger one on images would drown the records'."""
    cfg = DPGANConfig(hidden=16, latent=4, batch=8, clip=1e-3)
    gan = _ClassGAN(cfg, (1, 4, 4), cfg.generator((1, 4, 4)), ("key",), torch.device("cpu"))
    with torch.no_grad():
        rows, _ = gan._rows(0)
    weights = list(gan.critic.parameters())
    total = [torch.zeros_like(weight) for weight in weights]
    for row in rows:
        gradient = torch.autograd.grad(gan.critic(row[None]).sum(), weights)
        norm = torch.cat([part.flatten() for part in gradient]).norm()
        factor = min(1.0, cfg.clip / float(norm)) / cfg.batch
        torch._foreach_add_(total, [part * factor for part in gradient])
    real = [torch.full_like(weight, 1e-4) for weight in weights]
    gan.critic_optimiser.step = lambda: None  # type: ignore[method-assign]
    gan.step(0, real)
    for weight, part, own in zip(weights, real, total, strict=True):
        torch.testing.assert_close(weight.grad, part + own, rtol=1e-4, atol=1e-9)


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
