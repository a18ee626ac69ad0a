"""The form of a record in the registry of deployments of differential privacy, and its check.

The field names, the tiers, the allowed values and the rule for `url_slug` are those of the public
schema of the OpenDP deployments registry (repository opendp/deployments-registry-data, file
schemas/deployments-schema.yaml, as of July 2026; MIT licence), typed anew here. The schema requires
only the basic fields; its tiers are advice. This check is stricter: it requires every field of the
highest tier to be there and to hold something.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HIGHEST_TIER = 3


@dataclass(frozen=True)
class _Field:
    """One field of a record: its tier (0: always there), type and allowed values."""

    tier: int
    kind: type | tuple[type, ...] = str
    allowed: tuple[object, ...] = ()
    needed: bool = True


_NUMBER = (int, float)
_DEPLOYMENT = "deployment."

FIELDS: Mapping[str, _Field] = {
    "url_slug": _Field(0),
    "status": _Field(
        0,
        allowed=(
            "Converted",
            "Draft",
            "Pending",
            "Changes Required",
            "Approved",
            "Approved (Update Requested)",
            "Approved (Pending)",
        ),
    ),
    "tier": _Field(0, int, (1, 2, 3)),
    **{
        _DEPLOYMENT + name: field
        for name, field in {
            "basic.name": _Field(1),
            "basic.data_curators": _Field(1, list),
            "basic.intended_use": _Field(1),
            "basic.data_product_type": _Field(
                1,
                allowed=(
                    "Summary statistics",
                    "Machine learning model",
                    "Dataset",
                    "Synthetic data",
                    "Interactive API",
                    "SQL queries",
                ),
            ),
            "basic.data_product_region": _Field(1),
            "basic.description": _Field(1),
            "basic.publication_date": _Field(1),
            "basic.data_product_sector": _Field(
                1,
                allowed=(
                    "Technology",
                    "Healthcare",
                    "Education",
                    "Government",
                    "Energy",
                    "Finance",
                ),
            ),
            "dp_variant.variant_name": _Field(
                2,
                allowed=(
                    "Pure DP",
                    "Approximate DP",
                    "Zero-concentrated DP",
                    "Renyi DP",
                    "Custom",
                ),
            ),
            "dp_variant.data_domain": _Field(3),
            "dp_variant.unprotected_quantities": _Field(3),
            "privacy_loss.privacy_unit": _Field(2),
            "privacy_loss.privacy_unit_details": _Field(3),
            "privacy_loss.privacy_parameters.epsilon": _Field(2, _NUMBER),
            "privacy_loss.privacy_parameters.delta": _Field(2, (*_NUMBER, str)),
            "privacy_loss.privacy_parameters.rho": _Field(2, _NUMBER, needed=False),
            "privacy_loss.privacy_parameters_details": _Field(3),
            "deployment_model.model_name": _Field(
                2, allowed=("Local", "Central", "Shuffle", "Federated", "Varies")
            ),
            "deployment_model.model_name_details": _Field(3),
            "deployment_model.actors": _Field(3),
            "deployment_model.release_type": _Field(2, allowed=("One release", "Many releases")),
            "deployment_model.release_type_details": _Field(3),
            "deployment_model.data_source_type": _Field(2, allowed=("Static", "Dynamic")),
            "deployment_model.data_source_type_details": _Field(3),
            "deployment_model.access_type": _Field(2, allowed=("Interactive", "Non-interactive")),
            "deployment_model.access_type_details": _Field(3),
            "accounting.post_processing": _Field(3),
            "accounting.composition": _Field(3),
            "implementation.preprocessing_and_hyperparameter_tuning": _Field(3),
            "implementation.mechanisms": _Field(3),
            "implementation.justification": _Field(3),
            "administrative.sources": _Field(1),
            "administrative.notes": _Field(1),
            "administrative.registry_authors": _Field(0, list),
        }.items()
    },
}


def problems_of(record: object) -> list[str]:
    """The ways in which a record does not have the form of its tier; empty if it has."""
    if not isinstance(record, Mapping):
        return ["a record consists of fields"]
    try:
        found = dict(_leaves(record))
    except RecursionError:
        return ["the fields lie too deep"]
    tier = found.get("tier")
    problems = [f"{name} is not a field of a record" for name in found.keys() - FIELDS.keys()]
    for name, field in FIELDS.items():
        if name not in found:
            reached = type(tier) is int and field.tier <= tier
            if field.needed and (field.tier < 2 or reached):
                problems.append(f"{name} is missing (tier {field.tier})")
        else:
            problems += _value_problems(name, field, found[name])
    return problems or _rule_problems(record)


def _leaves(record: Mapping[Any, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _value_problems(name: str, field: _Field, value: object) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, field.kind):
        return [f"{name} is {value!r}, which is not of its type"]
    if isinstance(value, list) and not (value and all(isinstance(v, str) and v for v in value)):
        return [f"{name} must be a list of texts"]
    if isinstance(value, str) and not value.strip():
        return [f"{name} is empty"]
    if field.allowed and value not in field.allowed:
        return [f"{name} is {value!r}; allowed: {', '.join(map(str, field.allowed))}"]
    return []


def _rule_problems(record: Mapping[str, Any]) -> list[str]:
    """Rules that concern one value or several: the date, and the slug made of other fields."""
    basic = record["deployment"]["basic"]
    try:
        if len(basic["publication_date"]) != 10:
            raise ValueError
        datetime.date.fromisoformat(basic["publication_date"])
    except ValueError:
        return ["deployment.basic.publication_date is not a date YYYY-MM-DD"]
    expected = slug(basic)
    if record["url_slug"] != expected:
        return [f"url_slug is {record['url_slug']!r} and should be {expected!r}"]
    return []


def slug(basic: Mapping[str, Any]) -> str:
    """The registry's name for a record: product, curators and year."""
    words = [basic["name"], "-".join(basic["data_curators"]), basic["publication_date"][:4]]
    return "_".join(re.sub(r"\W+", "_", word.lower()) for word in words).replace("_", "-")
