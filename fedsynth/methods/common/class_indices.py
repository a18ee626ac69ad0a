"""Class indices: the position of a label among the classes of a party, and labels from scores."""

from __future__ import annotations

import torch


def argmax_covering_classes(logits: torch.Tensor) -> torch.Tensor:
    """The class index of each row's largest logit, changed such that every class has a row.

    A class that no row would get is given to the row that loses least by it, among the rows whose
    own class keeps others."""
    indices = logits.argmax(dim=1)
    for missing in range(logits.shape[1]):
        counts = indices.bincount(minlength=logits.shape[1])
        if counts[missing]:
            continue
        loss = logits.gather(1, indices[:, None])[:, 0] - logits[:, missing]
        loss[counts[indices] < 2] = torch.inf
        if bool(torch.isfinite(loss).any()):
            indices[loss.argmin()] = missing
    return indices
