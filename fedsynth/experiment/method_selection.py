"""The methods of a run: groups of methods, and checks against data, unit of privacy and rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.methods.registry import all_methods, is_method, method

Layers = Sequence[Mapping[str, Any]]
ALL, ONE_SHOT = "all", "one_shot"
GROUPS = {
    ALL: "every method that can be planned here",
    ONE_SHOT: "of these, those that ask every party once",
}


def candidates(names: Iterable[str]) -> tuple[str, ...]:
    """The methods that names and groups may stand for, each once."""
    spread = (list(all_methods()) if name in GROUPS else [name] for name in names)
    return tuple(dict.fromkeys(name for some in spread for name in some))


def members(
    names: Iterable[str],
    settings: Mapping[str, Any],
    stage: Stage,
    budgets: Mapping[str, Budget],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Resolve names and groups to the methods of a run. Reads no data.

    Args:
        names: Names of methods and groups. A method that is named itself always stays.
        settings: The settings of every candidate.
        stage: The first stage of the scenario.
        budgets: The budget of every candidate.

    Returns:
        The methods, and a sentence for each that a group leaves out.
    """
    kept: list[str] = []
    reasons: list[str] = []
    for name in names:
        if name not in GROUPS:
            kept.append(name)
            continue
        for some in all_methods():
            if why := _unsuited(name, some, settings[some], stage, budgets[some]):
                reasons.append(f"{some} is left out of method={name}: {why}")
            else:
                kept.append(some)
    left = [text for text in reasons if text.split()[0] not in kept]
    return tuple(dict.fromkeys(kept)), tuple(dict.fromkeys(left))


def _unsuited(group: str, name: str, cfg: Any, stage: Stage, budget: Budget) -> str:
    """The reason why a method is not in the group here; empty if it is."""
    some = method(name)
    if why := some.unfit(stage.data):
        return f"{why}."
    if some.private and budget.unit not in some.units:
        return f"it protects {' or '.join(some.units)}s, not {budget.unit}s."
    try:
        rounds = some.plan(cfg, stage, budget).rounds
    except UserError as error:
        return str(error)
    return f"it asks {rounds:,} times." if group == ONE_SHOT and rounds > 1 else ""


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
    """Leave out methods that cannot release the data of a run.

    Only methods named in a file are left out; those named on the command line stay and are refused
    later.

    Args:
        layers: The layers of a run; the last one is the command line.

    Returns:
        The layers with the remaining methods, and the methods left out.
    """
    named = [layer["method"] for layer in layers if layer.get("method")]
    if layers[-1].get("method") or not named or not isinstance(named[-1], list | tuple):
        return list(layers), []
    keys = {field.name for field in dataclasses.fields(ScenarioConfig)}
    scenario = {k: v for layer in layers for k, v in layer.items() if k in keys}
    data = dataset_info(build(ScenarioConfig, scenario))
    kept = [name for name in named[-1] if not is_method(name) or not method(name).unfit(data)]
    if not kept:
        return list(layers), []
    left_out = [name for name in named[-1] if name not in kept]
    return [*layers[:-1], {"method": kept}, layers[-1]], left_out


def takes_turns(name: str) -> bool:
    """True if this method asks some of the parties per round."""
    return "per_round" in {field.name for field in dataclasses.fields(method(name).Config)}


def check_turns(users_per_round: int | None, scenario: ScenarioConfig) -> None:
    """Check that a round does not ask more parties than a stage has."""
    most = max(len(stage.parties) for stage in scenario_stages(scenario))
    if (users_per_round or 0) > most:
        raise UserError(
            f"users_per_round={users_per_round}: there are {most:,} parties to be asked in a "
            f"round. Allowed: 1 to {most}."
        )


def check_units(names: Sequence[str], unit: str) -> None:
    """Refuse methods that do not protect this unit; an epsilon for records is none for users."""
    for name in names:
        some = method(name)
        if some.private and unit not in some.units:
            able = [
                n for n, other in all_methods().items() if other.private and unit in other.units
            ]
            raise UserError(
                f"unit={unit}: {name} protects a {' or a '.join(some.units)}; its epsilon does "
                f"not hold for a {unit}. Methods that protect a {unit}: {', '.join(able)}."
            )
