"""The ledger of a run: those of all parties of all jobs in one text."""

from __future__ import annotations

from collections.abc import Sequence

from fedsynth.experiment.job import Job
from fedsynth.experiment.party_extracts import known_entries, on_nodes, party_entries
from fedsynth.privacy.ledger_entry import EXTRACT


def merged_ledger(jobs: Sequence[Job]) -> str:
    """The verified ledgers of all parties, one after the other; each keeps its chain of hashes.

    Of parties on real nodes, the extracts that they signed."""
    lines = []
    for job in sorted(jobs, key=lambda job: job.name):
        for party in range(job.scenario.parties):
            if on_nodes(job):
                lines.append(EXTRACT.decode())
            entries = known_entries(job, party) if on_nodes(job) else party_entries(job, party)
            lines += [entry.line() + "\n" for entry in entries or ()]
    return "".join(lines)
