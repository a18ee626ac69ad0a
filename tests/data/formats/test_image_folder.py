"""Folders of pictures as data sets: classes, parties, sizes, and what is wrong with a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_files import picture, write_hospitals, write_pictures

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets


def test_a_folder_per_party_and_class_is_read_as_it_is(tmp_path: Path) -> None:
    name = f"file:{write_hospitals(tmp_path / 'scans')}"
    known = datasets.find(name)
    assert known.info.class_names == ("benign", "malignant")
    assert known.info.shape == (1, 8, 8)
    assert (known.train, known.test) == ((10, 10), (3, 3))
    assert known.parties == ("city", "lake")
    assert known.party_of is not None
    owners = known.party_of()
    images, labels = datasets.load(name, "train")
    assert np.bincount(owners).tolist() == [12, 8]
    of_lake = np.flatnonzero((owners == 1) & (labels.numpy() == 1))
    assert (images[of_lake[2], 0].numpy() == np.asarray(picture(2))).all()
    tested, test_labels = datasets.load(name, "test")
    assert tested.shape == (6, 1, 8, 8)
    assert test_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_without_test_pictures_a_fifth_of_each_class_is_cut_off(tmp_path: Path) -> None:
    write_pictures(tmp_path / "9", 10)
    write_pictures(tmp_path / "10", 20)
    known = datasets.find(f"file:{tmp_path}")
    assert known.info.class_names == ("9", "10")
    assert (known.train, known.test) == ((8, 16), (2, 4))
    both = [datasets.load(f"file:{tmp_path}", split)[0].numpy() for split in ("train", "test")]
    found = {image.tobytes() for image in np.concatenate(both)}
    assert found == {np.asarray(picture(i)).tobytes() for i in range(20)}


def test_colour_jpeg_and_a_stated_size(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", 5, side=8, colour=True)
    write_pictures(tmp_path / "b", 5, side=12, colour=True)
    picture(9, 16).save(tmp_path / "b" / "grey.JPEG")
    with pytest.raises(UserError, match=r"is 12x12, and the first image is 8x8.*`size: \[8, 8\]`"):
        datasets.load(f"file:{tmp_path}", "train")
    (tmp_path / "schema.yaml").write_text("size: [10, 6]\n")
    images, labels = datasets.load(f"file:{tmp_path}", "train")
    assert images.shape == (9, 3, 10, 6)
    assert sorted(set(labels.tolist())) == [0, 1]


def test_a_picture_that_is_added_is_seen(tmp_path: Path) -> None:
    for label in ("a", "b"):
        write_pictures(tmp_path / "train" / label, 2)
        write_pictures(tmp_path / "test" / label, 1)
    assert datasets.find(f"file:{tmp_path}").train == (2, 2)
    picture(5).save(tmp_path / "train" / "a" / "more.png")
    assert datasets.find(f"file:{tmp_path}").train == (3, 2)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: write_pictures(f / "test" / "third", 1), "has no class 'third'"),
        (lambda f: write_pictures(f / "train" / "city", 1), "holds images and folders"),
        (lambda f: write_pictures(f / "train" / "benign", 1), "classes and parties side by side"),
        (lambda f: (f / "train/city/empty").mkdir(), "holds no image: needed are files .png"),
        (
            lambda f: (f / "train/city/benign/0.png").write_text("text"),
            r"benign/0.png is not a readable image",
        ),
        (lambda f: (f / "schema.yaml").write_text("siz: 3"), "unknown key 'siz'. Did you mean"),
        (lambda f: (f / "schema.yaml").write_text("size: 3"), r"size=3 must be \[HEIGHT, WIDTH\]"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, break_it, message: str) -> None:
    folder = write_hospitals(tmp_path / "scans")
    break_it(folder)
    with pytest.raises(UserError, match=message):
        datasets.load(f"file:{folder}", "train")


def test_a_folder_without_pictures_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no folders with images"):
        datasets.find(f"file:{tmp_path}")
