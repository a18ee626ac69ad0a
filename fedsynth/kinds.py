"""Which methods go with which kind of data, and what a scenario for images does with a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.core import TABLE
from fedsynth.data import datasets
from fedsynth.errors import UserError
from fedsynth.methods import all_methods, method

Layers = Sequence[Mapping[str, Any]]


def able(kind: str) -> list[str]:
    """The methods that can release data of this kind."""
    return [name for name, some in all_methods().items() if kind in some.kinds]


def refuse_other_kinds(names: Sequence[str], data: str, classifier: str) -> None:
    """A UserError for the first method, or the classifier, that cannot handle the data's kind."""
    kind = datasets.info(data).facts.kind
    for name in names:
        if kind not in method(name).kinds:
            raise UserError(
                f"method={name} cannot release data={data}, whose kind is {kind}. "
                f"Methods that can: {', '.join(able(kind))}."
            )
    if kind == TABLE and classifier != "mlp":
        raise UserError(
            f"evaluation.classifier={classifier} is for images, and data={data} is a table. "
            "Allowed for tables: mlp."
        )


def suited(layers: Layers, data: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The layers of a run, the last of which is the command line, made to suit the kind of the
    data; and the methods that were left out.

    Methods that only a file names are left out where they cannot; what the command line asks for
    stays, and is refused later. A table is judged by an MLP where nothing else is said."""
    kind = datasets.info(data).facts.kind
    basis: list[Mapping[str, Any]] = (
        [{"evaluation": {"classifier": "mlp"}}] if kind == TABLE else []
    )
    named = [layer["method"] for layer in layers if layer.get("method")]
    if layers[-1].get("method") or not named or not isinstance(named[-1], list | tuple):
        return [*basis, *layers], []
    kept = [name for name in named[-1] if name not in all_methods() or kind in method(name).kinds]
    if not kept:
        return [*basis, *layers], []
    left_out = [name for name in named[-1] if name not in kept]
    return [*basis, *layers[:-1], {"method": kept}, layers[-1]], left_out
