"""What a server sends to a party in arrays, checked before a record is looked at.

Claim: a request of another form is refused with the code `request`, whatever the records are, and
before anything is charged.
"""

from __future__ import annotations

import torch

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo


def earlier_set(data: DatasetInfo, request: Request) -> SyntheticSet | None:
    """The synthetic set of earlier stages in a request, or None if it holds no arrays.

    Raises:
        Refused: The arrays are not images and labels of this data set.
    """
    if not request.arrays:
        return None
    labels = request.arrays.get("labels", torch.empty(0))
    count, soft = labels.numel(), request.arrays.get("soft")
    pixels = torch.uint8 if request.arrays.get("images", labels).dtype == torch.uint8 else None
    like = {
        "labels": torch.empty(count, dtype=torch.int64, device="meta"),
        "images": torch.empty((count, *data.shape), dtype=pixels, device="meta"),
    }
    if soft is not None:
        like["soft"] = torch.empty((count, data.classes), device="meta")
    arrays = request.exact_arrays(like)
    if not bool(((labels >= 0) & (labels < data.classes)).all()):
        raise request.refused(f"has labels outside of 0..{data.classes - 1}.")
    return SyntheticSet.from_arrays(arrays)
