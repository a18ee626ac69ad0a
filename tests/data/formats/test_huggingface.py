"""Data sets that the package `datasets` saved, read without it."""

from __future__ import annotations

import sys
from pathlib import Path

import datasets as hugging_face
import numpy as np
import pytest
from own_files import HEADER, SCHEMA, picture, visits, write_visits

from fedsynth.core.errors import UserError
from fedsynth.data import registry


def saved_images(folder: Path, **columns: object) -> Path:
    """Ten pictures of two classes in two splits, as `save_to_disk` writes them."""
    features = hugging_face.Features(
        {
            "picture": hugging_face.Image(),
            "kind": hugging_face.ClassLabel(names=["cat", "dog"]),
            "clinic": hugging_face.Value("string"),
        }
    )

    def split(start: int, count: int) -> hugging_face.Dataset:
        values = {
            "picture": [picture(start + i) for i in range(count)],
            "kind": [i % 2 for i in range(count)],
            "clinic": ["lake" if i % 3 else "city" for i in range(count)],
        }
        return hugging_face.Dataset.from_dict(values, features=features)

    both = hugging_face.DatasetDict({"train": split(0, 10), "test": split(50, 4)})
    both.save_to_disk(str(folder))
    return folder


def test_saved_images_with_names_and_parties(tmp_path: Path, monkeypatch) -> None:
    folder = saved_images(tmp_path / "pets")
    (folder / "schema.yaml").write_text("party: clinic\n")
    monkeypatch.setitem(sys.modules, "datasets", None)  # it is not needed to read
    name = f"file:{folder}"
    known = registry.find(name)
    assert known.info.class_names == ("cat", "dog")
    assert (known.train, known.test) == ((5, 5), (2, 2))
    assert known.parties == ("city", "lake")
    assert known.party_of is not None
    assert known.party_of().tolist() == [int(i % 3 > 0) for i in range(10)]
    images, labels = registry.load(name, "train")
    assert labels.tolist() == [i % 2 for i in range(10)]
    for i in range(10):
        assert (images[i, 0].numpy() == np.asarray(picture(i))).all()
    assert (registry.load(name, "test")[0][3, 0].numpy() == np.asarray(picture(53))).all()


def test_one_split_is_cut_in_two(tmp_path: Path) -> None:
    whole = hugging_face.load_from_disk(str(saved_images(tmp_path / "pets")))["train"]
    whole.save_to_disk(str(tmp_path / "one"))
    known = registry.find(f"file:{tmp_path / 'one'}")
    assert (known.train, known.test) == ((4, 4), (1, 1))
    assert registry.load(f"file:{tmp_path / 'one'}", "test")[0].shape == (2, 1, 8, 8)


def test_a_saved_table_gives_the_same_as_the_csv(tmp_path: Path) -> None:
    csv = f"file:{write_visits(tmp_path)}"
    rows = {
        name: list(column) for name, column in zip(HEADER, zip(*visits(), strict=True), strict=True)
    }
    hugging_face.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "saved" / "schema.yaml").write_text(SCHEMA)
    for one, other in zip(
        registry.load(csv, "train"),
        registry.load(f"file:{tmp_path / 'saved'}", "train"),
        strict=True,
    ):
        assert (one == other).all()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("label: knd", "label='knd' is not a column. Did you mean 'kind'"),
        ("party: clinics", "party='clinics' is not a column. Did you mean 'clinic'"),
        ("image: kind", "image='kind' is not a column. Allowed: picture"),
    ],
)
def test_a_column_that_is_not_there_is_named(tmp_path: Path, schema: str, message: str) -> None:
    folder = saved_images(tmp_path / "pets")
    (folder / "schema.yaml").write_text(schema)
    with pytest.raises(UserError, match=message):
        registry.find(f"file:{folder}")


def test_a_damaged_folder_is_said_to_be_one(tmp_path: Path) -> None:
    folder = saved_images(tmp_path / "pets")
    for file in (folder / "train").glob("*.arrow"):
        file.write_bytes(b"text")
    with pytest.raises(UserError, match="train is not a data set saved by save_to_disk"):
        registry.find(f"file:{folder}")
