"""Tests of points against their definition, and of images rendered from points."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedsynth.methods.sketch_teach.representation import MIN_RELATIVE_NORM, Sketch
from fedsynth.nn.transforms.dct import dct
from fedsynth.nn.transforms.deskew import MAX_SLANT, shear, slants


@given(
    st.integers(0, 10_000),
    st.sampled_from(["noise", "black", "white", "dot", "faint"]),
    st.integers(2, 9),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_point_exceeds_the_max_norm(
    seed: int, kind: str, frequencies: int, deskew: bool, triangle: bool
) -> None:
    sketch = Sketch(frequencies, deskew, triangle)
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(seed))
    if kind != "noise":
        image = torch.full_like(image, {"white": 1.0, "faint": 1 / 255}.get(kind, 0.0))
    if kind == "dot":
        image[0, 0, seed % 28, seed // 28 % 28] = 1.0
    assert abs(sketch.max_norm - (1.188 if deskew else 1.118)) < 1e-3
    points = sketch.points(image)
    assert points.shape == (1, sketch.width)
    norm = float(points.double().norm())
    assert norm <= sketch.max_norm * (1 + 1e-6)
    if kind == "white" and not deskew:
        assert norm == pytest.approx(sketch.max_norm, rel=1e-6)
    if kind == "black":
        assert norm == 0


def test_a_point_follows_its_definition() -> None:
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    rows = Sketch(2).points(images)
    deskew = Sketch(2, deskew=True).points(images)
    lean = slants(images)
    straight = Sketch(2).points(shear(images, -lean))
    torch.testing.assert_close(deskew[:, :4], straight[:, :4])
    torch.testing.assert_close(deskew[:, 4], rows[:, 4])
    torch.testing.assert_close(deskew[:, 5], 0.5 * lean)
    for image, row in zip(images, rows, strict=True):
        low = dct(image[None], 2)[0]
        expected = [*(low / low.norm()).tolist(), 0.5 * float(image.norm()) / 28]
        torch.testing.assert_close(row, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_a_triangle_has_the_lower_half_of_the_block() -> None:
    images = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(6))
    triangle = Sketch(5, triangle=True)
    assert triangle.coefficients.tolist() == [
        5 * i + j for i in range(5) for j in range(5) if i + j < 5
    ]
    assert triangle.width == 15 + 1
    low = dct(images, 5)[:, triangle.coefficients]
    torch.testing.assert_close(triangle.points(images)[:, :15], functional.normalize(low, dim=1))


@pytest.mark.parametrize("deskew", [False, True])
def test_images_are_recovered_from_points_up_to_their_intensity(deskew: bool) -> None:
    rows = torch.arange(28.0)[:, None] - 13.5
    bar = torch.exp(-((torch.arange(28.0)[None, :] - 13.5) ** 2) / 8 - rows**2 / 60)
    images = shear(0.7 * bar.expand(4, 1, 28, 28), torch.tensor([-0.4, 0.0, 0.2, 0.5]))
    sketch = Sketch(28, deskew)
    render, norms = sketch.render(sketch.points(images), 28)
    torch.testing.assert_close(norms, images.flatten(1).norm(dim=1), rtol=1e-4, atol=1e-4)
    wanted = functional.normalize(images.flatten(1), dim=1)
    found = functional.normalize(render.flatten(1), dim=1)
    assert float((wanted * found).sum(1).min()) > 0.98


def test_rendered_images_are_not_negative_and_have_a_minimal_norm() -> None:
    sketch = Sketch(6, deskew=True)
    points = torch.randn(50, sketch.width, generator=torch.Generator().manual_seed(2))
    points[:, -2] = torch.linspace(-0.2, 0.6, 50)
    images, norms = sketch.render(points, 28)
    assert images.shape == (50, 1, 28, 28)
    assert (images >= 0).all()
    mean = 28 / 0.5 * float(points[:, -2].mean())
    assert float(norms.min()) == pytest.approx(MIN_RELATIVE_NORM * mean, rel=1e-5)


def test_shape_variance_is_the_mean_squared_distance_from_the_mean() -> None:
    images = torch.rand(40, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    sketch = Sketch(7, deskew=True, triangle=True)
    points = sketch.points(images).double()
    shapes = points[:, : len(sketch.coefficients)]
    apart = (shapes - shapes.mean(0)).square().sum(1).mean()
    (shape_variance,) = sketch.shape_variance(points.mean(0, keepdim=True))
    assert float(shape_variance) == pytest.approx(float(apart), abs=1e-6)
    assert math.isclose(sketch.max_norm**2, 1 + 0.25 + (0.5 * MAX_SLANT) ** 2)
