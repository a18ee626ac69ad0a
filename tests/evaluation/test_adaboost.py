"""SAMME.R against scikit-learn 1.5.2, the last line that has it, and against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.tree import DecisionTreeClassifier

from fedsynth.evaluation.adaboost import AdaBoost


def halves(load, classes):
    """Every other record for training, the rest for tests."""
    rows, labels = load(return_X_y=True)
    chosen = np.isin(labels, classes)
    rows, labels = rows[chosen], np.searchsorted(classes, labels[chosen])
    return rows[::2], labels[::2], rows[1::2], labels[1::2]


@pytest.mark.parametrize(
    ("load", "classes", "correct"),
    [
        (load_digits, (1, 2, 3, 7), {2: 246, 5: 251, 20: 246, 100: 243}),
        (load_iris, (0, 1, 2), {2: 71, 5: 73, 20: 70, 100: 70}),
    ],
)
def test_as_many_are_right_as_with_the_former_scikit_learn(load, classes, correct) -> None:
    """`AdaBoostClassifier(n_estimators=n, algorithm="SAMME.R", random_state=0)` of 1.5.2."""
    rows, labels, others, truth = halves(load, classes)
    found = {
        n: int((AdaBoost(n, 0).fit(rows, labels).predict(others) == truth).sum()) for n in correct
    }
    assert found == correct


def test_the_second_stump_sees_the_weights_of_the_formula() -> None:
    rows, labels, others, _ = halves(load_iris, (0, 1, 2))
    first = DecisionTreeClassifier(max_depth=1, random_state=0).fit(rows, labels)
    weights = np.empty(len(rows))
    for i, (probabilities, label) in enumerate(zip(first.predict_proba(rows), labels, strict=True)):
        logs = np.log(np.maximum(probabilities, np.finfo(float).eps))
        margin = sum(logs[k] if k == label else -logs[k] / 2 for k in range(3))
        weights[i] = np.exp(-2 / 3 * margin)
    second = DecisionTreeClassifier(max_depth=1, random_state=0).fit(
        rows, labels, sample_weight=weights / weights.sum()
    )
    scores = np.zeros((len(others), 3))
    for stump in (first, second):
        logs = np.log(np.maximum(stump.predict_proba(others), np.finfo(float).eps))
        scores += 2 * (logs - logs.mean(axis=1, keepdims=True))
    found = AdaBoost(2, 0).fit(rows, labels).predict(others)
    assert (found == scores.argmax(axis=1)).mean() > 0.98  # splits of equal worth may differ


def test_perfect_stumps_end_the_boosting() -> None:
    rows = np.array([[0.0], [0.1], [0.9], [1.0]])
    labels = np.array([0, 0, 1, 1])
    assert (AdaBoost(50, 3).fit(rows, labels).predict(rows) == labels).all()
