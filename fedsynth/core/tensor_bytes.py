"""The bytes of a tensor, for digests."""

from __future__ import annotations

import torch


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The numbers of a CPU tensor as bytes, in order; a copy only if it is not contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
