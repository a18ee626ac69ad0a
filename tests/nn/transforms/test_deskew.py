"""Slants: what a line leans, what is read off it, and that it can be taken out and put back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.nn.transforms.deskew import MAX_SLANT, shear, slants


def line(gradient: float) -> torch.Tensor:
    """A soft line through the middle that goes `gradient` columns right a row down."""
    rows = torch.arange(28.0)[:, None] - 13.5
    columns = torch.arange(28.0)[None, :] - 13.5
    ink = torch.exp(-((columns - gradient * rows) ** 2) / 2) * (rows.abs() < 9)
    return ink[None, None]


@given(st.floats(-0.7, 0.7))
@settings(max_examples=15, deadline=None)
def test_the_slant_of_a_line_is_its_slope_and_straightening_takes_it_out(gradient: float) -> None:
    leaning = line(gradient)
    found = slants(leaning)
    assert float(found) == pytest.approx(gradient, abs=0.02)
    upright = shear(leaning, -found)
    assert float(slants(upright).abs()) < 0.05
    back = shear(upright, found)
    assert float((back - leaning).abs().mean()) < 0.02


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_slants_are_bounded_finite_and_each_image_has_its_own(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = (torch.rand(5, 1, 28, 28, generator=generator) > 0.98).float()
    images[0] = 0
    found = slants(images)
    assert float(found[0]) == 0
    assert bool((found.abs() <= MAX_SLANT).all())
    torch.testing.assert_close(slants(images[2:4]), found[2:4])


def test_nothing_moves_without_a_slant() -> None:
    image = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(shear(image, torch.zeros(2)), image, atol=1e-5, rtol=0)
