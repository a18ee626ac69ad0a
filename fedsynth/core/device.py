"""The device policy: one word, `auto`, `cpu`, `cuda` or `cuda:N`.

It holds for parties, server and evaluation. A device that was asked for is used or refused, never
replaced: results on another device have other last bits. `auto` is the GPU where this process can
use one and the CPU elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedsynth.core.errors import UserError, allowed, nearest

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    import torch

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
_NAME = re.compile(r"auto|cpu|cuda(:\d{1,3})?")


def checked_device(name: str, key: str = "device") -> str:
    """Return the name of a device, whether or not this machine has it.

    Raises:
        UserError: It is none of `auto`, `cpu`, `cuda` and `cuda:N`.
    """
    if not _NAME.fullmatch(name):
        names = (AUTO, CPU, CUDA)
        choices = allowed([*names, "cuda:N"])
        raise UserError(f"{key}={name!r} is no device.{nearest(name, names)} {choices}")
    return name


def resolved_device(name: str, key: str = "device") -> torch.device:
    """The device of this process for a name.

    Raises:
        UserError: The name is unknown, or a GPU is asked for that this process cannot use.
    """
    import torch

    if checked_device(name, key) == CPU:
        return torch.device(CPU)
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == AUTO and not usable:
        return torch.device(CPU)
    device = torch.device(CUDA if name == AUTO else name)
    if (device.index or 0) >= usable:
        raise UserError(f"{key}={name}: {_why_no_gpu(usable)} Use {key}=cpu or {key}=auto.")
    _pin_arithmetic()
    return device


def _pin_arithmetic() -> None:
    """Make a GPU compute alike every time, with all digits of float32.

    Claims on rounding in `privacy.clipping` hold for float32: TF32 keeps 11 bits of 24."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if torch.backends.cuda.matmul.allow_tf32:
        raise UserError(
            "the environment makes products of float32 numbers TF32, which the bounds on "
            "contributions do not allow: unset TORCH_ALLOW_TF32_CUBLAS_OVERRIDE."
        )


def moved(values: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The same values on a device, with one copy for all that have the same number type.

    Values that lie there already are returned as they are."""
    import torch

    result = list(values)
    for dtype in dict.fromkeys(v.dtype for v in values if v.device.type != device.type):
        chosen = [
            i for i, v in enumerate(values) if v.dtype == dtype and v.device.type != device.type
        ]
        flat = torch.cat([values[i].detach().reshape(-1) for i in chosen]).to(device)
        parts = flat.split([values[i].numel() for i in chosen])
        for i, part in zip(chosen, parts, strict=True):
            result[i] = part.view(values[i].shape)
    return result


def _why_no_gpu(usable: int) -> str:
    """The reason for which a GPU cannot be used, for the person who asked for it."""
    import torch

    if usable:
        return f"this process can use {usable} GPU(s), numbered from 0."
    if torch.version.cuda is None and torch.version.hip is None:
        return f"the installed torch {torch.__version__} is built for the CPU only."
    return f"torch {torch.__version__} finds no usable GPU (driver, or CUDA_VISIBLE_DEVICES)."
