"""Raw records: pixels in [0, 1], cached values, and class indices."""

from __future__ import annotations

import pytest
import torch

from fedsynth.data.records import REMEMBERED, Records, class_indices


def test_pixels_are_a_copy_in_the_unit_interval() -> None:
    stored = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    images = Records(stored, torch.zeros(3))
    table = Records(torch.rand(3, 2, 1, 1), torch.zeros(3))
    assert images.pixels().flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert images.pixels(torch.tensor([2])).flatten().tolist() == [1]
    before = table.images.clone()
    assert torch.equal(table.pixels(), before)
    table.pixels().zero_()
    table.pixels(torch.tensor([0])).zero_()
    assert torch.equal(table.images, before)


def test_the_latest_values_are_cached() -> None:
    records, calls = Records(torch.zeros(1), torch.zeros(1)), []

    def compute(_: Records) -> int:
        calls.append(1)
        return len(calls)

    assert [records.remember("a", compute) for _ in range(2)] == [1, 1]
    for key in range(REMEMBERED):
        records.remember(str(key), compute)
    assert records.remember("a", compute) == REMEMBERED + 2


def test_labels_outside_the_classes_have_no_index() -> None:
    assert class_indices(torch.arange(6), [5, 2]).tolist() == [-1, -1, 1, -1, -1, 0]
    assert class_indices(torch.tensor([7, 2, 99]), (2,)).tolist() == [-1, 0, -1]
