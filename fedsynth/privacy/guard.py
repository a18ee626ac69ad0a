"""The gate of a party: the mechanisms that turn private into public, and nothing else does.

Every mechanism states its sensitivity for the add/remove relation on records, enforces it itself
(by clipping what the method's own code computes), charges the ledger, and only then draws noise.
A method cannot forget to pay and cannot promise a bound it does not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from fedsynth.core.messages import Arrays, Numbers, Release, Request
from fedsynth.core.plan import PartyPlan
from fedsynth.data.normalization import Normalizer
from fedsynth.nn.per_example.gradients import Loss
from fedsynth.privacy.accounting.events import disclosed, gaussian, poisson
from fedsynth.privacy.charging import CURATOR, PUBLIC, Charger
from fedsynth.privacy.clipping import clip_rows, clipped_gradient_sum
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanisms.loss_gradients import LossGradientMechanisms
from fedsynth.privacy.mechanisms.sample_function import SampleFunctionMechanisms
from fedsynth.privacy.mechanisms.second_moments import OuterSumMechanisms
from fedsynth.privacy.mechanisms.sparse_gradients import SparseGradientMechanisms
from fedsynth.privacy.mechanisms.upstream_gradients import ImageGradientMechanisms
from fedsynth.privacy.mechanisms.vote_maxima import VoteMaximumMechanisms
from fedsynth.privacy.mechanisms.votes import VoteMechanisms
from fedsynth.privacy.noise import NoiseKey, NoiseStream
from fedsynth.privacy.outer_products import clipped_outer_sum
from fedsynth.privacy.party_data import PartyData, Records, Sealed, open_for_guard
from fedsynth.privacy.secagg.distributed_noise import add_share, sum_view

PARTY, AGGREGATE, DISTRIBUTED = "party", "aggregate", "distributed"  # who adds the noise

_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 2048, 1 << 25  # records whose rows are held at a time


class Guard(
    ImageGradientMechanisms,
    LossGradientMechanisms,
    OuterSumMechanisms,
    SampleFunctionMechanisms,
    SparseGradientMechanisms,
    VoteMaximumMechanisms,
    VoteMechanisms,
    Charger,
):
    """The mechanisms of one party while it answers one request."""

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
        super().__init__(
            plan=plan,
            stage=stage,
            ledger=ledger,
            key=key,
            request_digest=request_digest,
            data_fingerprint=data_fingerprint,
        )
        self.device = device or torch.device("cpu")
        self._only_in_sum = False

    def noisy_gradient(
        self,
        private: PartyData,
        model: nn.Module,
        scale: Normalizer,
        *,
        clip: float,
        noise_multiplier: float,
        sampling_rate: float,
        call: int = 0,
        dtype: str = "float32",
        loss: str | Loss = "cross_entropy",
        at: str = PARTY,
    ) -> list[torch.Tensor]:
        """Clipped gradient sum of a Poisson sample plus N(0, (noise_multiplier clip)^2).

        Every record enters independently with probability `sampling_rate`; its gradient over all
        parameters is clipped to `clip` in L2, so adding or removing one record moves the sum by at
        most `clip`; `loss` is a function of each record alone. An empty sample releases noise. The
        result is the sum, in the order of `model.parameters()`; divide by a public constant.

        `at="aggregate"` leaves the noise to a trusted curator (`CentralNoise`): what the curator
        receives is not private from the curator, and the charge counts for the public view only.
        `at="distributed"` adds this party's share of the noise, on a grid of whole numbers
        (`privacy.shares`): the charge counts for who sees the sum over parties and nothing else.
        """
        event = poisson(sampling_rate, gaussian(noise_multiplier))
        streams = self._pay(event, call, self._view(at))
        records = open_for_guard(private.records)
        device = next(model.parameters()).device
        chosen = streams("sample").poisson_sample(len(records.labels), sampling_rate)
        images = scale.to_network(records.pixels(chosen)).to(device)
        labels = records.labels[chosen].to(device)
        sums = clipped_gradient_sum(model, images, labels, clip=clip, dtype=dtype, loss=loss)
        return self._noised(at, sums, clip, noise_multiplier, streams)

    def noisy_class_sums(
        self,
        private: PartyData,
        contribution: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        *,
        width: int,
        bound: float,
        noise_multiplier: float,
        rates: Mapping[int, float],
        call: int = 0,
        at: str = PARTY,
    ) -> torch.Tensor:
        """For each class c of `rates`, a sum over a Poisson sample of its records plus noise.

        `contribution` maps pixels [n, c, h, w] in [0, 1] and their class names [n] to one row of
        `width` numbers a record, each a function of its own record alone; rows are clipped to
        `bound` in L2. Records of several classes may come in one call. Classes are disjoint, so one
        record moves one class's sum by at most `bound` (parallel composition under add/remove) and
        the cost is that of the largest rate. A class without records releases noise like any
        other. Returns [len(rates), width]. `at`: as for `noisy_gradient`."""
        event = poisson(max(rates.values()), gaussian(noise_multiplier))
        streams = self._pay(event, call, self._view(at))
        records = open_for_guard(private.records)
        chosen = []
        for name, rate in rates.items():
            mine = torch.nonzero(records.labels == name).flatten()
            chosen.append(mine[streams("sample", name).poisson_sample(len(mine), rate)])
        sums = torch.zeros(len(rates), width, device=self.device)
        for names, rows in self._rows(records, torch.cat(chosen), contribution, width, bound):
            for row, name in enumerate(rates):
                mine = torch.nonzero(names == name).flatten().to(rows.device)
                sums[row] += rows[mine].sum(0)
        return self._noised(at, [sums], bound, noise_multiplier, streams)[0]

    def noisy_sum(
        self,
        private: PartyData,
        contribution: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        *,
        width: int,
        bound: float,
        noise_multiplier: float,
        rate: float,
        call: int = 0,
    ) -> torch.Tensor:
        """As `noisy_class_sums`, but one sum [width] over a Poisson sample of all records."""
        streams = self._pay(poisson(rate, gaussian(noise_multiplier)), call, CURATOR)
        records = open_for_guard(private.records)
        chosen = streams("sample").poisson_sample(len(records.labels), rate)
        total = torch.zeros(width, device=self.device)
        for _, rows in self._rows(records, chosen, contribution, width, bound):
            total += rows.sum(0)
        return add_gaussian([total], bound * noise_multiplier, streams("noise"))[0]

    def _rows(
        self,
        records: Records,
        chosen: torch.Tensor,
        contribution: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        width: int,
        bound: float,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Class names and clipped rows of the chosen records, some at a time."""
        at_once = max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // width))
        for part in chosen.split(at_once) if len(chosen) else ():
            names = records.labels[part]
            rows = contribution(records.pixels(part).to(self.device), names).flatten(1)
            if rows.shape != (len(part), width):
                raise ValueError(f"{len(part)} records must give as many rows of {width} numbers")
            yield names, clip_rows(rows, bound)

    def noisy_outer_sum(
        self,
        private: PartyData,
        factors: Sealed[tuple[torch.Tensor, torch.Tensor]],
        *,
        bound: float,
        noise_multiplier: float,
        call: int = 0,
        at: str = PARTY,
    ) -> torch.Tensor:
        """The sum over all records of left_i (outer) right_i, a matrix [a, b], plus noise: the
        gradient of a linear layer, for one.

        `factors`, mapped from `private.records`, holds left [n, a] and right [n, b], whose rows i
        must be functions of record i alone. A record's matrix is clipped to `bound` in L2, so one
        record moves the sum by at most `bound`. `at`: as for `noisy_gradient`."""
        streams = self._pay(gaussian(noise_multiplier), call, self._view(at))
        left, right = open_for_guard(factors)
        if not len(left) == len(right) == len(open_for_guard(private.records).labels):
            raise ValueError("the factors of an outer sum need exactly one row a record")
        total = clipped_outer_sum(left, right, bound)
        return self._noised(at, [total], bound, noise_multiplier, streams)[0]

    def disclose(self, private: PartyData) -> Records:
        """Open everything. Costs infinity, says so in the ledger and colours every report: for
        non-private references only."""
        self._charge(disclosed(), "disclosure")
        return open_for_guard(private.records)

    def disclose_value(self, sealed: Sealed[torch.Tensor]) -> torch.Tensor:
        """Open one computed value at the cost of infinity: for non-private references only."""
        self._charge(disclosed(), "disclosure")
        return open_for_guard(sealed)

    def release(self, arrays: Arrays, numbers: Numbers | None = None) -> Release:
        """Seal what mechanisms of this guard made, with the ledger entries that paid for it."""
        if not self._entries:
            raise PermissionError("nothing was charged for this release: use a mechanism first")
        ready = {name: value.detach().cpu().contiguous() for name, value in arrays.items()}
        entries, public = tuple(self._entries), dict(numbers or {})
        return Release(self._plan.party, ready, entries, public, self._only_in_sum)

    def _view(self, at: str) -> str:
        """Who can count a mechanism whose noise is added there."""
        distributed = sum_view(self._plan.shares)
        return {PARTY: CURATOR, AGGREGATE: PUBLIC, DISTRIBUTED: distributed}[at]

    def _noised(
        self,
        at: str,
        sums: Sequence[torch.Tensor],
        bound: float,
        multiplier: float,
        streams: Callable[..., NoiseStream],
    ) -> list[torch.Tensor]:
        """The sums with as much of their noise as this party adds."""
        if at == AGGREGATE:
            return list(sums)
        if at == PARTY:
            return add_gaussian(sums, bound * multiplier, streams("noise"))
        self._only_in_sum = True
        return add_share(
            sums,
            bound=bound,
            noise_multiplier=multiplier,
            shares=self._plan.shares,
            stream=streams("noise"),
        )


class CentralNoise:
    """The noise of a trusted curator, drawn once on the sum of what the parties of a stage sent."""

    def __init__(self, key: NoiseKey, stage: int, job: str) -> None:
        self._key, self._stage, self._job = key, stage, job
        self._answered: dict[str, str] = {}  # request -> what its noise was added to

    def add(
        self,
        sums: Sequence[torch.Tensor],
        *,
        clip: float,
        noise_multiplier: float,
        request: Request,
    ) -> list[torch.Tensor]:
        """Sum of clipped contributions plus N(0, (noise_multiplier clip)^2). The noise is keyed by
        the job with all its settings, the stage and the request these sums answer: no other sums
        may ever meet the same noise."""
        std = clip * noise_multiplier
        digest = request.digest()
        arrays = {str(position): value for position, value in enumerate(sums)}
        noised = Request("noise", arrays=arrays, numbers={"std": std}).digest()
        if self._answered.setdefault(digest, noised) != noised:
            raise PermissionError("this request was answered with other sums before: number them")
        return add_gaussian(
            sums, std, self._key.stream("aggregate", self._job, self._stage, digest)
        )


def add_gaussian(
    values: Sequence[torch.Tensor], std: float, stream: NoiseStream
) -> list[torch.Tensor]:
    """values + N(0, std^2), elementwise and independent, in order."""
    return [value + stream.gaussian_like(value, std) for value in values]
