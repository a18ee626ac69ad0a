"""Convolutions as products of windows, against torch's convolution and its gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedsynth.nn.ensembles.strided_conv import TAPS, input_gradient, valid_taps, windows


@pytest.mark.parametrize("side", [4, 12])
def test_windows_and_their_gradient_are_those_of_a_same_convolution(side: int) -> None:
    generator = torch.Generator().manual_seed(side)
    images = torch.randn(3, 2, side, side, generator=generator, dtype=torch.float64)
    images.requires_grad_()
    kernel = torch.randn(5, 2, 5, 5, generator=generator, dtype=torch.float64)
    expected = F.conv2d(F.pad(images, (1, 2, 1, 2)), kernel, stride=2)
    weights = kernel.permute(0, 2, 3, 1).reshape(1, 5, TAPS * 2)
    channels_last = images.detach().permute(0, 2, 3, 1).contiguous()
    outputs = windows(channels_last) @ weights[0].t()
    torch.testing.assert_close(outputs.transpose(1, 2).reshape(expected.shape), expected)

    upstream = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(expected, images, upstream)
    bordered = F.pad(upstream.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1)).contiguous()
    found = input_gradient(bordered, weights, 1)
    torch.testing.assert_close(found.permute(0, 3, 1, 2), gradient)


def test_taps_outside_the_image_are_zero() -> None:
    taps = valid_taps(4, torch.float32, torch.device("cpu")).view(2, 2, 5, 5)
    assert taps[0, 0].sum() == 16, "one row and column lie before the image"
    assert taps[1, 1].sum() == 9, "two lie behind"
