"""Normalisation by public constants is inverted exactly, per channel."""

from __future__ import annotations

import torch

from fedsynth.core.types import DatasetInfo
from fedsynth.data.normalization import Normalizer

INFO = DatasetInfo("two", (2, 1, 1), 2, (0.25, 0.5), (0.5, 0.1))


def test_each_channel_has_its_own_constants() -> None:
    pixels = torch.tensor([0.75, 0.6]).view(1, 2, 1, 1)
    x = Normalizer.standard(INFO).to_network(pixels)
    torch.testing.assert_close(x.flatten(), torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(Normalizer.standard(INFO).to_pixels(x), pixels)


def test_symmetric_maps_the_unit_interval_to_minus_one_and_one() -> None:
    ends = torch.tensor([[0.0, 1.0], [0.5, 0.0]]).view(2, 2, 1, 1)
    assert Normalizer.symmetric(INFO).to_network(ends).flatten().tolist() == [-1, 1, 0, -1]
