"""Priors keep to the pixel scale, draw from their key alone, and do what their names say."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.nn.transforms.image_priors import PRIORS, elastic, find_prior, ridges, smooth_field


def blobs(n: int = 12) -> torch.Tensor:
    """Blurred spots of different brightness, and a black image at the end."""
    place = torch.arange(28.0)
    spot = torch.exp(-((place - 13) ** 2) / 40)
    level = torch.linspace(0.2, 1.0, n - 1)[:, None, None]
    return torch.cat([level * spot[:, None] * spot, torch.zeros(1, 28, 28)])[:, None]


@pytest.mark.parametrize("name", PRIORS)
def test_pictures_stay_on_the_pixel_scale_and_repeat(name: str) -> None:
    known = find_prior(name)
    norms = torch.full((12,), 9.0)
    bright = known.intensity(blobs(), norms)
    made = known.enrich(bright, torch_generator("a"))
    for images in (bright, made):
        assert torch.isfinite(images).all()
        assert images.min() >= 0
        assert images.max() <= 1
        assert (images[-1] == 0).all()
    assert torch.equal(made, known.enrich(bright, torch_generator("a")))
    assert torch.equal(made, known.enrich(bright, torch_generator("b"))) == (name == "none")


def test_intensity_is_the_wanted_norm_or_full_ink() -> None:
    images = blobs()[:-1]
    norms = torch.linspace(1.0, 4.0, 11)
    found = find_prior("textures").intensity(images, norms)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), norms)
    inked = find_prior("strokes").intensity(images, norms)
    assert (inked.flatten(1).topk(16, dim=1).values.mean(1) > 0.9).all()


def test_strokes_are_nearer_to_ink_or_paper_than_what_they_came_from() -> None:
    images = find_prior("strokes").intensity(blobs(), torch.ones(12))[:-1]
    made = find_prior("strokes").enrich(images, torch_generator(0))

    def grey(x: torch.Tensor) -> float:
        return float((x * (1 - x)).mean())

    assert grey(made) < 0.6 * grey(images)


def test_ridges_make_a_line_whole_that_fades() -> None:
    place = torch.arange(28.0)
    line = torch.exp(-((place - 14) ** 2) / 4)[:, None] * torch.linspace(1.0, 0.25, 28)
    line = line[None, None]
    before, after = (x[0, 0, 14, 3:25] for x in (line, ridges(line)))
    assert float(before.min() / before.max()) < 0.4
    assert float(after.min() / after.max()) > 0.55
    assert float(ridges(line)[0, 0, 4].max()) < 0.05


def test_bending_moves_points_by_about_what_was_asked() -> None:
    ramp = (torch.arange(28.0) / 28).expand(60, 1, 28, 28)
    bent = elastic(ramp, torch_generator(1), 0.8)
    moved = ((bent - ramp) * 28)[..., 4:-4, 4:-4]
    assert 0.6 < float(moved.std()) < 1.0
    assert torch.equal(elastic(ramp, torch_generator(1), 0.0), ramp)


def test_fields_are_smooth_and_of_unit_variance() -> None:
    field = smooth_field(200, 28, 5, torch_generator(2))
    assert float(field.std()) == pytest.approx(1.0, rel=1e-3)
    assert float((field[..., 1:] - field[..., :-1]).std()) < 0.3


def test_a_prior_nobody_knows() -> None:
    with pytest.raises(UserError, match=r"unknown prior 'stroke'. Did you mean 'strokes'"):
        find_prior("stroke")
