"""EfficientNet-lite0: the published sizes, and features that are a function of one image."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.data.efficientnet_lite import (
    FEATURES,
    EfficientNetLite0,
    SameConvolution,
    load_weights,
    unit_features,
)
from fedsynth.data.fetch import fetch, known_files

PUBLISHED_SHAPES = {  # of some layers of the published weights
    "_conv_stem.weight": (32, 3, 3, 3),
    "_bn0.running_var": (32,),
    "_blocks.0._depthwise_conv.weight": (32, 1, 3, 3),
    "_blocks.0._project_conv.weight": (16, 32, 1, 1),
    "_blocks.3._depthwise_conv.weight": (144, 1, 5, 5),
    "_blocks.5._expand_conv.weight": (240, 40, 1, 1),
    "_blocks.5._depthwise_conv.weight": (240, 1, 3, 3),
    "_blocks.11._project_conv.weight": (192, 672, 1, 1),
    "_blocks.14._bn0.weight": (1152,),
    "_blocks.15._depthwise_conv.weight": (1152, 1, 3, 3),
    "_blocks.15._project_conv.weight": (320, 1152, 1, 1),
    "_conv_head.weight": (1280, 320, 1, 1),
    "_bn1.bias": (1280,),
    "_fc.weight": (1000, 1280),
}
SIDE = 64


def random_weights() -> dict[str, Tensor]:
    """Weights under which no layer vanishes, statistics of batch norms included."""
    generator = torch.Generator().manual_seed(0)
    state = EfficientNetLite0().state_dict()
    for name, value in state.items():
        if name.endswith("running_var") or (value.dim() == 1 and name.endswith("weight")):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        elif value.dim() == 4:
            fan_in = value[0].numel()
            value.copy_(torch.randn(value.shape, generator=generator) * (2 / fan_in) ** 0.5)
        elif value.is_floating_point():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
    return state


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return random_weights()


@pytest.fixture(scope="module")
def net(weights: dict[str, Tensor]) -> EfficientNetLite0:
    content = io.BytesIO()
    torch.save(weights, content)
    return load_weights(content.getvalue())


@pytest.fixture(scope="module")
def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (21, 3, 32, 32), generator=generator, dtype=torch.uint8)


def test_parameters_and_layers_are_the_published_ones() -> None:
    network = EfficientNetLite0()
    assert sum(p.numel() for p in network.parameters()) == 4_652_008
    state = network.state_dict()
    assert len(state) == 296
    assert {name: tuple(state[name].shape) for name in PUBLISHED_SHAPES} == PUBLISHED_SHAPES


def test_the_published_weights_fit_where_they_are() -> None:
    (known,) = known_files.CIFAR10_FEATURES.files
    try:
        content = fetch.read(known_files.CIFAR10_FEATURES, known)
    except UserError as error:
        pytest.skip(str(error).splitlines()[0])
    load_weights(content)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("side", [7, 8])
def test_the_convolution_is_that_of_a_padded_image(kernel: int, stride: int, side: int) -> None:
    """Pixel by pixel; the padding that is left over is at the end."""
    convolution = SameConvolution(1, 1, kernel, stride)
    x = torch.randn(1, 1, side, side, generator=torch.Generator().manual_seed(side))
    outputs = -(-side // stride)
    before = max(0, (outputs - 1) * stride + kernel - side) // 2
    wide = torch.zeros(3 * side, 3 * side)
    wide[side : 2 * side, side : 2 * side] = x[0, 0]
    expected = torch.zeros(outputs, outputs)
    for row in range(outputs):
        for column in range(outputs):
            top, left = (side + place * stride - before for place in (row, column))
            window = wide[top : top + kernel, left : left + kernel]
            expected[row, column] = (window * convolution.weight[0, 0].detach()).sum()
    torch.testing.assert_close(convolution(x)[0, 0].detach(), expected, rtol=1e-4, atol=1e-5)


def naive_features(weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """The features of one image, written down layer by layer, with batch norms as they are."""

    def layer(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        kernel = weights[f"{conv}.weight"]
        size, side = kernel.shape[-1], x.shape[-1]
        both = max(0, (-(-side // stride) - 1) * stride + size - side)
        x = functional.pad(x, (both // 2, both - both // 2) * 2)
        x = functional.conv2d(x, kernel, None, stride, groups=x.shape[1] // kernel.shape[1])
        mean, variance, gain, shift = (
            weights[f"{norm}.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-3).sqrt() * gain + shift

    strides = {1: 2, 3: 2, 5: 2, 11: 2}  # of blocks
    x = functional.interpolate(image[None].float(), (SIDE, SIDE), mode="bilinear")
    x = layer((x - 127) / 128, "_conv_stem", "_bn0", 2).clamp(0, 6)
    for number in range(16):
        block, y = f"_blocks.{number}.", x
        if f"{block}_expand_conv.weight" in weights:
            y = layer(y, f"{block}_expand_conv", f"{block}_bn0").clamp(0, 6)
        depthwise = layer(y, f"{block}_depthwise_conv", f"{block}_bn1", strides.get(number, 1))
        y = layer(depthwise.clamp(0, 6), f"{block}_project_conv", f"{block}_bn2")
        x = x + y if x.shape == y.shape else y
    pooled = x.mean((2, 3))[0]
    return pooled / pooled.norm()


def test_features_are_those_of_the_layers_one_by_one(
    net: EfficientNetLite0, weights: dict[str, Tensor], images: Tensor
) -> None:
    found = unit_features(net, images[:3], SIDE)
    expected = torch.stack([naive_features(weights, image) for image in images[:3]])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert (found[0] - found[1]).abs().max() > 1e-3  # not a constant


def test_the_features_of_an_image_do_not_depend_on_the_others(
    net: EfficientNetLite0, images: Tensor
) -> None:
    """Equal to the bit whatever is in the batch, its size and its order."""
    together = unit_features(net, images, SIDE)
    assert together.shape == (21, FEATURES)
    alone = torch.cat([unit_features(net, image[None], SIDE) for image in images])
    assert torch.equal(alone, together)
    order = torch.randperm(21, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        unit_features(net, images[order], SIDE), together[order], rtol=1e-4, atol=1e-6
    )
    others = images.clone()
    others[1:] = 255
    assert torch.equal(unit_features(net, others, SIDE)[0], together[0])


def test_features_have_length_one_and_none_are_made_of_no_images(
    net: EfficientNetLite0, images: Tensor
) -> None:
    assert torch.allclose(unit_features(net, images[:5], SIDE).norm(dim=1), torch.ones(5))
    assert unit_features(net, images[:0], SIDE).shape == (0, FEATURES)


def test_a_folded_network_has_the_logits_of_the_whole_one(
    net: EfficientNetLite0, weights: dict[str, Tensor]
) -> None:
    whole = EfficientNetLite0()
    whole.load_state_dict(weights)
    x = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = whole.eval()(x)
        torch.testing.assert_close(net(x), expected, rtol=1e-3, atol=1e-3)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
