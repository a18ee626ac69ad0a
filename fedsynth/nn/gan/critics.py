"""Critics of Wasserstein GANs, which score images given labels and are trained on records.

A critic is as private as the records it was trained on. No layer mixes the images of a batch, so
the score of an image depends on that image, its label and the critic alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.nn.gan.spectral_norm import SpectralConv2d, SpectralEmbedding, SpectralLinear


class ProjectionCritic(nn.Module):
    """GS-WGAN's critic: three strided convolutions of 5x5, then w . h + <embedding of label, h>.

    Spectral norm on every weight. Pixels [n, c, height, width] and class indices in, scores
    [n] out. 1,071,105 parameters at width 64 for 28x28x1 and ten classes.
    """

    def __init__(self, width: int, classes: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, *sides = shape
        small = [math.ceil(math.ceil(math.ceil(side / 2) / 2) / 2) for side in sides]
        features = 4 * width * small[0] * small[1]
        self.first = SpectralConv2d(channels, width, 5, stride=2, padding=2)
        self.second = SpectralConv2d(width, 2 * width, 5, stride=2, padding=2)
        self.third = SpectralConv2d(2 * width, 4 * width, 5, stride=2, padding=2)
        self.score = SpectralLinear(features, 1)
        self.of_label = SpectralEmbedding(classes, features)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The score of each image as one of its label."""
        h = F.relu(self.first(images))
        h = F.relu(self.second(h))
        h = F.relu(self.third(h)).flatten(1)
        return self.score(h).squeeze(1) + (self.of_label(labels) * h).sum(1)


def wasserstein_loss(
    critic: nn.Module,
    real: Tensor,
    fake: Tensor,
    labels: Tensor,
    mix: Tensor,
    *,
    penalty: float,
    drift: float,
) -> Tensor:
    """mean D(fake) - mean D(real) + penalty mean (|gradient of D| - 1)^2 + drift mean D(real)^2.

    Args:
        critic: D.
        real: Images of records.
        fake: Generated images with the same labels.
        labels: Class indices of both.
        mix: Weights [n] in [0, 1] of the real image in the point where the gradient is taken.
        penalty: Weight of the gradient penalty.
        drift: Weight of the drift term.
    """
    scores = critic(torch.cat([real, fake]), torch.cat([labels, labels]))
    on_real, on_fake = scores.chunk(2)
    loss = on_fake.mean() - on_real.mean() + drift * on_real.square().mean()
    if penalty:
        weights = mix.view(-1, 1, 1, 1)
        between = (weights * real + (1 - weights) * fake).requires_grad_()
        total = critic(between, labels).sum()
        (gradient,) = torch.autograd.grad(total, between, create_graph=True)
        loss = loss + penalty * (gradient.flatten(1).norm(dim=1) - 1).square().mean()
    return loss


def upstream_gradients(critic: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of -D(image, label) at each image, from which a generator learns."""
    images = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(-critic(images, labels).sum(), images)
    return gradient
