"""Per-record gradients cut down to their largest coordinates before they are summed.

Two rules, after "TopAgg for DP-SGD" (Wang et al. 2021). Each record's gradient is clipped to C.
Then "norm" keeps its largest coordinates for as long as their squares add up to at most k |g|^2,
so that what is left is at most sqrt(k) C long and needs less noise; "dimension" keeps the share k
of the coordinates, which may be as long as before. The paper's text bounds |kept|^2 by k |g|^2;
its pseudo-code, which leaves out a square, would not give the sensitivity it claims.

**Guarantee.** Adding or removing one record moves `sparse_gradient_sum` by at most `reach(...)`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.core.errors import unknown
from fedsynth.privacy.clipping import clip_rows, record_gradients

RULES = ("norm", "dimension")
AT_ONCE = 32  # records whose gradients are written out at a time


def reach(rule: str, keep: float, clip: float) -> float:
    """The longest that a record's part of the sum can be."""
    if rule not in RULES:
        raise unknown("rule of largest coordinates", rule, RULES)
    return clip * math.sqrt(keep) if rule == "norm" else clip


def sparse_gradient_sum(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    clip: float,
    rule: str,
    keep: float,
    dtype: str = "float32",
) -> list[Tensor]:
    """As `clipped_gradient_sum` with the cross-entropy, but of gradients cut down by `rule`."""
    bound = reach(rule, keep, clip)
    weights = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in weights)).to(weights[0])
    rows_of = record_gradients(model, dtype=dtype)
    for x, y in zip(images.split(AT_ONCE), labels.split(AT_ONCE), strict=True):
        if len(x):
            rows = largest(clip_rows(rows_of(x, y), clip), rule, keep)
            total += clip_rows(rows, bound).sum(0)
    parts = total.split([p.numel() for p in weights])
    return [part.view_as(p) for part, p in zip(parts, weights, strict=True)]


def largest(rows: Tensor, rule: str, keep: float) -> Tensor:
    """Rows [n, d] with all but their largest coordinates set to zero; of equal coordinates that do
    not all fit, none is kept."""
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
