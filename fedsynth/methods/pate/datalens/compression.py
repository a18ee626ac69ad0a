"""How DataLens's teachers turn gradients into ballots, and what the curator reads from their sum.

`topk` is the published TopkStoSignGrad: signs of the k largest coordinates, each drawn so that its
mean is the clipped and scaled gradient. `none` signs every coordinate; `d2p` is D2P-Fed's
quantisation to a few levels as DataLens's code has it, without the rotation; `sketch` counts
`topk`'s ballots through a count sketch, as FetchSGD would, with the noise on the sketch: taking the
largest coordinates of the sum before there is noise, as published, is not private.
"""

from __future__ import annotations

import torch

from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.parameters import Recipe


def cast(
    cfg: DataLensConfig, recipe: Recipe, gradients: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """The ballots [teachers, images, d], int8, for float32 gradients of the same form."""
    if cfg.compression == "d2p":
        return quantised(gradients, cfg.levels, cfg.clip, generator)
    return signs(gradients, recipe.entries, cfg.clip, generator if cfg.stochastic else None)


def signs(
    gradients: torch.Tensor, entries: int, clip: float, generator: torch.Generator | None
) -> torch.Tensor:
    """Signs of the `entries` largest coordinates. With a generator, coordinate g is 1 with chance
    (1 + clip(g) / b) / 2, b the largest of what the clipping leaves; without, the plain sign."""
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
    whole = votes.to(torch.int8)
    if chosen is None:
        return whole
    return whole.new_zeros(gradients.shape).scatter_(-1, chosen, whole)


def quantised(
    gradients: torch.Tensor, levels: int, clip: float, generator: torch.Generator
) -> torch.Tensor:
    """Each coordinate, clipped (to its image's largest without a clip), as one of `levels` equally
    spaced symbols -levels/2, -levels/2 + 1, ...: a neighbour of its place, by chance."""
    limit = gradients.abs().amax(-1, keepdim=True)
    limit = (limit.clamp(max=clip) if clip else limit).clamp(min=torch.finfo(limit.dtype).tiny)
    place = (gradients / limit).clamp(-1, 1).add(1).mul((levels - 1) / 2)
    drawn = torch.rand(place.shape, generator=generator).to(place.device)
    return ((place + drawn).floor().clamp(max=levels - 1) - levels // 2).to(torch.int8)


def direction(
    cfg: DataLensConfig, recipe: Recipe, votes: torch.Tensor, teachers: int
) -> torch.Tensor:
    """Which way each pixel [images, d] shall go: -1, 0 or 1, or without a threshold votes / k."""
    if recipe.sketch is not None:
        found = recipe.sketch.estimate(votes)
        chosen = found.abs().topk(recipe.entries, dim=-1, sorted=False).indices
        votes = torch.zeros_like(found).scatter_(-1, chosen, found.gather(-1, chosen))
    if not cfg.threshold:
        return votes / recipe.entries
    enough = recipe.beta * teachers
    return (votes >= enough).float() - (votes <= -enough).float()
