"""What the curator accepts as an answer: finite numbers in the form that was asked for.

The envelope (who answers, which question, which round) is checked where messages are read; this
looks at what is inside. A party that answers anything else is refused by name, before a single
number of its answer is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedsynth.core.messages import Release, Shapes
from fedsynth.engine.messages import BadReply


def check_answers(
    answers: Sequence[Release], shapes: Shapes | None = None, dtype: torch.dtype = torch.float32
) -> None:
    """Raise `BadReply` for the first party whose answer is not finite, or not of the form of
    `shapes` and `dtype`; without `shapes`, not of the form of the first answer: the same arrays of
    the same types, alike in all but their length."""
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
    _check_names(answer, list(shapes), "asked for")
    for name, shape in shapes.items():
        value = answer.arrays[name]
        if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
            raise BadReply(
                f"party {answer.party} answered {name!r} as {_type(value.dtype)} "
                f"{list(value.shape)}, and {_type(dtype)} {list(shape)} was asked for"
            )


def _check_alike(answer: Release, first: Release) -> None:
    _check_names(answer, list(first.arrays), f"what party {first.party} answered")
    for name, value in answer.arrays.items():
        found, expected = _form(value), _form(first.arrays[name])
        if found != expected:
            raise BadReply(
                f"party {answer.party} answered {name!r} as {found}, and party {first.party} "
                f"as {expected}"
            )


def _check_names(answer: Release, expected: Sequence[str], whose: str) -> None:
    if sorted(answer.arrays) != sorted(expected):
        raise BadReply(
            f"party {answer.party} answered the arrays {sorted(answer.arrays)}, and "
            f"{sorted(expected)} is {whose}"
        )


def _form(value: torch.Tensor) -> str:
    """Type and shape without the length, which may differ from party to party."""
    sizes = ["n", *map(str, value.shape[1:])] if value.dim() else []
    return f"{_type(value.dtype)} [{', '.join(sizes)}]"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
