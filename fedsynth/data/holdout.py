"""Holding out training records, so that settings are never chosen on test data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.data.partition import assign


def holdout_counts(class_counts: Sequence[int], size: float) -> np.ndarray:
    """The number of records of each class that are held out, from public counts alone.

    Counts are proportional to the class counts; the records left over by rounding down go to the
    largest remainders (of equal ones the lower class).

    Args:
        class_counts: Records of each class.
        size: Below 1 a fraction of all records, else a number of records.

    Raises:
        UserError: `size` would leave nothing on one side.

    >>> holdout_counts([50, 30, 20], 0.1), holdout_counts([50, 30, 20], 7)
    (array([5, 3, 2]), array([4, 2, 1]))
    """
    total = sum(class_counts)
    count = round(size * total) if 0 < size < 1 else size
    if isinstance(size, bool) or not 0 < count < total or count != int(count):
        raise UserError(
            f"holdout={size} must be a fraction between 0 and 1, or a whole number of records "
            f"from 1 to {total - 1}, that leaves something on both sides."
        )
    exact = [int(count) * int(c) for c in class_counts]  # times `total`, to stay with integers
    shares = np.array([e // total for e in exact], np.int64)
    remainders = np.array([e % total for e in exact])
    shares[np.argsort(-remainders, kind="stable")[: int(count) - shares.sum()]] += 1
    return shares


def holdout(labels: np.ndarray, size: float, *key: object) -> tuple[np.ndarray, np.ndarray]:
    """Split training records into those kept and those held out, as ascending indices.

    Stratified by `holdout_counts`, and the same for the same public key on each machine.

    >>> kept, held = holdout(np.array([0, 0, 0, 0, 1, 1]), 3, "mnist", 7)
    >>> len(kept), len(held), set(kept) & set(held)
    (3, 3, set())
    """
    class_counts = np.bincount(labels)
    held = holdout_counts(class_counts.tolist(), size)
    shares = np.stack([class_counts - held, held])
    kept_part, held_part = assign(labels, shares, numpy_generator(*key, "holdout"))
    return kept_part, held_part
