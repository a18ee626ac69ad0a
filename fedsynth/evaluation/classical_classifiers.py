"""The classical classifiers of protocol G (paper 001), with the settings of its program.

Paper 001 says "scikit-learn's defaults"; its program says otherwise, and the program is what was
run. Today's scikit-learn has neither AdaBoost's SAMME.R (SAMME takes its place, so AdaBoost's
numbers are not the paper's) nor `multi_class` (one multinomial model is what remains). The
thirteenth classifier, the CNN, is LeNet and is trained by `downstream` like every other network.

Everything is imported when it is used, so that naming classifiers costs nothing.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo

CNN = "cnn"
XGBOOST = "xgboost"


def _logistic_regression(_seed: int, _classes: int, _images: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver="lbfgs", max_iter=5000)


def _random_forest(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=100, class_weight="balanced", random_state=seed)


def _gaussian_nb(_seed: int, _classes: int, _images: int) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


def _bernoulli_nb(_seed: int, _classes: int, _images: int) -> Any:
    from sklearn.naive_bayes import BernoulliNB

    return BernoulliNB(binarize=0.5)


def _linear_svc(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(loss="hinge", dual=True, max_iter=10000, tol=1e-8, random_state=seed)


def _decision_tree(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(criterion="gini", class_weight="balanced", random_state=seed)


def _lda(_seed: int, classes: int, _images: int) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    parts = min(9, classes - 1)
    return LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5, n_components=parts, tol=1e-8)


def _adaboost(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(n_estimators=100, random_state=seed)


def _mlp(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(random_state=seed)


def _bagging(seed: int, _classes: int, images: int) -> Any:
    from sklearn.ensemble import BaggingClassifier

    tenth = max(1, images // 10)  # as a number: a share of a tiny set would be none at all
    return BaggingClassifier(n_estimators=20, max_samples=tenth, random_state=seed)


def _gbm(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=50, subsample=0.1, random_state=seed)


def _xgboost(seed: int, _classes: int, _images: int) -> Any:
    import xgboost

    return xgboost.XGBClassifier(
        n_estimators=50,
        colsample_bytree=0.1,
        objective="multi:softprob",
        random_state=seed,
        n_jobs=1,
    )


Maker = Callable[[int, int, int], Any]
"""From a seed, the number of classes and the number of images to a fresh classifier."""

CLASSICAL: dict[str, Maker] = {
    "logistic_regression": _logistic_regression,
    "random_forest": _random_forest,
    "gaussian_nb": _gaussian_nb,
    "bernoulli_nb": _bernoulli_nb,
    "linear_svc": _linear_svc,
    "decision_tree": _decision_tree,
    "lda": _lda,
    "adaboost": _adaboost,
    "mlp": _mlp,
    "bagging": _bagging,
    "gbm": _gbm,
    XGBOOST: _xgboost,
}
SUITE = (*CLASSICAL, CNN)

PACKAGES = {name: name if name == XGBOOST else "scikit-learn" for name in CLASSICAL}
"""Which package a classifier comes from: its version decides what it computes."""

REMARKS = {"adaboost": "SAMME, as scikit-learn has removed the paper's SAMME.R"}
"""Where a classifier cannot be what the paper used, whatever is done."""


def has_xgboost() -> bool:
    """Whether the optional extra is installed."""
    return importlib.util.find_spec(XGBOOST) is not None


def missing(info: DatasetInfo) -> dict[str, str]:
    """The classifiers of the suite that cannot run on such data here, and why not."""
    found = {}
    if not has_xgboost():
        found[XGBOOST] = "not installed: pip install 'fedsynth[xgboost]'"
    _, height, width = info.shape
    if info.kind != DataKind.IMAGE:
        found[CNN] = f"for images, and {info.name} is a table"
    elif height != width or (height != 28 and height % 32):
        found[CNN] = f"needs square images of side 28 or a multiple of 32, not {height}x{width}"
    return found


def fit_and_predict(
    name: str, images: torch.Tensor, labels: torch.Tensor, test: torch.Tensor, seed: int
) -> tuple[torch.Tensor, str]:
    """Fit the classifier `name` on images in [0, 1] and places in a head, predict the places of
    test images, and say in words what the reader should know of it (mostly nothing).

    One thread; `seed` is all the randomness. Labels need not cover every place: one that is not
    there is never predicted, and where there is only one it is always predicted.
    """
    if name == XGBOOST and not has_xgboost():
        raise UserError(
            "evaluation.classifier=xgboost is an extra that is not installed: "
            "pip install 'fedsynth[xgboost]'."
        )
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    places, compact = np.unique(labels.numpy(), return_inverse=True)
    often = int(places[np.bincount(compact).argmax()])
    if len(places) == 1:
        return torch.full((len(test),), often), "one class only"
    said = [REMARKS[name]] if name in REMARKS else []
    with threadpool_limits(1), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            model = CLASSICAL[name](seed % 2**32, len(places), len(images))
            model.fit(_rows(images), compact)
            predicted = places[model.predict(_rows(test))]
        except (ValueError, np.linalg.LinAlgError) as error:
            reason = " ".join(str(error).split())[:80]
            said.append(f"cannot be fitted ({reason}), so it names the most frequent class")
            predicted = np.full(len(test), often)
    if any(issubclass(w.category, ConvergenceWarning) for w in warned):
        said.append("stopped before it had converged")
    return torch.from_numpy(predicted), "; ".join(said)


def _rows(images: torch.Tensor) -> np.ndarray:
    return images.flatten(1).numpy()
