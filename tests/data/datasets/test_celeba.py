"""CelebA from a few images in the published layout, and the cache of decoded images."""

from __future__ import annotations

import dataclasses
import shutil
import zipfile

import numpy as np
import pytest
import torch
from image_files import write_image, write_list
from PIL import Image

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.cache import images as image_cache
from fedsynth.data.datasets import celeba

NAMES = ("Bald", "Black_Hair", "Blond_Hair", "Brown_Hair", "Male")
FACES = {  # part, attributes
    "000001.jpg": (0, (-1, 1, -1, -1, 1)),
    "000002.jpg": (0, (-1, -1, 1, -1, -1)),
    "000003.jpg": (1, (-1, 1, -1, -1, 1)),
    "000004.jpg": (0, (-1, 1, -1, 1, -1)),  # two colours
    "000005.jpg": (2, (-1, -1, -1, 1, -1)),
    "000006.jpg": (2, (1, -1, -1, -1, 1)),  # no colour
    "000007.jpg": (0, (-1, -1, -1, 1, 1)),
}


@pytest.fixture
def faces(monkeypatch, tmp_path):
    """Seven faces in torchvision's layout."""
    folder = tmp_path / "celeba"
    lines = [f"{name} {' '.join(f'{v:2d}' for v in values)}" for name, (_, values) in FACES.items()]
    text = "\n".join([str(len(FACES)), " ".join(NAMES) + " ", *lines, ""])
    write_list(monkeypatch, celeba, "ATTRIBUTES", folder / "list_attr_celeba.txt", text)
    parts = "".join(f"{name} {part}\n" for name, (part, _) in FACES.items())
    write_list(monkeypatch, celeba, "PARTITION", folder / "list_eval_partition.txt", parts)
    for number, name in enumerate(FACES):
        write_image(folder / "img_align_celeba" / name, number)
    old = datasets.find("celeba_gender")
    small = dataclasses.replace(old, train=(2, 2), test=(1, 1))
    monkeypatch.setitem(datasets._registry, "celeba_gender", small)
    return folder


def test_faces_by_gender(faces):
    images, labels = datasets.load("celeba_gender", "train", faces.parent)
    assert labels.tolist() == [1, 0, 0, 1]
    assert images.shape == (4, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert datasets.load("celeba_gender", "test", faces.parent)[1].tolist() == [0, 1]


def test_faces_with_one_colour_of_hair_are_counted_from_the_published_list(faces):
    hair = datasets.find("celeba_hair")
    assert hair.class_counts("train", faces.parent) == (1, 1, 1)
    assert hair.class_counts("test", faces.parent) == (0, 0, 1)
    images, labels = datasets.load("celeba_hair", "train", faces.parent)
    assert labels.tolist() == [0, 1, 2]
    both = datasets.load("celeba_gender", "train", faces.parent)[0]
    assert torch.equal(images, both[[0, 1, 3]])


def test_a_picture_is_taken_whole_and_made_small(faces):
    images, _ = datasets.load("celeba_gender", "train", faces.parent)
    with Image.open(faces / "img_align_celeba" / "000007.jpg") as image:
        whole = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(whole, (32, 32), mode="bilinear", antialias=True)
    assert (images[3].float() - expected[0]).abs().max() < 3


def test_pictures_are_read_from_the_archive_as_well(faces):
    folder = faces / "img_align_celeba"
    first = datasets.load("celeba_gender", "train", faces.parent)[0].clone()
    with zipfile.ZipFile(faces / "img_align_celeba.zip", "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"img_align_celeba/{path.name}")
            path.unlink()
    folder.rmdir()
    shutil.rmtree(faces / "decoded")
    assert torch.equal(datasets.load("celeba_gender", "train", faces.parent)[0], first)


def test_pictures_are_decoded_once_and_then_mapped(faces, monkeypatch):
    first = datasets.load("celeba_gender", "train", faces.parent)[0].clone()

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    with monkeypatch.context() as patch:
        patch.setattr(image_cache, "_decode", refuse)
        images, _ = datasets.find("celeba_gender").reader("train", faces.parent)
        assert isinstance(images, np.memmap)
        images[0] = 0  # copy on write: nobody else sees it
        again = datasets.load("celeba_gender", "train", faces.parent)[0]
        assert torch.equal(again, first)
    (faces / "decoded" / "celeba_gender-train" / "made-from.json").write_text("of something else")
    monkeypatch.setattr(image_cache, "_decode", refuse)
    with pytest.raises(AssertionError, match="decoded again"):
        datasets.load("celeba_gender", "train", faces.parent)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "000002.jpg is not a complete image"),
        (lambda path: path.write_text("no picture"), "000002.jpg is not a complete image"),
        (lambda path: path.unlink(), "there is no image 000002.jpg in"),
    ],
)
def test_a_damaged_picture_is_named_and_nothing_half_is_kept(faces, damage, message):
    path = faces / "img_align_celeba" / "000002.jpg"
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(UserError, match=message):
        datasets.load("celeba_gender", "train", faces.parent)
    assert [p.suffix for p in (faces / "decoded").iterdir()] in ([], [".lock"])
    path.write_bytes(whole)
    assert len(datasets.load("celeba_gender", "train", faces.parent)[1]) == 4


def test_a_changed_list_is_refused(faces):
    path = faces / "list_attr_celeba.txt"
    path.write_text(path.read_text().replace(" 1", "-1", 1))
    with pytest.raises(UserError, match=r"list_attr_celeba.txt is not the file .* MD5.*published"):
        datasets.find("celeba_hair").class_counts("train", faces.parent)


def test_a_folder_that_cannot_be_written_to_is_told(faces):
    (faces / "decoded").write_text("a file where a folder must be")
    with pytest.raises(UserError, match=r"cannot keep decoded images in .*data_dir="):
        datasets.load("celeba_gender", "train", faces.parent)


@pytest.mark.parametrize("name", ["celeba_gender", "celeba_hair", "places365"])
def test_what_to_put_where_is_told_where_there_is_nothing(name, tmp_path):
    with pytest.raises(UserError, match=r"cannot be had\. Tried:") as told:
        datasets.load(name, "train", tmp_path)
    for words in (str(tmp_path), "torchvision.datasets", "data=made_colour"):
        assert words in str(told.value)
