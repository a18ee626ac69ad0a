"""Per-record gradients reduced to their largest coordinates before they are summed.

Three rules, after "TopAgg for DP-SGD" (Wang et al. 2021). Each record's gradient is clipped to C.
Then "norm" keeps its largest coordinates as long as their squares add up to at most k |g|^2, so
that the rest has an L2 norm of at most sqrt(k) C and needs less noise; "norm_per_tensor" does so
in each tensor of weights by itself, so that no layer is left out, and has the same bound, as the
squares of tensors add up; "dimension" keeps the share k of the coordinates, whose norm may be as
large as before. The paper's text bounds |kept|^2 by k |g|^2; its pseudo-code, which leaves out a
square, would not give the claimed sensitivity. Neither says whether g is the gradient of all layers
or of one; Opacus, on which the authors build, holds gradients layer by layer.

**Guarantee.** Adding or removing one record moves `sparse_gradient_sum` by at most
`Sparsification.l2_bound(clip)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.core.errors import unknown
from fedsynth.nn.per_example.gradients import Loss
from fedsynth.privacy.clipping import clip_factors, record_gradients, row_norms, scale_rows

CHUNK = 64  # gradients held at a time


class Rule(StrEnum):
    """The rule by which the largest coordinates of a gradient are kept."""

    NORM = "norm"  # as long as their squares add up to at most the share kept of the whole
    NORM_PER_TENSOR = "norm_per_tensor"  # the same in each tensor of weights by itself
    DIMENSION = "dimension"  # the share kept of all coordinates


@dataclass(frozen=True)
class Sparsification:
    """A `Rule` and the share that it keeps."""

    rule: str
    keep: float

    def l2_bound(self, clip: float) -> float:
        """The L2 bound of what is left of a gradient that was clipped to `clip`."""
        if self.rule not in tuple(Rule):
            raise unknown("rule of largest coordinates", self.rule, Rule)
        return clip if self.rule == Rule.DIMENSION else clip * math.sqrt(self.keep)


def sparse_gradient_sum(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    clip: float,
    sparsification: Sparsification,
    loss: str | Loss = "cross_entropy",
    dtype: str = "float32",
) -> list[Tensor]:
    """As `clipped_gradient_sum`, but of the largest coordinates of each clipped gradient."""
    bound = sparsification.l2_bound(clip)
    weights = [p for p in model.parameters() if p.requires_grad]
    sizes = [p.numel() for p in weights]
    total = torch.zeros(sum(sizes), dtype=torch.float64, device=weights[0].device)
    if len(images):
        rows_of = record_gradients(model, images.shape[1:], loss, dtype)
        for x, y in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
            rows = rows_of(x, y)
            kept = largest(rows, sparsification, sizes)
            norms = rows.square().sum(1, dtype=torch.float64).sqrt_()
            factors = torch.minimum(clip_factors(norms, clip), clip_factors(row_norms(kept), bound))
            total += scale_rows(kept, factors).sum(0, dtype=torch.float64)
    parts = total.split(sizes)
    return [part.view_as(p) for part, p in zip(parts, weights, strict=True)]


def largest(
    rows: Tensor, sparsification: Sparsification, sizes: Sequence[int] | None = None
) -> Tensor:
    """Rows with all but their largest coordinates set to zero; of equal coordinates that do not all
    fit, none is kept.

    Args:
        rows: One gradient per row, [n, d].
        sparsification: The rule.
        sizes: The number of coordinates of each tensor in a row; none: a single tensor.
    """
    keep, d = sparsification.keep, rows.shape[1]
    if keep == 1:
        return rows
    if sparsification.rule == Rule.NORM_PER_TENSOR and sizes is not None:
        parts = [part.contiguous() for part in rows.split(list(sizes), dim=1)]
        return torch.cat([largest(part, sparsification) for part in parts], dim=1)
    squares = rows.square()
    ordered = _ascending(squares)
    if sparsification.rule == Rule.DIMENSION:
        first_left_out = ordered[:, d - math.floor(keep * d) - 1].unsqueeze(1)
    else:
        first_left_out = _first_left_out(ordered, keep)
    return squares.gt_(first_left_out).mul_(rows)  # many times as fast as torch.where


def _first_left_out(ordered: Tensor, keep: float) -> Tensor:
    """Per row of ascending numbers the largest one that does not fit into the share `keep` of their
    sum: [n, 1]. The largest quarter of the numbers nearly always reaches far enough; a GPU, which
    is not asked whether it did, looks at all of them."""
    d = ordered.shape[1]
    target = keep * ordered.sum(1, dtype=torch.float64).unsqueeze(1)
    counts = {d, max(1, d // 4)} if ordered.device.type == "cpu" else {d}
    for count in sorted(counts):
        few = (ordered[:, d - count :].flip(1).double().cumsum(1) <= target).sum(1)
        if count == d or bool((few < count).all()):
            break
    return ordered.gather(1, (d - 1 - few).clamp_min(0).unsqueeze(1))


def _ascending(rows: Tensor) -> Tensor:
    if rows.device.type != "cpu":
        return rows.sort(dim=1).values
    return torch.from_numpy(np.sort(rows.numpy(), axis=1))  # many times as fast as torch's here
