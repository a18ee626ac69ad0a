"""Boosted classifiers of GS-WGAN's tables A1 and A2 with the defaults of different versions.

    python benchmarks/boosting_readings.py [DATA ...]

Fits on 55,000 real training images of MNIST and Fashion-MNIST and prints accuracies on the other
5,000, beside the numbers that are printed for real data (of test sets).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from fedsynth.data.registry import load
from fedsynth.evaluation.adaboost import AdaBoost

HOLDOUT, SEED = 5000, 0
PRINTED = {
    "mnist": {"xgboost": 0.91, "adaboost": 0.73},
    "fashion_mnist": {"xgboost": 0.83, "adaboost": 0.56},
}


def _xgboost(**settings: Any) -> Any:
    import xgboost

    return xgboost.XGBClassifier(
        n_estimators=50, colsample_bytree=0.1, random_state=SEED, n_jobs=1, **settings
    )


def _samme() -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(n_estimators=100, random_state=SEED)


READINGS: dict[str, tuple[str, Callable[[], Any]]] = {
    "xgboost, defaults of today (depth 6, rate .3)": ("xgboost", _xgboost),
    "xgboost, defaults up to 0.90 (depth 3, rate .1)": (
        "xgboost",
        lambda: _xgboost(max_depth=3, learning_rate=0.1),
    ),
    "adaboost by SAMME (scikit-learn from 1.6)": ("adaboost", _samme),
    "adaboost by SAMME.R (scikit-learn before)": ("adaboost", lambda: AdaBoost(100, SEED)),
}


def main(names: list[str]) -> None:
    """Print a line per data set and reading."""
    for name in names or list(PRINTED):
        pixels, classes = load(name, "train")
        order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(SEED))
        images = pixels[order].float().div(255).flatten(1).numpy()
        labels = classes[order].numpy()
        for reading, (classifier, make) in READINGS.items():
            begun = time.perf_counter()
            model = make().fit(images[HOLDOUT:], labels[HOLDOUT:])
            accuracy = (model.predict(images[:HOLDOUT]) == labels[:HOLDOUT]).mean()
            seconds = time.perf_counter() - begun
            printed = PRINTED[name][classifier]
            print(f"{name}: {reading}: {accuracy:.4f} (printed {printed}), {seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
