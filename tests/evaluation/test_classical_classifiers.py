"""Classical classifiers have the published settings and cope with every set."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import classical_classifiers as suite
from fedsynth.evaluation.classical_classifiers import CLASSICAL, SUITE, fit_and_predict
from fedsynth.evaluation.config import EvaluationConfig

DIGITS = DatasetInfo("digits", (1, 28, 28), 10, (0.1,), (0.3,))
HERE = tuple(n for n in CLASSICAL if n != "xgboost" or suite.has_xgboost())
QUICK = ("logistic_regression", "gaussian_nb", "bernoulli_nb", "lda", "decision_tree", "bagging")

SPECIFIED: dict[str, dict[str, Any]] = {
    "logistic_regression": {"solver": "lbfgs", "max_iter": 5000},
    "random_forest": {"n_estimators": 100, "class_weight": "balanced"},
    "gaussian_nb": {},
    "bernoulli_nb": {"binarize": 0.5},
    "linear_svc": {"loss": "hinge", "max_iter": 10000, "tol": 1e-8},
    "decision_tree": {"criterion": "gini", "class_weight": "balanced"},
    "lda": {"solver": "eigen", "shrinkage": 0.5, "n_components": 9, "tol": 1e-8},
    "mlp": {"hidden_layer_sizes": (100,), "activation": "relu", "solver": "adam"},
    "bagging": {"n_estimators": 20, "max_samples": 100},
    "gbm": {"n_estimators": 50, "subsample": 0.1},
}


def clusters(n: int, classes: int = 3, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Class c is bright in rows of its own, with noise."""
    g = torch_generator("clusters", n, classes)
    labels = torch.arange(n) % classes
    images = 0.6 * torch.rand(n, 1, side, side, generator=g)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 2 * label : 2 * label + 2] += 0.4
    return images, labels


@pytest.mark.parametrize("name", SPECIFIED)
def test_settings_are_those_of_the_specification(name: str) -> None:
    model = CLASSICAL[name](3, 10, 1000)
    mine, standard = model.get_params(), type(model)().get_params()
    expected = {**standard, **SPECIFIED[name]}
    if name == "linear_svc":
        expected["dual"] = True  # required by hinge
    assert mine.pop("random_state", 3) in (3, None)  # None: it draws nothing
    expected.pop("random_state", None)
    assert mine == expected


def test_the_suite_is_the_thirteen() -> None:
    assert set(CLASSICAL) == {*SPECIFIED, "adaboost", "xgboost"}
    assert CLASSICAL["adaboost"](3, 10, 1000).n_estimators == 100
    assert len(SUITE) == 13
    assert SUITE[-1] == "cnn"


def test_xgboost_is_made_with_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.SimpleNamespace(XGBClassifier=lambda **settings: settings)
    monkeypatch.setitem(sys.modules, "xgboost", fake)
    made = CLASSICAL["xgboost"](5, 10, 1000)
    published = {"n_estimators": 50, "colsample_bytree": 0.1, "objective": "multi:softprob"}
    defaults_of_its_time = {"max_depth": 3, "learning_rate": 0.1}
    assert made == {**published, **defaults_of_its_time, "random_state": 5, "n_jobs": 1}


@pytest.mark.parametrize("name", HERE)
def test_every_classifier_learns(name: str) -> None:
    images, labels = clusters(300)
    test, truth = clusters(90)
    found, remark = fit_and_predict(name, images, labels, test, 1)
    assert float((found == truth).float().mean()) > 0.6  # by chance: a third
    assert "cannot be fitted" not in remark


@pytest.mark.parametrize("name", HERE)
def test_equal_seeds_give_equal_predictions(name: str) -> None:
    images, labels = clusters(60)
    noisy = (images + torch.rand(images.shape, generator=torch_generator(1))) / 2
    first, _ = fit_and_predict(name, noisy, labels, images, 7)
    np.random.seed(3)  # numpy's global generator plays no part
    again, _ = fit_and_predict(name, noisy, labels, images, 7)
    assert torch.equal(first, again)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(QUICK),
    st.lists(st.integers(0, 9), min_size=1, max_size=14),
    st.booleans(),
)
def test_only_labels_of_the_training_set_are_predicted(
    name: str, present: list[int], flat: bool
) -> None:
    labels = torch.tensor(present)
    images = torch.rand(len(present), 1, 4, 4, generator=torch_generator(present))
    images = torch.full_like(images, 0.5) if flat else images
    found, remark = fit_and_predict(name, images, labels, torch.rand(5, 1, 4, 4), 0)
    assert set(found.tolist()) <= set(present)
    if len(set(present)) == 1:
        assert remark == "one class only"


def test_a_failed_fit_is_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def fit(self, *_: object) -> None:
            raise ValueError("array is singular")

    monkeypatch.setitem(CLASSICAL, "lda", lambda *_: Broken())
    labels = torch.tensor([4, 2, 2])
    found, remark = fit_and_predict(
        "lda", torch.rand(3, 1, 2, 2), labels, torch.rand(6, 1, 2, 2), 0
    )
    assert found.tolist() == [2] * 6
    assert "cannot be fitted (array is singular)" in remark


def test_missing_convergence_is_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    short = LogisticRegression(max_iter=1)
    monkeypatch.setitem(CLASSICAL, "logistic_regression", lambda *_: short)
    images, labels = clusters(60)
    _, remark = fit_and_predict("logistic_regression", images, labels, images, 0)
    assert remark == "stopped before convergence"


def test_unavailable_classifiers_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "has_xgboost", lambda: False)
    setting = EvaluationConfig("G")
    assert setting.classifiers(DIGITS) == tuple(n for n in SUITE if n != "xgboost")
    assert "pip install 'fedsynth[xgboost]'" in suite.unavailable(DIGITS)["xgboost"]
    with pytest.raises(UserError, match=r"xgboost: not installed: pip install"):
        EvaluationConfig("G", classifier=("xgboost",)).check(DIGITS)
    with pytest.raises(UserError, match=r"pip install 'fedsynth\[xgboost\]'"):
        fit_and_predict("xgboost", *clusters(6), clusters(6)[0], 0)
    monkeypatch.setattr(suite, "has_xgboost", lambda: True)
    assert setting.classifiers(DIGITS) == SUITE
    table = replace(DIGITS, name="rows", shape=(7, 1, 1), kind=DataKind.TABLE)
    assert setting.classifiers(table) == SUITE[:-1]
    assert "rows is a table" in suite.unavailable(table)["cnn"]
    small = replace(DIGITS, shape=(1, 16, 16))
    with pytest.raises(UserError, match=r"cnn: needs square images of side 28 .* not 16x16"):
        EvaluationConfig("G", classifier=("cnn",)).check(small)


def test_listing_classifiers_imports_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = builtins.__import__

    def watching(name: str, *rest: Any) -> Any:
        asked.append(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", watching)
    specification = importlib.util.find_spec("fedsynth.evaluation.classical_classifiers")
    assert specification is not None
    assert specification.loader is not None
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
    assert not [n for n in asked if n.startswith(("sklearn", "xgboost"))]
