"""The sketch against its definition: contributions, their bound, and what comes back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedsynth.core import Budget, PartyFacts, Task
from fedsynth.data import datasets
from fedsynth.methods._directions import own_directions
from fedsynth.methods._lesson import sketched
from fedsynth.methods._sketch import ClassModel, Sketch, Spread
from fedsynth.methods._sketch_settings import Recipe, SketchTeachConfig
from fedsynth.models.dct import coefficients, images_of
from fedsynth.models.slant import sheared, slants


def decoded(sketch: Sketch, row: torch.Tensor, noise: float) -> ClassModel:
    """The class behind one sum, by its own moments."""
    moments = sketch.moments(row, side=28, noise=noise, at_least=1)
    return sketch.model(moments, own_directions(moments.covariance))


SHAPES = datasets.info("shapes").facts


@given(
    st.integers(0, 10_000),
    st.sampled_from(["noise", "black", "white", "dot", "faint"]),
    st.integers(2, 9),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_image_contributes_more_than_the_bound(
    seed: int, kind: str, frequencies: int, upright: bool, corner: bool
) -> None:
    sketch = Sketch(frequencies, upright, corner)
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(seed))
    if kind != "noise":
        image = torch.full_like(image, {"white": 1.0, "faint": 1 / 255}.get(kind, 0.0))
    if kind == "dot":
        image[0, 0, seed % 28, seed // 28 % 28] = 1.0
    assert abs(sketch.bound - (1.133 if upright else 1.128)) < 1e-3
    norm = float(sketch.contribution(image).double().norm())
    assert norm <= sketch.bound * (1 + 1e-6)
    if kind == "white" and not upright:
        assert norm == pytest.approx(sketch.bound, rel=1e-6)
    if kind == "black":
        assert norm == pytest.approx(0.05, rel=1e-6)


def test_a_contribution_is_what_the_words_say() -> None:
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    rows = Sketch(2).contribution(images)
    assert rows.shape == (3, Sketch(2).width)
    upright = Sketch(2, upright=True).contribution(images)
    assert upright.shape == (3, Sketch(2, upright=True).width)
    lean = slants(images)
    straight = Sketch(2).contribution(sheared(images, -lean))
    torch.testing.assert_close(upright[:, :14], straight[:, :14])
    torch.testing.assert_close(upright[:, 14:17], rows[:, 14:])
    torch.testing.assert_close(upright[:, 17:], torch.stack([0.1 * lean, 0.1 * lean**2], 1))
    for image, row in zip(images, rows, strict=True):
        low = coefficients(image[None], 2)[0]
        u = low / low.norm()
        products = [
            float(u[i] * u[j]) * (1 if i == j else math.sqrt(2))
            for i in range(4)
            for j in range(i, 4)
        ]
        t = float(image.norm()) / 28
        expected = [*(0.5 * u).tolist(), *products, 0.05, 0.1 * t, 0.1 * t * t]
        torch.testing.assert_close(row, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_without_noise_the_sketch_gives_the_moments_back() -> None:
    generator = torch.Generator().manual_seed(2)
    low = torch.zeros(400, 9)
    low[:, 0] = 4.0
    low[:, 1] = 2.0 * torch.randn(400, generator=generator)
    low[:, 4] = 1.0 * torch.randn(400, generator=generator)
    images = images_of(low, 28)
    sketch = Sketch(3)
    found = decoded(sketch, sketch.contribution(images).sum(0), noise=0.0)
    u = functional.normalize(low, dim=1)
    covariance = (u - u.mean(0)).T @ (u - u.mean(0)) / 400
    torch.testing.assert_close(found.mean, u.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.spread.T @ found.spread, covariance, rtol=1e-3, atol=1e-5)
    norms = images.flatten(1).norm(dim=1)
    assert found.norm.mean == pytest.approx(float(norms.mean()), rel=1e-4)
    drawn, _ = found.sample(3000, 28, generator)
    raw = images_of(found.mean + torch.randn(3000, len(found.spread)) @ found.spread, 28)
    assert (drawn >= 0).all()
    assert float((drawn.mean(0) - raw.clamp_min(0).mean(0)).abs().max()) < 0.02


def test_a_corner_is_the_block_without_its_higher_half() -> None:
    images = torch.rand(50, 1, 28, 28, generator=torch.Generator().manual_seed(6))
    corner = Sketch(5, corner=True)
    assert corner.places.tolist() == [5 * i + j for i in range(5) for j in range(5) if i + j < 5]
    assert corner.width == 15 + 120 + 3
    low = coefficients(images, 5)[:, corner.places]
    unit = functional.normalize(low, dim=1)
    torch.testing.assert_close(corner.contribution(images)[:, :15], 0.5 * unit)
    sums = corner.contribution(images).sum(0)
    found = decoded(corner, sums, noise=1e-6)
    outside = [place for place in range(25) if place not in corner.places.tolist()]
    assert not found.mean[outside].any()
    assert not found.spread[:, outside].any()
    torch.testing.assert_close(found.mean[corner.places], unit.mean(0), atol=1e-4, rtol=1e-3)
    inside = found.spread[:, corner.places]
    apart = unit - unit.mean(0)
    torch.testing.assert_close(inside.T @ inside, apart.T @ apart / 50, atol=1e-4, rtol=1e-2)


def test_the_slants_of_a_class_come_back_and_its_samples_lean_like_it() -> None:
    generator = torch.Generator().manual_seed(4)
    rows = torch.arange(28.0)[:, None] - 13.5
    bar = torch.exp(-((torch.arange(28.0)[None, :] - 13.5) ** 2) / 4) * (rows.abs() < 8)
    lean = Spread(0.25, 0.1).draw(300, generator)
    images = sheared(bar.expand(300, 1, 28, 28), lean)
    sketch = Sketch(8, upright=True)
    found = decoded(sketch, sketch.contribution(images).sum(0), noise=1e-3)
    assert found.slant.mean == pytest.approx(0.25, abs=0.03)
    assert found.slant.deviation == pytest.approx(0.1, rel=0.2)
    drawn, _ = found.sample(300, 28, generator)
    assert float(slants(drawn).mean()) == pytest.approx(0.25, abs=0.05)
    assert float(slants(drawn).std()) == pytest.approx(0.1, rel=0.4)


def test_noise_alone_has_no_components_and_signal_keeps_its_size() -> None:
    """One direction of variance 0.25 under noise that drowns everything but it."""
    k, n, noise = 8, 1000.0, 8.0
    size = k * k
    direction = functional.normalize(torch.ones(size), dim=0)
    rows, columns = torch.triu_indices(size, size)
    weights = torch.where(rows == columns, 1.0, math.sqrt(2))
    sizes = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        for variance in (0.0, 0.25):
            moment = variance * torch.outer(direction, direction)
            clean = [torch.zeros(size), moment[rows, columns] * weights, torch.tensor([0.05, 0, 0])]
            noised = n * torch.cat(clean)
            noised += noise * torch.randn(noised.shape, generator=generator)
            noised[-3] = n * 0.05
            found = decoded(Sketch(k), noised, noise=noise)
            if variance:
                assert len(found.spread) >= 1
                sizes.append(float(found.spread.square().sum(1).max()))
            else:
                assert len(found.spread) <= 1
    assert sum(sizes) / len(sizes) == pytest.approx(0.25, rel=0.1)


def test_a_class_that_is_all_noise_still_gives_finite_images() -> None:
    held = (4, 0, 7)
    alone = Task(SHAPES, 0, 1, (PartyFacts(0, 30, dict.fromkeys(held, 10)),), held, held)
    recipe = Recipe.of(SketchTeachConfig(), alone, Budget(0.01, 1e-5), 30)
    sums = 30 * torch.randn(3, recipe.sketch.width, generator=torch.Generator().manual_seed(0))
    models = sketched(sums, held, recipe, SHAPES, noise=30.0, records=30)
    assert list(models) == [4, 0, 7]
    for model in models.values():
        images, norms = model.sample(20, 28, torch.Generator().manual_seed(1))
        assert torch.isfinite(images).all()
        assert (norms > 0).all()
