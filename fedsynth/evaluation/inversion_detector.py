"""Detection of inverted images among released ones.

Upright images are bright on a dark background, and the edge of an image shows the background. So an
image with a bright edge is inverted, one with a dark edge is upright, and one with a grey edge is
undecided. The detector uses released images only: it is post-processing and costs no privacy.

The share of inverted images also estimates the share of users with inverted images. There are two
estimates, which fail in different ways:

* by edges: inverted images among the decided ones. It counts images, so it needs images that each
  resemble those of one user;
* by brightness: if upright images have mean m and inverted ones 1 - m, a mixture with a share s of
  inverted images has mean m + s (1 - 2 m), solved for s. It also works on images that average both
  kinds, but takes every other brightness (grey noise has 1/2) for a mixture.

Neither has a known error: released images are no sample of users, and a generator that reproduces
only the majority (mode collapse) moves both towards 0 or 1. Reference runs on public data show how
far it has moved after as many steps with as much noise: `interpolate_share` reads the edge
brightness of a release as a mixture of those of two reference runs, one on upright and one on
inverted records.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo

EDGE = 2  # pixels
BRIGHT, DARK = 0.6, 0.4  # thresholds of edge brightness; undecided in between
MIN_DECIDED = 0.5  # share of decided images below which the estimate is not reliable
UPRIGHT, INVERTED, UNDECIDED = 0, 1, 2  # verdicts
MIN_DIFFERENCE = 0.1  # of edge brightness between reference runs, for an interpolation


@dataclass(frozen=True)
class Inversion:
    """Estimate of inversion in a set of images."""

    images: int
    inverted: int  # images with a bright edge
    upright: int  # images with a dark edge
    share_by_brightness: float  # of inverted images, from the mean brightness
    edge: float  # mean brightness of all edges

    @property
    def decided(self) -> float:
        """The share of images with a bright or dark edge."""
        return (self.inverted + self.upright) / self.images

    @property
    def share_by_edges(self) -> float:
        """The share of inverted images among the decided ones; 0.5, no information, without any."""
        decided = self.inverted + self.upright
        return self.inverted / decided if decided else 0.5

    @property
    def reliable(self) -> bool:
        """True if enough images are decided for the estimate to be meaningful."""
        return self.decided >= MIN_DECIDED


def edges(images: torch.Tensor) -> torch.Tensor:
    """Mean brightness of the outermost pixels of each image over all channels: float32 [n]."""
    height, width = images.shape[2:]
    if min(height, width) <= 2 * EDGE:
        raise UserError(
            f"images of {height}x{width} pixels are too small for an edge of {EDGE} pixels."
        )
    edge = torch.ones(height, width, dtype=torch.bool)
    edge[EDGE:-EDGE, EDGE:-EDGE] = False
    return images[:, :, edge].mean(dim=(1, 2))


def verdicts(released: SyntheticSet) -> torch.Tensor:
    """The verdict on each image: int64 [n] of `UPRIGHT`, `INVERTED`, `UNDECIDED`."""
    edge = edges(released.pixels().clamp(0, 1))
    verdict = torch.full((len(edge),), UNDECIDED)
    verdict[edge < DARK] = UPRIGHT
    verdict[edge > BRIGHT] = INVERTED
    return verdict


def detect_inversion(released: SyntheticSet, info: DatasetInfo) -> Inversion:
    """Estimate the share of inverted images; `info` holds the public mean of upright ones."""
    pixels = released.pixels().clamp(0, 1)
    if not len(pixels):
        raise UserError("there are no released images to examine.")
    verdict = verdicts(released)
    mean = sum(info.mean) / len(info.mean)
    share = (float(pixels.mean()) - mean) / (1 - 2 * mean)
    return Inversion(
        len(verdict),
        int((verdict == INVERTED).sum()),
        int((verdict == UPRIGHT).sum()),
        min(1.0, max(0.0, share)),
        float(edges(pixels).mean()),
    )


def interpolate_share(edge: float, upright: float, inverted: float) -> float | None:
    """The share of inverted users from the edge brightness of a release and of two reference runs.

    Args:
        edge: mean edge brightness of the release.
        upright: that of a run of as many upright users.
        inverted: that of a run of as many inverted users.

    Returns:
        The share, or None if the reference runs differ too little.
    """
    if inverted - upright < MIN_DIFFERENCE:
        return None
    return min(1.0, max(0.0, (edge - upright) / (inverted - upright)))
