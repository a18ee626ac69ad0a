"""Places365 from one image per category, in the published layout."""

from __future__ import annotations

import dataclasses

import pytest
from image_files import write_image, write_list

from fedsynth.data import registry as datasets
from fedsynth.data.datasets import places365


@pytest.fixture
def scenes(monkeypatch, tmp_path):
    """One picture of each chosen category, and one of another, in torchvision's layout."""
    folder = tmp_path / "places365"
    chosen = [name for names in places365.CLASSES.values() for name in names]
    categories = ["/a/airfield", *chosen]
    text = "".join(f"{name} {number}\n" for number, name in enumerate(categories))
    write_list(monkeypatch, places365, "CATEGORIES", folder / "categories_places365.txt", text)
    lists, entries = {}, {}
    entries["train"] = [f"{name}/00000001.jpg" for name in categories]
    entries["test"] = [f"Places365_val_{number:08d}.jpg" for number in range(len(categories))]
    for split, place in (("train", "data_256_standard"), ("test", "val_large")):
        old = places365.LISTS[split]
        lines = "".join(f"{name} {number}\n" for number, name in enumerate(entries[split]))
        md5 = write_list(monkeypatch, places365, "", folder / old.name, lines)
        lists[split] = dataclasses.replace(old, md5=md5)
        for number, name in enumerate(entries[split]):
            write_image(folder / place / name.lstrip("/"), number, (80, 70))
    monkeypatch.setattr(places365, "LISTS", lists)
    return folder


def test_scenes_of_the_chosen_categories_are_three_classes(scenes):
    for split in datasets.SPLITS:
        images, labels = datasets.load("places365", split, scenes.parent)
        assert labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
        assert images.shape == (24, 3, 64, 64)
        assert datasets.find("places365").class_counts(split, scenes.parent) == (8, 8, 8)
    red = images[:, 0].float().mean((1, 2))
    assert abs(red[0] - (30 + 30)) < 3, "the first is the picture of number 1"
