"""A generator of rows of numbers: tables with their categories spread out, or codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsynth.nn.gan.conv_generators import with_labels

WIDTHS = (200, 500, 500, 200)  # DP-MERF's generator for data that are no images


class RowGenerator(nn.Module):
    """Linear layers with batch norm and ReLU between them: codes and labels in, rows out.

    `numbers` of the outputs come through a sigmoid, each group of `categories` through a softmax.
    No record passes through its batch norm; sample in evaluation mode."""

    def __init__(
        self,
        code: int,
        classes: int,
        numbers: int,
        categories: Sequence[int] = (),
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
        self.classes, self.numbers, self.categories = classes, numbers, list(categories)
        layers: list[nn.Module] = []
        before = code + classes
        for width in widths:
            layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU()]
            before = width
        self.layers = nn.Sequential(*layers, nn.Linear(before, numbers + sum(categories)))

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Rows [n, numbers + categories] of these codes and labels (positions 0..classes-1)."""
        x = self.layers(with_labels(codes, labels, self.classes))
        spread = x[:, self.numbers :].split(self.categories, dim=1) if self.categories else ()
        parts = [x[:, : self.numbers].sigmoid(), *(part.softmax(dim=1) for part in spread)]
        return torch.cat(parts, dim=1)
