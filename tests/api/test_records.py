"""A caller's records: all accepted forms give the same arrays; nothing is read off the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from fedsynth.api.records import columns_of, own_records
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column

BYTES = np.random.default_rng(0).integers(0, 256, (6, 3, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])
SCHEMA = {"age": (0, 100), "income": (0.0, 1.0), "ward": ["north", "south", "west"]}
TABLE = pd.DataFrame(
    {"ward": ["south", "north"], "age": [50, 200], "income": [0.25, 0.5], "ill": ["no", "yes"]}
)


class Pictures(Dataset):
    """Pairs of a picture and its label, as torchvision has them."""

    def __len__(self) -> int:
        return len(BYTES)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(BYTES[index].transpose(1, 2, 0)), int(LABELS[index])


@pytest.mark.parametrize(
    "arguments",
    [
        (BYTES, LABELS),
        (BYTES / 255, LABELS.tolist()),
        (torch.from_numpy(BYTES), torch.from_numpy(LABELS)),
        (torch.from_numpy(BYTES).float() / 255, pd.Series(LABELS)),
        (TensorDataset(torch.from_numpy(BYTES), torch.from_numpy(LABELS)),),
        (Pictures(),),
    ],
)
def test_all_forms_of_images_give_the_same_records(arguments: tuple) -> None:
    made = own_records(*arguments)
    assert made.records.dtype == np.uint8
    assert (made.records == BYTES).all()
    assert made.labels.tolist() == LABELS.tolist()
    assert made.classes.tolist() == [0, 1, 2]


def test_floats_are_rounded_to_the_nearest_byte() -> None:
    assert own_records(np.full((1, 2, 2), 0.999), [0]).records.max() == 255  # 254.7


def test_labels_of_any_kind_become_indices() -> None:
    made = own_records(BYTES, list("cabcab"))
    assert made.labels.tolist() == [2, 0, 1, 2, 0, 1]
    assert made.classes.tolist() == ["a", "b", "c"]
    stated = own_records(BYTES, list("cabcab"), classes=list("dcba"))
    assert stated.labels.tolist() == [1, 3, 2, 1, 3, 2]
    assert stated.data_set("x").train == (0, 2, 2, 2)


def test_a_table_is_encoded_by_its_stated_schema() -> None:
    made = own_records(TABLE, "ill", schema=SCHEMA)
    assert [column.name for column in made.columns] == ["age", "income", "ward"]
    assert made.records[:, :, 0, 0].tolist() == [
        [0.5, 0.25, 0.5],
        [1.0, 0.5, 0.0],
    ]  # 200 is clipped
    array = TABLE[["age", "income", "ward"]].to_numpy()
    assert (own_records(array, TABLE["ill"], schema=SCHEMA).records == made.records).all()
    other = TABLE.assign(age=[1, 2])  # other data, the same facts
    info = own_records(other, "ill", schema=SCHEMA).data_set("x").info
    assert info == made.data_set("x").info


def test_a_range_of_whole_numbers_is_one_of_whole_numbers() -> None:
    age, income, ward = columns_of(SCHEMA)
    assert (age.whole, income.whole) == (True, False)
    assert ward.categories == ("north", "south", "west")
    assert columns_of([Column("age", 0, 9)]) == (Column("age", 0, 9),)


FRAME = TABLE.drop(columns="ill")
REFUSED: list[tuple[tuple, dict[str, Any], str]] = [
    ((BYTES,), {}, "y is missing"),
    ((BYTES, LABELS[:5]), {}, "6 records and y has 5"),
    ((BYTES, LABELS[:, None]), {}, "one dimension"),
    ((BYTES.transpose(0, 2, 3, 1), LABELS), {}, r"transpose\(0, 3, 1, 2\)"),
    ((BYTES.astype(int), LABELS), {}, "uint8, or floats from 0 to 1"),
    ((BYTES.astype(float), LABELS), {}, "is not from 0 to 1"),
    ((np.full((2, 4, 4), np.nan), [0, 1]), {}, "is not from 0 to 1"),
    ((BYTES, [0, 1, None, 0, 1, 2]), {}, r"y\[2\] is missing"),
    ((BYTES, LABELS), {"classes": [0, 1]}, r"y\[2\] is not in classes= \(2"),
    ((BYTES, LABELS), {"classes": [0, 0, 1, 2]}, "different labels"),
    ((BYTES, LABELS), {"classes": [[1], [2, 3]]}, "rectangular"),
    ((BYTES[:2], np.array([1, "a"], dtype=object)), {}, "labels of different types"),
    ((FRAME, [0, 1]), {"schema": 5}, "schema=5 is neither"),
    ((BYTES, LABELS), {"schema": SCHEMA}, "schema= is for tables"),
    ((TABLE, "ill"), {}, "a table needs schema="),
    ((TABLE, "il"), {"schema": SCHEMA}, "Did you mean 'ill'"),
    ((TABLE, [0, 1]), {"schema": SCHEMA}, "nothing of column 'ill'"),
    ((FRAME.drop(columns="age"), [0, 1]), {"schema": SCHEMA}, "X has 0 columns 'age'"),
    ((np.zeros((2, 2)), [0, 1]), {"schema": SCHEMA}, "X has 2 columns, and schema has 3"),
    ((FRAME, [0, 1]), {"schema": {**SCHEMA, "age": (9, 0)}}, "low < high"),
    ((FRAME, [0, 1]), {"schema": {**SCHEMA, "age": float}}, "neither a range"),
    ((FRAME, [0, 1]), {"schema": {**SCHEMA, "ward": ["north"]}}, "'ward' of record 1"),
]


@pytest.mark.parametrize(("arguments", "keys", "message"), REFUSED)
def test_what_does_not_fit_is_refused(arguments: tuple, keys: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        own_records(*arguments, **keys)


def test_no_message_holds_a_value() -> None:
    secret = FRAME.assign(ward=["secret", "north"])
    with pytest.raises(UserError) as caught:
        own_records(secret, [0, 1], schema=SCHEMA)
    assert "secret" not in str(caught.value)
