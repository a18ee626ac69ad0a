"""The forms of an export, read by other programs than ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import exported
import numpy as np
import pandas as pd
import pytest

import fedsynth
from fedsynth.api.export.folder import export
from fedsynth.api.export.forms import class_folder
from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine


@pytest.fixture(scope="module")
def releases(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An archive of each kind."""
    return exported.released(tmp_path_factory.mktemp("releases"), here)


def test_class_folders_sort_by_label_and_hold_the_images(
    releases: dict[str, Path], tmp_path: Path
) -> None:
    from PIL import Image

    release = fedsynth.load(releases["image"])
    folder = release.export(tmp_path / "out", form="png-folder")
    expected = np.rint(release.images.clip(0, 1) * 255).astype(np.uint8)
    folders = sorted((folder / "images").iterdir())
    read = []
    for label, group in zip(np.unique(release.labels), folders, strict=True):
        for path in group.iterdir():
            assert release.labels[int(path.stem)] == label
            with Image.open(path) as picture:
                assert (np.asarray(picture) == expected[int(path.stem), 0]).all()
            read.append(int(path.stem))
    assert sorted(read) == list(range(len(release.labels)))


def test_the_table_is_the_file_of_the_run(releases: dict[str, Path], tmp_path: Path) -> None:
    folder = export(releases["table"], tmp_path / "out", "csv")
    assert (folder / "data.csv").read_bytes() == releases["table"].with_suffix(".csv").read_bytes()


def test_pandas_reads_rows_and_types(releases: dict[str, Path], tmp_path: Path) -> None:
    release = fedsynth.load(releases["table"])
    frame = pd.read_parquet(export(release.path, tmp_path / "a", "parquet") / "data.parquet")
    text = pd.read_csv(export(release.path, tmp_path / "b", "csv") / "data.csv")
    expected = release.to_pandas()
    for column in release.columns:
        assert frame[column.name].tolist() == expected[column.name].tolist()
        assert text[column.name].tolist() == expected[column.name].tolist()
        if column.categories:
            assert tuple(frame[column.name].cat.categories) == column.categories
    assert frame["label"].cat.codes.tolist() == release.labels.tolist()


def test_pixels_survive_as_text_to_the_bit(releases: dict[str, Path], tmp_path: Path) -> None:
    release = fedsynth.load(releases["image"])
    folder = release.export(tmp_path / "out", "csv")
    rows = np.loadtxt(folder / "data.csv", delimiter=",", skiprows=1, dtype=str)
    assert (rows[:, :-1].astype(np.float32) == release.images.reshape(len(rows), -1)).all()


def test_arrays_of_sets_and_models_are_those_of_the_release(
    releases: dict[str, Path], tmp_path: Path
) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file

    for kind, name in (("image", "data"), ("model", "model")):
        place = export(releases[kind], tmp_path / kind, "torch") / f"{name}.safetensors"
        outcome = fedsynth.load(releases[kind]).outcome
        arrays = outcome.state if kind == "model" else outcome.to_arrays()
        read = load_file(place)
        assert set(read) == set(arrays)
        assert all((read[key] == arrays[key]).all() for key in arrays)
    with safe_open(place, "pt") as file:
        assert file.metadata()["network"] == "convnet"


@pytest.mark.parametrize("kind", ["image", "table"])
def test_hugging_face_reads_the_folder(
    releases: dict[str, Path], kind: str, tmp_path: Path, monkeypatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    release = fedsynth.load(releases[kind])
    folder = release.export(tmp_path / "out", "hf")
    found = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))["train"]
    assert found["label"][:] == release.labels.tolist()
    assert isinstance(found.features["label"], datasets.ClassLabel)
    if kind == "image":
        expected = np.rint(release.images[1, 0].clip(0, 1) * 255).astype(np.uint8)
        assert (np.asarray(found[1]["image"]) == expected).all()
    else:
        expected = release.to_pandas()
        for column in release.columns:
            assert found[column.name][:] == expected[column.name].tolist()


@pytest.mark.parametrize(
    ("kind", "form", "words"),
    [
        ("model", "csv", "kind model. Allowed: torch."),
        ("table", "png-folder", "Allowed: csv, parquet, torch, hf."),
        ("table", "parquett", "Did you mean 'parquet'"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(
    releases: dict[str, Path], kind: str, form: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        export(releases[kind], tmp_path / "out", form)
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "package"), [("parquet", "pyarrow"), ("hf", "pyarrow"), ("torch", "safetensors")]
)
def test_a_missing_package_is_one_message(
    releases: dict[str, Path], form: str, package: str, tmp_path: Path, monkeypatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else real(name)
    )
    with pytest.raises(UserError, match=f"not installed: pip install {package}"):
        export(releases["table"], tmp_path / "out", form)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_classes_are_names_that_any_disk_takes() -> None:
    assert class_folder(3, "../a/b", 10) == "3_a_b"
    assert class_folder(3, "3", 10) == "3"
    assert class_folder(3, "..", 100) == "03"
