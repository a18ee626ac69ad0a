"""Label arithmetic, and results as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.evaluation.types import (
    EvalResult,
    Predictions,
    checked_class_indices,
    subsample,
    training_targets,
)

CLASSES = (5, 0, 3)


def test_a_result_survives_json() -> None:
    result = EvalResult(
        {3: (4, 5), 0: (1, 5)}, "P", "convnet", 8, 1.0, 1, 10, real_data_accuracy=0.9
    )
    assert EvalResult.from_json(result.to_json()) == result
    assert result.accuracy == 0.5


def test_results_of_0_1_are_read():
    """Their fields had other names."""
    stored = EvalResult({0: (1, 5)}, "L", "keras_cnn", 8, 1.0, 1, 10).to_json()
    former = (
        stored.replace("best_test_accuracy", "optimistic")
        .replace('"tests_during_training": 0', '"looks": 9')
        .replace('"real_data_accuracy": null', '"real": 0.9')
    )
    result = EvalResult.from_json(former)
    assert (result.best_test_accuracy, result.tests_during_training) == (None, 9)
    assert result.real_data_accuracy == 0.9


def test_correct_predictions_are_counted_per_class() -> None:
    labels = torch.tensor([3, 3, 0, 3, 3])
    found = Predictions.of(torch.tensor([3, 0, 0, 7, 0]), labels)
    assert found.per_class == {0: (1, 1), 3: (1, 4)}
    assert found.mistakes == {3: {0: 2, 7: 1}}
    for label, (correct, tested) in found.per_class.items():
        assert correct + sum(found.mistakes.get(label, {}).values()) == tested


def test_mistakes_are_stored_with_a_result_and_may_be_unknown() -> None:
    result = EvalResult({3: (1, 4)}, "P", "mlp", 1, 1.0, 1, 1, mistakes={3: {0: 2, 7: 1}})
    assert EvalResult.from_json(result.to_json()) == result
    assert replace(result, mistakes=None) == EvalResult.from_json(
        replace(result, mistakes=None).to_json()
    )


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(UserError, match=r"labels \[4\].*\[5, 0, 3\]"):
        checked_class_indices(torch.tensor([5, 4]), CLASSES)


def test_soft_labels_are_conditioned_on_the_classes_seen() -> None:
    train = SyntheticSet(torch.rand(6, 1, 2, 2), torch.tensor(CLASSES)[torch.arange(6) % 3])
    soft = torch.full((6, 6), 0.1)
    soft[torch.arange(6), train.labels] = 0.5
    found = training_targets(SyntheticSet(train.images, train.labels, soft), CLASSES)
    first = torch.tensor([0.5, 0.1, 0.1]) / 0.7
    torch.testing.assert_close(found[0], first)  # an image of CLASSES[0]
    assert torch.equal(training_targets(train, CLASSES), torch.arange(6) % 3)
    for bad in (soft[:5], torch.zeros(6, 6)):
        with pytest.raises(UserError, match="soft labels"):
            training_targets(SyntheticSet(train.images, train.labels, bad), CLASSES)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 70))
def test_a_subsample_is_balanced_over_classes(labels_drawn: list[int], most: int) -> None:
    labels = torch.tensor(labels_drawn)
    train = SyntheticSet(torch.arange(len(labels_drawn)).float().view(-1, 1, 1, 1), labels)
    part = subsample(train, most, ("k",))
    assert len(part.labels) == min(most, len(labels_drawn))
    picked = part.images.flatten().long()
    assert len(picked.unique()) == len(picked)
    assert torch.equal(part.labels, labels[picked])
    assert torch.equal(subsample(train, most, ("k",)).images, part.images)
    have, want = torch.bincount(labels, minlength=5), torch.bincount(part.labels, minlength=5)
    smallest_cut = min((int(w) for h, w in zip(have, want, strict=True) if w < h), default=99)
    assert all(w <= smallest_cut + 1 for w in want)


def test_class_indices_follow_the_given_classes() -> None:
    assert checked_class_indices(torch.tensor([3, 5, 5, 0]), CLASSES).tolist() == [2, 0, 0, 1]
