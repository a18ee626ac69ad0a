"""Contact sheets of synthetic sets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_outcomes import synthetic

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.storage.pictures import contact_sheet
from fedsynth.storage.releases import ReleaseStore


def test_the_picture_shows_each_class_in_its_row(tmp_path: Path) -> None:
    images = torch.zeros(12, 1, 8, 8)
    labels = torch.tensor([7] * 11 + [3])
    images[11] = 5.0  # the only image of class 3: clamped to white
    sheet = contact_sheet(SyntheticSet(images, labels), 0)
    assert sheet.shape == (2 * 10 + 2, 10 * 10 + 2)
    assert (sheet[2:10, 2:10] == 255).all()  # class 3 comes first
    assert (sheet[12:20, 2:10] == 0).all()
    releases = ReleaseStore(tmp_path)
    releases.save("x", 1, synthetic(20, 3))
    with Image.open(tmp_path / "releases" / "x" / "stage-1.png") as picture:
        assert picture.mode == "RGB"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_picture_can_be_made_of_any_numbers(bad: float) -> None:
    contact_sheet(SyntheticSet(torch.full((1, 1, 4, 4), bad), torch.zeros(1, dtype=torch.int64)))
    contact_sheet(SyntheticSet(torch.zeros(0, 1, 4, 4), torch.zeros(0, dtype=torch.int64)))
