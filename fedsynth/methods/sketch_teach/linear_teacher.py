"""The private teacher: a linear head on fixed features, and the features themselves.

The features of an image are those of the pool-net and, unless left out, its scattering transform,
whitened with the statistics of synthetic images: all of it public and the same for every image.
Only the gradient of the head is private, and whoever supplies it decides what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.core.messages import Arrays
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.nn.transforms.scattering import scattering

RIDGE = 0.005  # of the largest eigenvalue: directions below it are not blown up
LEAST_RIDGE, LEAST_LENGTH, LEAST_BLOCK = 1e-6, 0.5, 1e-2
"""What keeps features small where the images they are made from are all alike."""
CONSTANT = 0.3  # the last feature, in place of a bias
HEAD_RIDGE = 1e-3  # of the mean squared feature, where the head starts
AT_ONCE = 4096
_NET = "net."


@dataclass(frozen=True)
class FeatureMap:
    """Images on the pixel scale to rows of features whose mean square length is about 1."""

    net: PoolNet
    block_scales: torch.Tensor  # one a block: pool-net, scattering
    centre: torch.Tensor
    whitening: torch.Tensor

    @staticmethod
    def fit(net: PoolNet, pool: torch.Tensor, with_scattering: bool) -> FeatureMap:
        """The map whose statistics are those of these synthetic images."""
        device = net.classifier.weight.device
        blocks = [net.embed(pool)]
        if with_scattering:
            blocks.append(scattering(pool.to(device)))
        scales = torch.stack([1 / b.norm(dim=1).mean().clamp_min(LEAST_BLOCK) for b in blocks])
        rows = torch.cat([b * s for b, s in zip(blocks, scales, strict=True)], dim=1)
        centre = rows.mean(0)
        rows = rows - centre
        values, vectors = torch.linalg.eigh((rows.T @ rows).double() / len(rows))
        values = values.clamp_min(0)
        gains = (values + (RIDGE * values[-1]).clamp_min(LEAST_RIDGE)).rsqrt()
        length = float((values * gains**2).sum().sqrt().clamp_min(LEAST_LENGTH))
        whitening = (vectors * (gains / length)).float().to(device)
        return FeatureMap(net, scales, centre, whitening)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.centre) + 1

    @property
    def with_scattering(self) -> bool:
        """Whether a row holds the scattering transform too."""
        return len(self.block_scales) > 1

    def __call__(self, images: torch.Tensor, scattered: torch.Tensor | None = None) -> torch.Tensor:
        """One row an image, each from its own image alone. `scattered` is their scattering
        transform, where it is known already."""
        rows = torch.zeros(len(images), self.width, device=self.centre.device)
        rows[:, -1] = CONSTANT
        for at in range(0, len(images), AT_ONCE):
            part = images[at : at + AT_ONCE].to(self.centre.device)
            blocks = [self.net.embed(part)]
            if self.with_scattering:
                known = None if scattered is None else scattered[at : at + AT_ONCE]
                blocks.append(scattering(part) if known is None else known.to(part.device))
            raw = torch.cat([b * s for b, s in zip(blocks, self.block_scales, strict=True)], dim=1)
            rows[at : at + len(part), :-1] = (raw - self.centre) @ self.whitening
        return rows

    def arrays(self) -> Arrays:
        """All of it as arrays, for those who have to compute the same features."""
        own = {"scales": self.block_scales, "centre": self.centre, "whitening": self.whitening}
        return own | {_NET + name: value for name, value in self.net.state_dict().items()}

    @staticmethod
    def of_arrays(arrays: Arrays, net_width: int, classes: int, device: torch.device) -> FeatureMap:
        """The map that `arrays` describes, for images of 28 pixels a side."""
        with torch.device("meta"):
            net = PoolNet(net_width, classes, 28)
        weights = {k.removeprefix(_NET): v for k, v in arrays.items() if k.startswith(_NET)}
        net.load_state_dict(weights, assign=True)
        own = (arrays[name].to(device) for name in ("scales", "centre", "whitening"))
        return FeatureMap(net.to(device).channels_last().eval(), *own)


def first_head(rows: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The linear head [classes, features] nearest to these logits: ridge regression."""
    logits = (logits - logits.mean(dim=1, keepdim=True)).double()
    rows = rows.double()
    gram = rows.T @ rows / len(rows)
    ridge = HEAD_RIDGE * gram.diagonal().mean()
    gram.diagonal().add_(ridge)
    return torch.linalg.solve(gram, rows.T @ logits / len(rows)).T.float().contiguous()


def gradient_factors(
    weights: torch.Tensor, rows: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy's gradient at a linear head, record by record, as left (outer) right; zeros
    for a record of a class that the head does not have."""
    residuals = functional.softmax(rows @ weights.T, dim=1)
    places = places.to(rows.device)
    known = (places >= 0) & (places < len(weights))
    residuals[known, places[known]] -= 1
    residuals[~known] = 0
    return residuals, rows


class Head:
    """A linear head that descends with a heavy ball; its result averages the second half."""

    def __init__(self, start: torch.Tensor, *, steps: int, rate: float, momentum: float) -> None:
        self.weights = start.clone()
        self.velocity = torch.zeros_like(start)
        self.total = torch.zeros_like(start)
        self._steps, self._rate, self._momentum = steps, rate, momentum

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """What a checkpoint must keep; restored in place."""
        return {"weights": self.weights, "velocity": self.velocity, "total": self.total}

    def step(self, number: int, gradient: torch.Tensor) -> None:
        """Step `number`, counted from 0, along the mean gradient."""
        self.velocity.mul_(self._momentum).add_(gradient.to(self.velocity))
        self.weights.sub_(self.velocity, alpha=self._rate)
        if number >= self._steps // 2:
            self.total.add_(self.weights)

    def result(self) -> torch.Tensor:
        """The mean of the weights after the steps of the second half."""
        return self.total / (self._steps - self._steps // 2)


def multipliers(mu: float, share: float, steps: int) -> tuple[float, float]:
    """Noise multipliers of the sketch and of each of `steps` gradients that spend mu together.

    >>> sketch, teacher = multipliers(1.0, 0.36, 4)
    >>> round(sketch, 6), round(teacher, 6), round((1 / sketch**2 + 4 / teacher**2) ** 0.5, 6)
    (1.666667, 2.5, 1.0)
    """
    return 1 / (mu * math.sqrt(share)), math.sqrt(steps / (1 - share)) / mu


def places_in(labels: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The place of each label in `order`, -1 for one that is not there."""
    lookup = torch.full((max(order) + 2,), -1, dtype=torch.int64)
    lookup[list(order)] = torch.arange(len(order))
    return lookup[labels.cpu().clamp(max=max(order) + 1)]
