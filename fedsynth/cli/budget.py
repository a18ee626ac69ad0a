"""The spending of a party from its lifetime budget: `fedsynth budget DIR`.

DIR is the folder of a party's `party.yaml`, or a run directory. A party's folder shows the admitted
jobs, what they cost together, and what is left. A run's jobs are worlds of their own, each with a
lifetime of its own; of a run directory the command shows what all of them together would have cost
each party.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.enums import Accounting, Relation, Unit
from fedsynth.core.errors import UserError, exit_code
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed
from fedsynth.privacy.accounting.gdp import check_delta
from fedsynth.privacy.ledger import read_chains, read_entries, total
from fedsynth.privacy.ledger_entry import CHARGE, Entry
from fedsynth.privacy.lifetime import BOOK, LifetimeBook
from fedsynth.privacy.policy import PartyPolicy, read_policy
from fedsynth.storage.run_directory import CONFIG, LEDGER, RunDirectory

POLICY = "party.yaml"
MOST_LINES = 20  # of parties; the others are summed up


@dataclass(frozen=True)
class Terms:
    """The terms of an epsilon: delta, unit and relation."""

    delta: float
    unit: str
    relation: str

    @property
    def words(self) -> str:
        """The terms in words."""
        return f"delta={self.delta:g}, unit {self.unit}, relation {self.relation}"


def party_lines(folder: Path, policy: PartyPolicy) -> list[str]:
    """The state of a party's lifetime budget.

    Args:
        folder: The folder of its policy.
        policy: The policy.

    Raises:
        UserError: The book or the ledger is damaged.
    """
    life, ledger = policy.lifetime, folder / policy.ledger / LEDGER
    book = LifetimeBook(folder / policy.ledger / BOOK, life)
    jobs, spent = book.jobs(), book.spent()
    charged = {name: _charges(entries) for name, entries in _by_job(ledger).items()}
    lines = [f"lifetime budget: {life.words}"]
    for job in jobs:
        planned = epsilon(job.event, life.delta, Accounting.PLD, life.relation)
        done = epsilon(
            charged.get(job.name, composed([])), life.delta, Accounting.PLD, life.relation
        )
        lines.append(f"  {job.name}: epsilon {planned:.4g} by its plan, {done:.4g} charged so far")
    if not jobs:
        return [*lines, "spent: nothing; the first job may cost all of it."]
    order = life.renyi_order
    lines.append(
        f"spent by {_jobs(len(jobs))}: epsilon {spent.epsilon:.4g}; at Renyi order {order:g} "
        f"{spent.divergence:.4g} of {life.limit:.4g}"
    )
    if spent.left > 0:
        lines.append(f"left: {spent.left:.4g} of the divergence at this order, for further jobs.")
    else:
        lines.append("left: nothing. Further jobs are refused; repetitions of these are answered.")
    return lines


def run_lines(run: Path, terms: Terms) -> list[str]:
    """The cost to each party of all jobs of a run together.

    Args:
        run: The run directory.
        terms: The meaning of epsilon.

    Raises:
        UserError: There is no ledger, or one is damaged.
    """
    parties = _run_charges(run)
    if not parties:
        raise UserError(f"{run} holds no ledger with charges: nothing was released there.")
    private = {party: _private(jobs) for party, jobs in parties.items()}
    together = {
        party: epsilon(composed(list(jobs.values())), terms.delta, Accounting.PLD, terms.relation)
        for party, jobs in private.items()
    }
    names = sorted({name for jobs in private.values() for name in jobs})
    open_ = sorted({name for jobs in parties.values() for name in jobs} - set(names))
    lines = [
        f"{run}: {_jobs(len(names))} with noise. Each job is a world of its own: its parties have "
        "one lifetime each, for this job alone, and the table of results compares worlds.",
        "If one party had made all of these releases from the same records "
        f"({terms.words}; PLD, all jobs planned at once), it would have spent",
    ]
    for party in sorted(together)[:MOST_LINES]:
        single = {
            name: epsilon(event, terms.delta, Accounting.PLD, terms.relation)
            for name, event in private[party].items()
        }
        lines.append(
            f"  party {party}: epsilon {together[party]:.4g} for {_jobs(len(single))}, of which "
            f"the largest alone is {max(single.values(), default=0.0):.4g}"
        )
    if len(together) > MOST_LINES:
        lines.append(f"  ... {len(together)} parties, at most {max(together.values()):.4g}")
    if open_:
        lines.append(
            f"Not counted: {', '.join(open_)} (references without privacy: infinite epsilon)."
        )
    return lines


def _private(jobs: Mapping[str, DpEvent]) -> dict[str, DpEvent]:
    return {name: event for name, event in jobs.items() if math.isfinite(epsilon(event, 1e-5))}


def _run_charges(run: Path) -> dict[int, dict[str, DpEvent]]:
    """The events of each job by party: from the run's ledger, or those of its parties."""
    merged = run / LEDGER
    files = [merged] if merged.is_file() else sorted(run.glob(f"parties/*/party-*/{LEDGER}"))
    parties: dict[int, dict[str, DpEvent]] = {}
    for file in files:
        for chain in read_chains(file):
            for name in {entry.job for entry in chain}:
                entries = [entry for entry in chain if entry.job == name]
                parties.setdefault(entries[0].party, {})[name] = _charges(entries)
    return parties


def _by_job(ledger: Path) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in read_entries(ledger):
        found.setdefault(entry.job, []).append(entry)
    return found


def _charges(entries: Sequence[Entry]) -> DpEvent:
    return total([entry for entry in entries if entry.kind == CHARGE])


def _jobs(number: int) -> str:
    return f"{number} job" if number == 1 else f"{number} jobs"


def _terms(run: Path, options: argparse.Namespace) -> Terms:
    config = RunDirectory(run).read_config() if (run / CONFIG).is_file() else {}
    return Terms(
        float(options.delta or config.get("delta", 1e-5)),
        str(config.get("unit", Unit.RECORD)),
        str(config.get("relation", Relation.ADD_REMOVE)),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Print the report of a folder; exit code 2 if there is nothing to report, or damage."""
    parser = ArgumentParser(prog="fedsynth budget")
    parser.add_argument("folder", type=Path, help="of a party's party.yaml, or a run directory")
    parser.add_argument("--delta", type=float, help="of a run; default: its own")
    options = parser.parse_args(words)
    return exit_code(lambda: print("\n".join(_lines(options))))


def _lines(options: argparse.Namespace) -> list[str]:
    folder: Path = options.folder
    if options.delta is not None:
        check_delta(options.delta)
    if (folder / POLICY).is_file():
        return party_lines(folder, read_policy(folder / POLICY))
    if folder.is_dir():
        return run_lines(folder, _terms(folder, options))
    raise UserError(f"{folder} is not a folder: name a party's folder or a run directory.")


if __name__ == "__main__":
    sys.exit(main())
