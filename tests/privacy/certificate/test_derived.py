"""Stated values and computed ones: numbers may differ by rounding, nothing else at all."""

from __future__ import annotations

import pytest

from fedsynth.privacy.certificate.derived import difference, is_simulation
from fedsynth.privacy.noise import FROM_SYSTEM

STATED = {"a": [1.0, {"b": 2}], "c": "infinity", "d": None}


@pytest.mark.parametrize(
    ("computed", "place"),
    [
        (STATED, None),
        ({**STATED, "a": [1.0 + 1e-9, {"b": 2}]}, None),
        ({**STATED, "a": [1.00001, {"b": 2}]}, "a[0]"),
        ({**STATED, "a": [1.0, {"b": 3}]}, "a[1].b"),
        ({**STATED, "a": [1.0, {"b": 2.0}]}, "a[1].b"),
        ({**STATED, "a": [1.0, {"x": 2}]}, "a[1]"),
        ({**STATED, "a": [1.0]}, "a"),
        ({**STATED, "c": 3.0}, "c"),
        ({**STATED, "d": 0.0}, "d"),
        ({"a": []}, "its fields"),
    ],
)
def test_the_first_difference_is_named(computed: object, place: str | None) -> None:
    assert difference(STATED, computed) == place
    assert (difference(computed, STATED) is None) == (place is None)


def test_one_seed_among_the_sources_makes_a_simulation() -> None:
    assert not is_simulation([FROM_SYSTEM])
    assert is_simulation([FROM_SYSTEM, "noise_seed=1"])
