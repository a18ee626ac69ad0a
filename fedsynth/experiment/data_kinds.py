"""Which methods go with which data, and what a scenario does with data that some cannot handle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.core.types import DatasetInfo
from fedsynth.experiment.scenario import ScenarioConfig, info
from fedsynth.methods.registry import all_methods, is_method, method

Layers = Sequence[Mapping[str, Any]]


def able(data: DatasetInfo) -> list[str]:
    """The methods that can release such data."""
    return [name for name, some in all_methods().items() if not some.unfit(data)]


def refuse_unfit(names: Sequence[str], data: DatasetInfo) -> None:
    """A UserError for the first method that cannot release this data."""
    for name in names:
        if why := method(name).unfit(data):
            raise UserError(
                f"method={name} cannot release data={data.name}: {why}. "
                f"Methods that can: {', '.join(able(data))}."
            )


def suited(layers: Layers) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The layers of a run, the last of which is the command line, made to suit the data; and the
    methods that were left out.

    Methods that only a file names are left out where they cannot; what the command line asks for
    stays, and is refused later."""
    named = [layer["method"] for layer in layers if layer.get("method")]
    if layers[-1].get("method") or not named or not isinstance(named[-1], list | tuple):
        return list(layers), []
    keys = {field.name for field in dataclasses.fields(ScenarioConfig)}
    said = {k: v for layer in layers for k, v in layer.items() if k in keys}
    data = info(build(ScenarioConfig, said))
    kept = [name for name in named[-1] if not is_method(name) or not method(name).unfit(data)]
    if not kept:
        return list(layers), []
    left_out = [name for name in named[-1] if name not in kept]
    return [*layers[:-1], {"method": kept}, layers[-1]], left_out
