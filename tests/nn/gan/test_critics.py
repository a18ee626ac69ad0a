"""The critic of GS-WGAN: its size, its loss and its upstream gradients."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fedsynth.core.randomness import default_seed
from fedsynth.nn.gan.critics import ProjectionCritic, upstream_gradients, wasserstein_loss


def critic(seed: int = 0) -> ProjectionCritic:
    with default_seed("critic", seed):
        return ProjectionCritic(4, 3, (1, 12, 12))


def batch(n: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((n, 1, 12, 12), generator=generator), torch.arange(n) % 3


def test_the_published_critic_has_the_published_size():
    net = ProjectionCritic(64, 10, (1, 28, 28))
    assert sum(p.numel() for p in net.parameters()) == 1_071_105
    assert net(torch.rand(2, 1, 28, 28), torch.tensor([0, 9])).shape == (2,)


def test_a_label_changes_a_score_by_its_embedding_alone():
    net = critic().eval()
    images, labels = batch()
    h = F.relu(net.third(F.relu(net.second(F.relu(net.first(images)))))).flatten(1)
    table = net.of_label.normalised()
    other = (labels + 1) % 3
    moved = net(images, other) - net(images, labels)
    torch.testing.assert_close(moved, ((table[other] - table[labels]) * h).sum(1))


@given(st.integers(0, 1000), st.floats(0, 20), st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_the_loss_is_the_naive_one_image_by_image(seed, penalty, drift):
    net = critic(seed).eval()
    (real, labels), (fake, _) = batch(seed=seed), batch(seed=seed + 1)
    mix = torch.linspace(0, 1, len(real))
    found = wasserstein_loss(net, real, fake, labels, mix, penalty=penalty, drift=drift)
    naive = torch.zeros(())
    for i in range(len(real)):
        x, y, label = real[i : i + 1], fake[i : i + 1], labels[i : i + 1]
        between = (mix[i] * x + (1 - mix[i]) * y).requires_grad_()
        (gradient,) = torch.autograd.grad(net(between, label).sum(), between)
        score = net(x, label)
        part = net(y, label) - score + drift * score**2 + penalty * (gradient.norm() - 1) ** 2
        naive = naive + part.sum() / len(real)
    torch.testing.assert_close(found, naive, rtol=1e-4, atol=1e-5)


def test_upstream_gradients_are_of_each_image_alone_and_point_downhill():
    net = critic().eval()
    images, labels = batch()
    together = upstream_gradients(net, images, labels)
    for i in range(len(images)):
        alone = upstream_gradients(net, images[i : i + 1], labels[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-4, atol=1e-6)
    better = net(images - 1e-3 * together, labels)
    assert (better > net(images, labels)).all()
