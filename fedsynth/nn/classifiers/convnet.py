"""ConvNet: the classifier that is trained under privacy and that evaluates synthetic data."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo, Shape
from fedsynth.nn.classifiers.common import instance_norm


class ConvNet(nn.Module):
    """Three blocks of [3x3 convolution, instance norm, ReLU, 2x2 average pool] and a linear layer.

    Instance norm is `GroupNorm` with one group per channel: each image is normalised by itself, so
    the gradient of a record depends on that record alone, as per-example clipping assumes. An image
    of 28 pixels is padded to 32 by the first convolution. 317,706 parameters at width 128 for
    28x28x1 and ten classes.
    """

    def __init__(self, width: int = 128, classes: int = 10, shape: Shape = (1, 28, 28)) -> None:
        super().__init__()
        channels, height, image_width = shape
        if height != image_width or height < 8:
            raise UserError(
                f"ConvNet needs square images of at least 8 pixels, got {height}x{image_width}"
            )
        first_padding = 3 if height == 28 else 1
        self.features = nn.Sequential(
            *_block(channels, width, first_padding),
            *_block(width, width, 1),
            *_block(width, width, 1),
        )
        side = (height - 2 + 2 * first_padding) // 8
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(width * side * side, classes)

    def layer_sequence(self) -> tuple[nn.Module, ...]:
        """The layers in the order of `forward`: see `nn.per_example.sequential`."""
        return self.features, self.flatten, self.classifier

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """The features of each image, flattened: [batch, width * side * side]."""
        return self.flatten(self.features(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits of each image: [batch, classes]."""
        return self.classifier(self.embed(x))


def _block(inputs: int, width: int, padding: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, width, kernel_size=3, padding=padding),
        instance_norm(width),
        nn.ReLU(),
        nn.AvgPool2d(2),
    )


def build(shape: Shape, classes: int, width: int) -> nn.Module:
    """See `classifiers.registry`."""
    return ConvNet(width, classes, shape)


def make_convnet(
    width: int, data: DatasetInfo | Shape, classes: int, *key_parts: object
) -> ConvNet:
    """A `ConvNet` with PyTorch's default initialisation, drawn from the random key alone."""
    shape = data.shape if isinstance(data, DatasetInfo) else data
    with default_seed(*key_parts):
        return ConvNet(width, classes, shape)


class RedrawnConvNet:
    """One `ConvNet` on a device, with weights that are drawn anew for each random key.

    The weights are those of `make_convnet` on any device: they are drawn on the CPU and copied into
    the network's own memory, so no network is built or allocated from one key to the next."""

    def __init__(
        self, width: int, data: DatasetInfo, classes: int, device: torch.device | str
    ) -> None:
        """Build the network without values; `draw` sets them."""
        self._net = empty_convnet(width, data, classes).to_empty(device=device)
        on_cpu = torch.device(device).type == "cpu"
        self._drawn = (
            self._net if on_cpu else empty_convnet(width, data, classes).to_empty(device="cpu")
        )

    def draw(self, *key_parts: object) -> ConvNet:
        """The network, with the weights of this key; the former ones are overwritten."""
        with default_seed(*key_parts):
            for layer in self._drawn.modules():
                if reset := getattr(layer, "reset_parameters", None):
                    reset()
        if self._drawn is not self._net:
            with torch.no_grad():
                for own, new in zip(self._net.parameters(), self._drawn.parameters(), strict=True):
                    own.copy_(new)
        return self._net


def empty_convnet(width: int, data: DatasetInfo, classes: int | None = None) -> ConvNet:
    """A `ConvNet` on the meta device, without memory or values; by default over all classes.

    For counting parameters, or for loading a state after `to_empty`. Draws nothing from torch's
    global generator."""
    with torch.device("meta"):
        return ConvNet(width, classes or data.classes, data.shape)


def convnet_from_state(
    width: int, data: DatasetInfo, state: Mapping[str, torch.Tensor], device: torch.device | str
) -> ConvNet:
    """A `ConvNet` over all classes of the data with a copy of these weights."""
    net = empty_convnet(width, data).to_empty(device=device)
    net.load_state_dict(dict(state))
    return net
