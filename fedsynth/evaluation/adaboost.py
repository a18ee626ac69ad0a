"""AdaBoost by SAMME.R (Zhu et al. 2009), which current scikit-learn no longer has.

Every decision stump contributes its class probabilities and not only its decision. Paper 001
computed its numbers with scikit-learn of 2020, where this was the default.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

_LEAST = np.finfo(np.float64).eps  # of a probability before its logarithm


class AdaBoost:
    """Boosted stumps whose class probabilities are weighed, for classes 0 to K-1."""

    def __init__(self, n_estimators: int, seed: int) -> None:
        """Set the number of stumps and the seed that breaks ties between splits."""
        self.n_estimators, self.seed = n_estimators, seed
        self._stumps: list[DecisionTreeClassifier] = []

    def fit(self, rows: NDArray[np.floating], labels: NDArray[np.integer]) -> AdaBoost:
        """Fit one stump after the other; records that are predicted badly gain weight.

        Args:
            rows: A record per row.
            labels: Class indices; every class from 0 to the largest one occurs.

        Returns:
            This classifier.
        """
        classes = int(labels.max()) + 1
        seeds = np.random.RandomState(self.seed)
        weights = np.full(len(rows), 1 / len(rows))
        coding = np.full((len(rows), classes), -1 / (classes - 1))
        coding[np.arange(len(rows)), labels] = 1.0
        self._stumps = []
        for _ in range(self.n_estimators):
            stump = DecisionTreeClassifier(max_depth=1, random_state=seeds.randint(2**31 - 1))
            self._stumps.append(stump.fit(rows, labels, sample_weight=weights))
            logarithms = self._logarithms(stump, rows)
            wrong = weights[logarithms.argmax(axis=1) != labels].sum()
            if wrong <= 0:
                break
            exponents = -(classes - 1) / classes * (coding * logarithms).sum(axis=1)
            weights *= np.exp(np.where((weights > 0) | (exponents < 0), exponents, 0.0))
            total = weights.sum()
            if not 0 < total < np.inf:
                break
            weights /= total
        return self

    def predict(self, rows: NDArray[np.floating]) -> NDArray[np.integer]:
        """The class with the largest sum of centred log-probabilities per row."""
        scores = sum(
            logarithms - logarithms.mean(axis=1, keepdims=True)
            for logarithms in (self._logarithms(stump, rows) for stump in self._stumps)
        )
        predicted: NDArray[np.integer] = np.asarray(scores).argmax(axis=1)
        return predicted

    @staticmethod
    def _logarithms(
        stump: DecisionTreeClassifier, rows: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        found: NDArray[np.floating] = np.log(np.clip(stump.predict_proba(rows), _LEAST, None))
        return found
