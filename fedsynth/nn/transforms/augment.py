"""Augmentations of the evaluation protocols, as batched tensor code.

`crop_scale_rotate` picks one of three operations for every image (protocol P), `random_affine`
combines all of them, mildly and continuously (protocol S).
`draw` and `apply` are differentiable siamese augmentation, DSA (protocol D): one operation a
batch, with parameters per image when a classifier is trained, or one draw for a whole batch
(siamese), so that real and synthetic images meet the same transformation; `apply` is
differentiable in the images. All randomness comes from the generator that is passed, always drawn
on the CPU, so that devices agree.

Against the published code of protocol P: crop and scale are exact (scale is nearest neighbour with
pixel centres aligned), rotation is bilinear where the original uses a cubic spline, about the
centre of the image in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import unknown
from fedsynth.core.types import DatasetInfo

PAD = 4  # of protocol P's crop
NO_FLIP_DATASETS = ("mnist",)  # a mirrored digit is another sign
DSA_OPERATIONS = ("color", "crop", "cutout", "flip", "scale", "rotate")


def _integers(
    generator: torch.Generator, low: int, high: int, shape: Sequence[int]
) -> torch.Tensor:
    """Integers from low to high, both included."""
    return torch.randint(low, high + 1, tuple(shape), generator=generator)


def _uniform(generator: torch.Generator, low: float, high: float, n: int) -> torch.Tensor:
    return torch.rand(n, generator=generator) * (high - low) + low


def _take(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """out[i, :, a, b] = x[i, :, rows[i, a], columns[i, b]], and 0 where an index is outside."""
    n, channels, height, width = x.shape
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[
        :, None, :
    ]
    flat = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    index = flat.reshape(n, 1, -1).expand(-1, channels, -1)
    taken = x.reshape(n, channels, -1).gather(2, index)
    return taken.reshape(n, channels, rows.shape[1], columns.shape[1]) * inside[:, None]


def _affine(
    x: torch.Tensor, matrices: torch.Tensor, moved: torch.Tensor | None = None
) -> torch.Tensor:
    """Sample each image bilinearly through its 2x2 matrix about the centre, moved by a vector
    (half an image is 1); 0 outside."""
    moved = torch.zeros(len(matrices), 2) if moved is None else moved
    theta = torch.cat([matrices, moved[:, :, None]], dim=2).to(x)
    if len(theta) == 1:
        theta = theta.expand(len(x), -1, -1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def _rotation(degrees: torch.Tensor) -> torch.Tensor:
    angle = degrees * (math.pi / 180)
    first = torch.stack([angle.cos(), -angle.sin()], dim=1)
    second = torch.stack([angle.sin(), angle.cos()], dim=1)
    return torch.stack([first, second], dim=1)


def _resized_index(sizes: torch.Tensor, side: int) -> torch.Tensor:
    """Source index of each of `side` pixels when an axis is resized (nearest neighbour) to
    `sizes[i]` and then padded or cropped about the centre; -1 where that shows padding."""
    offset = torch.div(side - sizes, 2, rounding_mode="floor")[:, None]
    place = torch.arange(side)[None, :] - offset
    source = torch.div((2 * place + 1) * side, 2 * sizes[:, None], rounding_mode="floor")
    return torch.where((place >= 0) & (place < sizes[:, None]), source, -1)


def crop_scale_rotate(
    x: torch.Tensor,
    generator: torch.Generator,
    strategy: Sequence[str] = ("crop", "scale", "rotate"),
) -> torch.Tensor:
    """Protocol P: every image meets one operation of `strategy`, each as likely as the others.

    crop: padded by 4 with the batch's channel mean, shifted by 0..7 both ways; scale: height and
    width each 0.8 to 1.2 of what they were, centred, 0 around; rotate: -45 to 44 whole degrees,
    channel mean around.
    """
    n, _, height, width = x.shape
    fill = x.mean(dim=(0, 2, 3), keepdim=True)
    choice = _integers(generator, 0, len(strategy) - 1, (n,))
    out = x.clone()
    for number, name in enumerate(strategy):
        chosen = (choice == number).nonzero().squeeze(1)
        count = len(chosen)
        if not count:
            continue
        part = x[chosen.to(x.device)]
        if name == "crop":
            shift = _integers(generator, 0, 2 * PAD - 1, (count, 2, 1)) - PAD
            rows, columns = shift[:, 0] + torch.arange(height), shift[:, 1] + torch.arange(width)
            part = _take(part - fill, rows.to(x.device), columns.to(x.device)) + fill
        elif name == "scale":
            high = (_uniform(generator, 0.8, 1.2, count) * height).long()
            wide = (_uniform(generator, 0.8, 1.2, count) * width).long()
            rows, columns = _resized_index(high, height), _resized_index(wide, width)
            part = _take(part, rows.to(x.device), columns.to(x.device))
        elif name == "rotate":
            degrees = _integers(generator, -45, 44, (count,)).float()
            part = _affine(part - fill, _rotation(degrees)) + fill
        else:
            raise unknown("augmentation", name, ("crop", "scale", "rotate"))
        out[chosen.to(x.device)] = part
    return out


def random_affine(
    x: torch.Tensor,
    generator: torch.Generator,
    *,
    degrees: float = 10.0,
    scale: float = 0.1,
    shear: float = 0.1,
    pixels: float = 2.0,
    fill: float = 0.0,
) -> torch.Tensor:
    """Each image turned, stretched along both axes, sheared and moved by at most this much;
    bilinear, with `fill` around."""
    n = len(x)
    stretch = torch.stack([_uniform(generator, 1 - scale, 1 + scale, n) for _ in range(2)], dim=1)
    slant = torch.eye(2).repeat(n, 1, 1)
    slant[:, 0, 1] = _uniform(generator, -shear, shear, n)
    turn = _rotation(_uniform(generator, -degrees, degrees, n))
    reach = 2 * pixels / x.shape[-1]
    moved = torch.stack([_uniform(generator, -reach, reach, n) for _ in range(2)], dim=1)
    return _affine(x - fill, turn @ slant @ torch.diag_embed(stretch), moved) + fill


@dataclass(frozen=True)
class Params:
    """One draw of DSA: an operation and its numbers, one row for a siamese draw, else one row per
    image. Shifts and positions are fractions of the image, so a draw fits any size."""

    operation: str
    values: Mapping[str, torch.Tensor]


def draw(generator: torch.Generator, strategy: Sequence[str], images: int = 1) -> Params:
    """Draw one operation of `strategy` and its parameters: for `images` images, or once for a
    whole batch whatever its size (siamese, images=1)."""
    operation = strategy[int(_integers(generator, 0, len(strategy) - 1, (1,)))]
    if operation not in DSA_OPERATIONS:
        raise unknown("augmentation", operation, DSA_OPERATIONS)

    def between(low: float, high: float) -> torch.Tensor:
        return _uniform(generator, low, high, images)

    if operation == "color":
        values = {
            "brightness": between(-0.5, 0.5),
            "saturation": between(0, 2),
            "contrast": between(0.5, 1.5),
        }
    elif operation in ("crop", "cutout"):
        values = {"down": between(0, 1), "right": between(0, 1)}
    elif operation == "flip":
        values = {"flip": between(0, 1)}
    elif operation == "scale":
        values = {"x": between(1 / 1.2, 1.2), "y": between(1 / 1.2, 1.2)}
    else:
        values = {"degrees": between(-15, 15)}
    return Params(operation, values)


def apply(x: torch.Tensor, params: Params) -> torch.Tensor:
    """The images under one draw; differentiable in `x`."""
    values = params.values
    if params.operation == "color":
        return _color(x, values)
    if params.operation == "crop":
        return _shift(x, values)
    if params.operation == "cutout":
        return _cutout(x, values)
    if params.operation == "flip":
        flipped = (values["flip"] < 0.5).to(x.device).view(-1, 1, 1, 1)
        return torch.where(flipped, x.flip(3), x)
    if params.operation == "scale":
        return _affine(x, torch.diag_embed(torch.stack([values["x"], values["y"]], dim=1)))
    return _affine(x, _rotation(values["degrees"]))


def _color(x: torch.Tensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Brightness, saturation and contrast, in this order."""
    brightness, saturation, contrast = (
        values[name].to(x).view(-1, 1, 1, 1) for name in ("brightness", "saturation", "contrast")
    )
    x = saturate(x + brightness, saturation)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return (x - mean) * contrast + mean


def saturate(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Distance of each channel from the grey of its pixel, times `factor`; a grey image has one
    channel and is returned as it is."""
    if x.shape[1] == 1:
        return x
    grey = x.mean(dim=1, keepdim=True)
    return (x - grey) * factor + grey


def _span(fraction: torch.Tensor, count: int) -> torch.Tensor:
    """A fraction of [0, 1) as one of `count` whole numbers, all equally likely."""
    return (fraction * count).long().clamp(max=count - 1)


def _shift(x: torch.Tensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Whole-pixel shift of at most an eighth of the size each way, 0 where nothing was."""
    height, width = x.shape[2:]
    reach = (round(0.125 * height), round(0.125 * width))
    down = _span(values["down"], 2 * reach[0] + 1) - reach[0]
    right = _span(values["right"], 2 * reach[1] + 1) - reach[1]
    if len(down) == 1:
        top, left = int(down), int(right)
        return functional.pad(x, (-left, left, -top, top))
    rows, columns = down[:, None] + torch.arange(height), right[:, None] + torch.arange(width)
    return _take(x, rows.to(x.device), columns.to(x.device))


def _cutout(x: torch.Tensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A square of half the size set to 0, its centre anywhere in the image."""
    sides = x.shape[2:]
    masks = []
    for fraction, side in zip((values["down"], values["right"]), sides, strict=True):
        hole = int(side * 0.5 + 0.5)
        start = _span(fraction, side + 1 - hole % 2) - hole // 2
        place = torch.arange(side)[None, :] - start[:, None]
        masks.append((place >= 0) & (place < hole))
    keep = ~(masks[0][:, None, :, None] & masks[1][:, None, None, :])
    return x * keep.to(x)


def dsa_operations(info: DatasetInfo) -> tuple[str, ...]:
    """The operations that DSA draws from for this data set; none for tables."""
    if info.kind == DataKind.TABLE:
        return ()
    plain = ("color", "crop", "cutout", "scale", "rotate")
    return plain if info.name in NO_FLIP_DATASETS else (*plain, "flip")
