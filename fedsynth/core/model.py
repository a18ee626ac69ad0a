"""The words of the house: what a method is told, what it promises and what it hands over.

Nothing here computes. A method is one class with five attributes and three functions (`Method`);
everything else in this file is the vocabulary those functions share. The rooms behind it:
`privacy.guard` makes releases, `engine` carries them, `evaluation` judges what came out.
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedsynth.privacy.guard import AggregateNoise, Guard
    from fedsynth.privacy.party_data import Private

Numbers = Mapping[str, int | float | str | bool]
Arrays = Mapping[str, torch.Tensor]
Shapes = Mapping[str, Sequence[int]]  # of arrays, by name


RECORD, USER = UNITS = ("record", "user")  # what is protected; a user: all that one party holds


@dataclass(frozen=True)
class Budget:
    """What one party may spend over the whole run, and in which words it is counted."""

    epsilon: float
    delta: float
    unit: str = RECORD
    relation: str = "add_remove"
    accounting: str = (
        "pld"  # what noise is calibrated to: pld, rdp, or paper (published convention)
    )


IMAGE, TABLE = "image", "table"  # the kinds of data


@dataclass(frozen=True)
class Column:
    """One column of a table as everybody may know it: its categories, or the range of its numbers,
    from the literature and never from the data at hand."""

    name: str
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()  # in the order of their codes; empty: a number
    whole: bool = False  # a number without a fraction


@dataclass(frozen=True)
class DataFacts:
    """What is public about a data set: its shape, its classes and the constants that scale it.

    A table is a set of records of shape (columns, 1, 1), one channel a column, whose values
    `data.tables` maps to [0, 1] and back. So whatever reads numbers and not neighbourhoods needs
    to know nothing of it."""

    name: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    mean: tuple[float, ...]  # of pixels in [0, 1], one a channel, from the literature
    std: tuple[float, ...]
    kind: str = IMAGE
    columns: tuple[Column, ...] = ()  # of a table


@dataclass(frozen=True)
class PartyFacts:
    """What is public about one party before it has released anything."""

    party: int
    records: int
    class_counts: Mapping[int, int]  # classes the party says it holds, with their counts


@dataclass(frozen=True)
class Task:
    """One stage of a scenario as everybody may know it."""

    data: DataFacts
    stage: int
    stages: int
    parties: tuple[PartyFacts, ...]  # the parties asked in this stage
    classes: tuple[int, ...]  # classes of this stage, in the scenario's order
    seen: tuple[int, ...]  # classes of this and all earlier stages, in order


@dataclass(frozen=True)
class Work:
    """A unit of computation that is repeated, for time estimates: see `engine.estimate`."""

    # "gradient" (private, clipped), "match" (synthetic step), "train" (plain SGD step),
    # "scattering" (the transform), or "teachers" (a round of DataLens's)
    kind: str
    width: int  # of the ConvNet; hidden units of a teacher
    batch: int  # records, or teachers
    times: int


@dataclass(frozen=True)
class PartyPlan:
    """What one party will do and spend in one stage; known before any data is read."""

    party: int
    records: int
    event: DpEvent  # everything this party will charge in this stage
    sampling_rate: float = 1.0
    steps: int = 1
    noise_multiplier: float = 0.0
    shares: int = 1  # with distributed noise: of how many equal parts of it each party adds one
    views: Mapping[str, DpEvent] = field(default_factory=dict)  # who looks -> what they can count
    paper_event: DpEvent | None = None  # the published count, where it differs from `event`
    bytes_up: int = 0
    bytes_down: int = 0
    work: tuple[Work, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The public plan of one stage: rounds of ask-and-answer and every party's share."""

    method: str
    task: Task
    budget: Budget
    parties: tuple[PartyPlan, ...]
    rounds: int = 1
    images: int | None = None  # in the outcome, where bytes and settings do not tell
    curator_work: tuple[Work, ...] = ()
    assumes: tuple[str, ...] = ()  # facts treated as public that a careful reader should know
    cautions: tuple[str, ...] = ()  # what is allowed and still deserves a word

    def of(self, party: int) -> PartyPlan:
        """The share of one party."""
        return self._by_party[0][party]

    def facts(self, party: int) -> PartyFacts:
        """The public facts of one party."""
        return self._by_party[1][party]

    @functools.cached_property
    def _by_party(self) -> tuple[dict[int, PartyPlan], dict[int, PartyFacts]]:
        return {s.party: s for s in self.parties}, {f.party: f for f in self.task.parties}


@dataclass(frozen=True)
class Request:
    """What the curator asks of a party: a kind, a round number and public arrays."""

    kind: str = "release"
    round: int = 0
    arrays: Arrays = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 of everything asked: equal requests have equal digests, others do not."""
        sha = hashlib.sha256(repr((self.kind, self.round, sorted(self.numbers.items()))).encode())
        for name, value in sorted(self.arrays.items()):
            raw = value.detach().cpu().contiguous()
            sha.update(repr((name, str(raw.dtype), tuple(raw.shape))).encode())
            sha.update(raw.numpy().tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class Release:
    """The only thing that leaves a party. Made by `Guard.release`, which stamps it with the ledger
    entries that paid for it; a ClientApp refuses to send anything else."""

    party: int
    arrays: Arrays
    entries: tuple[str, ...]  # hashes of the ledger entries behind these arrays
    numbers: Numbers = field(default_factory=dict)
    only_in_sum: bool = False  # it holds a share of the noise only: nobody may see it by itself


@dataclass(frozen=True)
class PartySum:
    """The sum of what parties answered: all that the curator ever learns of their answers."""

    arrays: Arrays
    parties: tuple[int, ...]  # whose answers are in it


@dataclass(frozen=True)
class SyntheticSet:
    """Images, or rows of a table, that a receiver may train on. Pixel scale: 0 is black and 1 is
    white; values may lie outside, because a private image is whatever the noise made it. Real
    images, which only a non-private reference hands over, stay bytes (0 to 255)."""

    images: torch.Tensor  # float32 or uint8 [n, c, h, w]
    labels: torch.Tensor  # int64 [n], class names of the data set
    soft: torch.Tensor | None = None  # float32 [n, classes of the data set]: label probabilities
    raw: bool = False  # these are records as they were, which only a non-private reference may say

    def pixels(self) -> torch.Tensor:
        """The images in pixel scale, float32."""
        return self.images / 255 if self.images.dtype == torch.uint8 else self.images

    @staticmethod
    def join(sets: Sequence[SyntheticSet]) -> SyntheticSet:
        """All images of several sets, in order; soft labels where all sets have them."""
        soft = [s.soft for s in sets if s.soft is not None]
        return SyntheticSet(
            torch.cat([s.images for s in sets]),
            torch.cat([s.labels for s in sets]),
            torch.cat(soft) if len(soft) == len(sets) else None,
            any(s.raw for s in sets),
        )


@dataclass(frozen=True)
class ReleasedModel:
    """A private classifier over all classes of the data set: what a relay hands on."""

    state: Arrays
    width: int


Outcome = SyntheticSet | ReleasedModel


class Parties(Protocol):
    """The parties of one stage as the curator sees them: it can ask, and nothing else."""

    who: tuple[int, ...]
    inherited: tuple[Outcome, ...]  # all outcomes of the stages before, for methods that inherit
    seed: int
    device: torch.device  # the curator's own
    aggregate: AggregateNoise  # the trusted curator's noise, for methods that put it there

    def ask(
        self,
        who: Sequence[int],
        request: Request,
        *,
        allow_missing: bool = False,
        shapes: Shapes | None = None,
    ) -> list[Release]:
        """Ask these parties at once; answers come in the order of `who`. An error reply raises.

        Every answer must be finite and of the same form as the others; with `shapes`, it must hold
        just these arrays in these shapes. With `allow_missing` parties that were killed or hang are
        left out (`Release.party` says who answered) and not asked again in this stage."""

    def ask_sum(
        self,
        who: Sequence[int],
        request: Request,
        *,
        shapes: Shapes,
        bound: float,
        at_least: int,
    ) -> PartySum:
        """Ask these parties for one mechanism with noise in shares, each for its arrays of these
        shapes and this bound on a record, and learn their sum only. Parties that are gone are left
        out as with `ask`; fewer than `at_least` answers, the shares the noise is made of, end it
        without a sum."""

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Yield 0..n-1, saving `state` now and then; after a crash, go on from what was saved.
        Values of `state` are tensors, numbers or objects with `state_dict`; change it in place."""


class Method(ABC):
    """One way to release. Drop a file with a subclass into `methods/` and it is found.

    `Config` is a frozen dataclass; its fields are the command line's keys (`psg.spc=20`), its
    defaults are the published setting. `presets` change them for smoke, laptop and paper runs.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    paper_convention: ClassVar[str] = "rdp_improved"  # how its authors count: privacy.accounting
    units: ClassVar[tuple[str, ...]] = (RECORD,)  # what it can protect
    private: ClassVar[bool] = True  # False: a reference that discloses and costs infinity
    kinds: ClassVar[tuple[str, ...]] = (IMAGE,)  # of data it can release
    keeps_state: ClassVar[bool] = False  # a party's memory is dear to move: one worker answers it
    source: ClassVar[str] = ""  # where it was published

    def unfit(self, data: DataFacts) -> str:
        """Why this method cannot release such data; empty where it can."""
        return "" if data.kind in self.kinds else f"it works on {' or '.join(self.kinds)} data only"

    def inherits(self, cfg: Any) -> bool:
        """Does a stage need the outcome of the stage before? If not, stages run at once."""
        return False

    @abstractmethod
    def plan(self, cfg: Any, task: Task, budget: Budget) -> Plan:
        """Public facts only: rounds, noise, events per party and view, bytes, work."""

    @abstractmethod
    def party(
        self, cfg: Any, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        """Runs inside the ClientApp of one party; returns only what the guard made."""

    @abstractmethod
    def serve(self, cfg: Any, plan: Plan, parties: Parties) -> Outcome:
        """Runs inside the ServerApp: plain code that asks parties and returns the outcome."""
