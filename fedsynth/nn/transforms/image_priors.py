"""What a person knows about a kind of picture, as a prior: it makes blurred samples look real.

No data enters: a prior is written by hand and draws from public randomness alone. It carries
knowledge of the kind of data all the same, so it has a name, can be swapped or left out, and a
result says which one it was made with. Images are [n, 1, side, side] on the pixel scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.core.errors import unknown

BRIGHTEST = 16  # pixels that set the intensity of a stroke
BRIGHTEST_OF_CLOTH = 60
PLAIN, STRONGEST = 0.1, 1.5  # share of cloth without a pattern; logarithm of the strongest one

Images = torch.Tensor


@dataclass(frozen=True)
class ImagePrior:
    """How bright samples are, and how they are made sharper or more varied."""

    name: str
    about: str
    intensity: Callable[[Images, torch.Tensor], Images]  # images, wanted norms -> images
    enrich: Callable[[Images, torch.Generator], Images]


def to_norm(images: Images, norms: torch.Tensor) -> Images:
    """Images of these L2 norms, as far as pixels in [0, 1] allow."""
    length = images.flatten(1).norm(dim=1).clamp_min(1e-6)
    return (images * (norms.to(images) / length).view(-1, 1, 1, 1)).clamp(0, 1)


def to_full_ink(images: Images, _norms: torch.Tensor) -> Images:
    """Images whose brightest pixels are white, whatever their norm."""
    brightest = images.flatten(1).topk(BRIGHTEST, dim=1).values.mean(1).clamp_min(1e-6)
    return (images / brightest.view(-1, 1, 1, 1)).clamp(0, 1)


def unchanged(images: Images, _generator: torch.Generator) -> Images:
    """The images as they are."""
    return images


def strokes(images: Images, generator: torch.Generator) -> Images:
    """Ink or paper: a soft threshold of random height and softness, which makes strokes thick or
    thin and their edges sharp."""
    height = _uniform(images, generator, 0.3, 0.6)
    softness = _uniform(images, generator, 0.15, 0.8)
    return ((images - height) / softness + 0.5).clamp(0, 1)


def pen(images: Images, generator: torch.Generator) -> Images:
    """Strokes by a threshold for one half of the images, and by their ridges for the other."""
    ridged = torch.rand(len(images), generator=generator) < 0.5
    made = strokes(images, generator)
    made[ridged] = strokes(ridges(images[ridged]), generator)
    return made


def ridges(images: Images) -> Images:
    """What stands out of its neighbourhood, as bright wherever it does: a line that a blur made
    faint in places comes out whole."""
    lines = (images - 0.6 * blurred(images, 3.0)).clamp_min(0)
    brightest = lines.flatten(1).topk(BRIGHTEST, dim=1).values.mean(1).clamp_min(1e-6)
    lines = lines / brightest.view(-1, 1, 1, 1)
    around = blurred(functional.max_pool2d(lines, 7, stride=1, padding=3), 1.5)
    return lines * 1.35 / (around + 0.35)


def blurred(images: Images, pixels: float) -> Images:
    """Grey images under a Gaussian of this deviation, black around."""
    reach = round(3 * pixels)
    place = torch.arange(-reach, reach + 1, device=images.device)
    weights = torch.exp(-(place**2) / (2 * pixels**2))
    weights = weights / weights.sum()
    rows = functional.conv2d(images, weights.view(1, 1, 1, -1), padding=(0, reach))
    return functional.conv2d(rows, weights.view(1, 1, -1, 1), padding=(reach, 0))


def textures(images: Images, generator: torch.Generator) -> Images:
    """Cloth: a crisp silhouette, a surface between flat and as bright as the sample was, and nearly
    always folds, grain or stripes over it, stronger than real ones: what learns from such images
    looks at outlines. Norms stay what they were."""
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
    """Logarithms of what multiplies a surface: nothing, or folds, grain or stripes."""
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
    """Each image bent: every point moves by a smooth random field of this deviation in pixels."""
    n, side = len(images), images.shape[-1]
    if not pixels or not n:
        return images
    moves = smooth_field(2 * n, side, cells, generator).view(n, 2, side, side).permute(0, 2, 3, 1)
    still = functional.affine_grid(
        torch.eye(2, 3).expand(n, 2, 3), list(images.shape), align_corners=False
    )
    grid = (still + moves * (2 * pixels / side)).to(images)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)


def _stripes(images: Images, generator: torch.Generator) -> Images:
    """Waves across, along or askew, two to ten of them."""
    n, side = len(images), images.shape[-1]
    turn = torch.randint(0, 3, (n, 1, 1), generator=generator)
    askew = torch.rand(n, 1, 1, generator=generator) * math.pi
    angle = torch.where(turn == 0, 0.0, torch.where(turn == 1, math.pi / 2, askew))
    waves = torch.rand(n, 1, 1, generator=generator) * 8 + 2
    phase = torch.rand(n, 1, 1, generator=generator) * 2 * math.pi
    place = torch.arange(side) / side
    along = place[None, None, :] * angle.cos() + place[None, :, None] * angle.sin()
    return (torch.sin(2 * math.pi * waves * along + phase) * 2**0.5)[:, None].to(images)


def _uniform(images: Images, generator: torch.Generator, low: float, high: float) -> torch.Tensor:
    """A number for each image, shaped to meet it."""
    values = torch.rand(len(images), 1, 1, 1, generator=generator) * (high - low) + low
    return values.to(images)


PRIORS: Mapping[str, ImagePrior] = {
    prior.name: prior
    for prior in (
        ImagePrior("none", "nothing is known", to_norm, unchanged),
        ImagePrior("strokes", "ink or paper: digits, letters, signs", to_full_ink, strokes),
        ImagePrior("pen", "drawn with one pen, whose line does not fade", to_full_ink, pen),
        ImagePrior(
            "textures", "things of one outline and many surfaces: clothes", to_norm, textures
        ),
    )
}


def prior(name: str) -> ImagePrior:
    """The prior of this name."""
    if name not in PRIORS:
        raise unknown("prior", name, PRIORS)
    return PRIORS[name]
