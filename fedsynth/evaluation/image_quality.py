"""How good released images are as images: Inception Score, FID-lite and, where asked for, FID.

The scorer and every distance use the parties' raw records. That is for the evaluation only; nothing
of it is released or kept in a form that holds a record.
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
from fedsynth.evaluation.inception import inception
from fedsynth.evaluation.quality_metrics import (
    GENERATED,
    REAL,
    Moments,
    frechet_distance,
    inception_score,
)
from fedsynth.evaluation.scorer import ScorerConfig, scorer
from fedsynth.evaluation.types import positions, used

CAPPED = 10_000  # images of each kind, at most, where the scorer is a cheaper one


@dataclass(frozen=True)
class ImageQuality:
    """What was found of one set of images, and by whom."""

    inception_score: float
    inception_deviation: float  # over splits
    splits: int
    fid_lite: float
    images: int  # released ones that were looked at
    real: int  # real ones they were compared with
    scorer: str
    scorer_accuracy: float  # of the scorer, on the test data
    fid: float | None = None
    fid_by: str = ""  # whose Inception weights
    seconds: float = field(default=0.0, compare=False)

    def rows(self) -> dict[str, float]:
        """The metrics of one stage. A distance by other weights is another metric."""
        found = {
            "inception_score": self.inception_score,
            "inception_score_std": self.inception_deviation,
            "inception_splits": self.splits,
            "fid_lite": self.fid_lite,
            "quality_images": self.images,
            "quality_real_images": self.real,
            "scorer_accuracy": self.scorer_accuracy,
        }
        if self.fid is not None:
            found["fid" if self.fid_by == "torch-fidelity" else "fid_torchvision"] = self.fid
        return found


def appraise(
    released: SyntheticSet,
    real: SyntheticSet,
    test: SyntheticSet,
    order: Sequence[int],
    *,
    info: DatasetInfo,
    setting: EvaluationConfig,
    key: tuple[object, ...],
    folder: Path,
) -> ImageQuality:
    """Appraise a released set against the real training records, of the classes of `order`.

    `real` and `test` hold all classes of the data: the scorer knows them all. `folder` is where it
    is kept; `key` decides which images are drawn where not all are looked at.
    """
    start = time.perf_counter()
    positions(released.labels, order)
    form = ScorerConfig(setting.scorer_width, setting.scorer_images)
    net = scorer(folder, real.images, real.labels, info, form)
    whole = form.max_images == 0
    seen = used(released, 0 if whole else CAPPED, (*key, "quality"))
    shuffled = torch.randperm(len(seen.labels), generator=torch_generator(*key, "order"))
    features, probabilities = net.see(seen.images[shuffled])
    score = inception_score(probabilities)
    likeness = real.images[torch.isin(real.labels, torch.tensor(list(order)))]
    sample = torch.randperm(len(likeness), generator=torch_generator("quality", "real"))
    likeness = likeness[sample[: REAL if whole else CAPPED]]
    real_features, _ = net.see(likeness)
    _, answers = net.see(test.images)
    fid, fid_by = None, ""
    if setting.fid_weights:
        fid_by, look = inception(setting.fid_weights)
        generated = look(seen.images[shuffled[:GENERATED]])
        fid = frechet_distance(Moments.of(look(likeness)), Moments.of(generated))
    return ImageQuality(
        score.mean,
        score.deviation,
        score.splits,
        frechet_distance(Moments.of(real_features), Moments.of(features[:GENERATED])),
        len(seen.labels),
        len(likeness),
        f"VGG11-BN of width {net.width}",
        float((answers.argmax(1) == test.labels).float().mean()),
        fid,
        fid_by,
        time.perf_counter() - start,
    )
