"""In which type matrix products and convolutions run: whole, half as wide, or what is faster."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

DTYPES = ("float32", "bfloat16", "auto")
_SUPPORTED = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def compute_type(name: str, device: torch.device | str = "cpu") -> torch.dtype | None:
    """The type that `name` of `DTYPES` stands for on a device; none: that of the weights.

    `auto` is bfloat16 where there are instructions for it and float32 elsewhere: without them a
    product of bfloat16 numbers takes several times as long as one of float32."""
    if name == "auto":
        name = "bfloat16" if _has_bfloat16(torch.device(device).type) else "float32"
    return None if name == "float32" else getattr(torch, name)


@functools.cache
def _has_bfloat16(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    asks: list[Callable[[], bool]] = [getattr(torch.cpu, name, bool) for name in _SUPPORTED]
    return kind == "cpu" and any(ask() for ask in asks)
