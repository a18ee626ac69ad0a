"""Hand-written priors on a kind of image, which sharpen and vary blurred samples.

Claim: a prior costs no privacy. Assumption: it uses only its input and public randomness, and was
chosen without looking at the records. Consequence: it still carries knowledge about the kind of
data, so it has a name, can be exchanged or left out, and each result states which one was used.
Images are [n, 1, side, side] in the pixel scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.core.errors import unknown

BRIGHTEST = 16  # pixels whose mean is the intensity of a stroke
BRIGHTEST_OF_CLOTH = 60  # pixels whose mean is the intensity of a surface
PLAIN, STRONGEST = 0.1, 1.5  # share of surfaces without a pattern; largest log-intensity of one

Images = torch.Tensor


@dataclass(frozen=True)
class ImagePrior:
    """The brightness of samples, and a random transform that makes them sharper or more varied."""

    name: str
    about: str
    intensity: Callable[[Images, torch.Tensor], Images]  # images, target norms -> images
    enrich: Callable[[Images, torch.Generator], Images]


def to_norm(images: Images, norms: torch.Tensor) -> Images:
    """The images scaled to these L2 norms, as far as pixels in [0, 1] allow."""
    length = images.flatten(1).norm(dim=1).clamp_min(1e-6)
    return (images * (norms.to(images) / length).view(-1, 1, 1, 1)).clamp(0, 1)


def to_full_intensity(images: Images, _norms: torch.Tensor) -> Images:
    """The images scaled so that their brightest pixels are white; norms are ignored."""
    brightest = images.flatten(1).topk(BRIGHTEST, dim=1).values.mean(1).clamp_min(1e-6)
    return (images / brightest.view(-1, 1, 1, 1)).clamp(0, 1)


def unchanged(images: Images, _generator: torch.Generator) -> Images:
    """The images as they are."""
    return images


def strokes(images: Images, generator: torch.Generator) -> Images:
    """A soft threshold of random height and softness: strokes thick or thin, with sharp edges."""
    height = _uniform(images, generator, 0.3, 0.6)
    softness = _uniform(images, generator, 0.15, 0.8)
    return ((images - height) / softness + 0.5).clamp(0, 1)


def pen(images: Images, generator: torch.Generator) -> Images:
    """`strokes` of the images for a random half of them, and of their ridges for the others."""
    ridged = torch.rand(len(images), generator=generator) < 0.5
    drawn = strokes(images, generator)
    drawn[ridged] = strokes(ridges(images[ridged]), generator)
    return drawn


def ridges(images: Images) -> Images:
    """Lines that are brighter than their neighbourhood, at even intensity.

    A line that a blur made faint in places becomes continuous."""
    lines = (images - 0.6 * blurred(images, 3.0)).clamp_min(0)
    brightest = lines.flatten(1).topk(BRIGHTEST, dim=1).values.mean(1).clamp_min(1e-6)
    lines = lines / brightest.view(-1, 1, 1, 1)
    around = blurred(functional.max_pool2d(lines, 7, stride=1, padding=3), 1.5)
    return lines * 1.35 / (around + 0.35)


def blurred(images: Images, pixels: float) -> Images:
    """Grey images convolved with a Gaussian of this standard deviation, black outside."""
    radius = round(3 * pixels)
    offsets = torch.arange(-radius, radius + 1, device=images.device)
    weights = torch.exp(-(offsets**2) / (2 * pixels**2))
    weights = weights / weights.sum()
    rows = functional.conv2d(images, weights.view(1, 1, 1, -1), padding=(0, radius))
    return functional.conv2d(rows, weights.view(1, 1, -1, 1), padding=(radius, 0))


def textures(images: Images, generator: torch.Generator) -> Images:
    """A sharp silhouette with a random surface, flat to detailed.

    Most surfaces have folds, grain or stripes, stronger than real ones, so that a classifier learns
    outlines. Norms are unchanged."""
    norms = images.flatten(1).norm(dim=1)
    images = images + _uniform(images, generator, 0.0, 3.0) * (images - blurred(images, 2.0))
    images = images.clamp_min(0)
    brightest = images.flatten(1).topk(BRIGHTEST_OF_CLOTH, dim=1).values.mean(1).clamp_min(1e-6)
    bright = images / brightest.view(-1, 1, 1, 1)
    height = _uniform(images, generator, 0.2, 0.45)
    softness = _uniform(images, generator, 0.05, 0.3)
    mask = ((bright - height) / softness + 0.5).clamp(0, 1)
    surface = bright.clamp(1e-3, 1.3) ** _uniform(images, generator, 0.0, 1.0)
    return to_norm(mask * surface * torch.exp(_pattern(images, generator)), norms)


def _pattern(images: Images, generator: torch.Generator) -> Images:
    """Log-factors of a surface: zero, folds, grain or stripes."""
    n, side = len(images), images.shape[-1]
    kinds = torch.randint(0, 3, (n, 1, 1, 1), generator=generator).to(images.device)
    folds = smooth_field(n, side, 6, generator).to(images)
    grain = smooth_field(n, side, side // 2, generator).to(images)
    stripes = _stripes(images, generator)
    chosen = torch.where(kinds == 0, folds, torch.where(kinds == 1, grain, stripes))
    patterned = _uniform(images, generator, 0.0, 1.0) > PLAIN
    return patterned * _uniform(images, generator, 0.0, STRONGEST) * chosen


def smooth_field(n: int, side: int, cells: int, generator: torch.Generator) -> torch.Tensor:
    """Random fields [n, 1, side, side] of unit variance that vary over side / cells pixels."""
    coarse = torch.randn(n, 1, cells, cells, generator=generator)
    field = functional.interpolate(coarse, (side, side), mode="bicubic", align_corners=True)
    return field / field.std().clamp_min(1e-6)


def elastic(images: Images, generator: torch.Generator, pixels: float, cells: int = 6) -> Images:
    """Elastic distortion: points move by a smooth random field of this deviation in pixels."""
    n, side = len(images), images.shape[-1]
    if not pixels or not n:
        return images
    shifts = smooth_field(2 * n, side, cells, generator).view(n, 2, side, side).permute(0, 2, 3, 1)
    identity = functional.affine_grid(
        torch.eye(2, 3).expand(n, 2, 3), list(images.shape), align_corners=False
    )
    grid = (identity + shifts * (2 * pixels / side)).to(images)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


def _stripes(images: Images, generator: torch.Generator) -> Images:
    """Two to ten waves: horizontal, vertical or oblique."""
    n, side = len(images), images.shape[-1]
    turn = torch.randint(0, 3, (n, 1, 1), generator=generator)
    oblique = torch.rand(n, 1, 1, generator=generator) * math.pi
    angle = torch.where(turn == 0, 0.0, torch.where(turn == 1, math.pi / 2, oblique))
    waves = torch.rand(n, 1, 1, generator=generator) * 8 + 2
    phase = torch.rand(n, 1, 1, generator=generator) * 2 * math.pi
    position = torch.arange(side) / side
    along = position[None, None, :] * angle.cos() + position[None, :, None] * angle.sin()
    return (torch.sin(2 * math.pi * waves * along + phase) * 2**0.5)[:, None].to(images)


def _uniform(images: Images, generator: torch.Generator, low: float, high: float) -> torch.Tensor:
    """One uniform number per image, shaped for broadcasting."""
    values = torch.rand(len(images), 1, 1, 1, generator=generator) * (high - low) + low
    return values.to(images)


PRIORS: Mapping[str, ImagePrior] = {
    prior.name: prior
    for prior in (
        ImagePrior("none", "no assumption", to_norm, unchanged),
        ImagePrior("strokes", "ink on paper: digits, letters, signs", to_full_intensity, strokes),
        ImagePrior("pen", "drawn with one pen of even intensity", to_full_intensity, pen),
        ImagePrior(
            "textures", "objects of one outline and many surfaces: clothes", to_norm, textures
        ),
    )
}


def find_prior(name: str) -> ImagePrior:
    """The prior of this name; a UserError for an unknown name."""
    if name not in PRIORS:
        raise unknown("prior", name, PRIORS)
    return PRIORS[name]
