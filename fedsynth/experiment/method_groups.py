"""Words for many methods at once: `method=all`, `method=one_shot`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.registry import all_methods, method

ALL, ONE_SHOT = "all", "one_shot"
GROUPS = {
    ALL: "every method that can be planned here",
    ONE_SHOT: "of these, those that ask every party once",
}


def candidates(names: Iterable[str]) -> tuple[str, ...]:
    """The methods that names and words for groups may stand for, each once."""
    spread = (list(all_methods()) if name in GROUPS else [name] for name in names)
    return tuple(dict.fromkeys(name for some in spread for name in some))


def members(
    names: Iterable[str],
    settings: Mapping[str, Any],
    stage: Stage,
    budgets: Mapping[str, Budget],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods that names and words for groups stand for in this task, and a sentence for each
    that is left out. A method that is named itself stays, whatever comes of it. Reads no data."""
    kept: list[str] = []
    said: list[str] = []
    for name in names:
        if name not in GROUPS:
            kept.append(name)
            continue
        for some in all_methods():
            if why := _unsuited(name, some, settings[some], stage, budgets[some]):
                said.append(f"{some} is left out of method={name}: {why}")
            else:
                kept.append(some)
    left = [text for text in said if text.split()[0] not in kept]
    return tuple(dict.fromkeys(kept)), tuple(dict.fromkeys(left))


def _unsuited(group: str, name: str, cfg: Any, stage: Stage, budget: Budget) -> str:
    """Why a method is not of the group here; empty where it is."""
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
