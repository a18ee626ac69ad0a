"""The public plan of a stage: what each party will do and spend, before any data is read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from dp_accounting import DpEvent

from fedsynth.core.enums import Unit, ViewKind
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage


@dataclass(frozen=True)
class View:
    """An observer of a stage: a privacy event counts for one view and all that see less.

    `text` is the form in ledgers and reports.
    """

    kind: ViewKind
    shares: int = 1  # SUM: every sum holds at least so many shares of the noise
    colluding: int = 0  # COLLUDING: the parties whose noise is known
    label: str = ""  # COMPARISON: the text

    @staticmethod
    def of_sum(shares: int) -> View:
        """The view of a server that receives sums of at least `shares` shares and nothing else."""
        return View(ViewKind.SUM, shares=shares) if shares > 1 else SERVER_VIEW

    @property
    def text(self) -> str:
        """The view in words, as it is stored."""
        match self.kind:
            case ViewKind.SERVER:
                return "server"
            case ViewKind.SUM:
                return f"server that sees sums of {self.shares} or more shares"
            case ViewKind.COLLUDING:
                parties = "party" if self.colluding == 1 else "parties"
                return f"server with {self.colluding} colluding {parties}"
            case ViewKind.PUBLIC:
                return "public"
            case ViewKind.COMPARISON:
                return self.label

    @property
    def description(self) -> str:
        """The view in words, for display."""
        return readable_view(self.text)


def readable_view(stored: str) -> str:
    """A stored view in words: ledgers of earlier versions call the server "curator"."""
    return stored.replace("curator who", "server that").replace("curator", "server")


SERVER_VIEW = View(ViewKind.SERVER)
PUBLIC_VIEW = View(ViewKind.PUBLIC)

# In `Plan.assumes`.
PARTY_CLASS_COUNTS = "the number of records of each class at each party"
RECORD_CLASSES = (
    "the class of each record and its place among its party's records: a record is exchanged for "
    "another one of its class, in its place"
)


@dataclass(frozen=True)
class PartyPlan:
    """One party's part of a plan."""

    party: int
    records: int
    event: DpEvent  # everything that this party will charge in this stage
    sampling_rate: float = 1.0
    steps: int = 1
    noise_multiplier: float = 0.0
    shares: int = 1  # distributed noise: the number of equal shares, of which a party adds one
    views: Mapping[View, DpEvent] = field(default_factory=dict)  # the event that each view counts
    paper_event: DpEvent | None = None  # the published count, where it differs from `event`
    without_noise: bool = False  # the guard adds none, and charges every use as a disclosure
    bytes_up: int = 0
    bytes_down: int = 0
    memory: int = 0  # bytes of the networks that a party keeps in memory between rounds
    cost: tuple[ComputeCost, ...] = ()

    @property
    def budget_view(self) -> View:
        """The view for which the budget holds: the first that counts `event`."""
        return next((v for v, event in self.views.items() if event == self.event), SERVER_VIEW)


@dataclass(frozen=True)
class Plan:
    """The public plan of one stage: rounds of requests, and one part per party."""

    method: str
    stage: Stage
    budget: Budget
    parties: tuple[PartyPlan, ...]
    rounds: int = 1
    images: int | None = None  # in the outcome, where bytes and settings do not tell
    server_cost: tuple[ComputeCost, ...] = ()
    assumes: tuple[str, ...] = ()  # facts treated as public, stated in the report
    warnings: tuple[str, ...] = ()  # shown to the user before the run

    def of(self, party: int) -> PartyPlan:
        """The plan of one party."""
        return self._by_party[0][party]

    def info(self, party: int) -> PartyInfo:
        """The public facts of one party."""
        return self._by_party[1][party]

    def classes_of(self, party: int) -> tuple[int, ...]:
        """The classes that a party declares to hold; under unit "user" parties declare none, and
        it may hold those of the stage. Its records of other classes are ignored."""
        if self.budget.unit == Unit.USER:
            return self.stage.classes
        return tuple(self.info(party).class_counts)

    def random_key(self, seed: object, *more: object) -> tuple[object, ...]:
        """A key of public randomness of this stage, of which `more` names the purpose or party."""
        return seed, self.method, self.stage.index, *more

    @functools.cached_property
    def _by_party(self) -> tuple[dict[int, PartyPlan], dict[int, PartyInfo]]:
        plans = {plan.party: plan for plan in self.parties}
        return plans, {info.party: info for info in self.stage.parties}
