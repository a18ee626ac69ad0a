"""Distribution matching: the loop that NDPDC, its joint form and its non-private reference share.

In every step a fresh, untrained network embeds the synthetic images of a class, and they are moved
so that their features resemble those of the class's real records. Only the real features are
private, and the caller supplies them through a mechanism; everything in this file is
post-processing. All classes go through one forward pass, each under its own siamese augmentation,
the same for its real and its synthetic images. Rows of a table pass through a linear layer in place
of the network, without augmentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import nn

from fedsynth.core.enums import DataKind
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.optimised_images import OptimisedImages
from fedsynth.nn.classifiers.convnet import RedrawnConvNet, empty_convnet
from fedsynth.nn.compute_dtype import ComputeDtype, compute_type
from fedsynth.nn.per_example.features import ConvFeatures, LinearFeatures
from fedsynth.nn.transforms.augment import DSAParams, apply_dsa, draw_dsa, dsa_operations


class Augmentation(StrEnum):
    """The augmentation that real and synthetic images undergo alike."""

    DSA = "dsa"
    NONE = "none"


@dataclass(frozen=True)
class DistributionConfig:
    """The settings of the loop; the defaults are the published ones."""

    spc: int = setting(50, "synthetic images per class (M)", at_least=1, at_most=1_000_000)
    iterations: int = setting(10000, "fresh networks, one step of the images each (I)", at_least=1)
    image_learning_rate: float = setting(
        1.0, "learning rate of the images", above=0, formerly="image_rate"
    )
    image_learning_rate_end: float = setting(
        1.0,
        "share of image_learning_rate left at the last step, along a cosine",
        at_least=0,
        at_most=1,
        formerly="image_rate_end",
    )
    image_momentum: float = setting(0.5, "momentum of the images", at_least=0, at_most=0.999)
    image_init: float = setting(1.0, "standard deviation of the first images", at_least=0)
    augmentation: Augmentation = setting(
        Augmentation.DSA, "siamese augmentation of real and synthetic images"
    )
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: ComputeDtype = setting(ComputeDtype.FLOAT32, "arithmetic of the networks")
    linear: int = setting(
        64, "tables: outputs of the linear layer that replaces the network", at_least=1
    )


def check_network(cfg: DistributionConfig, data: DatasetInfo) -> None:
    """Raise a UserError for image sizes that the network cannot take."""
    if data.kind != DataKind.TABLE:
        empty_convnet(cfg.width, data)


@dataclass(frozen=True)
class Step:
    """The public part of one step: its network and the augmentation of each class."""

    learning_rate: float  # of the images
    features: ConvFeatures | LinearFeatures
    draws: Mapping[int, DSAParams]


class CondensedImages(OptimisedImages[DistributionConfig]):
    """The synthetic images of some classes while they are being matched.

    Pixels are scaled to [-1, 1], rows of a table by their public means and deviations: they are
    centred, so that differences between classes survive the clipping."""

    def normalizer(self) -> Normalizer:
        if self.data.kind == DataKind.TABLE:
            return Normalizer.standard(self.data)
        return Normalizer.symmetric(self.data)

    @property
    def width(self) -> int:
        """The number of features of an image."""
        if self.data.kind == DataKind.TABLE:
            return self.cfg.linear
        return int(empty_convnet(self.cfg.width, self.data).classifier.in_features)

    @cached_property
    def _networks(self) -> RedrawnConvNet:
        return RedrawnConvNet(self.cfg.width, self.data, 1, self.images.device)

    def step(self, number: int) -> Step:
        """The public part of step `number`; it takes the place of the last step's network."""
        features = self._features(*self.key, "network", number)
        generator = torch_generator(*self.key, "augmentation", number)
        strategy = dsa_operations(self.data)
        augmented = self.classes if strategy and self.cfg.augmentation == Augmentation.DSA else ()
        draws = {label: draw_dsa(generator, strategy) for label in augmented}
        return Step(self._learning_rate(number), features, draws)

    def _features(self, *key: object) -> ConvFeatures | LinearFeatures:
        """A fresh network, or a linear layer for a table, with weights of the key alone."""
        device = self.images.device
        if self.data.kind == DataKind.TABLE:
            with default_seed(*key):
                return LinearFeatures(nn.Linear(self.data.shape[0], self.cfg.linear).to(device))
        dtype = compute_type(self.cfg.dtype, device) or torch.float32
        return ConvFeatures(self._networks.draw(*key).features, dtype)

    def _learning_rate(self, number: int) -> float:
        """The learning rate of a step; where it falls, the effect of the noise falls with it."""
        cosine = (1 + math.cos(math.pi * number / self.cfg.iterations)) / 2
        end = self.cfg.image_learning_rate_end
        return self.cfg.image_learning_rate * (end + (1 - end) * cosine)

    def real_rows(self, step: Step, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The features of real records, each under the augmentation of its class."""
        images = self.scale.to_network(pixels)
        for label, params in step.draws.items():
            indices = torch.nonzero(labels == label).flatten().to(images.device)
            if len(indices):
                images[indices] = apply_dsa(images[indices], params)
        return step.features.forward(images)

    def match(
        self, step: Step, real: torch.Tensor, scale: torch.Tensor, bound: float | None
    ) -> None:
        """Take one step of SGD on sum_c || scale_c sum_j r_j - real_c ||^2.

        r_j are the features of image j of class c, clipped to `bound` (None: not clipped); the
        gradient treats the clipping factor as a constant.

        Args:
            step: The public part of the step.
            real: The sum or mean of the real features of each class.
            scale: A factor for each class, which makes both sides comparable.
            bound: The bound to which real features were clipped.
        """
        images = self.images.clone().requires_grad_()
        by_class = images.split(self.cfg.spc)
        augmented = torch.cat(
            [
                apply_dsa(part, step.draws[label]) if label in step.draws else part
                for label, part in zip(self.classes, by_class, strict=True)
            ]
        )
        rows = step.features.forward(augmented.detach(), keep=True)
        factors = torch.ones_like(rows[:, :1])
        if bound is not None:
            factors = (bound / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1.0)
        scale = scale.to(rows).unsqueeze(1)
        sums = (rows * factors).view(len(self.classes), self.cfg.spc, -1).sum(1)
        gradients = 2 * scale * (scale * sums - real.to(rows))
        gradients = gradients.repeat_interleave(self.cfg.spc, 0) * factors
        (gradient,) = torch.autograd.grad(augmented, images, step.features.backward(gradients))
        self.descend(gradient, step.learning_rate)
