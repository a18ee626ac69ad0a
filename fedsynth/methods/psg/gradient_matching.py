"""Gradient matching: the loop that PSG, its joint form and its non-private reference share.

The synthetic images are moved so that the gradient they give a network resembles the gradient the
real records give it. Only that real gradient is private; whoever supplies it decides what it
costs, and everything in this file is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import ComputeCost, DatasetInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.compute_dtype import DTYPES
from fedsynth.nn.per_example.gradients import loss_and_gradients

OUTER_INNER = {  # images a class -> (outer, inner) of the paper and its program
    1: (1, 1),
    10: (10, 50),
    20: (20, 25),
    30: (30, 20),
    40: (40, 15),
    50: (50, 10),
    100: (50, 10),
}
NET_BATCH = 256  # of the inner network training


@dataclass(frozen=True)
class MatchingConfig:
    """The settings of the loop; the defaults are the published ones."""

    spc: int = setting(10, "synthetic images a class", at_least=1)
    runs: int = setting(200, "fresh networks (R)", at_least=1)
    outer: int | None = setting(None, "outer steps a network (T); none: by spc", at_least=1)
    inner: int | None = setting(None, "epochs of network training (J); none: by spc", at_least=0)
    batches: int = setting(10, "real gradients an outer step (K)", at_least=1)
    batch: int = setting(256, "expected size of a real batch (B)", at_least=1)
    image_rate: float = setting(0.1, "learning rate of the images", above=0)
    image_momentum: float = setting(0.5, "momentum of the images", at_least=0, at_most=0.999)
    image_init: float = setting(1.0, "standard deviation of the first images", at_least=0)
    updates: int = setting(1, "image updates a real gradient (more are free)", at_least=1)
    net_rate: float = setting(0.01, "learning rate of the inner training", above=0)
    inner_set: str = setting(
        "own", "images of the inner training: own classes or all", choices=("own", "all")
    )
    width: int = setting(128, "width of the ConvNet", at_least=1)

    @property
    def outer_inner(self) -> tuple[int, int]:
        """(T, J): as set, else the published pair of the nearest published spc."""
        nearest = min(OUTER_INNER, key=lambda spc: abs(spc - self.spc))
        outer, inner = OUTER_INNER[nearest]
        return (
            outer if self.outer is None else self.outer,
            inner if self.inner is None else self.inner,
        )

    @property
    def steps(self) -> int:
        """Real gradients in all: R T K."""
        return self.runs * self.outer_inner[0] * self.batches

    def server_cost(self, classes: int) -> tuple[ComputeCost, ...]:
        """What the loop computes besides the real gradients."""
        images = self.spc * classes
        outer, inner = self.outer_inner
        trained = self.runs * (outer - 1) * inner * -(-images // NET_BATCH)
        return (
            ComputeCost("match", self.width, images, self.steps * self.updates),
            ComputeCost("train", self.width, min(images, NET_BATCH), trained),
        )


@dataclass(frozen=True)
class PrivateMatchingConfig(MatchingConfig):
    """The settings of the loop on clipped and noised gradients."""

    clip: float = setting(0.1, "bound C on a record's gradient", above=0)
    dtype: str = setting("float32", "arithmetic of the real gradient", choices=DTYPES)


def row_cosine_distance(
    real: Sequence[torch.Tensor], synthetic: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Sum of 1 - cosine over the rows (output nodes) of every weight with two or more dimensions.

    Biases and norm parameters do not count. A positive factor on either side changes nothing."""
    loss = torch.zeros((), device=real[0].device)
    for a, b in zip(real, synthetic, strict=True):
        if a.dim() >= 2:
            rows_a, rows_b = a.flatten(1), b.flatten(1)
            dot = (rows_a * rows_b).sum(1)
            lengths = rows_a.norm(dim=1) * rows_b.norm(dim=1) + 1e-6
            loss = loss + (1 - dot / lengths).sum()
    return loss


class MatchedImages:
    """The synthetic images of some classes while they are being matched."""

    def __init__(
        self,
        cfg: MatchingConfig,
        data: DatasetInfo,
        classes: Iterable[int],
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        """Images start as noise around the data set's mean; `key` names the public randomness."""
        self.cfg, self.data, self.key, self.scale = cfg, data, key, Normalizer.standard(data)
        self.labels = torch.tensor(
            [c for c in classes for _ in range(cfg.spc)], dtype=torch.int64, device=device
        )
        start = torch.randn(
            (len(self.labels), *data.shape), generator=torch_generator(*key, "images")
        )
        self.images = (start * cfg.image_init).to(device)
        self.velocity = torch.zeros_like(self.images)

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep; restored in place."""
        return {"images": self.images, "velocity": self.velocity}

    def network(self, run: int) -> nn.Module:
        """The fresh network of one run: all classes of the data set, known to everybody."""
        net = make_convnet(self.cfg.width, self.data, self.data.classes, *self.key, "network", run)
        return net.to(self.images.device)

    def match(self, net: nn.Module, real: Sequence[torch.Tensor]) -> None:
        """Move the images towards giving this network the gradient `real`."""
        parameters = list(net.parameters())
        for _ in range(self.cfg.updates):
            images = self.images.clone().requires_grad_()
            loss = F.cross_entropy(net(images), self.labels)
            synthetic = torch.autograd.grad(loss, parameters, create_graph=True)
            (slope,) = torch.autograd.grad(row_cosine_distance(real, synthetic), images)
            self.move(slope)

    def move(self, slope: torch.Tensor) -> None:
        """One step against the gradient of the loss at the images."""
        self.velocity.mul_(self.cfg.image_momentum).add_(slope)
        self.images.sub_(self.velocity, alpha=self.cfg.image_rate)

    def train(
        self, net: nn.Module, run: int, outer: int, others: SyntheticSet | None = None
    ) -> None:
        """The inner training: J epochs of plain SGD on the images (and on `others`, if given)."""
        images, labels = self.images.detach(), self.labels
        if others is not None:
            images = torch.cat([images, self.scale.to_network(others.pixels()).to(images.device)])
            labels = torch.cat([labels, others.labels.to(labels.device)])
        parameters: list[torch.Tensor] = list(net.parameters())
        generator = torch_generator(*self.key, "inner", run, outer)
        for _ in range(self.cfg.outer_inner[1]):
            order = torch.randperm(len(labels), generator=generator).to(images.device)
            for part in order.split(NET_BATCH):
                _, slopes = loss_and_gradients(net, images[part], labels[part])
                with torch.no_grad():
                    torch._foreach_add_(parameters, slopes, alpha=-self.cfg.net_rate)

    def result(self) -> SyntheticSet:
        """The images as they are now, in pixel scale."""
        pixels = self.scale.to_pixels(self.images.detach()).cpu()
        return SyntheticSet(pixels, self.labels.cpu())


def match_run(
    matched: MatchedImages,
    run: int,
    real_gradient: Callable[[nn.Module, int], Sequence[torch.Tensor]],
    others: SyntheticSet | None = None,
) -> None:
    """One run: a fresh network, T times (K matched gradients, then J epochs of training).

    `real_gradient(net, call)` supplies the private side; calls are numbered over all runs."""
    cfg = matched.cfg
    outer_steps, _ = cfg.outer_inner
    net = matched.network(run)
    call = run * outer_steps * cfg.batches
    for outer in range(outer_steps):
        for _ in range(cfg.batches):
            matched.match(net, real_gradient(net, call))
            call += 1
        if outer < outer_steps - 1:
            matched.train(net, run, outer, others)


def set_bytes(stage: Stage, classes: int, spc: int) -> int:
    """Bytes of a released set: float32 pixels and int64 labels."""
    channels, height, width = stage.data.shape
    return classes * spc * (channels * height * width * 4 + 8)
