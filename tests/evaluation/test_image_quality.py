"""Image quality separates real images from noise, and its metrics name their weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import registry as datasets
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.image_quality import ImageQuality, measure_image_quality

SHAPES = datasets.find("shapes").info


@pytest.fixture(scope="module")
def shapes() -> dict[str, SyntheticSet]:
    return {split: SyntheticSet(*datasets.load("shapes", split)) for split in datasets.SPLITS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared cache, so that the scorer is trained once."""
    return tmp_path_factory.mktemp("scorers")


def measured(shapes: dict[str, SyntheticSet], folder: Path, released: SyntheticSet) -> ImageQuality:
    return measure_image_quality(
        released,
        shapes["train"],
        shapes["test"],
        tuple(range(SHAPES.classes)),
        info=SHAPES,
        config=EvaluationConfig(quality=True, scorer_width=4, scorer_images=3000),
        key=("k",),
        folder=folder,
    )


def test_real_images_look_real_and_noise_does_not(
    shapes: dict[str, SyntheticSet], folder: Path
) -> None:
    real = measured(shapes, folder, shapes["train"])
    other = measured(shapes, folder, shapes["test"])
    noise = torch.rand(400, 1, 28, 28)
    wrong = measured(shapes, folder, SyntheticSet(noise, torch.arange(400) % 10))
    assert real.fid_lite < 1e-4 * wrong.fid_lite
    assert other.fid_lite < 0.5 * wrong.fid_lite
    assert other.inception_score > wrong.inception_score
    assert real.images == real.real == len(shapes["train"].labels)
    rows = real.rows()
    assert rows["scorer_accuracy"] > 0.3
    assert {"inception_score", "inception_score_std", "fid_lite"} <= set(rows)
    assert "fid" not in rows
    assert measured(shapes, folder, shapes["test"]) == other


def test_fid_is_named_after_its_weights() -> None:
    quality = ImageQuality(1.0, 0.0, 1, 2.0, 3, 4, "a scorer", 0.5, fid=7.0, fid_by="torchvision")
    assert quality.rows()["fid_torchvision"] == 7
    assert "fid" not in quality.rows()
    assert replace(quality, fid_by="torch-fidelity").rows()["fid"] == 7
