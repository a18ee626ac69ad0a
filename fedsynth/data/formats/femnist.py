"""The published formats of federated EMNIST: LEAF's JSON files, TensorFlow Federated's HDF5 files,
and Flower Datasets' `flwrlabs/femnist`.

Each reader yields users one after another with uint8 images [n, 28, 28] and labels. All three
sources are black on white; here strokes are bright on black, as in MNIST. The 62 characters become
36 classes: ten digits, then the letters with capital and small ones merged.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.data.fetch.fetch import data_directory

CLASSES, CHARACTERS, SIDE = 36, 62, 28
TEST_EVERY = 10  # without a test split, every tenth record of a user is for testing

Folder = str | Path | None
User = tuple[str, np.ndarray, np.ndarray]  # name, images, labels


def merged(characters: np.ndarray) -> np.ndarray:
    """0-9 digits, 10-35 capitals, 36-61 small letters -> 36 classes."""
    labels = np.asarray(characters, np.int64).reshape(-1)
    if len(labels) and not 0 <= labels.min() <= labels.max() < CHARACTERS:
        raise UserError(f"labels from {labels.min()} to {labels.max()}, not 0 to {CHARACTERS - 1}")
    return np.where(labels >= CLASSES, labels - (CLASSES - 10), labels)


def inverted(pixels: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1], where 1 is white paper, as bytes with bright strokes."""
    pixels = np.asarray(pixels, np.float64).reshape(-1, SIDE, SIDE)
    if not (np.isfinite(pixels).all() and 0 <= pixels.min(initial=0) <= pixels.max(initial=1) <= 1):
        raise UserError("pixels outside [0, 1]")
    return np.rint(255 * (1 - pixels)).astype(np.uint8)


# LEAF


def leaf_folder(data_dir: Folder) -> Path | None:
    """The folder with train/*.json and test/*.json of LEAF, if there is one."""
    return next((f for f in leaf_places(data_dir) if any((f / "train").glob("*.json"))), None)


def leaf_places(data_dir: Folder) -> tuple[Path, ...]:
    """The folders that may hold LEAF's files."""
    root = data_directory(data_dir)
    return tuple(root / p for p in ("femnist_leaf", "femnist/data", "femnist", "leaf/femnist/data"))


def leaf_files(data_dir: Folder, split: str) -> list[Path]:
    """LEAF's json files of a split."""
    folder = leaf_folder(data_dir)
    return sorted((folder / split).glob("*.json")) if folder else []


def read_leaf(data_dir: Folder, split: str) -> Iterator[User]:
    """Users from files that hold `user_data: {name: {x: [[784 numbers]], y: [labels]}}`."""
    for path in leaf_files(data_dir, split):
        try:
            users = json.loads(path.read_text(encoding="utf-8"))["user_data"]
            for name, data in users.items():
                yield name, *_checked(inverted(data["x"]), merged(data["y"]))
        except (OSError, ValueError, KeyError, TypeError, UserError) as error:
            raise UserError(f"{path} is not a LEAF file of FEMNIST: {error!s}.") from error


# TensorFlow Federated


def tff_file(data_dir: Folder, split: str) -> Path | None:
    """The HDF5 file of a split, if there is one."""
    return next((p for p in tff_places(data_dir, split) if p.is_file()), None)


def tff_places(data_dir: Folder, split: str) -> tuple[Path, ...]:
    """The paths that a file of TensorFlow Federated may have."""
    root = data_directory(data_dir)
    return tuple(root / f / f"fed_emnist_{split}.h5" for f in ("femnist_tff", "fed_emnist", "."))


def read_tff(data_dir: Folder, split: str) -> Iterator[User]:
    """Users from a file that holds `examples/NAME/pixels` [n, 28, 28] and `examples/NAME/label`."""
    path = tff_file(data_dir, split)
    if path is None:
        return
    if importlib.util.find_spec("h5py") is None:
        raise UserError(f"{path} is an HDF5 file, and h5py is not installed: pip install h5py.")
    h5py: Any = importlib.import_module("h5py")
    try:
        with h5py.File(path, "r") as file:
            for name, data in file["examples"].items():
                images, labels = np.asarray(data["pixels"]), np.asarray(data["label"])
                yield name, *_checked(inverted(images), merged(labels))
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{path} is not an HDF5 file of federated EMNIST: {error!s}.") from error


# Flower Datasets


def flower_cache() -> Path:
    """The folder in which Hugging Face's library keeps `flwrlabs/femnist` once it is downloaded."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache = os.environ.get("HF_DATASETS_CACHE") or Path(home) / "datasets"
    return Path(cache) / "flwrlabs___femnist"


def read_flower(_data_dir: Folder, split: str) -> Iterator[User]:
    """Users from `flwrlabs/femnist`, which has rows of `image`, `writer_id` and `character`.

    It has one split only; every tenth record of a user is for testing."""
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "20")
    if importlib.util.find_spec("flwr_datasets") is None:
        raise UserError("flwr_datasets is not installed: pip install 'flwr-datasets[vision]'.")
    library: Any = importlib.import_module("flwr_datasets")
    pixels: dict[str, list[np.ndarray]] = defaultdict(list)
    labels: dict[str, list[int]] = defaultdict(list)
    try:
        data = library.FederatedDataset(dataset="flwrlabs/femnist", partitioners={"train": 1})
        for row in data.load_split("train"):
            pixels[row["writer_id"]].append(255 - np.asarray(row["image"], np.uint8))
            labels[row["writer_id"]].append(int(row["character"]))
    except Exception as error:  # its libraries raise various types: no network, no space, ...
        raise UserError(
            f"flwrlabs/femnist cannot be had from Flower Datasets ({type(error).__name__}: {error})"
        ) from error
    for name in sorted(pixels):
        tested = np.arange(len(labels[name])) % TEST_EVERY == TEST_EVERY - 1
        chosen = tested if split == "test" else ~tested
        classes = merged(np.array(labels[name]))
        if chosen.any():
            yield name, *_checked(np.stack(pixels[name])[chosen], classes[chosen])


def _checked(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if images.shape != (len(labels), SIDE, SIDE):
        raise UserError(f"images of shape {images.shape} for {len(labels)} labels")
    return images, labels


Reader = Callable[[Folder, str], Iterator[User]]


def source_files(name: str, data_dir: Folder) -> Sequence[Path]:
    """The files of a source, whose change invalidates the conversion; none for Flower's cache."""
    if name == "femnist_leaf":
        return [*leaf_files(data_dir, "train"), *leaf_files(data_dir, "test")]
    paths = [tff_file(data_dir, split) for split in ("train", "test")]
    return [path for path in paths if path is not None] if name == "femnist_tff" else []
