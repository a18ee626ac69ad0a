"""The form of a record in the registry of deployments, by tier."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fedsynth.privacy.certificate.registry_schema import FIELDS, problems_of, slug

TEXT = "some text"


def record(tier: int = 3) -> dict[str, Any]:
    """A record with every field of a tier."""
    made: dict[str, Any] = {}
    for name, field in FIELDS.items():
        if field.tier <= tier:
            place = made
            *parents, last = name.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            kind = field.kind[0] if isinstance(field.kind, tuple) else field.kind
            value: Any = {str: TEXT, int: 1, list: [TEXT]}[kind]
            place[last] = field.allowed[0] if field.allowed else value
    made["tier"] = tier
    basic = made["deployment"]["basic"]
    basic["publication_date"] = "2026-11-19"
    made["url_slug"] = slug(basic)
    return made


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_record_with_all_fields_of_its_tier_is_valid(tier: int) -> None:
    assert not problems_of(record(tier))


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.needed])
def test_every_needed_field_of_the_highest_tier_is_asked_for(name: str) -> None:
    changed = record()
    place = changed
    *parents, last = name.split(".")
    for parent in parents:
        place = place[parent]
    kept = copy.deepcopy(place[last])
    del place[last]
    assert any(name in problem for problem in problems_of(changed))
    place[last] = {} if not isinstance(kept, dict) else 1
    assert any(name in problem for problem in problems_of(changed))


def test_a_higher_tier_asks_for_more() -> None:
    lower = record(1)
    for tier in (2, 3):
        lower["tier"] = tier
        assert problems_of(lower)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("status",), "Great"),
        (("tier",), 4),
        (("tier",), True),
        (("url_slug",), "another"),
        (("surprise",), 1),
        (("deployment", "basic", "publication_date"), "19.11.2026"),
        (("deployment", "basic", "publication_date"), "2026-1-1"),
        (("deployment", "basic", "data_curators"), []),
        (("deployment", "basic", "name"), " "),
        (("deployment", "dp_variant", "variant_name"), "Nearly DP"),
        (("deployment", "privacy_loss", "privacy_parameters", "epsilon"), "1"),
        (("deployment", "privacy_loss", "privacy_parameters"), {}),
    ],
)
def test_other_values_are_named(place: tuple[str, ...], value: Any) -> None:
    changed = record()
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert any(place[-1] in problem for problem in problems_of(changed))


def test_what_is_no_record_is_said_to_be_none() -> None:
    assert problems_of([]) == ["a record consists of fields"]
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert problems_of({"x": deep})
