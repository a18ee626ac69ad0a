"""Where a generator draws: images as they are, tables as numbers and spread-out categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from fedsynth.core.enums import DataKind
from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import from_one_hot
from fedsynth.nn.gan.conv_generators import ConvCondGen
from fedsynth.nn.gan.tabular_generator import TabularGenerator


@dataclass(frozen=True)
class OutputSpace:
    """A generator for the kind of data, and the way from what it draws to records."""

    generator: Callable[[int, int], nn.Module]  # of codes of this length and so many classes
    leave: Callable[[Tensor], Tensor] | None = None


def ground(data: DatasetInfo) -> OutputSpace:
    """The ground for this data: a table's generator draws a share for every category, of which
    the largest is what is written down."""
    if data.kind != DataKind.TABLE:
        return OutputSpace(lambda code, classes: ConvCondGen(code, classes, data.shape))
    kinds = [len(column.categories) for column in data.columns if column.categories]
    numbers = len(data.columns) - len(kinds)
    return OutputSpace(
        lambda code, classes: TabularGenerator(code, classes, numbers, kinds),
        lambda drawn: from_one_hot(data, drawn[:, :numbers], drawn[:, numbers:]),
    )
