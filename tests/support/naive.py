"""The specification of steps that the source computes in a faster way."""

from __future__ import annotations

import torch


def clipped_rows(rows: torch.Tensor, bound: float | None) -> torch.Tensor:
    """Rows of at most this length, by a factor that counts as constant; None: as they are."""
    if bound is None:
        return rows
    norms = rows.detach().norm(dim=1, keepdim=True)
    return rows * (bound / norms).clamp(max=1.0)
