"""Augmentations against loops that do one image at a time, and the properties of DSA."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.nn.transforms.augment import (
    DSA_OPERATIONS,
    DSAParams,
    apply_dsa,
    crop_scale_rotate,
    draw_dsa,
    random_affine,
    saturate,
)


def images(n: int = 8, channels: int = 1, side: int = 28) -> torch.Tensor:
    return torch.randn(n, channels, side, side, generator=torch_generator("images", n, channels))


def smooth(n: int) -> torch.Tensor:
    """Blobs: an interpolation must get these nearly right."""
    place = torch.arange(28.0)
    g = torch_generator("blobs")
    centre = torch.rand(n, 2, 1, generator=g) * 10 + 9
    blob = torch.exp(-((place - centre) ** 2) / 30)
    return blob[:, 0, :, None].mul(blob[:, 1, None, :])[:, None]


def test_crop_is_a_window_of_the_padded_image() -> None:
    x = images(30, 2)
    out = crop_scale_rotate(x, torch_generator("crop"), ("crop",))
    mean = x.mean(dim=(0, 2, 3))
    offsets = set()
    for before, after in zip(x, out, strict=True):
        padded = mean[:, None, None].expand(2, 36, 36).clone()
        padded[:, 4:32, 4:32] = before
        found = [
            (a, b)
            for a in range(8)
            for b in range(8)
            if torch.allclose(padded[:, a : a + 28, b : b + 28], after, atol=1e-5)
        ]
        assert len(found) == 1
        offsets.add(found[0])
    assert len(offsets) > 10  # each image draws its own


def test_scale_is_nearest_neighbour_about_the_centre() -> None:
    x = images(12)
    out = crop_scale_rotate(x, torch_generator("scale"), ("scale",))
    for before, after in zip(x[:, 0], out[:, 0], strict=True):
        assert any(
            torch.equal(after, _resized(before, high, wide))
            for high in range(22, 34)
            for wide in range(22, 34)
        )


def _resized(x: torch.Tensor, high: int, wide: int) -> torch.Tensor:
    """One image resized by looking up the nearest pixel, then padded with 0 or cropped."""
    out = torch.zeros(28, 28)
    top, left = math.floor((28 - high) / 2), math.floor((28 - wide) / 2)
    for row in range(high):
        for column in range(wide):
            a, b = row + top, column + left
            if 0 <= a < 28 and 0 <= b < 28:
                source = (int((row + 0.5) * 28 / high), int((column + 0.5) * 28 / wide))
                out[a, b] = x[source]
    return out


def test_rotation_agrees_with_a_spline_on_smooth_images() -> None:
    x = smooth(40)
    fill = float(x.mean())
    out = crop_scale_rotate(x, torch_generator("rotate"), ("rotate",))
    angles = range(-45, 45)
    found = []
    for before, after in zip(x[:, 0].numpy(), out[:, 0].numpy(), strict=True):
        gaps = [
            np.abs(after - ndimage.rotate(before, angle, reshape=False, cval=fill)).mean()
            for angle in angles
        ]
        assert min(gaps) < 0.01
        found.append(angles[int(np.argmin(gaps))])
    assert min(found) < -35
    assert max(found) > 35


def test_each_image_meets_one_operation_and_draws_repeat() -> None:
    x = images(300)
    once = crop_scale_rotate(x, torch_generator("a"))
    assert torch.equal(once, crop_scale_rotate(x, torch_generator("a")))
    assert not torch.equal(once, crop_scale_rotate(x, torch_generator("b")))
    # three operations, equally likely: a scaled image is the only one with exact zeros or with
    # values of the original alone, so about a third is
    originals = [set(image.flatten().tolist()) | {0.0} for image in x]
    scaled = sum(
        set(image.flatten().tolist()) <= known for image, known in zip(once, originals, strict=True)
    )
    assert 60 < scaled < 140


def test_an_affine_draw_stays_within_its_limits_and_fills_with_what_it_is_told() -> None:
    dot = torch.zeros(200, 1, 29, 29)
    dot[:, :, 14, 14] = 1
    moved = random_affine(
        dot - 3, torch_generator("a"), degrees=0, scale=0, shear=0, pixels=2, fill=-3.0
    )
    assert torch.equal(moved[:, 0, 0, 0], torch.full((200,), -3.0))
    places = torch.arange(29.0)
    down = ((moved + 3).sum(3)[:, 0] * places).sum(1)
    right = ((moved + 3).sum(2)[:, 0] * places).sum(1)
    for centre in (down, right):
        assert (centre - 14).abs().max() <= 2.01
        assert (centre - 14).abs().max() > 1.8
    still = random_affine(images(), torch_generator(1), degrees=0, scale=0, shear=0, pixels=0)
    torch.testing.assert_close(still, images(), atol=1e-5, rtol=1e-5)
    line = torch.zeros(50, 1, 29, 29)
    line[:, :, 14] = 1
    turned = random_affine(line, torch_generator("b"), scale=0, shear=0, pixels=0)[:, 0]
    tilt = (turned[:, :, 24] * places).sum(1) / turned[:, :, 24].sum(1) - 14
    assert 1.0 < tilt.abs().max() <= 10 * math.tan(math.radians(10)) + 0.1


def test_unknown_operation_of_protocol_p() -> None:
    with pytest.raises(UserError, match=r"'shear'"):
        crop_scale_rotate(images(2), torch_generator("x"), ("shear",))


@pytest.mark.parametrize("operation", DSA_OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_siamese_draw_treats_all_images_alike(operation: str, channels: int) -> None:
    params = draw_dsa(torch_generator("siamese", operation), (operation,))
    x = images(5, channels)
    out = apply_dsa(x, params)
    assert torch.equal(out, apply_dsa(x.clone(), params))
    alone = torch.cat([apply_dsa(image[None], params) for image in x])
    torch.testing.assert_close(out, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operation", DSA_OPERATIONS)
def test_one_draw_per_image_is_many_siamese_draws(operation: str) -> None:
    x = images(9, 3)
    params = draw_dsa(torch_generator("each", operation), (operation,), len(x))
    out = apply_dsa(x, params)
    for index in range(len(x)):
        row = DSAParams(operation, {k: v[index : index + 1] for k, v in params.values.items()})
        torch.testing.assert_close(out[index : index + 1], apply_dsa(x[index : index + 1], row))
    assert not torch.equal(out, x)


@pytest.mark.parametrize("operation", DSA_OPERATIONS)
@pytest.mark.parametrize("siamese", [True, False])
def test_differentiable(operation: str, siamese: bool) -> None:
    x = images(3, 2, 8).double().requires_grad_()
    params = draw_dsa(torch_generator("grad", operation), (operation,), 1 if siamese else 3)
    values = {k: v.double() for k, v in params.values.items()}
    assert torch.autograd.gradcheck(lambda y: apply_dsa(y, DSAParams(operation, values)), (x,))


def test_saturation_of_one_channel_is_the_identity() -> None:
    grey, coloured = images(4, 1), images(4, 3)
    factor = torch.tensor([0.0, 0.5, 1.5, 2.0]).view(-1, 1, 1, 1)
    assert torch.equal(saturate(grey, factor), grey)
    assert not torch.allclose(saturate(coloured, factor), coloured)
    flat = saturate(coloured, torch.zeros(1, 1, 1, 1))
    torch.testing.assert_close(flat, coloured.mean(dim=1, keepdim=True).expand_as(flat))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([8, 28, 32]))
def test_dsa_geometry(seed: int, side: int) -> None:
    x = images(6, 1, side) + 10  # so that 0 means "filled in"
    crop = apply_dsa(x, draw_dsa(torch_generator("crop", seed), ("crop",), 6))
    reach = round(0.125 * side)
    for before, after in zip(x[:, 0], crop[:, 0], strict=True):
        assert _is_shift(before, after, reach)
    cutout = apply_dsa(x, draw_dsa(torch_generator("cutout", seed), ("cutout",), 6))
    for hole in (cutout == 0)[:, 0]:
        rows, columns = hole.any(1), hole.any(0)
        assert torch.equal(hole, rows[:, None] & columns)  # one rectangle
        for span in (rows, columns):
            assert side // 4 <= int(span.sum()) <= side // 2
            assert int(span.int().diff().abs().sum()) <= 2  # without gaps
    kept = cutout != 0
    assert torch.equal(cutout[kept], x[kept])
    flip = apply_dsa(x, draw_dsa(torch_generator("flip", seed), ("flip",), 6))
    for before, after in zip(x, flip, strict=True):
        assert torch.equal(after, before) or torch.equal(after, before.flip(2))


def _is_shift(before: torch.Tensor, after: torch.Tensor, reach: int) -> bool:
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            moved = torch.zeros_like(before)
            a, b = max(0, down), max(0, right)
            c, d = max(0, -down), max(0, -right)
            h, w = before.shape[0] - abs(down), before.shape[1] - abs(right)
            moved[c : c + h, d : d + w] = before[a : a + h, b : b + w]
            if torch.equal(moved, after):
                return True
    return False


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"degrees": 0.0}, lambda x: x),
        ({"x": 1.0, "y": 1.0}, lambda x: x),
        ({"brightness": 0.25, "saturation": 1.0, "contrast": 1.0}, lambda x: x + 0.25),
        (
            {"brightness": 0.0, "saturation": 1.0, "contrast": 0.5},
            lambda x: 0.5 * x + 0.5 * x.mean(dim=(1, 2, 3), keepdim=True),
        ),
    ],
)
def test_known_parameters(
    values: dict[str, float], expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    operation = {"degrees": "rotate", "x": "scale", "brightness": "color"}[next(iter(values))]
    x = images(3, 3)
    params = DSAParams(operation, {name: torch.tensor([value]) for name, value in values.items()})
    torch.testing.assert_close(apply_dsa(x, params), expected(x), rtol=1e-4, atol=1e-4)


def test_draws_stay_in_range_and_reach_its_ends() -> None:
    g = torch_generator("range")
    scale = draw_dsa(g, ("scale",), 4000).values["x"]
    degrees = draw_dsa(g, ("rotate",), 4000).values["degrees"]
    for values, low, high in ((scale, 1 / 1.2, 1.2), (degrees, -15, 15)):
        assert low <= float(values.min()) < low + 0.01 * (high - low)
        assert high >= float(values.max()) > high - 0.01 * (high - low)
    seen = {draw_dsa(g, DSA_OPERATIONS).operation for _ in range(200)}
    assert seen == set(DSA_OPERATIONS)


def test_unknown_operation_of_dsa() -> None:
    with pytest.raises(UserError, match=r"Did you mean 'cutout'"):
        draw_dsa(torch_generator("x"), ("cutouts",))
