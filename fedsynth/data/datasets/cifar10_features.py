"""CIFAR-10 as fixed features: 320 numbers per photograph, from a network trained on ImageNet.

A table whose columns are the features of `data.efficientnet_lite`. They are computed once, which
takes minutes, and kept beside the weights; both splits are then read from there.

Claim: reading these data costs no privacy. The features of a record are a function of that record
and of public weights, and the scale of the columns is a constant. An epsilon on them is one on the
photographs; the photographs of ImageNet, from which the weights were learned, are public and not
covered.
"""

from __future__ import annotations

import logging
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import Column
from fedsynth.data.cache import memmap_cache
from fedsynth.data.datasets.cifar10 import cifar10
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.registry import SPLITS, dataset
from fedsynth.data.tables import table_info

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    from fedsynth.data.efficientnet_lite import EfficientNetLite0

log = logging.getLogger(__name__)

FEATURES = 320
COLUMNS = tuple(Column(f"feature {number}", -1, 1) for number in range(1, FEATURES + 1))
STD = 0.5 / math.sqrt(FEATURES)  # of a vector of length one around zero, as a column from 0 to 1
STEPS = 1 << 13
"""Columns are multiples of 1 / STEPS, so that the rounding of a processor hardly shows."""
_VERSION = 1  # of the computation
_PART = 2_000  # images between two lines of progress


@dataset(
    table_info("cifar10_features", COLUMNS, 10, std=[STD] * FEATURES),
    train=(5000,) * 10,
    test=(1000,) * 10,
    about="CIFAR-10 as 320 features per photograph, of a fixed network trained on ImageNet",
)
def cifar10_features(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The stored features, computed first where they are missing."""
    path = prepare(data_dir) / f"{split}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            steps, labels = arrays["features"], arrays["labels"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is damaged ({error}). Delete the folder {path.parent} and run again to have "
            "the features computed anew."
        ) from error
    return steps.astype(np.float32)[:, :, None, None] / STEPS, labels


def prepare(data_dir: str | Path | None = None, report: Callable[[str], None] = log.info) -> Path:
    """Make sure that the features are stored; returns their folder.

    Args:
        data_dir: The data directory, None for the default.
        report: Receives lines of progress.

    Raises:
        UserError: The photographs or the weights cannot be had, or the folder cannot be written.
    """
    (known,) = known_files.CIFAR10_FEATURES.files
    folder = fetch.data_directory(data_dir) / known_files.CIFAR10_FEATURES.name / "computed"
    made_from = {"version": _VERSION, "weights": known.sha256}

    def compute(draft: Path) -> None:
        from fedsynth.data.efficientnet_lite import load_weights

        net = load_weights(fetch.read(known_files.CIFAR10_FEATURES, known, data_dir))
        for split in SPLITS:
            images, labels = cifar10(split, data_dir)
            np.savez(draft / split, features=_steps(net, images, split, report), labels=labels)

    memmap_cache.build(folder, made_from, compute, "the computed features")
    return folder


def _steps(
    net: EfficientNetLite0, images: np.ndarray, split: str, report: Callable[[str], None]
) -> np.ndarray:
    """The features as whole numbers of steps, uint16 [n, 320]."""
    import torch

    from fedsynth.data.efficientnet_lite import unit_features

    found = []
    for start in range(0, len(images), _PART):
        report(f"features of the {split} split, computed once: {start:,} of {len(images):,} images")
        part = unit_features(net, torch.from_numpy(images[start : start + _PART].copy()))
        found.append(((part + 1) / 2 * STEPS).round().clamp_(0, STEPS).numpy().astype(np.uint16))
    return np.concatenate(found)
