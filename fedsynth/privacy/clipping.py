"""Sums of per-record gradients, each clipped: the bounded quantity that noise is added to.

**Guarantee.** Adding or removing one record changes `clipped_gradient_sum` by at most
`sum_sensitivity(clip)` = clip (1 + 2 SUM_ERROR) in L2 norm over all parameters together. The sum of
any records is off by at most SUM_ERROR clip: so few gradients are added up in float32 that their
rounding stays below it, and the rest is float64. Three rules make the bound of one record hold:

- the tensors that are summed are those whose norm was taken, in bfloat16 too; norms and sums are
  taken in the weights' type, and every factor is 4e-6 below clip / norm, more than the rounding
  error of the norm;
- a record whose gradient is not finite, or whose norm overflows, contributes zero, independently
  of the rest of the batch;
- a record's gradient does not depend on the other records: no layer mixes records, and batches are
  padded to a multiple of eight records, so that kernels chosen by size do not change with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsynth.core.errors import UserError, unknown
from fedsynth.nn.compute_dtype import DTYPES, compute_type
from fedsynth.nn.per_example.gradient_rows import PerExampleGradient
from fedsynth.nn.per_example.gradients import Loss, cross_entropy, loss_and_output_gradient
from fedsynth.nn.per_example.sequential import LayerSequence, UnsupportedModel

_LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy}
LEAST_CLIP, MOST_CLIP = 1e-9, 1e9
"""The limits of a clip as a setting: with room for its factors within what `grid` accepts."""
SUM_ERROR = 2.0**-10  # of a sum of gradients, relative to the clip: see the guarantee
_SAFETY = 1 - 2.0**-18
_SMALL_FACTOR = 2.0**-100  # below this a float32 factor loses digits, and so does the bound
_MULTIPLE = 8  # batches are padded to a multiple of it: see the guarantee
_MAX_GRADIENT_BYTES = 96 << 20  # of the gradients held at a time


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

    The guarantee is at the top of this file.

    Args:
        model: The model; its parameters that require grad are differentiated.
        images: The model's inputs, one row per record.
        labels: The labels of the records.
        clip: The L2 bound of one record's gradient over all parameters together.
        loss: A name, or a function of outputs and labels with one number per record.
        dtype: The type of matrix products and convolutions. With "float32" the result is exact to
            rounding; with "bfloat16" each record's gradient is a few per cent off (as under
            autocast) before it is clipped, which changes utility and not the guarantee; "auto" is
            the faster of both on this machine (`nn.compute_dtype`).
        chunk: The most gradients held at a time; by default a size that is fast.

    Returns:
        One tensor per parameter that requires grad, in the order of `model.parameters()`; exact
        zeros for an empty batch.

    Raises:
        UserError: The model mixes records, or an argument is out of range.
    """
    per_record_loss = _loss(loss)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if not clip > 0:
        raise UserError(f"clip must be a positive number, got {clip!r}")
    weights = [p for p in model.parameters() if p.requires_grad]
    totals = {id(p): torch.zeros_like(p, dtype=torch.float64, requires_grad=False) for p in weights}
    if len(images) and weights:
        try:
            chain = _layer_sequence(model, images.shape[1:], dtype)
        except UnsupportedModel:
            add = _by_vmap(model, per_record_loss, dtype, clip)
            most = 32
        else:
            add = _by_layers(chain, per_record_loss, clip, len(images))
            most = 256
        chunk_size = _even_chunk(len(images), chunk or _chunk_size(weights, most))
        for x, y in zip(images.split(chunk_size), labels.split(chunk_size), strict=True):
            for weight, part in add(x, y):
                totals[id(weight)].add_(part)
    return [totals[id(p)] for p in weights]


def sum_sensitivity(clip: float) -> float:
    """The L2 bound by which one record moves a sum of clipped gradients, with rounding."""
    return clip * (1 + 2 * SUM_ERROR)


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row over all its other dimensions, in float64 so that none overflows."""
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    return norms


def clip_rows(rows: Tensor, bound: float) -> Tensor:
    """Rows scaled down to L2 norm at most `bound`; a row that is not finite becomes zero.

    Rows of 16 bits become float32: rounded to 16 bits, a scaled row may exceed its bound."""
    rows = rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows
    return scale_rows(rows, clip_factors(row_norms(rows), bound))


def clip_factors(norms: Tensor, bound: float) -> Tensor:
    """The factors that scale rows of these norms down to `bound`; zero where a norm is not finite.

    They are a little below bound / norm, so that rounding does not lift a row above the bound."""
    return torch.where(torch.isfinite(norms), _factors(norms, bound), 0.0)


def scale_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Rows times their float64 factors; a row whose factor is zero becomes zero, whatever it is.

    On a GPU, which is asked nothing so that nobody waits for it, a row also becomes zero where its
    factor is below what float32 holds in full: the bound on a row holds all the same."""
    shape = (-1,) + (1,) * (rows.dim() - 1)
    if rows.device.type != "cpu":
        used = factors >= _SMALL_FACTOR
        factors = torch.where(used, factors, 0.0).to(rows.dtype)
        return torch.where(used.view(shape), rows, 0.0) * factors.view(shape)
    if not (used := factors > 0).all():
        rows = torch.where(used.view(shape), rows, 0.0)
    scaled = rows * factors.to(rows.dtype).view(shape)
    imprecise = used & (factors < _SMALL_FACTOR)
    if imprecise.any():
        exact = rows[imprecise].double() * factors[imprecise].view(shape)
        scaled[imprecise] = exact.to(rows.dtype)
    return scaled


def _factors(norms: Tensor, clip: float) -> Tensor:
    return (clip * _SAFETY / norms).clamp(max=1.0)


WeightSums = list[tuple[Tensor, Tensor]]


def _records_per_sum(records: int) -> int:
    """The records whose gradients may be added up in float32, so that all rounding of a sum over
    `records` stays below SUM_ERROR times the clip; 0: add them up in float64.

    Adding m vectors errs by at most (m + 1) 2^-24 times the sum of their lengths."""
    most = max(0, int(SUM_ERROR * 2.0**24 / records) - 1)
    return most - most % _MULTIPLE


def _by_layers(
    chain: LayerSequence, loss: Loss, clip: float, records: int
) -> Callable[[Tensor, Tensor], WeightSums]:
    together = _records_per_sum(records)

    def add(x: Tensor, y: Tensor) -> WeightSums:
        rows, padding = _rows_by_layers(chain, loss, x, y)
        with torch.no_grad():
            norms = torch.stack([r.squares() for r in rows]).sum(0).sqrt_()
            unusable = ~torch.isfinite(norms)
            if unusable.device.type != "cpu" or unusable.any():
                for r in rows:
                    r.drop(unusable)
            unusable[len(x) :] = True
            factors = _factors(norms, clip).masked_fill_(unusable, 0.0)
            if not together:
                factors = factors.double()
            step = together or len(x)
            slices = [slice(start, start + step) for start in range(0, len(x) + padding, step)]
            return [
                (weight, row.weighted_sum(factors[s], s))
                for weight, row in zip(chain.weights, rows, strict=True)
                for s in slices
            ]

    return add


def _rows_by_layers(
    chain: LayerSequence, loss: Loss, x: Tensor, y: Tensor
) -> tuple[list[PerExampleGradient], int]:
    """The gradients of a batch that is padded to whole multiples, and the number of rows added."""
    padding = -len(x) % _MULTIPLE
    if padding:
        x = torch.cat([x, x.new_zeros(padding, *x.shape[1:])])
        y = torch.cat([y, y.new_zeros(padding, *y.shape[1:])])
    _, output_gradient = loss_and_output_gradient(chain.forward(x), y, loss)
    chain.backward(output_gradient)
    return chain.per_example_gradients(), padding


def _by_vmap(
    model: nn.Module, loss: Loss, dtype: str, clip: float
) -> Callable[[Tensor, Tensor], WeightSums]:
    rows_of = _record_gradients_by_vmap(model, loss, dtype)
    weights = [p for p in model.parameters() if p.requires_grad]

    def add(x: Tensor, y: Tensor) -> WeightSums:
        total = clip_rows(rows_of(x, y), clip).sum(0, dtype=torch.float64)
        sums = total.split([p.numel() for p in weights])
        return [(p, s.view_as(p)) for p, s in zip(weights, sums, strict=True)]

    return add


def record_gradients(
    model: nn.Module,
    shape: Sequence[int],
    loss: str | Loss = "cross_entropy",
    dtype: str = "float32",
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of a batch that returns each record's unclipped gradient over all parameters that
    require grad as one row.

    Args:
        model: The model; its present weights are used.
        shape: The shape of one record.
        loss: See `clipped_gradient_sum`.
        dtype: See `clipped_gradient_sum`.

    Raises:
        UserError: A layer of the model mixes records.
    """
    per_record_loss = _loss(loss)
    try:
        chain = _layer_sequence(model, shape, dtype)
    except UnsupportedModel:
        return _record_gradients_by_vmap(model, per_record_loss, dtype)
    order = {id(weight): position for position, weight in enumerate(chain.weights)}

    @torch.no_grad()
    def rows(x: Tensor, y: Tensor) -> Tensor:
        gradients, _ = _rows_by_layers(chain, per_record_loss, x, y)
        in_order = [gradients[order[id(weight)]].rows() for weight in chain.parameters]
        return torch.cat(in_order, dim=1)[: len(x)]

    return rows


def _record_gradients_by_vmap(
    model: nn.Module, loss: Loss, dtype: str
) -> Callable[[Tensor, Tensor], Tensor]:
    _refuse_mixing(model)
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rest: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if n not in wanted}
    rest |= dict(model.named_buffers())

    def record_loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, (weights, rest), (image.unsqueeze(0),))
        return loss(logits.to(image.dtype), label.unsqueeze(0)).sum()

    per_record = vmap(grad(record_loss), in_dims=(None, 0, 0), randomness="different")

    def rows(x: Tensor, y: Tensor) -> Tensor:
        detached = {name: p.detach() for name, p in wanted.items()}
        compute = compute_type(dtype, x.device)
        with torch.autocast(x.device.type, compute, enabled=compute is not None):
            gradients = per_record(detached, x, y)
        return torch.cat([gradients[name].flatten(1) for name in wanted], dim=1)

    return rows


def _chunk_size(weights: list[nn.Parameter], most: int) -> int:
    """The number of gradients to hold at a time: larger is faster as long as they fit in memory."""
    size = sum(w.numel() * w.element_size() for w in weights)
    return max(_MULTIPLE, min(most, _MAX_GRADIENT_BYTES // size))


def _even_chunk(records: int, most: int) -> int:
    """The size of about equal chunks, at most `most` before rounding up."""
    size = -(-records // -(-records // most))
    return size + -size % _MULTIPLE


def _layer_sequence(model: nn.Module, shape: Sequence[int], dtype: str) -> LayerSequence:
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
