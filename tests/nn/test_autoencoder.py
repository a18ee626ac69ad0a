"""The autoencoder: latent vectors on the sphere, its loss per record, and its state."""

from __future__ import annotations

import torch

from fedsynth.core.types import DatasetInfo
from fedsynth.nn.autoencoder import autoencoder_from_state, make_autoencoder, reconstruction_loss
from fedsynth.privacy.clipping import clipped_gradient_sum

INFO = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.25,))


def pixels(n: int) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(0))


def test_latent_vectors_have_norm_one() -> None:
    latents = make_autoencoder(INFO, 3, 5, "norm").encode(pixels(6))
    torch.testing.assert_close(latents.norm(dim=1), torch.ones(6))


def test_the_loss_of_a_record_is_its_squared_error():
    net, images = make_autoencoder(INFO, 3, 5, "loss"), pixels(5)
    back = net.decode(net.encode(images))
    expected = (back - images).square().flatten(1).sum(1)
    torch.testing.assert_close(reconstruction_loss(net(images), torch.zeros(5)), expected)
    sums = clipped_gradient_sum(
        net, images, torch.zeros(5).long(), clip=1e6, loss=reconstruction_loss
    )
    gradients = torch.autograd.grad(expected.sum(), list(net.parameters()))
    for found, gradient in zip(sums, gradients, strict=True):
        torch.testing.assert_close(found.to(gradient), gradient, rtol=1e-4, atol=1e-5)


def test_a_state_restores_the_autoencoder():
    net = make_autoencoder(INFO, 3, 5, "copy")
    copy = autoencoder_from_state(INFO, 3, 5, net.state_dict())
    torch.testing.assert_close(
        copy.decode(copy.encode(pixels(3))), net.decode(net.encode(pixels(3)))
    )
