"""Accuracies on classes are those of the last stage, means over seeds."""

from __future__ import annotations

import pytest

from fedsynth.core.types import PartyInfo
from fedsynth.report.class_accuracies import class_accuracies, records_per_class
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric


def test_the_last_stage_counts_and_seeds_are_averaged() -> None:
    rows = [
        Metric("psg", 1.0, seed, stage, f"accuracy_of_class_{c}", 0.1 * c + 0.2 * seed + stage)
        for seed in (0, 1)
        for stage in (1, 2)
        for c in (1, 10)
    ]
    table = class_accuracies(frame([*rows, Metric("psg", 1.0, 0, 2, "accuracy_of_stage_1", 9.0)]))
    assert list(table.columns) == [1, 10]
    assert table.loc[(1.0, "psg")].tolist() == pytest.approx([2.2, 3.1])
    assert class_accuracies(frame([])).empty


def test_records_are_summed_over_parties() -> None:
    parties = (PartyInfo(0, 5, {3: 2, 1: 3}), PartyInfo(1, 4, {3: 4}))
    assert records_per_class(parties) == {1: 3, 3: 6}
    assert records_per_class(()) == {}
