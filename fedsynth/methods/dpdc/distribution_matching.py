"""Distribution matching: the loop that NDPDC and its non-private reference share.

In every step a fresh, untrained network embeds the synthetic images of a class, and they are moved
so that their features resemble those of the class's real records. Only the real features are
private; whoever supplies them decides what they cost, and everything in this file is
post-processing. All classes go through one forward: each under its own siamese augmentation, the
same for its real and its synthetic images. Rows of a table are seen through a linear layer in
place of the network, and are not augmented.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.enums import DataKind
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.data.normalization import Normalizer
from fedsynth.nn.classifiers.convnet import empty_convnet, make_convnet
from fedsynth.nn.compute_dtype import DTYPES, compute_type
from fedsynth.nn.per_example.features import ConvFeatures, LinearFeatures
from fedsynth.nn.transforms.augment import DSAParams, apply_dsa, draw_dsa, dsa_operations

RARE = 2.0  # no class is sampled more than so many times as densely as the party's average class


@dataclass(frozen=True)
class DistributionConfig:
    """The settings of the loop; the defaults are the published ones."""

    spc: int = setting(50, "synthetic images a class (M)", at_least=1)
    iterations: int = setting(10000, "fresh networks, a step of the images each (I)", at_least=1)
    image_rate: float = setting(1.0, "learning rate of the images", above=0)
    image_rate_end: float = setting(
        1.0, "share of image_rate left at the last step, along a cosine", at_least=0, at_most=1
    )
    image_momentum: float = setting(0.5, "momentum of the images", at_least=0, at_most=0.999)
    image_init: float = setting(1.0, "standard deviation of the first images", at_least=0)
    augmentation: str = setting(
        "dsa", "siamese augmentation of real and synthetic images", choices=("dsa", "none")
    )
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: str = setting("float32", "arithmetic of the networks", choices=DTYPES)
    linear: int = setting(
        64, "features of a row of a table, seen through a linear layer", at_least=1
    )


def class_rates(group: int, info: PartyInfo) -> dict[int, float]:
    """The sampling rate of every class the party holds: L / N_c, so that L records are expected.

    The largest rate is what everything costs, so a class far below the party's average is sampled
    at `RARE` times the average rate at most: it gets fewer than L records, the others keep their
    price."""
    densest = RARE * group * len(info.class_counts) / info.records
    return {c: min(1.0, group / n, densest) for c, n in sorted(info.class_counts.items())}


def expected_records(rates: Mapping[int, float], info: PartyInfo) -> torch.Tensor:
    """How many records of each class a sample at these rates holds on average: public constants."""
    return torch.tensor([rate * info.class_counts[c] for c, rate in rates.items()])


def refuse_what_cannot_be_seen(cfg: DistributionConfig, data: DatasetInfo) -> None:
    """A UserError for sizes the network cannot see, before anything is spent."""
    if data.kind != DataKind.TABLE:
        empty_convnet(cfg.width, data)


def extractor(
    cfg: DistributionConfig, data: DatasetInfo, key: tuple[object, ...], device: torch.device | str
) -> ConvFeatures | LinearFeatures:
    """A fresh network, or for a table a linear layer, whose weights depend on the key alone."""
    if data.kind == DataKind.TABLE:
        with default_seed(*key):
            return LinearFeatures(nn.Linear(data.shape[0], cfg.linear).to(device))
    net = make_convnet(cfg.width, data, 1, *key).to(device)
    return ConvFeatures(net.features, compute_type(cfg.dtype, device) or torch.float32)


@dataclass(frozen=True)
class Step:
    """What is public about one step: its network and, by class, its augmentation."""

    rate: float  # of the images
    features: ConvFeatures | LinearFeatures
    draws: Mapping[int, DSAParams]


class CondensedImages:
    """The synthetic images of some classes while they are being matched, in [-1, 1] scale; rows of
    a table in that of its public means and deviations."""

    def __init__(
        self,
        cfg: DistributionConfig,
        data: DatasetInfo,
        classes: Iterable[int],
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        """Images start as noise; `key` names the public randomness."""
        self.cfg, self.data, self.key = cfg, data, key
        # A table's rows are centred, so that what the classes differ in survives the clipping.
        self.scale = (
            Normalizer.standard(data) if data.kind == DataKind.TABLE else Normalizer.symmetric(data)
        )
        self.classes = tuple(classes)
        start = torch.randn(
            (len(self.classes) * cfg.spc, *data.shape), generator=torch_generator(*key, "images")
        )
        self.images = (start * cfg.image_init).to(device)
        self.velocity = torch.zeros_like(self.images)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """What a checkpoint must keep; restored in place."""
        return {"images": self.images, "velocity": self.velocity}

    @property
    def width(self) -> int:
        """How many features an image has."""
        if self.data.kind == DataKind.TABLE:
            return self.cfg.linear
        net = make_convnet(self.cfg.width, self.data, 1, "width")
        return int(net.classifier.in_features)

    def step(self, number: int) -> Step:
        """The fresh network of one step and the augmentation of each class."""
        key = (*self.key, "network", number)
        features = extractor(self.cfg, self.data, key, self.images.device)
        generator = torch_generator(*self.key, "augmentation", number)
        strategy = dsa_operations(self.data)
        wanted = self.classes if strategy and self.cfg.augmentation == "dsa" else ()
        draws = {name: draw_dsa(generator, strategy) for name in wanted}
        return Step(self._rate(number), features, draws)

    def _rate(self, number: int) -> float:
        """The learning rate of a step: what noise moves the images by shrinks along with it."""
        falling = (1 + math.cos(math.pi * number / self.cfg.iterations)) / 2
        share = self.cfg.image_rate_end
        return self.cfg.image_rate * (share + (1 - share) * falling)

    def real_rows(self, step: Step, pixels: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
        """The features of real records, each under its class's augmentation."""
        images = self.scale.to_network(pixels)
        for name, params in step.draws.items():
            mine = torch.nonzero(names == name).flatten().to(images.device)
            if len(mine):
                images[mine] = apply_dsa(images[mine], params)
        return step.features.forward(images)

    def match(
        self, step: Step, real: torch.Tensor, scale: torch.Tensor, bound: float | None
    ) -> None:
        """One step of SGD on sum_c || scale_c sum_j r_j - real_c ||^2, r_j the features of image j
        of class c, clipped to `bound` (the clip factor counts as a constant)."""
        images = self.images.clone().requires_grad_()
        by_class = images.split(self.cfg.spc)
        seen = torch.cat(
            [
                apply_dsa(part, step.draws[name]) if name in step.draws else part
                for name, part in zip(self.classes, by_class, strict=True)
            ]
        )
        rows = step.features.forward(seen.detach(), keep=True)
        factors = torch.ones_like(rows[:, :1])
        if bound is not None:
            factors = (bound / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1.0)
        scale = scale.to(rows).unsqueeze(1)
        sums = (rows * factors).view(len(self.classes), self.cfg.spc, -1).sum(1)
        slopes = 2 * scale * (scale * sums - real.to(rows))
        slopes = slopes.repeat_interleave(self.cfg.spc, 0) * factors
        (slope,) = torch.autograd.grad(seen, images, step.features.backward(slopes))
        self.velocity.mul_(self.cfg.image_momentum).add_(slope)
        self.images.sub_(self.velocity, alpha=step.rate)

    def result(self) -> SyntheticSet:
        """The images as they are now, in pixel scale."""
        labels = torch.tensor(self.classes, dtype=torch.int64).repeat_interleave(self.cfg.spc)
        return SyntheticSet(self.scale.to_pixels(self.images.detach()).cpu(), labels)
