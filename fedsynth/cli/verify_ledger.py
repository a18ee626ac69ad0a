"""Check a ledger without the run that wrote it.

Every hash chain in the file (one per job and party) is checked from its first line, and the cost of
its events is computed again, by PLD and by RDP. No more than the ledger is needed. The unit of
privacy is not part of the events: it is read from the run's `config.yaml` if the ledger still lies
beside it, and given as an option otherwise. A chain does not show that its last lines are missing:
a run's whole ledger is therefore compared with the epsilons in its `metrics.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.accountant import cross_check, epsilon
from fedsynth.privacy.accounting.events import describe
from fedsynth.privacy.ledger import Entry, read_chains, total
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import CONFIG, METRICS, RunDirectory

RELATIONS = {Relation.ADD_REMOVE: "add/remove", Relation.REPLACE_ONE: "replace one"}
DEPTH = 4  # folders from a run's configuration down to a party's own ledger


@dataclass(frozen=True)
class Account:
    """The privacy spending of one party in one job, computed from its own lines."""

    job: str
    party: int
    entries: int
    words: str
    pld: float
    rdp: float
    others: dict[str, float]  # the same by other programs, where it was asked for
    noise: str
    views: tuple[str, ...]


def accounts(
    path: Path, delta: float, opacus: bool = False, relation: str = Relation.ADD_REMOVE
) -> list[Account]:
    """One account per chain; raises `LedgerDamaged` if a chain is broken."""
    return [_account(chain, delta, opacus, relation) for chain in read_chains(path)]


def relation_of(ledger: Path) -> str:
    """The neighbouring relation by the run's configuration; runs without it add or remove."""
    for folder in ledger.resolve().parents[:DEPTH]:
        relation = _config_in(folder).get("relation")
        if relation in tuple(Relation):
            return str(relation)
    return str(Relation.ADD_REMOVE)


def unit_of(ledger: Path) -> str:
    """The unit of privacy by the run's configuration, found in the folders above the ledger."""
    for folder in ledger.resolve().parents[:DEPTH]:
        unit = _config_in(folder).get("unit")
        if unit in tuple(Unit):
            return str(unit)
    return "unit not in the ledger (--unit names it)"


def _config_in(folder: Path) -> dict[str, Any]:
    """The configuration of the run in this folder; empty where there is none."""
    return RunDirectory(folder).read_config() if (folder / CONFIG).is_file() else {}


def check_against(run: RunDirectory, found: Sequence[Account]) -> None:
    """Refuse a ledger whose chains differ from the spending in the run's `metrics.csv`."""
    said: dict[str, Metric] = {}
    for row in run.metrics():
        if row.metric == "epsilon_pld" and math.isfinite(row.value):
            name = release_name(row.method, row.epsilon, row.seed)
            said[name] = max(row, said.get(name, row), key=lambda row: row.stage)
    for name, row in said.items():
        here = max((a.pld for a in found if a.job.partition(" ")[0] == name), default=0.0)
        if not math.isclose(here, row.value, rel_tol=1e-4, abs_tol=1e-9):
            raise UserError(
                f"the chains of {name} come to epsilon {here:.6g}, and the run's {METRICS} "
                f"says {row.value:.6g}: lines or whole chains are missing from the ledger, or were "
                "added to it."
            )


def _account(chain: list[Entry], delta: float, opacus: bool, relation: str) -> Account:
    spent, first = total(chain), chain[0]
    add_remove = relation == Relation.ADD_REMOVE  # Opacus knows no other relation
    others = cross_check(spent, delta) if opacus and add_remove else {}
    return Account(
        first.job,
        first.party,
        len(chain),
        describe(spent),
        epsilon(spent, delta, "pld", relation),
        epsilon(spent, delta, "rdp", relation),
        {name: value for name, value in others.items() if name not in ("pld", "rdp")},
        first.noise,
        tuple(sorted({entry.view for entry in chain})),
    )


def report(
    path: Path, delta: float, unit: str | None, opacus: bool, relation: str | None = None
) -> list[str]:
    """The lines to print for a ledger that holds.

    Args:
        path: A run's ledger, or a party's own.
        delta: The delta at which epsilons are counted.
        unit: The unit of privacy; None: from the run's configuration.
        opacus: Whether to count by Opacus's accountants and dp-accounting's own as well.
        relation: The neighbouring relation; None: from the run's configuration.

    Raises:
        UserError: A chain is broken, or the run's own numbers differ.
    """
    relation = relation or relation_of(path)
    found = accounts(path, delta, opacus, relation)
    if not found:
        raise UserError(f"{path} holds no entries: it is empty or was cut off.")
    folder = path.parent
    whole = (folder / METRICS).is_file() and _config_in(folder).get("delta") == delta
    whole = whole and relation == relation_of(path)
    if whole:
        check_against(RunDirectory(folder), found)
    unit = unit or unit_of(path)
    lines = []
    for a in found:
        counts = {"PLD": a.pld, "RDP": a.rdp, **a.others}
        lines.append(
            f"{a.job}, party {a.party}: epsilon "
            + ", ".join(f"{value:.4g} ({name})" for name, value in counts.items())
            + f" at delta={delta:g}, {unit}, {RELATIONS[Relation(relation)]}; "
            f"view {', '.join(a.views)}; noise from {a.noise}; {a.entries} entries: {a.words}"
        )
    lines.append(
        f"{len(found)} chains, {sum(a.entries for a in found)} entries: every hash holds"
        + (", and the run's own numbers agree." if whole else ".")
    )
    if not whole:
        lines.append(
            "Lines cut off from the end of a chain cannot be seen here: compare with the report."
        )
    return lines
