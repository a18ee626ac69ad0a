"""A generator of rows of numbers: tables with one-hot categories, or latent vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsynth.nn.gan.common import with_labels

WIDTHS = (200, 500, 500, 200)  # of DP-MERF's generator of tables


class TabularGenerator(nn.Module):
    """Linear layers with batch norm and ReLU: latent vectors and class indices in, rows out.

    The first `numbers` outputs pass a sigmoid, each group of `categories` a softmax. No record
    passes through its batch norm; sample in evaluation mode."""

    def __init__(
        self,
        latent_size: int,
        classes: int,
        numbers: int,
        categories: Sequence[int] = (),
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
        self.classes, self.numbers, self.categories = classes, numbers, list(categories)
        layers: list[nn.Module] = []
        inputs = latent_size + classes
        for width in widths:
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, numbers + sum(categories)))

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The rows [n, numbers + categories] of these latent vectors and class indices."""
        x = self.layers(with_labels(latents, labels, self.classes))
        categories = x[:, self.numbers :].split(self.categories, dim=1) if self.categories else ()
        parts = [x[:, : self.numbers].sigmoid(), *(part.softmax(dim=1) for part in categories)]
        return torch.cat(parts, dim=1)
