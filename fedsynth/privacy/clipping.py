"""Sums of per-record gradients, each clipped: the bounded quantity that noise is added to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsynth.errors import UserError, unknown

Loss = Callable[[Tensor, Tensor], Tensor]

_LOSSES: dict[str, Loss] = {
    "cross_entropy": lambda logits, labels: F.cross_entropy(logits, labels, reduction="none"),
}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row over all its other dimensions, in float64 (no overflow)."""
    return torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)


def clip_rows(rows: Tensor, bound: float) -> Tensor:
    """Rows scaled down to L2 norm at most `bound`; a row that is not finite becomes zero."""
    norms = row_norms(rows)
    good = torch.isfinite(norms)
    factors = torch.where(good, (bound / norms).clamp(max=1.0), 0.0).to(rows.dtype)
    shape = (-1,) + (1,) * (rows.dim() - 1)
    return torch.where(good.view(shape), rows, 0.0) * factors.view(shape)


def clipped_gradient_sum(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    clip: float,
    loss: str | Loss = "cross_entropy",
    dtype: str = "float32",
    chunk: int = 32,
) -> list[Tensor]:
    """The sum over records of each record's gradient, clipped to L2 norm `clip`.

    The norm is over all parameters at once. One tensor a parameter that requires grad, in the
    order of `model.parameters()`.
    """
    if isinstance(loss, str):
        if loss not in _LOSSES:
            raise unknown("loss", loss, _LOSSES)
        loss = _LOSSES[loss]
    if dtype not in _DTYPES:
        raise unknown("dtype", dtype, _DTYPES)
    _refuse_batch_norm(model)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    params = {name: p.detach() for name, p in model.named_parameters()}
    wanted = {name: params[name] for name in names}
    fixed = {name: p for name, p in params.items() if name not in wanted}
    fixed |= dict(model.named_buffers())
    totals = [torch.zeros_like(wanted[name]) for name in names]

    def record_loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, {**weights, **fixed}, (image.unsqueeze(0),))
        return loss(logits.float(), label.unsqueeze(0)).sum()

    per_record = vmap(grad(record_loss), in_dims=(None, 0, 0), randomness="different")
    for x, y in _chunks(images, labels, chunk):
        with _autocast(x.device, dtype):
            found: dict[str, Any] = per_record(wanted, x, y)
        rows = torch.cat([found[name].flatten(1) for name in names], dim=1)
        summed = clip_rows(rows, clip).sum(0)
        parts = summed.split([wanted[name].numel() for name in names])
        for total, part in zip(totals, parts, strict=True):
            total.add_(part.view_as(total))
    return totals


def _chunks(images: Tensor, labels: Tensor, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(images), chunk):
        yield images[start : start + chunk], labels[start : start + chunk]


def _autocast(device: torch.device, dtype: str) -> Any:
    if dtype == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[dtype])


def _refuse_batch_norm(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BATCH_NORMS):
            raise UserError(
                f"layer {name!r} is a {type(module).__name__}: it mixes the records of a batch, so"
                " no record's influence can be bounded. Use nn.GroupNorm instead."
            )
