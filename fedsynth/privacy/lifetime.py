"""The lifetime budget of a party: what all jobs together may cost, over methods and servers.

Claim: whatever jobs a party admits, and however a later job depends on releases of earlier ones,
all its releases together are (epsilon, delta)-differentially private for the budget's unit and
relation.

Proof. Jobs are admitted by their whole plan before anything is computed, one of two ways.

* A job that is admitted while no other one is: its plan is fixed and depends on no release. It may
  cost (epsilon, delta) by the job's own accountant (non-adaptive composition within the job).
* Any job whose Renyi divergence of the budget's `order`, added to that of all jobs admitted before,
  stays within `limit`. Parameters of such a job may depend on everything released before: this is
  the Renyi privacy filter of Feldman and Zrnic, "Individual Privacy Accounting via a Renyi Filter"
  (NeurIPS 2021; fully adaptive composition), at one fixed order. Jobs are conversations and may run
  at the same time: filters of a fixed order extend to that (Haney et al., "Concurrent Composition
  for Interactive Differential Privacy with Adaptive Privacy-Loss Parameters", CCS 2023). The sum is
  then (order, limit)-Renyi private, and `limit` is the divergence that converts to epsilon at delta
  (Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020).

A first job of the first kind whose divergence exceeds `limit` excludes any second job; one within
it counts towards the filter from its start. Which of the two holds is known before the first
release, so that no branch depends on data, and the claim holds in each branch.

Assumption: a job charges no more than the event that it was admitted with (`allows`), and the order
is not changed between jobs, which the book refuses.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import DpEvent
from filelock import FileLock

from fedsynth.core.enums import Accounting, Relation, Unit
from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.settings import setting
from fedsynth.privacy.accounting.accountant import epsilon, renyi_divergence
from fedsynth.privacy.accounting.events import composed, flatten, from_json, to_json
from fedsynth.privacy.accounting.gdp import check_delta
from fedsynth.privacy.ledger_entry import CHARGE, Entry
from fedsynth.storage.files import OF_PARTY, disk_errors, sync_directory

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)
SLACK = 1e-9  # relative, as in the ledger: calibration stops this side of the target
BOOK = "jobs.jsonl"  # in the folder of the party's ledger


@dataclass(frozen=True)
class LifetimeBudget:
    """What all jobs of a party together may cost, per protected unit."""

    epsilon: float = setting(
        math.nan, "epsilon of all jobs together; .inf allows disclosure", above=0, finite=False
    )
    delta: float = setting(1e-5, "delta of all jobs together", above=0, below=1)
    unit: str = setting(Unit.RECORD.value, "unit of privacy", choices=tuple(Unit))
    relation: str = setting(
        Relation.ADD_REMOVE.value, "neighbouring relation", choices=tuple(Relation)
    )
    order: float | None = setting(
        None, "Renyi order of the filter; default: the best for this budget", above=1
    )

    @property
    def renyi_order(self) -> float:
        """The order of the filter."""
        if self.order is not None:
            return self.order
        return 2.0 if math.isinf(self.epsilon) else best_order(self.epsilon, self.delta)

    @property
    def limit(self) -> float:
        """The Renyi divergence that all jobs together may have at the filter's order."""
        return divergence_limit(self.epsilon, self.delta, self.renyi_order)

    @property
    def words(self) -> str:
        """The guarantee in words."""
        return (
            f"epsilon={self.epsilon:g} at delta={self.delta:g} (unit {self.unit}, relation "
            f"{self.relation})"
        )


def divergence_limit(epsilon: float, delta: float, order: float) -> float:
    """The largest Renyi divergence of `order` that implies (epsilon, delta) privacy.

    Args:
        epsilon: The target, which may be infinite.
        delta: The probability of failure.
        order: The order, above 1.

    Returns:
        The divergence; negative where this order proves nothing about the target.
    """
    check_delta(delta)
    conversion = math.log(1 / delta) / (order - 1) + math.log1p(-1 / order)
    return epsilon - conversion + math.log(order) / (order - 1)


def epsilon_of(divergence: float, delta: float, order: float) -> float:
    """The epsilon that a Renyi divergence of `order` implies at `delta`."""
    return max(divergence - divergence_limit(0.0, delta, order), 0.0) if divergence else 0.0


@functools.lru_cache(maxsize=256)
def best_order(epsilon: float, delta: float) -> float:
    """The order at which unsampled Gaussian mechanisms fit the budget most often.

    Their divergence is proportional to the order. The choice changes how much fits, never the
    claim."""
    gains = [divergence_limit(epsilon, delta, order) / order for order in ORDERS]
    return float(ORDERS[int(np.argmax(gains))])


@dataclass(frozen=True)
class AdmittedJob:
    """One job in the book of a party.

    Attributes:
        key: Digest of everything that the job's releases depend on.
        name: The name of the job in the ledger.
        event: All that the party will charge in this job, by its own plan.
    """

    key: str
    name: str
    event: DpEvent


@dataclass(frozen=True)
class Spent:
    """The state of a lifetime budget."""

    jobs: int
    divergence: float  # of the filter's order
    epsilon: float  # of all admitted jobs
    left: float  # divergence
    further_jobs: bool  # whether a job may still be admitted


class LifetimeBook:
    """The admitted jobs of a party, and the filter that admits further ones."""

    def __init__(self, path: Path, budget: LifetimeBudget, *, durable: bool = True) -> None:
        """Open the book; it is written when the first job is admitted.

        Args:
            path: The file of the book.
            budget: The lifetime budget of the party's policy.
            durable: Whether a job is on the disk (fsync) before it is admitted. A simulated world
                has one job per book, and its ledger alone limits it.
        """
        self._path, self._budget, self._durable = path, budget, durable
        self._known: set[str] = set()

    def admit(self, job: AdmittedJob, accounting: str = Accounting.PLD) -> None:
        """Admit a job, or return at once if it is admitted already.

        Args:
            job: The job with the event of its whole plan.
            accounting: The accountant by which the first job may be admitted.

        Raises:
            Refused: The job does not fit what is left of the budget; nothing was written.
            UserError: The book is damaged, or cannot be written.
        """
        if job.key in self._known:
            return
        with disk_errors(self._path, OF_PARTY):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock"):
                jobs = self.jobs()
                same = [known for known in jobs if known.key == job.key]
                if any(flatten(known.event) != flatten(job.event) for known in same):
                    text = "this party's book of admitted jobs holds this one at another cost."
                    raise Refused(Refusal.LEDGER, text)
                if not same:
                    self._check(jobs, job, accounting)
                    self._append(job)
        self._known.add(job.key)

    def jobs(self) -> list[AdmittedJob]:
        """All admitted jobs, in order.

        Raises:
            UserError: A line is not a job, or the book was begun with another filter.
        """
        raw = self._path.read_bytes() if self._path.exists() else b""
        found = []
        for number, line in enumerate(raw.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break  # cut off by a crash, before the job was admitted
            try:
                fields = json.loads(line)
                filter_, event = fields["filter"], from_json(fields["event"])
                found.append(AdmittedJob(str(fields["key"]), str(fields["name"]), event))
            except (ValueError, TypeError, KeyError, RecursionError, UserError) as error:
                raise UserError(f"{self._path.name}, line {number}: not a job.") from error
            if filter_ != self._filter():
                raise UserError(
                    f"{self._path.name}, line {number}: jobs were admitted with {filter_}, and the "
                    f"policy has {self._filter()} now. These are fixed for a lifetime: set them "
                    "back (lifetime: order, delta, unit, relation). A default order follows from "
                    "epsilon, so that a changed epsilon needs the order of before."
                )
        return found

    def spent(self) -> Spent:
        """What the admitted jobs cost together, and what is left."""
        jobs, budget = self.jobs(), self._budget
        total = math.fsum(self._divergence(job.event) for job in jobs)
        bounds = [epsilon_of(total, budget.delta, budget.renyi_order)]
        if len(jobs) == 1:
            bounds.append(epsilon(jobs[0].event, budget.delta, relation=budget.relation))
        left = budget.limit - total
        return Spent(len(jobs), total, min(bounds), left, left > 0 or not jobs)

    def _check(self, jobs: list[AdmittedJob], job: AdmittedJob, accounting: str) -> None:
        budget = self._budget
        if math.isinf(budget.epsilon):
            return
        before = [self._divergence(known.event) for known in jobs]
        after = math.fsum([*before, self._divergence(job.event)])
        if after <= budget.limit * (1 + SLACK):
            return
        if not jobs:
            cost = epsilon(job.event, budget.delta, accounting, budget.relation)
            if cost <= budget.epsilon * (1 + SLACK):
                return
            raise Refused(
                Refusal.BUDGET,
                f"this job would cost epsilon={cost:.4g}, and the lifetime budget of this party is "
                f"{budget.words}. Ask for less.",
            )
        order = budget.renyi_order
        raise Refused(
            Refusal.BUDGET,
            f"the lifetime budget of this party is {budget.words}, and {len(jobs)} jobs have been "
            f"admitted: at Renyi order {order:g} they cost {math.fsum(before):.4g} of "
            f"{budget.limit:.4g}, and this one would add {after - math.fsum(before):.4g}. "
            "Ask for a smaller epsilon, or another party.",
        )

    def _divergence(self, event: DpEvent) -> float:
        return renyi_divergence(event, self._budget.renyi_order, self._budget.relation)

    def _filter(self) -> dict[str, Any]:
        budget = self._budget
        return {
            "order": budget.renyi_order,
            "delta": budget.delta,
            "unit": str(budget.unit),
            "relation": str(budget.relation),
        }

    def _append(self, job: AdmittedJob) -> None:
        fields = {
            "key": job.key,
            "name": job.name,
            "event": to_json(job.event),
            "filter": self._filter(),
        }
        new = not self._path.exists()
        raw = (json.dumps(fields, sort_keys=True) + "\n").encode()
        with open(self._path, "a+b", buffering=0) as file:
            content = file.seek(0, os.SEEK_END)
            if content:
                file.seek(0)
                kept = file.read().rfind(b"\n") + 1
                os.ftruncate(file.fileno(), kept)
            if file.write(raw) != len(raw):
                raise OSError("the disk took a part of the line only")
            if self._durable:
                os.fsync(file.fileno())
        if new and self._durable:
            sync_directory(self._path.parent)


class WithinPlan:
    """The rule for each charge of a job: it belongs to the plan that the job was admitted with.

    The ledger of a party calls it (`ledger.LifetimeFilter`)."""

    def __init__(self, book: LifetimeBook, job: AdmittedJob) -> None:
        self._book, self._job = book, job
        self._planned = flatten(job.event)
        self._forget()

    def _forget(self) -> None:
        self._seen = 0  # entries, which a ledger only appends
        self._charged: dict[str, Counter[str]] = {}  # by job

    def check(self, entries: Sequence[Entry], event: DpEvent) -> None:
        """Refuse a charge beyond the job's plan, or to a ledger that the book does not cover.

        The ledger is signed and the book is not: a book that lacks a job of the ledger, or holds it
        at a lower price than was charged, was damaged, and would make room for further jobs.

        Raises:
            Refused: The charge would exceed the plan, or the book does not cover the ledger.
        """
        if len(entries) < self._seen:
            self._forget()
        new = [entry for entry in entries[self._seen :] if entry.kind == CHARGE]
        charged = {job: Counter(events) for job, events in self._charged.items()}
        for entry in new:
            charged.setdefault(entry.job, Counter()).update(flatten(from_json(entry.event)))
        if any(entry.job != self._job.name for entry in new):
            planned = {job.name: flatten(job.event) for job in self._book.jobs()}
            planned[self._job.name] = self._planned
            if not all(events <= planned.get(job, Counter()) for job, events in charged.items()):
                text = "this party's book of admitted jobs lacks jobs of its ledger, or their cost."
                raise Refused(Refusal.LEDGER, text)
        self._charged, self._seen = charged, len(entries)
        if not charged.get(self._job.name, Counter()) + flatten(event) <= self._planned:
            raise Refused(
                Refusal.BUDGET,
                "this request would charge more than the plan that its job was admitted with: a "
                "party answers what was planned, and repetitions of it.",
            )


def together(events: list[DpEvent], budget: LifetimeBudget) -> float:
    """Epsilon of several jobs whose parameters depend on no release (non-adaptive composition).

    The number for worlds that were planned at once; a filter's number is larger."""
    return epsilon(composed(events), budget.delta, Accounting.PLD, budget.relation)
