"""The classifiers the papers judge synthetic data with, by name.

Shapes and parameter counts are the published ones at 28x28x1 and 32x32x3 (tests count them). All
norms are instance norms (one group a channel), so no statistic is shared between images, but for
PoolNet, the student of `sketch_teach`, which trains with batch norm. Weights start from PyTorch's
defaults. Only ConvNet and PoolNet have a free width; the others are what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from fedsynth.core.errors import UserError, unknown
from fedsynth.nn.classifiers.convnet import ConvNet
from fedsynth.nn.classifiers.poolnet import PoolNet

Shape = tuple[int, int, int]


def instance_norm(channels: int) -> nn.GroupNorm:
    """One group a channel: statistics of a single image and channel, affine, eps 1e-5."""
    return nn.GroupNorm(channels, channels)


def _cells(name: str, shape: Shape) -> int:
    """How many 32x32 cells tile the input; 28x28 counts as one, because padding makes it 32."""
    _, height, width = shape
    if height == width == 28:
        return 1
    if height == width and height % 32 == 0:
        return (height // 32) ** 2
    raise UserError(
        f"classifier {name!r} needs square images of side 28 or a multiple of 32, "
        f"got {height}x{width}. Allowed for other sizes: mlp."
    )


def _grow(shape: Shape) -> int:
    """Extra padding of a first convolution, so that 28 becomes 32."""
    return 2 if shape[1] == 28 else 0


def lenet(shape: Shape, classes: int) -> nn.Module:
    """LeNet-5 with ReLU and max pooling (61,706 parameters at 28x28x1)."""
    _cells("lenet", shape)
    side = ((shape[1] + 2 * _grow(shape) - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5, padding=_grow(shape)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side * side, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def alexnet(shape: Shape, classes: int) -> nn.Module:
    """Five convolutions without norm or dropout (1,865,802 parameters at 28x28x1)."""
    cells = _cells("alexnet", shape)
    return nn.Sequential(
        nn.Conv2d(shape[0], 128, 5, padding=2 + _grow(shape)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(128, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 192, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(192, 192, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(192 * 16 * cells, classes),
    )


def vgg11_features(
    shape: Shape, norm: Callable[[int], nn.Module], width: int = 64
) -> tuple[nn.Module, int]:
    """The convolutions of VGG11 from images to flat features, and how many those are."""
    cells = _cells("vgg11", shape)
    layers: list[nn.Module] = []
    channels = shape[0]
    for block in ((1,), (2,), (4, 4), (8, 8), (8, 8)):
        for times in block:
            wide = times * width
            padding = 1 + (0 if layers else _grow(shape))
            layers += [nn.Conv2d(channels, wide, 3, padding=padding), norm(wide), nn.ReLU()]
            channels = wide
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()), channels * cells


def vgg11(shape: Shape, classes: int) -> nn.Module:
    """VGG11 with instance norm (9,229,962 parameters at 28x28x1)."""
    convolutions, features = vgg11_features(shape, instance_norm)
    return nn.Sequential(*convolutions.children(), nn.Linear(features, classes))


class _Residual(nn.Module):
    """A basic block: two 3x3 convolutions and a shortcut (projected where the shape changes)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            instance_norm(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            instance_norm(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), instance_norm(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """ResNet18 with instance norm and a 3x3 stem (11,172,810 parameters at 28x28x1)."""
    cells = _cells("resnet18", shape)
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
        instance_norm(64),
        nn.ReLU(),
    ]
    for before, after in pairwise((64, 64, 128, 256, 512)):
        layers += [_Residual(before, after, 1 if before == after else 2)]
        layers += [_Residual(after, after, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512 * cells, classes))


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Two hidden layers of 128 (118,282 parameters at 28x28x1)."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


class KeyedDropout(nn.Module):
    """Dropout that draws from a generator of its own, seeded when the net is made: the whole
    training depends on the key of the net alone, whatever else runs beside it."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance
        seed = int(torch.randint(2**62, (), device="cpu"))
        self._generator = torch.Generator().manual_seed(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        kept = torch.rand(x.shape, generator=self._generator) >= self.chance
        return x * kept.to(x.device) / (1 - self.chance)


def keras_cnn(shape: Shape, classes: int) -> nn.Module:
    """Two valid convolutions with dropout and one hidden layer (515,146 parameters at 28x28x1),
    weights from Glorot's uniform law and no biases at first, as Keras begins."""
    channels, height, width = shape
    if min(height, width) < 8:
        raise UserError(f"classifier 'keras_cnn' needs 8 pixels a side, got {height}x{width}.")
    cells = ((height - 2) // 2 - 2) * ((width - 2) // 2 - 2)
    net = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        KeyedDropout(0.2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        KeyedDropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * cells, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


FIXED: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet": lenet,
    "alexnet": alexnet,
    "vgg11": vgg11,
    "resnet18": resnet18,
    "mlp": mlp,
    "keras_cnn": keras_cnn,
}
CLASSIFIERS = ("convnet", "poolnet", *FIXED)
FREE_WIDTH = ("convnet", "poolnet")


def classifier(name: str, shape: Shape, classes: int, width: int = 128) -> nn.Module:
    """A fresh classifier by name, drawn from torch's global generator; key it with
    `randomness.default_seed`. `width` is that of ConvNet and PoolNet, the others ignore it."""
    if name == "convnet":
        return ConvNet(width, classes, shape)
    if name == "poolnet":
        _, height, across = shape
        if height != across or height < 8:
            raise UserError(
                f"classifier 'poolnet' needs square images of at least 8 pixels, "
                f"got {height}x{across}."
            )
        return PoolNet(width, classes, height, shape[0])
    if name not in FIXED:
        raise unknown("classifier", name, CLASSIFIERS)
    return FIXED[name](shape, classes)
