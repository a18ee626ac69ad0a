"""The meaning of an epsilon (unit, relation, delta, view), and its conversion into another one.

Two epsilons compare only if they mean the same. Where relation or delta differ, a run's ledger has
the events, from which the epsilon of the other meaning is computed: by mu where all mechanisms are
unsampled Gaussians, else by the profile of privacy losses. Units are not converted: a ledger does
not bound the number of records that one user has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dp_accounting import DpEvent

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.text import epsilon_text
from fedsynth.privacy.accounting.accountant import epsilon, gaussian_mu_of
from fedsynth.privacy.ledger import read_chains, total
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import LEDGER, RunDirectory

RELATION_WORDS = {
    Relation.ADD_REMOVE.value: "add or remove one",
    Relation.REPLACE_ONE.value: "replace one",
}


@dataclass(frozen=True)
class Meaning:
    """What an epsilon protects. Empty: not recorded."""

    unit: str = ""
    relation: str = ""
    delta: float | None = None

    @property
    def text(self) -> str:
        """The meaning in words."""
        delta = "delta not recorded" if self.delta is None else f"delta={self.delta:g}"
        unit = self.unit or "unit not recorded"
        relation = RELATION_WORDS.get(self.relation, "relation not recorded")
        return f"{delta}, unit {unit}, neighbours: {relation}"


@dataclass(frozen=True)
class Guarantee:
    """One job's meaning, and the events of its parties from the ledger; empty: there is none."""

    meaning: Meaning = Meaning()
    events: tuple[DpEvent, ...] = field(default=(), repr=False)


def meaning_of(config: Mapping[str, Any]) -> Meaning:
    """The meaning of a run's epsilons by its configuration; earlier runs add or remove a record."""
    return Meaning(
        str(config.get("unit", Unit.RECORD.value)),
        str(config.get("relation", Relation.ADD_REMOVE.value)),
        None if config.get("delta") is None else float(config["delta"]),
    )


def meanings(metrics: Sequence[Metric]) -> set[tuple[Meaning, str]]:
    """The meanings that rows of metrics state, with the view."""
    return {
        (Meaning(row.unit, row.relation, row.delta), row.view)
        for row in metrics
        if math.isfinite(row.epsilon) and row.metric == "epsilon_pld"
    }


def guarantees(run: RunDirectory) -> dict[tuple[str, float], Guarantee]:
    """The guarantee of each method and budget of a run, by its first seed."""
    config = run.read_config()
    meaning, found = meaning_of(config), {}
    chains = read_chains(run.path / LEDGER) if (run.path / LEDGER).is_file() else []
    for row in run.metrics():
        key = row.method, row.epsilon
        if key not in found:
            name = release_name(*key, row.seed)
            own = ([entry for entry in chain if entry.job_name == name] for chain in chains)
            found[key] = Guarantee(meaning, tuple(total(entries) for entries in own if entries))
    return found


def difference(ours: Guarantee, theirs: Meaning) -> str:
    """How the meaning of our epsilon differs from another one, with our number in that meaning.

    Returns:
        Words; empty if nothing is known to differ.
    """
    mine, parts = ours.meaning, []
    if mine.unit and theirs.unit and mine.unit != theirs.unit:
        parts.append(f"unit ({mine.unit}, {theirs.unit})")
    if mine.relation and theirs.relation and mine.relation != theirs.relation:
        parts.append(f"relation ({mine.relation}, {theirs.relation})")
    if None not in (mine.delta, theirs.delta) and mine.delta != theirs.delta:
        parts.append(f"delta ({mine.delta:g}, {theirs.delta:g})")
    if not parts:
        return ""
    return f"{', '.join(parts)}: {_conversion(ours, theirs)}"


def other_meanings(run: RunDirectory, first: Meaning) -> list[str]:
    """The epsilons of a run that mean something else than those of a first one, with the converted
    numbers."""
    return [
        f"{method}, ε = {epsilon_text(budget)}: differs from the first run in {text}."
        for (method, budget), guarantee in guarantees(run).items()
        if math.isfinite(budget) and (text := difference(guarantee, first))
    ]


def _conversion(ours: Guarantee, theirs: Meaning) -> str:
    mine = ours.meaning
    if mine.unit and theirs.unit and mine.unit != theirs.unit:
        return "no conversion between units"
    if not ours.events:
        return "not converted, as there is no ledger"
    delta, relation = theirs.delta or mine.delta, theirs.relation or mine.relation
    if delta is None:
        return "not converted, as no delta is known"
    worst = max(ours.events, key=lambda event: epsilon(event, delta, relation=relation))
    text = f"ours is ε = {epsilon_text(epsilon(worst, delta, relation=relation))} there"
    mu = gaussian_mu_of(worst, relation)
    return text if mu is None else f"{text} (mu = {mu:.4g})"
