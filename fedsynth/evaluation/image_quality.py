"""Quality of released images: Inception Score, FID-lite and, on request, FID.

The scorer and all distances use the parties' raw records. They are for evaluation only: nothing of
them is released, and no cached file holds a record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.inception import inception_features
from fedsynth.evaluation.quality_metrics import (
    GENERATED,
    REAL,
    Moments,
    frechet_distance,
    inception_score,
)
from fedsynth.evaluation.scorer import ScorerConfig, cached_scorer
from fedsynth.evaluation.types import checked_class_indices, subsample

MAX_IMAGES_IF_CAPPED = 10_000  # of each kind, if the training of the scorer is capped


@dataclass(frozen=True)
class ImageQuality:
    """Quality of one set of images. The field names are the keys of stored results."""

    inception_score: float
    inception_deviation: float  # over splits
    splits: int
    fid_lite: float
    images: int  # released ones that were scored
    real: int  # real ones in the comparison
    scorer: str
    scorer_accuracy: float  # of the scorer, on the records of the evaluation
    fid: float | None = None
    fid_by: str = ""  # origin of the Inception weights
    seconds: float = field(default=0.0, compare=False)

    def rows(self) -> dict[str, float]:
        """The metrics of one stage. FID with other weights is another metric."""
        metrics = {
            "inception_score": self.inception_score,
            "inception_score_std": self.inception_deviation,
            "inception_splits": self.splits,
            "fid_lite": self.fid_lite,
            "quality_images": self.images,
            "quality_real_images": self.real,
            "scorer_accuracy": self.scorer_accuracy,
        }
        if self.fid is not None:
            metrics["fid" if self.fid_by == "torch-fidelity" else "fid_torchvision"] = self.fid
        return metrics


def measure_image_quality(
    released: SyntheticSet,
    real: SyntheticSet,
    test: SyntheticSet,
    classes: Sequence[int],
    *,
    info: DatasetInfo,
    config: EvaluationConfig,
    key: tuple[object, ...],
    folder: Path,
    device: torch.device | str = "cpu",
) -> ImageQuality:
    """Measure a released set against real training records.

    Args:
        released: the released images.
        real: raw training records of all classes, on which the scorer is trained.
        test: test records of all classes, for the accuracy of the scorer.
        classes: the classes seen so far, to which the comparison is restricted.
        info: the data set.
        config: width of the scorer, caps, and weights for FID.
        key: of the random choice of images.
        folder: cache of scorers.
        device: where networks compute.
    """
    start = time.perf_counter()
    checked_class_indices(released.labels, classes)
    scorer_config = ScorerConfig(config.scorer_width, config.scorer_images)
    net = cached_scorer(folder, real.images, real.labels, info, scorer_config, device=device)
    full = config.scorer_images == 0
    scored = subsample(released, 0 if full else MAX_IMAGES_IF_CAPPED, (*key, "quality"))
    shuffled = torch.randperm(len(scored.labels), generator=torch_generator(*key, "order"))
    features, probabilities = net.features_and_probabilities(scored.images[shuffled])
    score = inception_score(probabilities)
    real_images = real.images[torch.isin(real.labels, torch.tensor(list(classes)))]
    sample = torch.randperm(len(real_images), generator=torch_generator("quality", "real"))
    real_images = real_images[sample[: REAL if full else MAX_IMAGES_IF_CAPPED]]
    real_features, _ = net.features_and_probabilities(real_images)
    _, test_probabilities = net.features_and_probabilities(test.images)
    fid, fid_by = None, ""
    if config.fid_weights:
        fid_by, inception = inception_features(config.fid_weights, device)
        generated = inception(scored.images[shuffled[:GENERATED]])
        fid = frechet_distance(Moments.of(inception(real_images)), Moments.of(generated))
    return ImageQuality(
        score.mean,
        score.deviation,
        score.splits,
        frechet_distance(Moments.of(real_features), Moments.of(features[:GENERATED])),
        len(scored.labels),
        len(real_images),
        f"VGG11-BN of width {net.width}",
        float((test_probabilities.argmax(1) == test.labels).float().mean()),
        fid,
        fid_by,
        time.perf_counter() - start,
    )
