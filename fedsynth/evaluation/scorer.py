"""The network behind our own Inception Score and FID-lite: VGG11 with batch norm (paper 001).

It is trained on the parties' raw records, so it serves the evaluation and is never released. It is
kept on disk under a checksum of the data and of its form. The published form is width 64 and 50
epochs; narrower and shorter ones are for laptops, and their scores are comparable with one another
only: every output names the form.
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

from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.protocols import MNIST_MEAN, MNIST_STD
from fedsynth.evaluation.types import pixels
from fedsynth.nn.classifiers.vgg11 import vgg11_features
from fedsynth.nn.transforms.augment import apply_dsa, draw_dsa
from fedsynth.storage.disk_cache import file_stem, get_or_compute

FORM = 1  # raise it when what a scorer is changes
EPOCHS, BATCH, RATE, MOMENTUM, WEIGHT_DECAY = 50, 128, 0.1, 0.9, 1e-4
DROP_SHARE = 0.8  # of the steps, after which the rate is divided by ten: epoch 40 of 50
PASS = 500  # images at once when nothing is learnt


class Scorer(nn.Module):
    """Images in [0, 1] to class probabilities and to features (512 at width 64)."""

    def __init__(self, info: DatasetInfo, width: int) -> None:
        super().__init__()
        self.width = width
        self.convolutions, features = vgg11_features(info.shape, nn.BatchNorm2d, width)
        self.head = nn.Linear(features, info.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.convolutions((images.clamp(0, 1) - MNIST_MEAN) / MNIST_STD))

    @torch.inference_mode()
    def see(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and class probabilities of images (bytes or floats), without learning."""
        self.eval()
        parts = []
        for part in images.split(PASS):
            scaled = (pixels(part).clamp(0, 1) - MNIST_MEAN) / MNIST_STD
            features = self.convolutions(scaled)
            parts.append((features, self.head(features).softmax(1)))
        return torch.cat([f for f, _ in parts]), torch.cat([p for _, p in parts])


@dataclass(frozen=True)
class ScorerConfig:
    """How a scorer is made: width 64 and no cap are as published."""

    width: int = 64
    max_images: int = 0  # cap on the image passes of its training; 0: 50 epochs

    def steps(self, images: int) -> int:
        """Steps of SGD on a set of this size."""
        full = EPOCHS * math.ceil(images / BATCH)
        return min(full, math.ceil(self.max_images / BATCH)) if self.max_images else full


def train_scorer(
    images: torch.Tensor, labels: torch.Tensor, info: DatasetInfo, form: ScorerConfig
) -> Scorer:
    """SGD with momentum, random crops and mirror images (also of digits, as published)."""
    key = ("scorer", info.name, f"Form(width={form.width}, max_images={form.max_images})")
    with default_seed(*key):
        net = Scorer(info, form.width).train()
    generator = torch_generator(*key, "training")
    steps = form.steps(len(images))

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from torch.randperm(len(images), generator=generator).split(BATCH)

    optimiser = torch.optim.SGD(
        net.parameters(), RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    for step, chosen in zip(range(steps), batches(), strict=False):
        if step == round(DROP_SHARE * steps):
            optimiser.param_groups[0]["lr"] = RATE / 10
        if len(chosen) == 1:
            continue  # batch norm knows no batch of one
        x = pixels(images[chosen])
        for operation in ("crop", "flip"):  # shifts of at most 4 of 28 pixels, and mirror images
            x = apply_dsa(x, draw_dsa(generator, (operation,), len(x)))
        optimiser.zero_grad()
        functional.cross_entropy(net(x), labels[chosen]).backward()
        optimiser.step()
    return net.eval()


def scorer(
    folder: Path, images: torch.Tensor, labels: torch.Tensor, info: DatasetInfo, form: ScorerConfig
) -> Scorer:
    """The scorer of these records from `folder`, or trained and put there."""
    stem = file_stem(f"{info.name}-vgg11-{form.width}", (images, labels), FORM, info, form)

    def read(data: bytes) -> Scorer:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            state = {name: torch.from_numpy(np.array(file[name])) for name in file.files}
        net = Scorer(info, form.width)
        net.load_state_dict(state)
        return net.eval()

    def write(net: Scorer) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **{name: value.numpy() for name, value in net.state_dict().items()})
        return buffer.getvalue()

    return get_or_compute(
        folder / f"{stem}.npz",
        lambda: train_scorer(images, labels, info, form),
        read=read,
        write=write,
        damage=(ValueError, KeyError, RuntimeError, EOFError, zipfile.BadZipFile),
    )
