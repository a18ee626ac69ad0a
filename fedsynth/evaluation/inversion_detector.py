"""Are images inverted? What a developer can tell of users' images from released ones alone.

Ink is bright here and paper dark, and paper is what the edge of an image shows. So an image whose
edge is bright is inverted, one whose edge is dark is not, and of one whose edge is grey nobody can
tell. That asks for nothing but the released images: it is post-processing and costs nothing.

The share of images is at once the estimate of the share of users. Two readings stand beside each
other because they fail in different ways:

* by edges: inverted images among those of which one can tell. It counts images, so it needs ones
  that look like somebody's;
* by brightness: where upright images are of mean m and inverted ones of 1 - m, a mixture with a
  share s of inverted ones has the mean m + s (1 - 2 m), solved for s. It also reads averages of
  both kinds, and takes every other brightness (grey noise is 1/2) for a mixture.

Neither says how sure it is: released images are no sample of users, and a generator that shows only
what most users have (a mode of its own) moves both towards 0 or 1. How far it has gone that way
after so many steps and so much noise can be rehearsed on public data: `share_between` reads the
edges of a release as a mixture of those of two rehearsals, one with upright and one with inverted
records.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo

EDGE = 2  # pixels
BRIGHT, DARK = 0.6, 0.4  # an edge is one, the other, or nothing anybody can tell
ENOUGH = 0.5  # below this share of images that can be told the detector calls itself blind
UPRIGHT, INVERTED, UNTOLD = 0, 1, 2  # verdicts
APART = 0.1  # least difference of edges between rehearsals that can be read


@dataclass(frozen=True)
class Inversion:
    """What a set of images looks like."""

    images: int
    inverted: int  # images with a bright edge
    upright: int  # with a dark one
    by_brightness: float  # share of inverted images, from the mean brightness
    edge: float  # mean brightness of all edges

    @property
    def told(self) -> float:
        """The share of images of which one can tell."""
        return (self.inverted + self.upright) / self.images

    @property
    def by_edges(self) -> float:
        """The share of inverted images among those of which one can tell; 0.5 where there are
        none, for then nothing is known."""
        told = self.inverted + self.upright
        return self.inverted / told if told else 0.5

    @property
    def sees(self) -> bool:
        """Whether enough images can be told for the estimate to mean anything."""
        return self.told >= ENOUGH


def edges(images: torch.Tensor) -> torch.Tensor:
    """The mean brightness of each image's outermost pixels, of all channels: float32 [n]."""
    height, width = images.shape[2:]
    if min(height, width) <= 2 * EDGE:
        raise UserError(f"images of {height}x{width} pixels have no edge of {EDGE} to be read.")
    edge = torch.ones(height, width, dtype=torch.bool)
    edge[EDGE:-EDGE, EDGE:-EDGE] = False
    return images[:, :, edge].mean(dim=(1, 2))


def verdicts(released: SyntheticSet) -> torch.Tensor:
    """What can be told of each image: int64 [n] of `UPRIGHT`, `INVERTED`, `UNTOLD`."""
    edge = edges(released.pixels().clamp(0, 1))
    found = torch.full((len(edge),), UNTOLD)
    found[edge < DARK] = UPRIGHT
    found[edge > BRIGHT] = INVERTED
    return found


def look(released: SyntheticSet, info: DatasetInfo) -> Inversion:
    """What these images look like; `info` holds the published brightness of upright ones."""
    pixels = released.pixels().clamp(0, 1)
    if not len(pixels):
        raise UserError("there are no released images to look at.")
    found = verdicts(released)
    mean = sum(info.mean) / len(info.mean)
    share = (float(pixels.mean()) - mean) / (1 - 2 * mean)
    return Inversion(
        len(found),
        int((found == INVERTED).sum()),
        int((found == UPRIGHT).sum()),
        min(1.0, max(0.0, share)),
        float(edges(pixels).mean()),
    )


def share_between(edge: float, upright: float, inverted: float) -> float | None:
    """The share of inverted users, by the edge brightness of what they drew together and of what
    the same number of upright and of inverted ones drew; None where these two are not apart."""
    if inverted - upright < APART:
        return None
    return min(1.0, max(0.0, (edge - upright) / (inverted - upright)))
