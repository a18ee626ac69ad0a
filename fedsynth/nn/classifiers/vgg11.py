"""VGG11 for small images."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedsynth.core.types import Shape
from fedsynth.nn.classifiers.common import count_cells, extra_padding, instance_norm


def vgg11_features(
    shape: Shape, norm: Callable[[int], nn.Module], width: int = 64
) -> tuple[nn.Module, int]:
    """The convolutional part of VGG11.

    Args:
        shape: Channels, height and width of an image.
        norm: Maps a number of channels to a normalisation layer.
        width: Channels of the first convolution.

    Returns:
        A module from images to flat features, and the number of features.
    """
    cells = count_cells("vgg11", shape)
    layers: list[nn.Module] = []
    channels = shape[0]
    for block in ((1,), (2,), (4, 4), (8, 8), (8, 8)):
        for multiple in block:
            outputs = multiple * width
            padding = 1 + (0 if layers else extra_padding(shape))
            layers += [nn.Conv2d(channels, outputs, 3, padding=padding), norm(outputs), nn.ReLU()]
            channels = outputs
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()), channels * cells


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """VGG11 with instance norm (9,229,962 parameters at 28x28x1)."""
    convolutions, features = vgg11_features(shape, instance_norm)
    return nn.Sequential(*convolutions.children(), nn.Linear(features, classes))
