"""Find a classifier by name.

The classifiers are those with which the papers evaluate synthetic data. Shapes and parameter counts
are the published ones at 28x28x1 and 32x32x3 (tests count them). All normalisation is instance norm
(one group per channel), so no statistic is shared between images; the exception is PoolNet, the
student of `sketch_teach`, which is trained with batch norm. Weights start from PyTorch's defaults
unless a file says otherwise. Only ConvNet and PoolNet have a free width.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import torch
from torch import nn

from fedsynth.core.errors import unknown
from fedsynth.core.types import DatasetInfo, Shape

CLASSIFIERS = (
    *("convnet", "poolnet", "lenet", "alexnet", "vgg11", "resnet18", "mlp", "keras_cnn"),
    *("opacus_cnn", "linear"),
)
"""Each is a module of this package that defines `build(shape, classes, width)`."""

FREE_WIDTH = ("convnet", "poolnet")  # those that use `width`
FOR_TABLES = ("mlp", "linear")  # those that need no neighbouring pixels


def classifier(name: str, shape: Shape, classes: int, width: int = 128) -> nn.Module:
    """A new classifier, initialised from torch's global generator (see `randomness.default_seed`).

    Args:
        name: One of `CLASSIFIERS`. Only its module is imported.
        shape: Channels, height and width of an image.
        classes: Number of outputs.
        width: Channels of the first convolution of the classifiers in `FREE_WIDTH`.

    Raises:
        UserError: The name is unknown, or the classifier cannot take images of this shape.
    """
    if name not in CLASSIFIERS:
        raise unknown("classifier", name, CLASSIFIERS)
    net: nn.Module = importlib.import_module(f"{__package__}.{name}").build(shape, classes, width)
    return net


def empty_classifier(name: str, width: int, data: DatasetInfo) -> nn.Module:
    """A classifier over all classes of the data on the meta device, without memory or values.

    For counting parameters, or for loading a state after `to_empty`."""
    with torch.device("meta"):
        return classifier(name, data.shape, data.classes, width)


def classifier_from_state(
    name: str,
    width: int,
    data: DatasetInfo,
    state: Mapping[str, torch.Tensor],
    device: torch.device | str,
) -> nn.Module:
    """A classifier over all classes of the data with a copy of these weights."""
    net = empty_classifier(name, width, data).to_empty(device=device)
    net.load_state_dict(dict(state))
    return net
