"""Check a whole run: its ledger, its certificates, and the numbers that it prints."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsynth.api.launch import load_started_config
from fedsynth.cli.verify_release import certificates
from fedsynth.core.errors import UserError
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.job_metrics import privacy_metrics
from fedsynth.experiment.party_extracts import on_nodes
from fedsynth.experiment.run_seal import SEAL, seal_problems
from fedsynth.privacy.certificate.check import Verdict, check
from fedsynth.privacy.certificate.words import summary
from fedsynth.privacy.ledger import Entry, read_chains
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import RELEASES
from fedsynth.storage.run_directory import LEDGER, METRICS, RunDirectory

CLOSE = 1e-6  # relative: recomputed numbers and printed ones

Chains = Mapping[tuple[str, int], Sequence[Entry]]  # by job and party


def report(folder: Path, trusted: Mapping[str, str]) -> list[str]:
    """The lines to print for a run that holds.

    Args:
        folder: The run directory.
        trusted: Public keys that the reader knows, with the signer that each belongs to.

    Raises:
        UserError: Anything does not hold; the message names all of it.
    """
    run = RunDirectory.read(folder)
    chains = _chains(folder / LEDGER)
    experiment = Experiment.of(load_started_config(folder, {}), folder)
    verdicts = [check(path, trusted) for path in _certificates(folder)]
    problems = [
        f"{v.path.parent.name}/{v.path.name}: {text}" for v in verdicts for text in v.problems
    ]
    problems += [
        *seal_problems(run, trusted),
        *metric_problems(run.metrics(), experiment.jobs, chains),
        *ledger_problems(verdicts, chains),
    ]
    if problems:
        raise UserError("\nerror: ".join(dict.fromkeys(problems)))
    entries = sum(len(chain) for chain in chains.values())
    return [
        *(summary(verdict) for verdict in verdicts),
        f"{len(verdicts)} releases, {len(chains)} ledgers with {entries} entries: every hash, "
        f"every signature and every epsilon of {METRICS} holds; {SEAL} covers the other numbers. "
        "`fedsynth verify RELEASE` says what one of them promises.",
    ]


def _chains(ledger: Path) -> dict[tuple[str, int], list[Entry]]:
    if not ledger.is_file():
        raise UserError(f"{ledger} is missing: the run is not finished, or was cut off.")
    found: dict[tuple[str, int], list[Entry]] = {}
    for entry in (entry for chain in read_chains(ledger) for entry in chain):
        found.setdefault((entry.job_name, entry.party), []).append(entry)
    return found


def _chain(chains: Chains, job: Job, party: int) -> Sequence[Entry] | None:
    return chains.get((job.name, party), None if on_nodes(job) else ())


def _certificates(folder: Path) -> list[Path]:
    releases = folder / RELEASES
    return certificates(releases) if releases.is_dir() and any(releases.rglob("*.npz")) else []


def metric_problems(rows: Sequence[Metric], jobs: Sequence[Job], chains: Chains) -> list[str]:
    """The epsilons and other planned numbers of a run that are not those of ledger and plan."""
    said = {(*row[:3], row.stage, row.metric): row.value for row in rows}
    found = []
    for job in jobs:
        key = (job.method, job.budget.epsilon, job.seed)
        for stage in range(len(job.plans)):
            computed = privacy_metrics(job, stage, functools.partial(_chain, chains, job))
            for name, value in computed.items():
                stated = said.get((*key, stage + 1, name))
                if stated is None:
                    found.append(f"{METRICS} lacks {name} of {job.name}, stage {stage + 1}.")
                elif not _close(stated, value):
                    found.append(
                        f"{METRICS} says {name}={stated:g} for {job.name}, stage {stage + 1}; "
                        f"ledger and plan come to {value:g}."
                    )
    return found


def ledger_problems(verdicts: Sequence[Verdict], chains: Chains) -> list[str]:
    """Entries of certificates that the run's ledger does not hold, and the reverse."""
    certified: dict[tuple[str, int], set[str]] = {}
    for verdict in verdicts:
        for document in verdict.body.get("statements", ()):
            body = document["body"]
            hashes = {entry["hash"] for entry in body["ledger"]["entries"]}
            name = body["job"].partition(" ")[0]  # a real party adds a digest
            certified.setdefault((name, body["party"]), set()).update(hashes)
    found = []
    for (job, party), hashes in certified.items():
        here = {entry.hash for entry in chains.get((job, party), ())}
        if lost := hashes - here:
            found.append(
                f"{LEDGER} lacks {len(lost)} entries of {job}, party {party}, that the party "
                "signed: it was rewritten or cut off."
            )
        if new := here - hashes:
            found.append(
                f"{LEDGER} has {len(new)} entries of {job}, party {party}, that no certificate "
                "has: it was rewritten, or the certificate is an earlier one."
            )
    return found


def _close(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-9)
