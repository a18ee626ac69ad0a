"""A method at small size for an audit: its plan for made data, and runs whose mechanisms are noted.

The session here has neither transport nor checkpoints; parties, guards, ledgers, mechanisms and
noise are those of every run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedsynth.core.enums import DataKind, Unit, ViewKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Arrays, Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import SERVER_VIEW, Plan, View
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.experiment.tiny_settings import AUDITED, tiny_settings
from fedsynth.methods.method import (
    ExpectedAnswers,
    ExpectedSum,
    Method,
    PartyContext,
    ServerContext,
)
from fedsynth.methods.registry import method as find_method
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.parties import AuditedParty, aggregator, audited_party
from fedsynth.privacy.auditing.recording import AllUsed, Recording
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.noise import NoiseKey

RECORDS = 16  # of the audited party without the canary, and of each class at another one
JOINT_PARTIES = 2  # of a method that adds over parties, or protects users
CLASSES = (0, 1)


@dataclass(frozen=True)
class AuditedMethod:
    """A method with tiny settings, its plan for made data, and the records of its parties."""

    method: Method[Any]
    config: Any
    plan: Plan
    natural: Records  # records of class 0 that party 0 may have in both worlds
    others: tuple[Records, ...]  # the records of the other parties

    @staticmethod
    def of(
        name: str,
        budget: Budget,
        settings: Mapping[str, Any] | None = None,
        data: str | None = None,
        parties: int | None = None,
    ) -> AuditedMethod:
        """A method by name.

        Args:
            name: The method.
            budget: The claim, with unit and relation.
            settings: Settings of the method, beside the tiny ones.
            data: A made data set; none: one that fits.
            parties: The number of parties; none: one, or `JOINT_PARTIES` where there must be more.

        Raises:
            UserError: The method is unknown or not private, or cannot release this data or protect
                this unit.
        """
        method = find_method(name)
        if not method.private:
            raise UserError(
                f"method={name} discloses its records, at infinite cost: there is nothing to audit."
            )
        if budget.unit not in method.units:
            raise UserError(f"method={name} protects a {' or a '.join(method.units)} only.")
        if data is None:
            data = "shapes" if DataKind.IMAGE in method.kinds else "made_table"
        info = datasets.find(data).info
        if reason := method.unfit(info):
            raise UserError(f"method={name} cannot release data={data}: {reason}.")
        changes = {**AUDITED.get(name, {}), **(settings or {})}
        config: Any = build(method.Config, tiny_settings(method, changes), name)
        joint = hasattr(config, "noise_at") or budget.unit == Unit.USER
        parties = parties or (JOINT_PARTIES if joint else 1)
        images, labels = datasets.load(data, "train", None)
        natural, *others = _known(Records(images, labels), parties)
        counts = {} if budget.unit == Unit.USER else dict.fromkeys(CLASSES, RECORDS)
        facts = tuple(PartyInfo(party, 2 * RECORDS, counts) for party in range(parties))
        stage = Stage(info, 0, 1, facts, CLASSES, CLASSES)
        plan = method.plan(config, stage, budget)
        audited = AuditedMethod(method, config, plan, natural, tuple(others))
        if not audited.claims:
            raise UserError(f"method={name} claims no finite epsilon with these settings.")
        return audited

    @property
    def claims(self) -> dict[View, Claim]:
        """The events that each observer counts, where these cost something finite."""
        part, budget = self.plan.of(0), self.plan.budget
        views = part.views or {SERVER_VIEW: part.event}
        return {
            view: Claim(event, budget.delta, budget.relation)
            for view, event in views.items()
            if event != disclosed() and view.kind != ViewKind.COMPARISON
        }

    @property
    def samples(self) -> bool:
        """True if mechanisms work on samples of the records."""
        return any(claim.mu is None for claim in self.claims.values())

    def run(self, own: Records, seed: int, recording: Recording) -> Recording:
        """Run the method with these records at party 0, and note its mechanisms."""
        with ExitStack() as stack:
            parties = [
                stack.enter_context(
                    audited_party(
                        records,
                        self.plan.info(number),
                        self.plan.of(number),
                        owner=f"party {number}",
                        noise_seed=seed,
                        unit=self.plan.budget.unit,
                        classes=self.plan.classes_of(number),
                    )
                )
                for number, records in enumerate((own, *self.others))
            ]
            stack.enter_context(recording.running())
            with suppress(AllUsed):
                self.method.serve(_Session(self, parties, recording, seed))
        return recording


class _Session(ServerContext[Any]):
    """The server's side of one run of one stage."""

    def __init__(
        self,
        audited: AuditedMethod,
        parties: Sequence[AuditedParty],
        recording: Recording,
        seed: int,
    ) -> None:
        self.config, self.plan = audited.config, audited.plan
        self.parties = tuple(range(len(parties)))
        self.inherited: tuple[Outcome, ...] = ()
        self.seed, self.device = 0, torch.device("cpu")
        self.central_noise = aggregator(NoiseKey.from_seed(seed, "aggregator"))
        self._turn = threading.RLock()
        self._method, self._sides, self._recording = audited.method, parties, recording

    def answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedAnswers
    ) -> list[Release]:
        """Let these parties answer in turn."""
        with self._turn:  # methods may ask from several threads
            return [self._answer(party, request) for party in parties]

    def sum_of_answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedSum
    ) -> AggregatedSum:
        """Add up the parties' shares."""
        shapes = expected.shapes
        answers = self.answers(parties, request, ExpectedAnswers(shapes))
        sums = [torch.stack([a.arrays[name] for a in answers]).sum(0) for name in shapes]
        grid = FixedPointGrid.of(expected.bound, sum(math.prod(shape) for shape in shapes.values()))
        values = self._recording.reveal(sums, grid)
        return AggregatedSum(dict(zip(shapes, values, strict=True)), tuple(parties))

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Rounds without checkpoints."""
        yield from range(n)

    def _answer(self, party: int, request: Request) -> Release:
        side = self._sides[party]
        guard = side.guard(request.digest())
        context = PartyContext(self.config, self.plan, side.data, guard)
        release = self._method.party(context, replace(request, arrays=_copies(request.arrays)))
        return replace(release, arrays=_copies(release.arrays))


def _copies(arrays: Arrays) -> Arrays:
    """Copies as a transport makes them: neither side can change the other's tensors."""
    return {name: value.detach().clone() for name, value in arrays.items()}


def _known(records: Records, parties: int) -> list[Records]:
    """Records of class 0 for party 0, and of both classes for the others."""
    of_class = [torch.nonzero(records.labels == c).flatten() for c in CLASSES]
    chosen = [of_class[0][:RECORDS]]
    for party in range(1, parties):
        chosen.append(torch.cat([o[party * RECORDS : (party + 1) * RECORDS] for o in of_class]))
    return [Records(records.images[c], records.labels[c]) for c in chosen]
