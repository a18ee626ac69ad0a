"""The network that computes Inception Score and FID-lite: VGG11 with batch norm (paper 001).

It is trained on the parties' raw records, hence only used for evaluation and never released. It is
cached on disk under a checksum of the data and of its configuration. The published configuration is
width 64 and 50 epochs. Narrower and shorter ones are for laptops; their scores are comparable only
with each other, so every output names the configuration.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedsynth.core.outcomes import unit_interval
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.protocols import MNIST_MEAN, MNIST_STD
from fedsynth.nn import optimizers
from fedsynth.nn.classifiers.vgg11 import vgg11_features
from fedsynth.nn.transforms.augment import apply_dsa, draw_dsa
from fedsynth.storage.disk_cache import file_stem, get_or_compute

FORM = 1  # raise it when the meaning of a scorer changes
EPOCHS, BATCH, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 50, 128, 0.1, 0.9, 1e-4
DROP_FRACTION = 0.8  # of the steps, then a tenth of the learning rate: epoch 40 of 50
TEST_BATCH = 500


class Scorer(nn.Module):
    """Images in [0, 1] to class probabilities and to features (512 at width 64)."""

    def __init__(self, info: DatasetInfo, width: int) -> None:
        super().__init__()
        self.width = width
        self.convolutions, features = vgg11_features(info.shape, nn.BatchNorm2d, width)
        self.head = nn.Linear(features, info.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        normalized = (images.clamp(0, 1) - MNIST_MEAN) / MNIST_STD
        logits: torch.Tensor = self.head(self.convolutions(normalized))
        return logits

    @torch.inference_mode()
    def features_and_probabilities(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and class probabilities of images (bytes or floats), on the CPU."""
        self.eval()
        parts, device = [], self.head.weight.device
        for part in torch.split(images, TEST_BATCH):
            normalized = (unit_interval(part.to(device)).clamp(0, 1) - MNIST_MEAN) / MNIST_STD
            features = self.convolutions(normalized)
            parts.append((features, self.head(features).softmax(1)))
        return torch.cat([f for f, _ in parts]).cpu(), torch.cat([p for _, p in parts]).cpu()


@dataclass(frozen=True)
class ScorerConfig:
    """Configuration of a scorer; width 64 and no cap are as published."""

    width: int = 64
    max_images: int = 0  # cap on the image passes of its training; 0: 50 epochs

    def steps(self, images: int) -> int:
        """SGD steps on a set of this size."""
        full = EPOCHS * math.ceil(images / BATCH)
        return min(full, math.ceil(self.max_images / BATCH)) if self.max_images else full


def train_scorer(
    images: torch.Tensor,
    labels: torch.Tensor,
    info: DatasetInfo,
    config: ScorerConfig,
    *,
    device: torch.device | str = "cpu",
) -> Scorer:
    """Train with SGD, momentum, random crops and flips (of digits as well, as published)."""
    key = ("scorer", info.name, f"Form(width={config.width}, max_images={config.max_images})")
    with default_seed(*key):
        net = Scorer(info, config.width).to(device).train()
    images, labels = images.to(device), labels.to(device)
    generator = torch_generator(*key, "training")
    steps = config.steps(len(images))

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from torch.randperm(len(images), generator=generator).split(BATCH)

    optimiser = optimizers.SGD(
        net.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    for step, chosen in zip(range(steps), batches(), strict=False):
        if step == round(DROP_FRACTION * steps):
            optimiser.param_groups[0]["lr"] = LEARNING_RATE / 10
        if len(chosen) == 1:
            continue  # batch norm cannot train on one image
        x = unit_interval(images[chosen.to(device)])
        for operation in ("crop", "flip"):  # shifts by at most 4 of 28 pixels
            x = apply_dsa(x, draw_dsa(generator, (operation,), len(x)))
        optimiser.zero_grad()
        functional.cross_entropy(net(x), labels[chosen.to(device)]).backward()
        optimiser.step()
    return net.eval()


def cached_scorer(
    folder: Path,
    images: torch.Tensor,
    labels: torch.Tensor,
    info: DatasetInfo,
    config: ScorerConfig,
    *,
    device: torch.device | str = "cpu",
) -> Scorer:
    """The scorer of these records on a device, from the cache in `folder` if there."""
    by = () if torch.device(device).type == "cpu" else (torch.device(device).type,)
    stem = file_stem(f"{info.name}-vgg11-{config.width}", (images, labels), FORM, info, config, *by)

    def read(data: bytes) -> Scorer:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            state = {name: torch.from_numpy(np.array(file[name])) for name in file.files}
        net = Scorer(info, config.width)
        net.load_state_dict(state)
        return net.to(device).eval()

    def write(net: Scorer) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **{name: value.cpu().numpy() for name, value in net.state_dict().items()})
        return buffer.getvalue()

    return get_or_compute(
        folder / f"{stem}.npz",
        lambda: train_scorer(images, labels, info, config, device=device),
        read=read,
        write=write,
        damage=(ValueError, KeyError, RuntimeError, EOFError, zipfile.BadZipFile),
    )
