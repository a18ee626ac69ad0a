"""Raw records in memory, and the class indices of their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from fedsynth.core.outcomes import unit_interval

T = TypeVar("T")

REMEMBERED = 4  # cached values per records


@dataclass(frozen=True)
class Records:
    """Raw records: images as stored, and their labels."""

    images: torch.Tensor  # uint8 [n, c, h, w]; of a table float32 in [0, 1]
    labels: torch.Tensor  # int64 [n]
    memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def pixels(self, indices: torch.Tensor | None = None) -> torch.Tensor:
        """The images of these records as float32 in [0, 1], as a copy."""
        pixels = unit_interval(self.images if indices is None else self.images[indices])
        return pixels.clone() if pixels is self.images else pixels

    def remember(self, key: str, compute: Callable[[Records], T]) -> T:
        """`compute(self)`, cached with these records.

        `key` must name all inputs of `compute` other than the records; the latest keys are kept."""
        value: T = self.memory.pop(key) if key in self.memory else compute(self)
        self.memory[key] = value
        for oldest in list(self.memory)[:-REMEMBERED]:
            self.memory.pop(oldest, None)
        return value


def class_indices(labels: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """The position of each label in `classes`, -1 for labels that are not among them.

    >>> class_indices(torch.tensor([3, 5, 0, 9]), (5, 0, 3)).tolist()
    [2, 0, 1, -1]
    """
    other = max(classes) + 1
    positions = torch.full((other + 1,), -1)
    positions[list(classes)] = torch.arange(len(classes))
    return positions[labels.cpu().clamp(max=other)]
