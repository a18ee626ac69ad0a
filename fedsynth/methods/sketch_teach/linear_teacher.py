"""The private teacher: a linear head on fixed features, and the features themselves.

The features of an image are those of the pool-net and, if enabled, its scattering transform,
whitened with the statistics of synthetic images. All of it is public and the same for every image.
Only the gradient of the head is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.core.messages import Arrays
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.nn.transforms.scattering import scattering

RIDGE = 0.005  # relative to the largest eigenvalue: directions below it are not amplified
MIN_RIDGE, MIN_LENGTH, MIN_BLOCK_NORM = 1e-6, 0.5, 1e-2
"""Lower bounds that keep features small if the images they are fitted to are all alike."""
CONSTANT = 0.3  # the last feature, in place of a bias
HEAD_RIDGE = 1e-3  # relative to the mean squared feature, for the initial head
BATCH_SIZE = 4096
CHUNK = 256  # rows in float64 at a time, so that they stay in a core's cache
_NET = "net."


@dataclass(frozen=True)
class FeatureMap:
    """The map from images in [0, 1] to rows of features with a mean squared norm of about 1."""

    net: PoolNet
    block_scales: torch.Tensor  # per block: pool-net, scattering
    centre: torch.Tensor
    whitening: torch.Tensor

    @staticmethod
    def fit(net: PoolNet, pool: torch.Tensor, with_scattering: bool) -> FeatureMap:
        """The map that is whitened with the statistics of these synthetic images."""
        device = net.classifier.weight.device
        blocks = [net.embed(pool)]
        if with_scattering:
            blocks.append(scattering(pool.to(device)))
        scales = torch.stack([1 / b.norm(dim=1).mean().clamp_min(MIN_BLOCK_NORM) for b in blocks])
        rows = torch.cat([b * s for b, s in zip(blocks, scales, strict=True)], dim=1)
        centre = rows.mean(0)
        rows = rows - centre
        values, vectors = torch.linalg.eigh((rows.T @ rows).double() / len(rows))
        values = values.clamp_min(0)
        gains = (values + (RIDGE * values[-1]).clamp_min(MIN_RIDGE)).rsqrt()
        length = float((values * gains**2).sum().sqrt().clamp_min(MIN_LENGTH))
        whitening = (vectors * (gains / length)).float().to(device)
        return FeatureMap(net, scales, centre, whitening)

    @property
    def width(self) -> int:
        """The length of a row."""
        return len(self.centre) + 1

    @property
    def with_scattering(self) -> bool:
        """True if the features include the scattering transform."""
        return len(self.block_scales) > 1

    def __call__(self, images: torch.Tensor, scattered: torch.Tensor | None = None) -> torch.Tensor:
        """One row per image, each from its own image alone.

        Args:
            images: [n, 1, height, width] in [0, 1].
            scattered: Their scattering transform, if it was computed before.
        """
        rows = torch.zeros(len(images), self.width, device=self.centre.device)
        rows[:, -1] = CONSTANT
        for start in range(0, len(images), BATCH_SIZE):
            batch = images[start : start + BATCH_SIZE].to(self.centre.device)
            blocks = [self.net.embed(batch)]
            if self.with_scattering:
                known = None if scattered is None else scattered[start : start + BATCH_SIZE]
                blocks.append(scattering(batch) if known is None else known.to(batch.device))
            raw = torch.cat([b * s for b, s in zip(blocks, self.block_scales, strict=True)], dim=1)
            rows[start : start + len(batch), :-1] = (raw - self.centre) @ self.whitening
        return rows

    def arrays(self) -> Arrays:
        """The map as named arrays, from which parties rebuild it."""
        own = {"scales": self.block_scales, "centre": self.centre, "whitening": self.whitening}
        return own | {_NET + name: value for name, value in self.net.state_dict().items()}

    @staticmethod
    def from_arrays(
        arrays: Arrays, net_width: int, classes: int, device: torch.device
    ) -> FeatureMap:
        """The map of `arrays`, for images of 28 x 28 pixels."""
        with torch.device("meta"):
            net = PoolNet(net_width, classes, 28)
        weights = {k.removeprefix(_NET): v for k, v in arrays.items() if k.startswith(_NET)}
        net.load_state_dict(weights, assign=True)
        own = (arrays[name].to(device) for name in ("scales", "centre", "whitening"))
        return FeatureMap(net.to(device).channels_last().eval(), *own)


def first_head(rows: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The linear head [classes, features] that fits these logits best, by ridge regression."""
    logits = (logits - logits.mean(dim=1, keepdim=True)).double()
    rows = rows.double()
    gram = rows.T @ rows / len(rows)
    ridge = HEAD_RIDGE * gram.diagonal().mean()
    gram.diagonal().add_(ridge)
    return torch.linalg.solve(gram, rows.T @ logits / len(rows)).T.float().contiguous()


def gradient_factors(
    weights: torch.Tensor, rows: torch.Tensor, class_index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of the cross-entropy at a linear head, per record, as left (outer) right.

    It is zero for a record whose class the head does not have. The scores are float64: those that
    float32 gives depend in their last bits on the place of a row in memory, and so on the number of
    records before it, which adds up over records."""
    wide = weights.double().T
    scores = torch.cat([part.double() @ wide for part in rows.split(CHUNK)])
    residuals = functional.softmax(scores, dim=1).float()
    class_index = class_index.to(rows.device)
    known = (class_index >= 0) & (class_index < len(weights))
    own = class_index.clamp(0, len(weights) - 1).unsqueeze(1)
    residuals.scatter_add_(1, own, -torch.ones_like(own, dtype=residuals.dtype))
    return residuals.masked_fill_(~known.unsqueeze(1), 0), rows


class Head:
    """A linear head trained by gradient descent with momentum.

    The result is the average of its weights over the second half of the steps."""

    def __init__(
        self, start: torch.Tensor, *, steps: int, learning_rate: float, momentum: float
    ) -> None:
        self.weights = start.clone()
        self.velocity = torch.zeros_like(start)
        self.total = torch.zeros_like(start)
        self._steps, self._learning_rate, self._momentum = steps, learning_rate, momentum

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The state to checkpoint; it is restored in place."""
        return {"weights": self.weights, "velocity": self.velocity, "total": self.total}

    def step(self, number: int, gradient: torch.Tensor) -> None:
        """Take step `number`, counted from 0, with this mean gradient."""
        self.velocity.mul_(self._momentum).add_(gradient.to(self.velocity))
        self.weights.sub_(self.velocity, alpha=self._learning_rate)
        if number >= self._steps // 2:
            self.total.add_(self.weights)

    def result(self) -> torch.Tensor:
        """The mean of the weights after the steps of the second half."""
        return self.total / (self._steps - self._steps // 2)


def multipliers(mu: float, share: float, steps: int) -> tuple[float, float]:
    """Split a budget of mu-GDP between the sketch and the teacher.

    Args:
        mu: The budget.
        share: The sketch's share of mu^2.
        steps: The number of gradients of the teacher.

    Returns:
        The noise multipliers of the sketch and of each gradient.

    >>> sketch, teacher = multipliers(1.0, 0.36, 4)
    >>> round(sketch, 6), round(teacher, 6), round((1 / sketch**2 + 4 / teacher**2) ** 0.5, 6)
    (1.666667, 2.5, 1.0)
    """
    return 1 / (mu * math.sqrt(share)), math.sqrt(steps / (1 - share)) / mu
