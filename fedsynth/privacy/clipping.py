"""Sums of per-record gradients, each clipped: the bounded quantity that noise is added to.

**Guarantee.** Adding or removing one record changes `clipped_gradient_sum` by at most `clip` in L2
norm over all parameters together, up to the float rounding of the sum itself (about 1e-7 of the
sum). Three rules make it hold:

- the very tensors that are summed are the ones whose norm was taken, in bfloat16 too; norms and
  sums are taken in the weights' type, and every factor is a hair (4e-6) below clip / norm, more
  than the norm can be wrong by;
- a record whose gradient is not finite, or whose norm overflows, contributes zero, whatever else
  is in the batch;
- a record's gradient does not depend on its neighbours: no layer mixes records, and batches are
  filled up to a multiple of eight records, so that kernels chosen by size do not change with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsynth.core.errors import UserError, unknown
from fedsynth.nn.compute_dtype import DTYPES, compute_type
from fedsynth.nn.per_example.gradients import Loss, cross_entropy, loss_and_output_gradient
from fedsynth.nn.per_example.sequential import LayerSequence, UnsupportedModel

_LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy}
_SAFETY = 1 - 2.0**-18
_FINE = 2.0**-100  # below this a float32 factor starts to lose digits, and the bound with them
_MULTIPLE = 8  # records that batches are filled up to: see the guarantee
_HELD_BYTES = 96 << 20


def clipped_gradient_sum(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    clip: float,
    loss: str | Loss = "cross_entropy",
    dtype: str = "float32",
    chunk: int | None = None,
) -> list[Tensor]:
    """The sum over records of each record's loss gradient, clipped to L2 norm `clip`.

    One tensor a parameter that requires grad, in the order of `model.parameters()`; exact zeros
    for an empty batch. `dtype` is the type of matrix products and convolutions: with "float32" the
    result is exact to rounding, with "bfloat16" each record's gradient is a few per cent off (as
    under autocast) and clipped as it is: utility changes, the guarantee does not; "auto" is
    whichever of both is faster here (`nn.compute_dtype`). At most `chunk`
    records' gradients are held at a time; by default as many as pay. The guarantee is at the top
    of this file.
    """
    per_record_loss = _loss(loss)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if not clip > 0:
        raise UserError(f"clip must be a positive number, got {clip!r}")
    weights = [p for p in model.parameters() if p.requires_grad]
    totals = {id(p): torch.zeros_like(p, requires_grad=False) for p in weights}
    if len(images) and weights:
        try:
            chain = _chain(model, images.shape[1:], dtype)
        except UnsupportedModel:
            add = _general(model, per_record_loss, dtype, clip)
            most = 32
        else:
            add = _hand_written(chain, per_record_loss, clip)
            most = 256
        at_once = _even(len(images), chunk or _affordable(weights, most))
        for x, y in zip(images.split(at_once), labels.split(at_once), strict=True):
            for weight, part in add(x, y):
                totals[id(weight)].add_(part)
    return [totals[id(p)] for p in weights]


def explain(model: nn.Module, shape: Sequence[int]) -> str:
    """Which way `clipped_gradient_sum` takes for this model and records of this shape, and why."""
    try:
        _chain(model, shape, "float32")
    except UnsupportedModel as reason:
        return f"general way (vmap over per-record gradients): {reason}"
    return "hand-written layers"


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row over all its other dimensions, in float64 so that none overflows."""
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    return norms


def clip_rows(rows: Tensor, bound: float) -> Tensor:
    """Rows scaled down to L2 norm at most `bound`; a row that is not finite becomes zero."""
    norms = row_norms(rows)
    good = torch.isfinite(norms)
    factors = torch.where(good, _factors(norms, bound), 0.0)
    shape = (-1,) + (1,) * (rows.dim() - 1)
    clipped = torch.where(good.view(shape), rows, 0.0) * factors.to(rows.dtype).view(shape)
    coarse = good & (factors < _FINE)
    if coarse.any():
        exact = rows[coarse].double() * factors[coarse].view(shape)
        clipped[coarse] = exact.to(rows.dtype)
    return clipped


def _factors(norms: Tensor, clip: float) -> Tensor:
    return (clip * _SAFETY / norms).clamp(max=1.0)


Parts = list[tuple[Tensor, Tensor]]


def _hand_written(
    chain: LayerSequence, loss: Loss, clip: float
) -> Callable[[Tensor, Tensor], Parts]:
    def add(x: Tensor, y: Tensor) -> Parts:
        blanks = -len(x) % _MULTIPLE
        if blanks:
            x = torch.cat([x, x.new_zeros(blanks, *x.shape[1:])])
            y = torch.cat([y, y.new_zeros(blanks, *y.shape[1:])])
        _, slope = loss_and_output_gradient(chain.forward(x), y, loss)
        chain.backward(slope)
        with torch.no_grad():
            rows = chain.per_example_gradients()
            norms = torch.stack([r.squares() for r in rows]).sum(0).sqrt_()
            unusable = ~torch.isfinite(norms)
            if unusable.any():
                for r in rows:
                    r.drop(unusable)
            unusable[len(x) - blanks :] = True
            factors = _factors(norms, clip).masked_fill_(unusable, 0.0)
            sums = [r.weighted_sum(factors) for r in rows]
        return list(zip(chain.weights, sums, strict=True))

    return add


def _general(
    model: nn.Module, loss: Loss, dtype: str, clip: float
) -> Callable[[Tensor, Tensor], Parts]:
    rows_of = record_gradients(model, loss, dtype)
    weights = [p for p in model.parameters() if p.requires_grad]

    def add(x: Tensor, y: Tensor) -> Parts:
        sums = clip_rows(rows_of(x, y), clip).sum(0).split([p.numel() for p in weights])
        return [(p, s.view_as(p)) for p, s in zip(weights, sums, strict=True)]

    return add


def record_gradients(
    model: nn.Module, loss: str | Loss = "cross_entropy", dtype: str = "float32"
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of a batch: each record's gradient over all parameters that require grad, in one
    row, written out and not clipped. Refuses models whose layers mix records."""
    _refuse_mixing(model)
    per_record_loss = _loss(loss)
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rest: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if n not in wanted}
    rest |= dict(model.named_buffers())

    def record_loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, (weights, rest), (image.unsqueeze(0),))
        return per_record_loss(logits.to(image.dtype), label.unsqueeze(0)).sum()

    per_record = vmap(grad(record_loss), in_dims=(None, 0, 0), randomness="different")

    def rows(x: Tensor, y: Tensor) -> Tensor:
        detached = {name: p.detach() for name, p in wanted.items()}
        compute = compute_type(dtype, x.device)
        with torch.autocast(x.device.type, compute, enabled=compute is not None):
            found = per_record(detached, x, y)
        return torch.cat([found[name].flatten(1) for name in wanted], dim=1)

    return rows


def _affordable(weights: list[nn.Parameter], most: int) -> int:
    """How many records' gradients may be held at once: many are faster, until memory speaks."""
    size = sum(w.numel() * w.element_size() for w in weights)
    return max(_MULTIPLE, min(most, _HELD_BYTES // size))


def _even(records: int, most: int) -> int:
    """The size of chunks that are about equal, at most `most` but for rounding up."""
    size = -(-records // -(-records // most))
    return size + -size % _MULTIPLE


def _chain(model: nn.Module, shape: Sequence[int], dtype: str) -> LayerSequence:
    weight = next(model.parameters())
    return LayerSequence(model, shape, compute_type(dtype, weight.device) or weight.dtype)


def _loss(loss: str | Loss) -> Loss:
    if not isinstance(loss, str):
        return loss
    if loss not in _LOSSES:
        raise unknown("loss", loss, _LOSSES)
    return _LOSSES[loss]


def _refuse_mixing(model: nn.Module) -> None:
    """Refuse layers that mix the records of a batch, by type and by Opacus's own validators."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"layer {name!r} is {type(module).__name__}: its output for one record depends on "
                "the others of the batch, so no bound on one record's influence holds. "
                "Use nn.GroupNorm(groups, channels), which normalises each record by itself."
            )
    from opacus.validators import ModuleValidator

    problems = ModuleValidator.validate(model)
    if not model.training:
        problems = problems[1:]  # the first only says that the model is in evaluation mode
    if problems:
        raise UserError(
            "per-record gradients are not possible for this model: "
            + "; ".join(str(problem) for problem in problems)
        )
