"""The interface of a method: what it plans, what it does at a party, what it does at the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args

import torch
from dp_accounting import DpEvent, SelfComposedDpEvent

from fedsynth.core.enums import DataKind, Relation, Unit
from fedsynth.core.messages import AggregatedSum, Release, Request, Shapes
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.privacy.accounting.events import repeated
from fedsynth.privacy.guard import CentralNoise, Guard
from fedsynth.privacy.party_data import PartyData

C = TypeVar("C")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PartyContext(Generic[C]):
    """The context of a method inside one party while it answers one request.

    `data` is private and stays sealed; a result leaves the party through `guard` only."""

    config: C
    plan: Plan
    data: PartyData
    guard: Guard

    @property
    def party(self) -> int:
        """The number of this party."""
        return self.data.info.party

    @property
    def party_plan(self) -> PartyPlan:
        """This party's part of the plan: its sampling rate, noise and steps."""
        return self.plan.of(self.party)

    @property
    def info(self) -> PartyInfo:
        """The public facts of this party."""
        return self.data.info

    @property
    def dataset(self) -> DatasetInfo:
        """The public facts of the data set."""
        return self.plan.stage.data

    @property
    def device(self) -> torch.device:
        """The device to compute on."""
        return self.guard.device

    def random_key(self, request: Request) -> tuple[object, ...]:
        """The key of this party's public randomness, under the seed that the request names.

        Raises:
            Refused: The request names none.
        """
        return self.plan.random_key(request.scalar("seed"), self.party)


@dataclass(frozen=True)
class ExpectedAnswers:
    """The form in which the answers to a request are accepted.

    Attributes:
        shapes: If given, each release must hold exactly these arrays in these shapes.
        dtype: The type of these arrays.
        allow_missing: Leave out parties that died or hang.
    """

    shapes: Shapes | None = None
    dtype: torch.dtype = torch.float32
    allow_missing: bool = False


@dataclass(frozen=True)
class ExpectedSum:
    """The form in which a sum over parties with distributed noise is accepted.

    Attributes:
        shapes: The arrays that each party answers with.
        bound: The L2 bound on one record's contribution.
        at_least: The number of shares that the noise consists of.
    """

    shapes: Shapes
    bound: float
    at_least: int


class ServerWork(ABC, Generic[C]):
    """The part of the server's context that its computations need; it exists in workers too.

    Attributes:
        config: The method's settings.
        plan: The public plan of the stage.
        seed: The public seed of the run.
        device: The device to compute on.
    """

    config: C
    plan: Plan
    seed: int
    device: torch.device

    @abstractmethod
    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Yield 0..n-1 and checkpoint `state`; after a crash, continue from the checkpoint.

        Values of `state` are tensors, numbers or objects with `state_dict`; change it in place."""

    def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Return `function(work, *arguments)`, computed in a worker where the engine has some.

        Args:
            function: A function or a bound method that can be pickled. It gets the `ServerWork` of
                this stage and reaches no party.
            arguments: Its other arguments.
        """
        return function(self, *arguments)


class ServerContext(ServerWork[C]):
    """The context of a method at the server in one stage; it reaches parties by requests only.

    Attributes:
        parties: The numbers of the parties of this stage.
        inherited: The outcomes of all earlier stages, for methods that build on them.
        central_noise: The noise of a trusted aggregator, for methods that place it there.
    """

    parties: tuple[int, ...]
    inherited: tuple[Outcome, ...]
    central_noise: CentralNoise

    def ask(
        self,
        parties: Sequence[int],
        request: Request,
        *,
        allow_missing: bool = False,
        shapes: Shapes | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> list[Release]:
        """Send a request to these parties at once and wait for their releases.

        Args:
            parties: The parties to ask.
            request: The same request for all.
            allow_missing: Leave out parties that died or hang (`Release.party` names the others)
                and do not ask them again in this stage.
            shapes: If given, each release must hold exactly these arrays in these shapes.
            dtype: The type of these arrays.

        Returns:
            The releases in the order of `parties`. All values are finite, and all releases have
            the same form.

        Raises:
            PartyFailed: A party replied with an error.
            BadReply: A release has another form than the others, or than `shapes`.
        """
        return self.answers(parties, request, ExpectedAnswers(shapes, dtype, allow_missing))

    def ask_sum(
        self,
        parties: Sequence[int],
        request: Request,
        *,
        shapes: Shapes,
        bound: float,
        at_least: int,
    ) -> AggregatedSum:
        """Ask for one mechanism with distributed noise and learn the sum over parties only.

        Args:
            parties: The parties to ask.
            request: The same request for all.
            shapes: The arrays that each party answers with.
            bound: The L2 bound on one record's contribution.
            at_least: The number of shares that the noise consists of.

        Raises:
            PartyLost: Fewer than `at_least` parties answered; there is no sum then.
        """
        return self.sum_of_answers(parties, request, ExpectedSum(shapes, bound, at_least))

    @abstractmethod
    def answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedAnswers
    ) -> list[Release]:
        """Send a request and return the checked releases (see `ask`)."""

    @abstractmethod
    def sum_of_answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedSum
    ) -> AggregatedSum:
        """Send a request and return the sum of the releases (see `ask_sum`)."""


class Method(ABC, Generic[C]):
    """One way to release private data.

    A file with a subclass anywhere below `fedsynth/methods` is found by its `name`, and so is one
    outside the package that `plugin=` or an entry point names. Its settings, the `C` of
    `Method[C]`, are a frozen dataclass: the fields are keys of the command line (`psg.spc=20`), the
    defaults are the published setting, and `presets` change them for smoke and laptop runs.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type]  # the settings; the class between the brackets of `Method[C]`
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    paper_convention: ClassVar[str] = "rdp_improved"  # how its authors count: privacy.accounting
    paper_relation: ClassVar[Relation] = Relation.ADD_REMOVE  # the neighbours of that count
    units: ClassVar[tuple[str, ...]] = (Unit.RECORD,)  # the units of privacy it offers
    private: ClassVar[bool] = True  # False: a reference that discloses records, at infinite cost
    kinds: ClassVar[tuple[str, ...]] = (DataKind.IMAGE,)  # the kinds of data it can release
    keeps_state: ClassVar[bool] = False  # a party's state is costly to move: pin it to one worker
    source: ClassVar[str] = ""  # the publication

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if is_dataclass(argument) and isinstance(argument, type):
                    cls.Config = argument

    def unfit(self, data: DatasetInfo) -> str:
        """The reason why this method cannot release such data; empty if it can."""
        return "" if data.kind in self.kinds else f"it works on {' or '.join(self.kinds)} data only"

    def at_budget(self, cfg: C, stages: Sequence[Stage], budget: Budget) -> C:
        """The settings with values in place of "none" where the published one depends on the
        data set, the number of stages or the budget."""
        return cfg

    def inherits(self, cfg: C) -> bool:
        """True if a stage needs the outcome of the stage before. If not, stages run at once."""
        return False

    @abstractmethod
    def plan(self, cfg: C, stage: Stage, budget: Budget) -> Plan:
        """Plan a stage from public facts only: rounds, noise, privacy events, bytes, time."""

    def event_after(self, cfg: C, plan: Plan, share: PartyPlan, steps: int) -> DpEvent:
        """The privacy event of a party's first private steps; `share.event`, which covers them,
        where it does not consist of so many equal steps."""
        event = share.event
        if isinstance(event, SelfComposedDpEvent) and steps < event.count == share.steps:
            return repeated(event.event, steps)
        return event

    @abstractmethod
    def party(self, ctx: PartyContext[C], request: Request) -> Release:
        """Answer one request inside a party; the release comes from `ctx.guard`."""

    @abstractmethod
    def serve(self, ctx: ServerContext[C]) -> Outcome:
        """Run one stage at the server: ask the parties and return the outcome."""
