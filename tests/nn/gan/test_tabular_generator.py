"""Generated rows: numbers in (0, 1), and one distribution per categorical column."""

from __future__ import annotations

import torch

from fedsynth.core.randomness import default_seed
from fedsynth.nn.gan.tabular_generator import TabularGenerator


def test_numbers_pass_a_sigmoid_and_each_category_a_softmax() -> None:
    with default_seed("table"):
        net = TabularGenerator(4, 3, numbers=2, categories=(3, 2), widths=(8,)).eval()
    rows = net(10 * torch.randn(6, 4), torch.arange(6) % 3)
    assert rows.shape == (6, 7)
    assert ((rows[:, :2] > 0) & (rows[:, :2] < 1)).all()
    torch.testing.assert_close(rows[:, 2:5].sum(1), torch.ones(6))
    torch.testing.assert_close(rows[:, 5:].sum(1), torch.ones(6))


def test_a_table_without_categories_has_numbers_alone() -> None:
    net = TabularGenerator(4, 3, numbers=2, widths=(8,)).eval()
    assert net(torch.randn(1, 4), torch.tensor([2])).shape == (1, 2)
