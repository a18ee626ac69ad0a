"""Per-record gradients reduced to their largest coordinates before they are summed.

Two rules, after "TopAgg for DP-SGD" (Wang et al. 2021). Each record's gradient is clipped to C.
Then "norm" keeps its largest coordinates as long as their squares add up to at most k |g|^2, so
that the rest has an L2 norm of at most sqrt(k) C and needs less noise; "dimension" keeps the share
k of the coordinates, whose norm may be as large as before. The paper's text bounds |kept|^2 by
k |g|^2; its pseudo-code, which leaves out a square, would not give the claimed sensitivity.

**Guarantee.** Adding or removing one record moves `sparse_gradient_sum` by at most
`Sparsification.l2_bound(clip)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.core.errors import unknown
from fedsynth.nn.per_example.gradients import Loss
from fedsynth.privacy.clipping import clip_rows, record_gradients

RULES = ("norm", "dimension")
CHUNK = 32  # gradients held at a time


@dataclass(frozen=True)
class Sparsification:
    """The rule by which the largest coordinates of a gradient are kept, and the share kept.

    `rule="norm"`: as long as their squares add up to at most `keep` of the whole.
    `rule="dimension"`: the share `keep` of all coordinates.
    """

    rule: str
    keep: float

    def l2_bound(self, clip: float) -> float:
        """The L2 bound of what is left of a gradient that was clipped to `clip`."""
        if self.rule not in RULES:
            raise unknown("rule of largest coordinates", self.rule, RULES)
        return clip * math.sqrt(self.keep) if self.rule == "norm" else clip


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
    numbers = sum(p.numel() for p in weights)
    total = torch.zeros(numbers, dtype=torch.float64, device=weights[0].device)
    rows_of = record_gradients(model, loss, dtype)
    for x, y in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
        if len(x):
            rows = largest(clip_rows(rows_of(x, y), clip), sparsification)
            total += clip_rows(rows, bound).sum(0, dtype=torch.float64)
    parts = total.split([p.numel() for p in weights])
    return [part.view_as(p) for part, p in zip(parts, weights, strict=True)]


def largest(rows: Tensor, sparsification: Sparsification) -> Tensor:
    """Rows [n, d] with all but their largest coordinates set to zero; of equal coordinates that do
    not all fit, none is kept."""
    rule, keep = sparsification.rule, sparsification.keep
    squares = rows.square()
    ordered = _descending(squares)
    if rule == "norm":
        sums = ordered.double().cumsum(1)
        few = (sums <= keep * sums[:, -1:]).sum(1)
    else:
        few = torch.full((len(rows),), math.floor(keep * rows.shape[1]), device=rows.device)
    first_left_out = ordered.gather(1, few.clamp_max(rows.shape[1] - 1).unsqueeze(1))
    kept = (squares > first_left_out) | (few == rows.shape[1]).unsqueeze(1)
    return torch.where(kept, rows, 0.0)


def _descending(rows: Tensor) -> Tensor:
    if rows.device.type != "cpu":
        return rows.sort(dim=1, descending=True).values
    ordered = np.sort(rows.numpy(), axis=1)[:, ::-1]  # many times as fast as torch's here
    return torch.from_numpy(ordered.copy())
