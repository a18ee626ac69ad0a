"""Output spaces: a table's generator is decoded to rows of the table."""

from __future__ import annotations

import torch
from torch import nn

from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.data import tables
from fedsynth.methods.mean_embedding.output_space import ImageLayers, output_space


def test_images_are_drawn_as_they_are():
    space = output_space(DatasetInfo("tiny", (1, 8, 8), 2, (0.5,), (0.25,)))
    images = space.generator(3, 2).eval()(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    assert images.shape == (4, 1, 8, 8)
    assert space.decode is None


def test_linear_layers_draw_images_too():
    data = DatasetInfo("tiny", (3, 6, 10), 2, (0.5,) * 3, (0.25,) * 3)
    space = output_space(data, ImageLayers.LINEAR)
    net = space.generator(3, 2).eval()
    assert not any(isinstance(part, nn.Conv2d) for part in net.modules())
    assert space.decode is not None
    images = space.decode(net(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))).detach()
    assert images.shape == (4, 3, 6, 10)
    assert 0 < float(images.min()) < float(images.max()) < 1


def test_a_row_gets_the_category_with_the_largest_share():
    data = datasets.find("made_table").info
    space = output_space(data)
    outputs = space.generator(3, 2).eval()(torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1]))
    assert space.decode is not None
    rows = space.decode(outputs)
    assert rows.shape == (5, len(data.columns), 1, 1)
    numbers, one_hots = tables.one_hot(data, rows)
    sizes = [len(column.categories) for column in data.columns if column.categories]
    shares = outputs[:, numbers.shape[1] :].split(sizes, dim=1)
    for share, one_hot in zip(shares, one_hots.split(sizes, dim=1), strict=True):
        assert share.argmax(1).tolist() == one_hot.argmax(1).tolist()
