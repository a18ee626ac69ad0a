"""Output spaces: the outputs of a generator as images, or as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor, nn

from fedsynth.core.enums import DataKind
from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import from_one_hot
from fedsynth.nn.gan.conv_generators import ConvCondGen
from fedsynth.nn.gan.tabular_generator import TabularGenerator


@dataclass(frozen=True)
class OutputSpace:
    """A generator for a kind of data, and the map from its outputs to records."""

    generator: Callable[[int, int], nn.Module]  # of latent length and number of classes
    decode: Callable[[Tensor], Tensor] | None = None  # None: outputs are records


class ImageLayers(StrEnum):
    """The layers of a generator of images."""

    CONVOLUTIONS = "convolutions"
    LINEAR = "linear"


LINEAR_WIDTHS = (500, 500)


def output_space(data: DatasetInfo, layers: ImageLayers = ImageLayers.CONVOLUTIONS) -> OutputSpace:
    """The output space for this data.

    A table's generator draws a share for every category, and the record gets the largest.

    Args:
        data: The data set.
        layers: The layers of a generator of images; a table's are linear.
    """
    if data.kind != DataKind.TABLE and layers == ImageLayers.LINEAR:
        values = math.prod(data.shape)
        return OutputSpace(
            lambda latent, classes: TabularGenerator(latent, classes, values, (), LINEAR_WIDTHS),
            lambda outputs: outputs.unflatten(1, data.shape),
        )
    if data.kind != DataKind.TABLE:
        return OutputSpace(lambda latent, classes: ConvCondGen(latent, classes, data.shape))
    sizes = [len(column.categories) for column in data.columns if column.categories]
    numbers = len(data.columns) - len(sizes)
    return OutputSpace(
        lambda latent, classes: TabularGenerator(latent, classes, numbers, sizes),
        lambda outputs: from_one_hot(data, outputs[:, :numbers], outputs[:, numbers:]),
    )
