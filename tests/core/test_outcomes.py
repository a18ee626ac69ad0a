"""Synthetic sets: pixel scale, arrays, joining."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedsynth.core.outcomes import SyntheticSet, unit_interval

FLOATS = SyntheticSet(torch.full((2, 1, 1, 1), 0.5), torch.tensor([0, 1]))
SOFT = SyntheticSet(torch.zeros(1, 1, 1, 1), torch.tensor([2]), torch.ones(1, 3))


def test_bytes_are_scaled_to_pixels_and_floats_are_not():
    stored = SyntheticSet(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), torch.tensor([0]))
    assert stored.pixels().flatten().tolist() == [0.0, 1.0]
    assert FLOATS.pixels() is FLOATS.images


def test_arrays_name_soft_labels_only_where_there_are_any():
    assert list(FLOATS.to_arrays()) == ["images", "labels"]
    assert list(SOFT.to_arrays()) == ["images", "labels", "soft"]
    assert SyntheticSet.from_arrays(SOFT.to_arrays()) == SOFT


@pytest.mark.parametrize("names", [["images"], ["images", "labels", "more"], []])
def test_other_arrays_are_refused(names):
    with pytest.raises(ValueError, match="not a synthetic set"):
        SyntheticSet.from_arrays({name: torch.zeros(1) for name in names})


def test_joined_sets_keep_order_and_soft_labels_that_all_have():
    joined = SyntheticSet.join([FLOATS, SOFT])
    assert joined.labels.tolist() == [0, 1, 2]
    assert joined.soft is None
    assert not joined.raw
    both = SyntheticSet.join([SOFT, SOFT])
    assert both.soft is not None
    assert len(both.soft) == 2
    raw = SyntheticSet(FLOATS.images, FLOATS.labels, raw=True)
    assert SyntheticSet.join([FLOATS, raw]).raw


def test_bytes_and_floats_share_the_unit_interval() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    assert unit_interval(images).flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert torch.equal(unit_interval(unit_interval(images)), unit_interval(images))


def test_intermediate_sets_survive_as_arrays_and_are_joined_where_all_have_them() -> None:
    with_both = replace(SOFT, earlier={20: SOFT, 5: SOFT})
    names = list(with_both.to_arrays())
    assert names[3:6] == ["earlier-5-images", "earlier-5-labels", "earlier-5-soft"]
    assert SyntheticSet.from_arrays(with_both.to_arrays()) == with_both
    joined = SyntheticSet.join([with_both, replace(FLOATS, earlier={20: FLOATS})])
    assert list(joined.earlier) == [20]
    assert joined.earlier[20].labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "name",
    [
        "earlier-images",
        "earlier-x-images",
        "earlier-5",
        "earlier-5-more",
        "earlier-5-earlier-4-images",
    ],
)
def test_arrays_that_are_no_intermediate_set_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a synthetic set"):
        SyntheticSet.from_arrays({**FLOATS.to_arrays(), name: torch.zeros(1)})
