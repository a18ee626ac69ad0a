"""Records of one's own by path: the form follows from what is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_files import write_hospitals, write_visits

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.formats import own


def test_each_form_is_recognised(tmp_path: Path) -> None:
    images = np.zeros((6, 4, 4), np.uint8)
    labels = np.arange(6) % 3
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    folder, table = write_hospitals(tmp_path / "scans"), write_visits(tmp_path)
    assert own.describe(f"file:{tmp_path / 'a.npz'}").info.classes == 3
    assert own.describe(f"file:{folder}").info.class_names == ("benign", "malignant")
    assert own.describe(f"file:{table}").info.columns[0].name == "age"
    for name in (tmp_path / "a.npz", folder, table):
        records, found = own.read(f"file:{name}", "train")
        assert len(records) == len(found) > 0
        assert "your own records" in datasets.find(f"file:{name}").about


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file:none.csv", "there is no file none.csv. It may be an npz file, a CSV"),
        ("file:notes.txt", "the form of notes.txt is not known. Allowed: an npz file, a CSV"),
        ("notes.txt", "a file is named data=file:notes.txt"),
        ("torchvision:KMNST", "unknown torchvision data set 'KMNST'. Did you mean 'KMNIST'"),
    ],
)
def test_what_is_not_there_or_not_known_is_said(tmp_path: Path, monkeypatch, name, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(UserError, match=message):
        datasets.find(name)
