"""Facts of records of one's own, and records that no classifier can be trained on."""

from __future__ import annotations

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data.formats.own_facts import OwnFacts, checked, cut, image_facts


def facts(train: list[int], test: list[int], classes: int = 3, names: bool = False) -> OwnFacts:
    texts = tuple("abc"[:classes]) if names else ()
    info = image_facts("file:x", (1, 4, 4), tuple("abc"[:classes]))
    if not names:
        info = type(info)(info.name, info.shape, classes, info.mean, info.std, class_names=texts)
    return OwnFacts(info, np.array(train, np.int64), np.array(test, np.int64))


def test_counts_are_those_of_the_labels() -> None:
    good = checked(facts([0, 1, 2, 2], [2]))
    assert (good.counts("train"), good.counts("test")) == ((1, 1, 2), (0, 0, 1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (facts([0, 0], [0], 1), "has records of one class only"),
        (facts([0, 1], [0], 3), "no record has the label 2, and labels go to 2"),
        (facts([0, 2], [0], 3), "no record has the label 1"),
        (facts([0, 1], [2, 2], 3), "2 test records have the label 2, and no training record"),
        (facts([0, 1], [2], 3, names=True), "1 test records have the label c"),
        (facts([1, 1], [1], 2, names=True), "has records of one class only"),
        (facts([0, 1], [], 2), "has no test records"),
    ],
)
def test_records_that_cannot_be_learned_from_are_refused(bad: OwnFacts, message: str) -> None:
    with pytest.raises(UserError, match=message):
        checked(bad)


def test_a_stated_class_may_be_without_records() -> None:
    assert checked(facts([0, 1], [0], 3, names=True)).counts("train") == (1, 1, 0)


def test_the_cut_is_public_and_the_same_each_time() -> None:
    labels = np.repeat([0, 1], [50, 10])
    kept, held = cut(labels)
    assert np.bincount(labels[held]).tolist() == [10, 2]
    assert sorted([*kept, *held]) == list(range(60))
    assert (cut(labels)[1] == held).all()
