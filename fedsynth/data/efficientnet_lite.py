"""EfficientNet-lite0 trained on ImageNet, as a fixed map from images to features.

The network of Tan and Le's EfficientNet without squeeze-and-excitation and with ReLU6, 4,652,008
parameters. Layers are named as in the published weights. `unit_features` stops before the last 1x1
convolution, averages the 320 channels over all places and scales each image's vector to length one.

Claim: the features of an image depend on that image and public weights alone. Batch norms use the
statistics stored with the weights, no constant is estimated from the images, and batches are
filled up to one size, so that no kernel is chosen by their number.
"""

from __future__ import annotations

import io
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

STAGES = (  # blocks, kernel, stride of the first block, expansion, channels
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
    *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)
STEM, HEAD, IMAGENET_CLASSES = 32, 1280, 1000
FEATURES = STAGES[-1][-1]
SIDE = 160  # to which images are scaled; 128 costs 2.7 points of a hold-out of CIFAR-10
_MIDDLE, _RANGE = 127.0, 128.0  # of bytes, as in the training of the weights
_BATCH = 16  # images


class SameConvolution(nn.Conv2d):
    """A convolution without bias whose output is the input's size divided by the stride, rounded
    up; an odd pixel of padding is at the right and at the bottom."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of the padded input."""
        stride = self.stride[0]
        if stride > 1:
            padding = []
            for side in (x.shape[3], x.shape[2]):
                whole = (-(-side // stride) - 1) * stride + self.kernel_size[0]
                both = max(0, whole - side)
                padding += [both // 2, both - both // 2]
            x = functional.pad(x, padding)
        return super().forward(x)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class InvertedBottleneck(nn.Module):
    """Expansion, depthwise convolution and projection, with a shortcut where shapes allow it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self._expands, self._adds = expansion > 1, stride == 1 and inputs == outputs
        if self._expands:
            self._expand_conv = SameConvolution(inputs, wide, 1)
            self._bn0: nn.Module = _norm(wide)
        self._depthwise_conv = SameConvolution(wide, wide, kernel, stride, groups=wide)
        self._bn1: nn.Module = _norm(wide)
        self._project_conv = SameConvolution(wide, outputs, 1)
        self._bn2: nn.Module = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, not rectified."""
        y = x
        if self._expands:
            y = functional.relu6(self._bn0(self._expand_conv(y)), inplace=True)
        y = functional.relu6(self._bn1(self._depthwise_conv(y)), inplace=True)
        y = self._bn2(self._project_conv(y))
        return y + x if self._adds else y

    def fold(self) -> None:
        """Merge batch norms into the convolutions before them."""
        if self._expands:
            _fold(self, "_expand_conv", "_bn0")
        _fold(self, "_depthwise_conv", "_bn1")
        _fold(self, "_project_conv", "_bn2")


class EfficientNetLite0(nn.Module):
    """The network with its classifier of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConvolution(3, STEM, 3, 2)
        self._bn0: nn.Module = _norm(STEM)
        widths = [STEM, *(stage[-1] for stage in STAGES)]
        self._blocks = nn.ModuleList(
            InvertedBottleneck(
                outputs if block else inputs, outputs, kernel, 1 if block else stride, expansion
            )
            for (inputs, outputs), (blocks, kernel, stride, expansion, _) in zip(
                pairwise(widths), STAGES, strict=True
            )
            for block in range(blocks)
        )
        self._conv_head = SameConvolution(FEATURES, HEAD, 1)
        self._bn1: nn.Module = _norm(HEAD)
        self._fc = nn.Linear(HEAD, IMAGENET_CLASSES)

    def channels(self, x: Tensor) -> Tensor:
        """The 320 channels before the last 1x1 convolution, for inputs of about -1 to 1."""
        x = functional.relu6(self._bn0(self._conv_stem(x)), inplace=True)
        for block in self._blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """The logits of ImageNet's classes."""
        head = functional.relu6(self._bn1(self._conv_head(self.channels(x))), inplace=True)
        logits: Tensor = self._fc(head.mean((2, 3)))
        return logits

    def fold(self) -> EfficientNetLite0:
        """This network with batch norms merged into the convolutions, which is faster."""
        self.eval()
        _fold(self, "_conv_stem", "_bn0")
        for block in self._blocks:
            assert isinstance(block, InvertedBottleneck)
            block.fold()
        _fold(self, "_conv_head", "_bn1")
        for parameter in self.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        return self


def _fold(owner: nn.Module, convolution: str, norm: str) -> None:
    setattr(
        owner, convolution, fuse_conv_bn_eval(getattr(owner, convolution), getattr(owner, norm))
    )
    setattr(owner, norm, nn.Identity())


def load_weights(content: bytes) -> EfficientNetLite0:
    """The network with published weights, whose hash was verified, ready for `unit_features`."""
    net = EfficientNetLite0()
    net.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    return net.fold()


@torch.inference_mode()
def unit_features(net: EfficientNetLite0, images: Tensor, side: int = SIDE) -> Tensor:
    """The features of images, each vector of length one.

    Args:
        net: The network, from `load_weights`.
        images: uint8 [n, 3, height, width].
        side: The side to which they are scaled, bilinearly.

    Returns:
        float32 [n, 320].
    """
    parts = [_features(net, batch, side) for batch in images.split(_BATCH)]
    return torch.cat([torch.zeros(0, FEATURES), *parts]).clone()


def _features(net: EfficientNetLite0, images: Tensor, side: int) -> Tensor:
    pixels = torch.zeros(_BATCH, *images.shape[1:])
    pixels[: len(images)] = images
    scaled = functional.interpolate((pixels - _MIDDLE) / _RANGE, (side, side), mode="bilinear")
    channels = net.channels(scaled.contiguous(memory_format=torch.channels_last))
    return functional.normalize(channels.mean((2, 3)))[: len(images)]
