"""Who is protected by which method, and who is asked at a time: what a run is refused for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fedsynth.core.errors import UserError
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.registry import all_methods, method


def takes_turns(name: str) -> bool:
    """Whether this method asks some of the parties at a time."""
    return "per_round" in {field.name for field in dataclasses.fields(method(name).Config)}


def check_turns(users_per_round: int | None, world: ScenarioConfig) -> None:
    """Nobody can ask more parties in a round than there are."""
    most = max(len(stage.parties) for stage in scenario_stages(world))
    if (users_per_round or 0) > most:
        raise UserError(
            f"users_per_round={users_per_round}: there are {most:,} parties to be asked in a "
            f"round. Allowed: 1 to {most}."
        )


def check_units(names: Sequence[str], unit: str) -> None:
    """An epsilon for records says nothing about users: refuse to pass the one off as the other."""
    for name in names:
        some = method(name)
        if some.private and unit not in some.units:
            able = [
                n for n, other in all_methods().items() if other.private and unit in other.units
            ]
            raise UserError(
                f"unit={unit}: {name} protects a {' or a '.join(some.units)}, and its epsilon says "
                f"nothing about a {unit}. Methods that protect a {unit}: {', '.join(able)}."
            )
