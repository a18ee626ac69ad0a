"""Augmentations of the evaluation protocols, as batched tensor code.

`crop_scale_rotate` applies one of three operations to each image (protocol P); `random_affine`
combines small random rotations, stretches, shears and shifts (protocol S). `draw_dsa` and
`apply_dsa` are differentiable siamese augmentation (protocol D): one operation per batch, with
parameters per image when a classifier is trained, or shared by a whole batch (siamese), so that
real and synthetic images undergo the same transform; `apply_dsa` is differentiable in the images.
All randomness comes from the generator that is passed, on the CPU, so that devices agree.

Compared with the published code of protocol P, crop and scale are exact (scale is nearest neighbour
with pixel centres aligned) and rotation is bilinear where the original uses a cubic spline.
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

PAD = 4  # of the crop of protocol P
NO_FLIP_DATASETS = ("mnist",)  # a mirrored digit is another symbol
DSA_OPERATIONS = ("color", "crop", "cutout", "flip", "scale", "rotate")


def _integers(
    generator: torch.Generator, low: int, high: int, shape: Sequence[int]
) -> torch.Tensor:
    """Random integers from low to high, both included."""
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
    """Sample each image bilinearly at an affine map of its coordinates; 0 outside.

    The 2x2 matrices act about the centre; shifts are in units of half an image."""
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
    position = torch.arange(side)[None, :] - offset
    source = torch.div((2 * position + 1) * side, 2 * sizes[:, None], rounding_mode="floor")
    return torch.where((position >= 0) & (position < sizes[:, None]), source, -1)


def crop_scale_rotate(
    x: torch.Tensor,
    generator: torch.Generator,
    strategy: Sequence[str] = ("crop", "scale", "rotate"),
) -> torch.Tensor:
    """Protocol P: one operation of `strategy` per image, all equally likely.

    crop: padded by 4 with the channel means of the batch, shifted by 0..7 in both directions;
    scale: height and width each by 0.8 to 1.2, centred, 0 outside; rotate: by -45 to 44 whole
    degrees, channel means outside.
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
    fill: float | torch.Tensor = 0.0,
) -> torch.Tensor:
    """Each image rotated, stretched along both axes, sheared and shifted by at most these amounts;
    bilinear, with `fill` outside."""
    n = len(x)
    stretch = torch.stack([_uniform(generator, 1 - scale, 1 + scale, n) for _ in range(2)], dim=1)
    slant = torch.eye(2).repeat(n, 1, 1)
    slant[:, 0, 1] = _uniform(generator, -shear, shear, n)
    turn = _rotation(_uniform(generator, -degrees, degrees, n))
    limit = 2 * pixels / x.shape[-1]
    moved = torch.stack([_uniform(generator, -limit, limit, n) for _ in range(2)], dim=1)
    return _affine(x - fill, turn @ slant @ torch.diag_embed(stretch), moved) + fill


@dataclass(frozen=True)
class DSAParams:
    """One draw of DSA: an operation and its parameters, one row per image or one for all (siamese).

    Shifts and positions are fractions of the image, so a draw fits any size."""

    operation: str
    values: Mapping[str, torch.Tensor]


def draw_dsa(generator: torch.Generator, strategy: Sequence[str], images: int = 1) -> DSAParams:
    """Draw one operation of `strategy` and its parameters.

    Args:
        generator: Determines the draw.
        strategy: Operations to choose from, of `DSA_OPERATIONS`.
        images: Rows of parameters; 1 gives a siamese draw, for a batch of any size.
    """
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
    return DSAParams(operation, values)


def apply_dsa(x: torch.Tensor, params: DSAParams) -> torch.Tensor:
    """The images transformed by one draw; differentiable in `x`."""
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
    """Scale the distance of each channel from the grey value of its pixel by `factor`.

    Images of one channel are returned unchanged."""
    if x.shape[1] == 1:
        return x
    grey = x.mean(dim=1, keepdim=True)
    return (x - grey) * factor + grey


def _span(fraction: torch.Tensor, count: int) -> torch.Tensor:
    """Fractions in [0, 1) as integers below `count`, all equally likely."""
    return (fraction * count).long().clamp(max=count - 1)


def _shift(x: torch.Tensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Shift by whole pixels, at most an eighth of the size in each direction; 0 outside."""
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
    """Set a square of half the size to 0; its centre is uniform over the image."""
    sides = x.shape[2:]
    masks = []
    for fraction, side in zip((values["down"], values["right"]), sides, strict=True):
        hole = int(side * 0.5 + 0.5)
        start = _span(fraction, side + 1 - hole % 2) - hole // 2
        position = torch.arange(side)[None, :] - start[:, None]
        masks.append((position >= 0) & (position < hole))
    keep = ~(masks[0][:, None, :, None] & masks[1][:, None, None, :])
    return x * keep.to(x)


def dsa_operations(info: DatasetInfo) -> tuple[str, ...]:
    """The operations of DSA for this data set; none for tables."""
    if info.kind == DataKind.TABLE:
        return ()
    plain = ("color", "crop", "cutout", "scale", "rotate")
    return plain if info.name in NO_FLIP_DATASETS else (*plain, "flip")
