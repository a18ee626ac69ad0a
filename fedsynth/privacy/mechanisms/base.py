"""The contract of a Gaussian mechanism: its event, its values before noise, their sensitivity.

A mechanism is a frozen description. `Guard.apply` is the only caller of `evaluate`: it charges the
ledger first, opens the private value, evaluates, and adds noise that is scaled to the sensitivity
which `evaluate` states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import PartyData, Sealed

D = TypeVar("D")
V = TypeVar("V")


@dataclass(frozen=True)
class BoundedValues:
    """Values before noise.

    Claim: neighbouring data sets move all `values` together by at most `sensitivity` in L2. It may
    depend on public facts only, such as the shapes of the values.
    """

    values: list[Tensor]
    sensitivity: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism(ABC, Generic[D, V]):
    """A Gaussian mechanism on data of type `D`, which selects a private value of type `V`.

    Its noise has the standard deviation `noise_multiplier` times the sensitivity in every number.
    """

    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD,)  # those whose influence it bounds

    noise_multiplier: float

    def event(self, unit: Unit) -> DpEvent:
        """The privacy event of one use, for one unit of privacy.

        Raises:
            UserError: The mechanism does not bound what one such unit changes.
        """
        if unit not in self.units:
            raise UserError(
                f"unit={unit}: {type(self).__name__} bounds what one "
                f"{' or one '.join(self.units)} changes, and a {unit} may hold any number of them."
            )
        return self.unit_event(unit)

    @abstractmethod
    def unit_event(self, unit: Unit) -> DpEvent:
        """The privacy event of one use, for one of `units`."""

    @abstractmethod
    def select(self, data: D) -> Sealed[V]:
        """The private value that `evaluate` works on, still sealed."""

    @abstractmethod
    def evaluate(self, value: V, streams: Streams, device: torch.device) -> BoundedValues:
        """The values before noise, with the sensitivity that this method itself enforces.

        Args:
            value: The opened private value.
            streams: Secret random streams by purpose, for example "sample".
            device: The device of the party's computations.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledMechanism(Mechanism[PartyData, Records]):
    """A mechanism on a Poisson sample of all records of a party."""

    sampling_rate: float

    def unit_event(self, unit: Unit) -> DpEvent:
        return poisson(self.sampling_rate, gaussian(self.noise_multiplier))

    def select(self, data: PartyData) -> Sealed[Records]:
        return data.records

    def sample(self, records: Records, streams: Streams) -> Tensor:
        """The indices of a Poisson sample of the records."""
        return streams("sample").poisson_sample(len(records.labels), self.sampling_rate)
