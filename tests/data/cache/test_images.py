"""Decoded images: from a folder or an archive, once, and refused by name where one is damaged."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_files import write_image
from PIL import Image

from fedsynth.core.errors import UserError
from fedsynth.data.cache import images as image_cache
from fedsynth.data.cache.images import ImageArchive, decoded

NAMES = ["0.jpg", "1.jpg", "2.jpg"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three images of 40 x 30."""
    for number, name in enumerate(NAMES):
        write_image(tmp_path / "raw" / name, number, size=(40, 30))
    return tmp_path


def zipped(folder: Path) -> ImageArchive:
    """The images in a folder of a zip archive."""
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for name in NAMES:
            archive.write(folder / "raw" / name, f"inner/{name}")
    return ImageArchive(folder / "all.zip", "inner")


def test_images_are_resized_as_a_whole_in_the_order_of_the_names(folder):
    order = NAMES[::-1]
    made = decoded(folder / "cache", ImageArchive(folder / "raw"), order, 8)
    assert made.shape == (3, 3, 8, 8)
    for image, name in zip(made, order, strict=True):
        with Image.open(folder / "raw" / name) as whole:
            small = whole.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR)
        assert np.abs(image.astype(int) - np.asarray(small).transpose(2, 0, 1)).max() <= 3


def test_an_archive_gives_the_images_of_its_folder(folder):
    from_folder = decoded(folder / "a", ImageArchive(folder / "raw"), NAMES, 8)
    assert np.array_equal(decoded(folder / "b", zipped(folder), NAMES, 8), from_folder)


def test_images_are_decoded_once_per_source_names_and_side(folder, monkeypatch):
    calls: list[str] = []
    decode = image_cache._decode
    monkeypatch.setattr(
        image_cache, "_decode", lambda *args: calls.append(args[1]) or decode(*args)
    )
    archive = zipped(folder)
    for names, side, new in [(NAMES, 8, 3), (NAMES, 8, 0), (NAMES, 6, 3), (NAMES[:2], 6, 2)]:
        calls.clear()
        assert decoded(folder / "cache", archive, names, side).shape == (len(names), 3, side, side)
        assert len(calls) == new
    with zipfile.ZipFile(folder / "all.zip", "a") as changed:
        changed.writestr("more.txt", "more")
    decoded(folder / "cache", archive, NAMES[:2], 6)
    assert len(calls) == 4, "the archive has changed"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"there is no image 1\.jpg in .*raw"),
        (lambda path: path.write_bytes(b"no image"), r"1\.jpg is not a complete image"),
        (lambda path: path.write_bytes(path.read_bytes()[:400]), r"1\.jpg is not a complete image"),
    ],
    ids=["missing", "other content", "cut off"],
)
def test_a_damaged_image_is_named(folder, damage, message):
    damage(folder / "raw" / "1.jpg")
    with pytest.raises(UserError, match=message):
        decoded(folder / "cache", ImageArchive(folder / "raw"), NAMES, 8)
