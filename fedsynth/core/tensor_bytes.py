"""The bytes of a tensor, for digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The numbers of a CPU tensor as bytes, in order; a copy only if it is not contiguous."""
    import torch  # costs most of a second, and lists of methods need none

    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
