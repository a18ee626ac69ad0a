"""Images matched to targets by autograd and an optimiser, beside the loop that is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedsynth.methods.dpdc.distribution_matching import CondensedImages, DistributionConfig

Loss = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""The loss of a step by its number, the images, the target and the scale of each class."""


def match_both(
    condensed: CondensedImages,
    cfg: DistributionConfig,
    targets: Sequence[Tensor],
    bound: float | None,
    loss: Loss,
) -> Tensor:
    """Take a step to each target, in `condensed` and by hand; returns the images by hand."""
    images = condensed.images.clone().requires_grad_()
    optimiser = torch.optim.SGD([images], cfg.image_learning_rate, momentum=cfg.image_momentum)
    scale = torch.tensor([2.0, 0.5])
    for number, target in enumerate(targets):
        optimiser.zero_grad()
        loss(number, images, target, scale).backward()
        optimiser.step()
        condensed.match(condensed.step(number), target, scale, bound)
    return images.detach()
