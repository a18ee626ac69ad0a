"""`METHOD.noise=none` in the configuration of a run: it selects the reference without noise.

The key is one of every private method and no setting of any: it changes the name of the method that
runs (`methods.without_noise`), so that nothing that is stored or shown has a private method's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.methods.registry import WITHOUT_NOISE, is_method, method
from fedsynth.methods.without_noise import MethodWithoutNoise, with_its_noise

NOISE, NONE = "noise", "none"
_ZERO = (0, "0", "off", "no", "zero")
_FINITE = ("epsilon", "accounting")  # keys without a meaning for a run without privacy


def without_noise_key(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer of keys without `noise=none` in the sections of methods.

    Raises:
        UserError: A section says in other words that there shall be no noise.
    """
    kept = dict(layer)
    for name, section in _sections(layer):
        if section[NOISE] == NONE:
            kept[name] = {key: value for key, value in section.items() if key != NOISE}
        elif section[NOISE] is False or section[NOISE] in _ZERO:
            raise UserError(
                f"{name}.{NOISE}={section[NOISE]}: noise is above 0. {name}.{NOISE}={NONE} runs "
                f"{name} without noise, as a reference that is not private."
            )
    return kept


def selected(names: Sequence[str], layers: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The methods of a run, where those with `noise=none` are replaced by their references.

    Args:
        names: The names of methods and groups in `method=`.
        layers: The layers of the run's keys; a later one has the last word.

    Raises:
        UserError: `noise=none` is given to a method that the run does not name.
    """
    last = {name: section[NOISE] for layer in layers for name, section in _sections(layer)}
    replaced = {name: name + WITHOUT_NOISE for name, value in last.items() if value == NONE}
    for name, reference in replaced.items():
        method(reference)
        if name not in names and reference not in names:
            raise UserError(
                f"{name}.{NOISE}={NONE}: this run does not name {name}. "
                f"Give method={name} {name}.{NOISE}={NONE}."
            )
    return tuple(dict.fromkeys(replaced.get(name, name) for name in names))


def section_names(name: str) -> list[str]:
    """The names of the sections with a method's settings: a reference has those of its method."""
    base = with_its_noise(method(name)).name
    return [base] if base == name else [base, name]


def refuse_budget(names: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse a budget for a run of references without noise alone.

    Args:
        names: The methods of the run.
        given: The keys of the command line.

    Raises:
        UserError: A key has no meaning for any method of the run.
    """
    methods = [method(name) for name in names]
    free = [some for some in methods if isinstance(some, MethodWithoutNoise)]
    for key in _FINITE:
        if free and key in given and not any(some.private for some in methods):
            raise UserError(
                f"{key}={given[key]}: {free[0].base.name}.{NOISE}={NONE} adds no noise, so that "
                f"epsilon is infinite and {key} means nothing. Leave {key} out, or give "
                f"{NOISE}={NONE} to some methods only (method="
                f"{free[0].base.name},{free[0].name} runs both)."
            )


def _sections(layer: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The sections of methods that give `noise`, by name."""
    return [
        (name, section)
        for name, section in layer.items()
        if isinstance(section, Mapping) and NOISE in section and is_method(name)
    ]
