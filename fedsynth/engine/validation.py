"""Checks of the content of answers: finite numbers in the requested form.

The envelope (party, request, round) is checked where messages are read. A party with another answer
is named in the error, before any number of its answer is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedsynth.core.messages import Release, Shapes
from fedsynth.engine.messages import BadReply


def check_answers(
    answers: Sequence[Release], shapes: Shapes | None = None, dtype: torch.dtype = torch.float32
) -> None:
    """Check that all answers are finite and of the requested form.

    Args:
        answers: The releases of the parties.
        shapes: The arrays that each answer must hold; without it, those of the first answer: the
            same names, types and shapes up to the length.
        dtype: The type of all arrays in `shapes`.

    Raises:
        BadReply: The first party whose answer is not of this form.
    """
    for answer in answers:
        if shapes is not None:
            _check_shapes(answer, shapes, dtype)
        else:
            _check_alike(answer, answers[0])
        for name, value in answer.arrays.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value)).sum())
                raise BadReply(
                    f"party {answer.party} answered {bad} of {value.numel()} numbers in {name!r} "
                    "that are not finite"
                )


def _check_shapes(answer: Release, shapes: Shapes, dtype: torch.dtype) -> None:
    _check_names(answer, list(shapes), "requested")
    for name, shape in shapes.items():
        value = answer.arrays[name]
        if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
            raise BadReply(
                f"party {answer.party} answered {name!r} as {_type(value.dtype)} "
                f"{list(value.shape)}, and {_type(dtype)} {list(shape)} was requested"
            )


def _check_alike(answer: Release, first: Release) -> None:
    _check_names(answer, list(first.arrays), f"what party {first.party} answered")
    for name, value in answer.arrays.items():
        form, expected = _form(value), _form(first.arrays[name])
        if form != expected:
            raise BadReply(
                f"party {answer.party} answered {name!r} as {form}, and party {first.party} "
                f"as {expected}"
            )


def _check_names(answer: Release, expected: Sequence[str], source: str) -> None:
    if sorted(answer.arrays) != sorted(expected):
        raise BadReply(
            f"party {answer.party} answered the arrays {sorted(answer.arrays)}, and "
            f"{sorted(expected)} is {source}"
        )


def _form(value: torch.Tensor) -> str:
    """Type and shape without the length, which may differ between parties."""
    sizes = ["n", *map(str, value.shape[1:])] if value.dim() else []
    return f"{_type(value.dtype)} [{', '.join(sizes)}]"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
