"""The classical classifiers of protocol G (paper 001), with the settings of its program.

Paper 001 states the defaults of scikit-learn, but its program, which computed the results, sets
other values. Where it relied on defaults, they are those of the packages of its time: SAMME.R for
AdaBoost, and trees of depth 3 with a learning rate of .1 for XGBoost (the readings of
`benchmarks/boosting_readings.py`). Current scikit-learn has no `multi_class` any more (the
multinomial model remains). The thirteenth classifier, the CNN, is LeNet and is trained by
`train_classifier` like all networks.

Packages are imported on use, so that listing classifiers is cheap.
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

    components = min(9, classes - 1)
    return LinearDiscriminantAnalysis(
        solver="eigen", shrinkage=0.5, n_components=components, tol=1e-8
    )


def _adaboost(seed: int, _classes: int, _images: int) -> Any:
    from fedsynth.evaluation.adaboost import AdaBoost

    return AdaBoost(n_estimators=100, seed=seed)


def _mlp(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(random_state=seed)


def _bagging(seed: int, _classes: int, images: int) -> Any:
    from sklearn.ensemble import BaggingClassifier

    tenth = max(1, images // 10)  # a fraction of a tiny set would be rounded to zero
    return BaggingClassifier(n_estimators=20, max_samples=tenth, random_state=seed)


def _gbm(seed: int, _classes: int, _images: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(n_estimators=50, subsample=0.1, random_state=seed)


def _xgboost(seed: int, _classes: int, _images: int) -> Any:
    import xgboost

    return xgboost.XGBClassifier(
        n_estimators=50,
        max_depth=3,
        learning_rate=0.1,
        colsample_bytree=0.1,
        objective="multi:softprob",
        random_state=seed,
        n_jobs=1,
    )


Factory = Callable[[int, int, int], Any]
"""Function of a seed, the number of classes and the number of images to a fresh classifier."""

CLASSICAL: dict[str, Factory] = {
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
"""The package of each classifier, whose version determines its results."""

FORMS = {"adaboost": 2, "xgboost": 2}
"""Numbers of classifiers whose settings have changed; raise one with its settings."""


def has_xgboost() -> bool:
    """True if the optional extra is installed."""
    return importlib.util.find_spec(XGBOOST) is not None


def unavailable(info: DatasetInfo) -> dict[str, str]:
    """The classifiers of the suite that cannot run on such data here, with the reason."""
    reasons = {}
    if not has_xgboost():
        reasons[XGBOOST] = "not installed: pip install 'fedsynth[xgboost]'"
    _, height, width = info.shape
    if info.kind != DataKind.IMAGE:
        reasons[CNN] = f"for images, and {info.name} is a table"
    elif height != width or (height != 28 and height % 32):
        reasons[CNN] = f"needs square images of side 28 or a multiple of 32, not {height}x{width}"
    return reasons


def fit_and_predict(
    name: str, images: torch.Tensor, labels: torch.Tensor, test: torch.Tensor, seed: int
) -> tuple[torch.Tensor, str]:
    """Fit a classifier and predict the classes of test images, with one thread.

    Args:
        name: the classifier.
        images: training images in [0, 1].
        labels: class indices, not necessarily all of them; an absent one is never predicted.
        test: test images.
        seed: of all randomness.

    Returns:
        The predicted class indices, and a remark for the reader (mostly empty).
    """
    if name == XGBOOST and not has_xgboost():
        raise UserError(
            "evaluation.classifier=xgboost is an optional extra that is not installed: "
            "pip install 'fedsynth[xgboost]'."
        )
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    present, compact = np.unique(labels.numpy(), return_inverse=True)
    most_frequent = int(present[np.bincount(compact).argmax()])
    if len(present) == 1:
        return torch.full((len(test),), most_frequent), "one class only"
    remarks = []
    with threadpool_limits(1), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            model = CLASSICAL[name](seed % 2**32, len(present), len(images))
            model.fit(_rows(images), compact)
            predicted = present[model.predict(_rows(test))]
        except (ValueError, np.linalg.LinAlgError) as error:
            reason = " ".join(str(error).split())[:80]
            remarks.append(f"cannot be fitted ({reason}), predicts the most frequent class")
            predicted = np.full(len(test), most_frequent)
    if any(issubclass(w.category, ConvergenceWarning) for w in warned):
        remarks.append("stopped before convergence")
    return torch.from_numpy(predicted), "; ".join(remarks)


def _rows(images: torch.Tensor) -> np.ndarray:
    return images.flatten(1).numpy()
