"""The gate of a party: nothing computed from private records leaves except through a mechanism.

`Guard.apply` composes every mechanism in one place: it charges the ledger, opens the private value,
evaluates the mechanism, which enforces its own sensitivity, and only then adds noise. A method can
neither forget to pay nor promise a bound that it does not keep.

Where the party's plan says `without_noise`, mechanisms bound their values as ever, no noise is
added, and each use is charged as a disclosure: no finite budget pays for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from dp_accounting import DpEvent

from fedsynth.core.device import CPU, moved
from fedsynth.core.enums import NoisePlacement, Unit
from fedsynth.core.messages import Arrays, Release, Request, Scalars
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, PartyPlan, View
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import disclosed, without_noise
from fedsynth.privacy.answered_sums import AnsweredSums
from fedsynth.privacy.charging import Charger
from fedsynth.privacy.grid import FixedPointGrid, add_noise, noised, place_all
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.noise import NoiseKey, Streams
from fedsynth.privacy.party_data import PartyData, open_for_guard
from fedsynth.privacy.secagg.distributed_noise import add_share

D = TypeVar("D")


class Guard:
    """Applies mechanisms for one party while it answers one request."""

    def __init__(
        self,
        *,
        plan: PartyPlan,
        stage: int,
        ledger: Ledger,
        key: NoiseKey,
        request_digest: str,
        data_fingerprint: str,
        device: torch.device | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        self._plan = plan
        self._unit = Unit(ledger.budget.unit)
        self._charger = Charger(
            plan=plan,
            stage=stage,
            ledger=ledger,
            key=key,
            request_digest=request_digest,
            data_fingerprint=data_fingerprint,
        )
        self._only_in_sum = False
        self.noise_seconds = 0.0  # spent on noise so far

    def apply(
        self,
        mechanism: Mechanism[D, Any],
        data: D,
        *,
        call: int = 0,
        noise_at: NoisePlacement = NoisePlacement.PARTY,
    ) -> list[torch.Tensor]:
        """Charge one use of a mechanism, evaluate it and add its noise, in this order.

        Args:
            mechanism: The mechanism, with its noise multiplier.
            data: The data that the mechanism selects from: the party's records or vote counts.
            call: The number of this use within the answer. Two uses must differ in it.
            noise_at: Where the noise is added. PARTY adds all of it here. AGGREGATE leaves it to a
                trusted aggregator (`CentralNoise`): the result, whole numbers on the grid of
                the sensitivity, is not private towards the aggregator, and the charge counts for
                the public view only. DISTRIBUTED adds this
                party's share on a grid of whole numbers (`secagg.distributed_noise`): the charge
                counts for those who see only the sum over parties.

        Returns:
            The mechanism's values with as much of their noise as this party adds.

        Raises:
            BudgetExceeded: The budget does not allow this use. Nothing was computed.
            PermissionError: The use was not reserved, or its number was used before.
        """
        event, noise_multiplier = mechanism.event(self._unit), mechanism.noise_multiplier
        view = self._view(noise_at)
        if self._plan.without_noise:
            event, noise_multiplier = without_noise(event), 0.0
        streams = self._charger.charge_call(event, call, view)
        value = open_for_guard(mechanism.select(data))
        bounded = mechanism.evaluate(value, streams, self.device)
        start = time.monotonic()
        noised_values = self._add_noise(
            bounded, noise_multiplier=noise_multiplier, noise_at=noise_at, streams=streams
        )
        self.noise_seconds += time.monotonic() - start
        return noised_values

    @contextmanager
    def reserve(self, event: DpEvent, times: int, name: str = "release") -> Iterator[None]:
        """Charge `times` uses of `event` with one ledger entry.

        Inside, every mechanism must cost exactly `event` and carry its number `call` in
        0..times-1, each at most once.
        """
        if self._plan.without_noise:
            event = without_noise(event)
        with self._charger.reserve(event, times, name):
            yield

    def disclose(self, private: PartyData) -> Records:
        """Open all records, for non-private references only: the ledger records an infinite cost,
        which every report shows."""
        self._charger.charge(disclosed(), "disclosure")
        return open_for_guard(private.records)

    def release(self, payload: SyntheticSet | Arrays, scalars: Scalars | None = None) -> Release:
        """A release of results of this guard's mechanisms, or of a set computed from them, with
        the ledger entries that paid. The ledger records the hash of what leaves.

        Raises:
            PermissionError: No mechanism was used in this answer.
            LedgerConflict: The request was answered with other values before.
        """
        if not self._charger.entries:
            raise PermissionError("nothing was charged for this release: use a mechanism first")
        arrays = payload.to_arrays() if isinstance(payload, SyntheticSet) else payload
        on_cpu = moved([value.detach() for value in arrays.values()], torch.device(CPU))
        ready = {name: v.contiguous() for name, v in zip(arrays, on_cpu, strict=True)}
        entries, public = tuple(self._charger.entries), dict(scalars or {})
        release = Release(self._plan.party, ready, entries, public, self._only_in_sum)
        self._charger.record_release(release.payload_hash())
        return release

    def acknowledge(self) -> Release:
        """An empty release: the requested work is done and its result stays at the party."""
        return Release(self._plan.party, {}, ())

    def _view(self, noise_at: NoisePlacement) -> View:
        """The view for which a mechanism is charged whose noise is added there."""
        if self._plan.without_noise:
            return SERVER_VIEW
        return {
            NoisePlacement.PARTY: SERVER_VIEW,
            NoisePlacement.AGGREGATE: PUBLIC_VIEW,
            NoisePlacement.DISTRIBUTED: View.of_sum(self._plan.shares),
        }[noise_at]

    def _add_noise(
        self,
        bounded: BoundedValues,
        *,
        noise_multiplier: float,
        noise_at: NoisePlacement,
        streams: Streams,
    ) -> list[torch.Tensor]:
        """The values with as much of their noise as this party adds."""
        values, sensitivity = bounded.values, bounded.sensitivity
        if noise_at == NoisePlacement.PARTY:
            return noised(
                values,
                sensitivity=sensitivity,
                noise_multiplier=noise_multiplier,
                stream=streams("noise"),
            )
        self._only_in_sum |= noise_at == NoisePlacement.DISTRIBUTED
        if noise_at == NoisePlacement.AGGREGATE or self._plan.without_noise:
            grid = FixedPointGrid.of(sensitivity, sum(value.numel() for value in values))
            return place_all(values, grid)
        return add_share(
            values,
            sensitivity=sensitivity,
            noise_multiplier=noise_multiplier,
            shares=self._plan.shares,
            stream=streams("noise"),
        )


class CentralNoise:
    """The noise of a trusted aggregator, drawn once on the sum over the parties of a stage."""

    def __init__(
        self,
        key: NoiseKey,
        stage: int,
        job: str,
        answered: AnsweredSums,
        *,
        without_noise: bool = False,
    ) -> None:
        """The noise of one stage of a job.

        Args:
            key: The noise key of the aggregator.
            stage: The stage.
            job: Text of everything that the sums depend on.
            answered: The sums that were answered before.
            without_noise: Whether the plan says that none is added.
        """
        self._key, self._stage, self._job, self._answered = key, stage, job, answered
        self._without_noise = without_noise

    def add(
        self,
        sums: Sequence[torch.Tensor],
        *,
        sensitivity: float,
        noise_multiplier: float,
        request: Request,
    ) -> list[torch.Tensor]:
        """Sums of what parties placed on the grid of `sensitivity`, plus Gaussian noise, float32.

        The noise is keyed by the job with all its settings, the stage and the request that these
        sums answer, so that different sums never share their noise.

        Raises:
            PermissionError: The request was answered with other sums before, perhaps by a process
                that is gone.
        """
        digest = request.digest()
        arrays = {str(position): value for position, value in enumerate(sums)}
        scalars = {"sensitivity": sensitivity, "noise_multiplier": noise_multiplier}
        answer = Request("noise", arrays=arrays, scalars=scalars).digest()
        self._answered.record(digest, self._key.fingerprint(bytes.fromhex(answer)))
        grid = FixedPointGrid.of(sensitivity, sum(value.numel() for value in sums))
        stream = self._key.stream("aggregate", self._job, self._stage, digest)
        noise_multiplier *= not self._without_noise
        noisy = add_noise(sums, grid, noise_multiplier=noise_multiplier, stream=stream)
        return [grid.read(value) for value in noisy]
