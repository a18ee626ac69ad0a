"""Compression of teachers' gradients to votes, and the direction that the server reads from sums.

`topk` is the published TopkStoSignGrad: signs of the k largest coordinates, each drawn so that its
mean is the clipped and scaled gradient. `none` takes the sign of each coordinate. `d2p` is the
quantisation of D2P-Fed to a few levels as in DataLens's code, without the rotation. `sketch` sums
the votes of `topk` through a count sketch, as in FetchSGD, with the noise on the sketch: selecting
the largest coordinates of the sum before noise is added, as published, is not private.
"""

from __future__ import annotations

import torch

from fedsynth.methods.pate.datalens.config import Compression, DataLensConfig
from fedsynth.methods.pate.datalens.parameters import DataLensParameters


def compress_votes(
    cfg: DataLensConfig,
    parameters: DataLensParameters,
    gradients: torch.Tensor,
    generator: torch.Generator,
) -> torch.Tensor:
    """The int8 votes [teachers, images, d] for float32 gradients of the same shape."""
    if cfg.compression == Compression.D2P:
        return quantised(gradients, cfg.levels, cfg.coordinate_bound, generator)
    return topk_signs(
        gradients, parameters.entries, cfg.coordinate_bound, generator if cfg.stochastic else None
    )


def topk_signs(
    gradients: torch.Tensor, entries: int, clip: float, generator: torch.Generator | None
) -> torch.Tensor:
    """Signs of the `entries` largest coordinates, 0 elsewhere.

    With a generator, the vote on coordinate g is 1 with probability (1 + clip(g) / b) / 2, where b
    is the largest clipped coordinate; without one it is the plain sign."""
    size = gradients.abs()
    if entries < gradients.shape[-1]:
        chosen = size.topk(entries, dim=-1, sorted=False).indices
        values = gradients.gather(-1, chosen)
    else:
        chosen, values = None, gradients
    if generator is None:
        votes = values.sign()
    else:
        largest = size.amax(-1, keepdim=True)
        if clip:
            values, largest = values.clamp(-clip, clip), largest.clamp(max=clip)
        chance = (1 + values / largest.clamp(min=torch.finfo(values.dtype).tiny)) / 2
        drawn = torch.rand(values.shape, generator=generator).to(values.device)
        votes = torch.where(drawn < chance, 1.0, -1.0)
    signs = votes.to(torch.int8)
    if chosen is None:
        return signs
    return signs.new_zeros(gradients.shape).scatter_(-1, chosen, signs)


def quantised(
    gradients: torch.Tensor, levels: int, clip: float, generator: torch.Generator
) -> torch.Tensor:
    """Stochastic rounding to `levels` equally spaced integers -levels/2, -levels/2 + 1, ...

    The range is [-clip, clip], or up to an image's largest coordinate if `clip` is 0."""
    limit = gradients.abs().amax(-1, keepdim=True)
    limit = (limit.clamp(max=clip) if clip else limit).clamp(min=torch.finfo(limit.dtype).tiny)
    level = (gradients / limit).clamp(-1, 1).add(1).mul((levels - 1) / 2)
    drawn = torch.rand(level.shape, generator=generator).to(level.device)
    return ((level + drawn).floor().clamp(max=levels - 1) - levels // 2).to(torch.int8)


def voted_direction(
    cfg: DataLensConfig, parameters: DataLensParameters, votes: torch.Tensor, teachers: int
) -> torch.Tensor:
    """The direction [images, d] in which noised vote sums move each pixel.

    It is -1, 0 or 1 by the threshold beta * teachers, or votes / k without a threshold."""
    if parameters.sketch is not None:
        estimates = parameters.sketch.estimate(votes)
        chosen = estimates.abs().topk(parameters.entries, dim=-1, sorted=False).indices
        votes = torch.zeros_like(estimates).scatter_(-1, chosen, estimates.gather(-1, chosen))
    if not cfg.threshold:
        return votes / parameters.entries
    needed = parameters.beta * teachers
    return (votes >= needed).float() - (votes <= -needed).float()
