"""The number type in which matrix products and convolutions are computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum

import torch

from fedsynth.core.errors import UserError


class ComputeDtype(StrEnum):
    """A number type for products, as it is written in a configuration."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    AUTO = "auto"  # bfloat16 where the processor has instructions for it, else float32


DTYPES = tuple(ComputeDtype)
_CPU_INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def compute_type(name: str, device: torch.device | str = "cpu") -> torch.dtype | None:
    """The torch type of a `ComputeDtype` on a device; None for the type of the weights.

    Without instructions for bfloat16, a product of bfloat16 numbers takes several times as long as
    one of float32; `auto` therefore falls back to float32.

    Raises:
        UserError: bfloat16 is asked for, and the GPU has no instructions for it."""
    choice, kind = ComputeDtype(name), torch.device(device).type
    supported = choice is not ComputeDtype.FLOAT32 and _has_bfloat16(kind)
    if choice is ComputeDtype.BFLOAT16 and kind == "cuda" and not supported:
        raise UserError("dtype=bfloat16: this GPU does not compute in it. Use float32 or auto.")
    if choice is ComputeDtype.AUTO:
        choice = ComputeDtype.BFLOAT16 if supported else ComputeDtype.FLOAT32
    return torch.bfloat16 if choice is ComputeDtype.BFLOAT16 else None


def autocast(name: str, device: torch.device | str = "cpu") -> AbstractContextManager[object]:
    """The context in which products and convolutions of autograd run in a `ComputeDtype`."""
    compute = compute_type(name, device)
    if compute is None:
        return nullcontext()
    return torch.autocast(torch.device(device).type, compute)


@functools.cache
def _has_bfloat16(device_type: str) -> bool:
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks: list[Callable[[], bool]] = [
        getattr(torch.cpu, name, bool) for name in _CPU_INSTRUCTIONS
    ]
    return device_type == "cpu" and any(check() for check in checks)
