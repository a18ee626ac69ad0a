"""The discriminator of a conditional DCGAN, with the label appended to the input of every layer.

Batch norm is over the images of one call, which a private method could not allow for records.
`nn.ensembles.teacher` has the same network for many small batches side by side, by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.types import Shape
from fedsynth.nn.gan.common import require_quarters

INIT_STD, NEGATIVE_SLOPE = 0.02, 0.2
SAME = (1, 2, 1, 2)  # padding of an even side that halves it, as in the published programs


class LabelDiscriminator(nn.Module):
    """Pixels [n, c, h, w] and class indices in, scores [n] out: two strided convolutions of 5x5, a
    hidden layer and the score. 3,768,381 parameters for 28x28x1 and ten classes."""

    def __init__(
        self, classes: int = 10, shape: Shape = (1, 28, 28), channels: int = 64, hidden: int = 1024
    ) -> None:
        super().__init__()
        require_quarters(shape)
        colours, height, width = shape
        self.classes = classes
        first, second = colours + classes, channels + classes
        self.first = nn.Conv2d(colours + classes, first, 5, stride=2)
        self.second = nn.Conv2d(first + classes, second, 5, stride=2, bias=False)
        self.second_norm = nn.BatchNorm2d(second, track_running_stats=False)
        cells = (height // 4) * (width // 4)
        self.third = nn.Linear(second * cells + classes, hidden, bias=False)
        self.third_norm = nn.BatchNorm1d(hidden, track_running_stats=False)
        self.score = nn.Linear(hidden + classes, 1)
        for layer in (self.first, self.second, self.third, self.score):
            nn.init.normal_(layer.weight, std=INIT_STD)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The score of each image as one of its label, before the sigmoid."""
        rows = F.one_hot(labels, self.classes).to(images)

        def labelled(x: Tensor) -> Tensor:
            if x.dim() == 2:
                return torch.cat([x, rows], dim=1)
            return torch.cat([x, rows[:, :, None, None].expand(-1, -1, *x.shape[2:])], dim=1)

        h = F.leaky_relu(self.first(F.pad(labelled(images), SAME)), NEGATIVE_SLOPE)
        h = F.leaky_relu(self.second_norm(self.second(F.pad(labelled(h), SAME))), NEGATIVE_SLOPE)
        h = F.leaky_relu(self.third_norm(self.third(labelled(h.flatten(1)))), NEGATIVE_SLOPE)
        scores: Tensor = self.score(labelled(h))
        return scores.squeeze(1)
