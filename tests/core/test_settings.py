"""Settings say what is wrong with a value, in words that name the key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build, choices_of, convert, describe, plain, setting


class Heat(StrEnum):
    """The heating elements."""

    TOP = "top"
    BOTTOM = "bottom"


@dataclass(frozen=True)
class Oven:
    """Something to set."""

    degrees: float = setting(180.0, "heat", above=0, at_most=300)
    minutes: int | None = setting(None, "time; none: until done", at_least=1)
    mode: str = setting("fan", "where heat comes from", choices=("fan", "grill"))
    heat: Heat = setting(Heat.TOP, "elements that are on")
    levels: tuple[int, ...] = setting((1,), "trays", at_least=0)
    light: bool = setting(False, "light")
    share: float = setting(0.5, "part of the power", below=1)
    extra: dict[str, Any] | None = setting(None, "anything")
    patience: float = setting(1.0, "of the cook", finite=False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"degress": 3}, r"unknown key 'oven\.degress'\. Did you mean 'degrees'\?.*oven\.minutes"),
        ({"degrees": "hot"}, r"oven\.degrees='hot' is not a number"),
        ({"degrees": True}, r"oven\.degrees=True is not a number"),
        ({"degrees": "nan"}, r"oven\.degrees='nan' is not a number"),
        ({"degrees": None}, r"oven\.degrees= is empty"),
        ({"degrees": 0}, r"oven\.degrees=0\.0 must be above 0"),
        ({"degrees": 301}, r"oven\.degrees=301\.0 must be at most 300"),
        ({"degrees": [1, 2]}, r"oven\.degrees=\[1, 2\] is not a number"),
        ({"minutes": 1.5}, r"oven\.minutes=1\.5 is not a whole number"),
        ({"minutes": 0}, r"oven\.minutes=0 must be at least 1"),
        ({"mode": "girll"}, r"oven\.mode='girll' is unknown\. Did you mean 'grill'\? Allowed: fan"),
        ({"mode": 3}, r"oven\.mode=3 is not a text"),
        (
            {"heat": "botom"},
            r"oven\.heat='botom' is unknown\. Did you mean 'bottom'\? Allowed: top",
        ),
        ({"heat": 3}, r"oven\.heat=3 is not a text"),
        ({"levels": [1, -2]}, r"oven\.levels=-2 must be at least 0"),
        ({"levels": [1, "x"]}, r"oven\.levels='x' is not a whole number"),
        ({"light": "yes"}, r"oven\.light='yes' is not true or false"),
        ({"share": 1}, r"oven\.share=1\.0 must be below 1"),
        ({"share": float("-inf")}, r"oven\.share=-inf must be a finite number"),
        ({"extra": 3}, r"oven\.extra=3 is not a mapping"),
    ],
)
def test_what_is_wrong_is_named(values, message):
    with pytest.raises(UserError, match=message):
        build(Oven, values, "oven")


def test_values_are_converted_to_their_types():
    made = build(Oven, {"degrees": "1e2", "minutes": 3.0, "levels": 2, "extra": {"a": 1}})
    assert made == Oven(100.0, 3, "fan", Heat.TOP, (2,), False, 0.5, {"a": 1})
    assert type(made.minutes) is int
    assert build(Oven, {"minutes": None, "levels": []}) == Oven(levels=())
    assert build(Oven, {}) == Oven()
    assert build(Oven, {"patience": "inf"}).patience == math.inf


def test_a_text_becomes_a_member_of_its_enum():
    assert build(Oven, {"heat": "bottom"}).heat is Heat.BOTTOM
    assert plain({"heat": Heat.TOP, "more": (Heat.BOTTOM, 1)}) == {
        "heat": "top",
        "more": ["bottom", 1],
    }
    assert type(plain(Heat.TOP)) is str


@given(st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.booleans(), st.none()))
def test_a_number_is_what_python_takes_for_one_but_no_truth_value_and_no_nan(value):
    """Whatever comes: a float as it is, or an error that is the user's to mend."""
    try:
        expected = float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        expected = None
    if expected is None or math.isnan(expected):
        with pytest.raises(UserError, match=r"is (not a number|empty)"):
            convert(value, float, "key")
    else:
        assert convert(value, float, "key") == expected


def test_every_field_is_described():
    assert describe(Oven)[0] == ("degrees", 180.0, "heat")
    assert describe(Oven)[2] == ("mode", "fan", "where heat comes from (fan, grill)")
    assert describe(Oven)[3] == ("heat", Heat.TOP, "elements that are on (top, bottom)")
    assert [name for name, *_ in describe(Oven)] == list(Oven.__dataclass_fields__)


def test_closed_vocabularies_are_known_however_they_are_written():
    assert choices_of(Oven) == {"mode": ("fan", "grill"), "heat": (Heat.TOP, Heat.BOTTOM)}
