"""Names of the records that the classifiers of a run are tested on, for every text on its numbers.

A run with `holdout=` is tested on training records that no party holds. Its accuracies are for
choosing settings; a text that calls these records test data claims more than was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EvaluationData:
    """Names of the records of an evaluation."""

    name: str  # with an article
    record: str  # one of them, without an article
    accuracy: str  # on them
    others: str  # on which another evaluation would be


TEST_DATA = EvaluationData("the test data", "test record", "test accuracy", "other test data")
HOLD_OUT = EvaluationData(
    "a hold-out of the training data", "held-out record", "hold-out accuracy", "another hold-out"
)


def evaluation_data(config: Mapping[str, Any]) -> EvaluationData:
    """The records that a run with this configuration is tested on.

    >>> evaluation_data({"holdout": 5000}).name, evaluation_data({}).name
    ('a hold-out of the training data', 'the test data')
    """
    return HOLD_OUT if config.get("holdout") else TEST_DATA
