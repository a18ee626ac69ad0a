"""Which methods go with which kind of data, and what a scenario for images does with a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.data import datasets
from fedsynth.errors import UserError
from fedsynth.methods import all_methods, method

Layers = Sequence[Mapping[str, Any]]


def able(kind: str) -> list[str]:
    """The methods that can release data of this kind."""
    return [name for name, some in all_methods().items() if kind in some.kinds]


def refuse_other_kinds(names: Sequence[str], data: str) -> None:
    """A UserError for the first method that cannot handle the data's kind."""
    kind = datasets.info(data).facts.kind
    for name in names:
        if kind not in method(name).kinds:
            raise UserError(
                f"method={name} cannot release data={data}, whose kind is {kind}. "
                f"Methods that can: {', '.join(able(kind))}."
            )


def suited(layers: Layers, data: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The layers of a run, the last of which is the command line, made to suit the kind of the
    data; and the methods that were left out.

    Methods that only a file names are left out where they cannot; what the command line asks for
    stays, and is refused later."""
    kind = datasets.info(data).facts.kind
    named = [layer["method"] for layer in layers if layer.get("method")]
    if layers[-1].get("method") or not named or not isinstance(named[-1], list | tuple):
        return list(layers), []
    kept = [name for name in named[-1] if name not in all_methods() or kind in method(name).kinds]
    if not kept:
        return list(layers), []
    left_out = [name for name in named[-1] if name not in kept]
    return [*layers[:-1], {"method": kept}, layers[-1]], left_out
