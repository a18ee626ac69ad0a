"""Worst-case canaries for every mechanism: records that move it by all that its claim allows.

Each case is a tiny party, a canary and a mechanism at it. In `direction` cases the known records
push the result one way and the canary pushes it the other way, each by twenty times what the
mechanism lets through: the canary moves the honest result by exactly its sensitivity, a mean of
private size by twice that, and an unclipped one by more. In `zeros` cases the result is zero
without the canary, and the canary moves every number a little: what least bits show. In `sampled`
cases the canary is alone and sampled, in `colluding` cases the server knows the noise of the other
parties. With the relation replace_one the canary comes in place of a known record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.errors import unknown
from fedsynth.data.records import Records
from fedsynth.privacy.mechanisms.base import Mechanism
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.mechanisms.marginals import MarginalCounts, PairDistances
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum, SecondMoments
from fedsynth.privacy.mechanisms.sample_function import SampleFunction
from fedsynth.privacy.mechanisms.sums import ClassSums, RecordSum
from fedsynth.privacy.mechanisms.upstream_gradients import UpstreamGradients
from fedsynth.privacy.mechanisms.votes import VoteBounds, VoteCounts, VoteMaxima, VoteSums
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.sparsification import Sparsification
from fedsynth.privacy.subsets import Subset

KNOWN = 16  # records of the party without the canary
LARGE = 20.0  # times the bound: what a contribution would be without clipping
MANY = 4000  # numbers of a result whose bits are looked at
SAMPLED = 0.1  # sampling rate
IMAGES = 3  # of upstream gradients and of votes

Row = Callable[[Tensor], Tensor]
"""Maps the brightness of records, [n, 1] and 0 or 1, to rows [n, width]; canaries are bright."""
Built = tuple[Mechanism[Any, Any], Any]
Builder = Callable[["Shape", float, PartyData], Built]


@dataclass(frozen=True)
class Shape:
    """What a contribution looks like, and how often records are sampled."""

    row: Row
    width: int
    sampling_rate: float = 1.0


@dataclass(frozen=True)
class Case:
    """A mechanism at a party, and the attack for which its canary is made."""

    mechanism: str
    attack: str  # direction, zeros, sampled or colluding
    shape: Shape
    known: int
    builder: Builder
    noise_at: NoisePlacement = NoisePlacement.PARTY
    colluding: int = 0  # parties that tell the server their shares of the noise
    numbers: tuple[int, ...] | None = None  # of the canaries that are present, where there are many

    @property
    def name(self) -> str:
        """The mechanism and the attack."""
        return f"{self.mechanism}, {self.attack}"

    @property
    def records(self) -> Records:
        """The records without the canary: black images of class 1, or of these brightnesses."""
        if self.numbers is None:
            return _images(self.known, 0)
        images = _images(len(self.numbers), 0)
        for image, number in zip(images.images, self.numbers, strict=True):
            image.view(-1)[:] = torch.tensor([min(255, max(0, number - 255 * i)) for i in range(4)])
        return images

    @property
    def canary(self) -> Records:
        """The canary: a white image of class 1."""
        return _images(1, 255)

    @property
    def replaced(self) -> Records:
        """The record in whose place the canary comes, with the relation replace_one: black."""
        return _images(1, 0)

    def build(self, noise_multiplier: float, private: PartyData) -> Built:
        """The mechanism, and the data that it is applied to."""
        return self.builder(self.shape, noise_multiplier, private)


def _images(n: int, value: int) -> Records:
    return Records(
        torch.full((n, 1, 2, 2), value, dtype=torch.uint8), torch.ones(n, dtype=torch.int64)
    )


def _bright(pixels: Tensor) -> Tensor:
    return pixels.flatten(1).mean(1, keepdim=True)


def _direction(width: int = 1) -> Shape:
    first = torch.eye(1, width)
    return Shape(lambda bright: (1 - 2 * bright) * LARGE * first, width)


_ZEROS = Shape(lambda bright: bright.expand(-1, MANY) * (0.999 / math.sqrt(MANY)), MANY)
_ALONE = Shape(lambda bright: (2 * bright - 1) * LARGE, 1, SAMPLED)


def _clipped_sum(
    make: Callable[..., Mechanism[Any, Any]], rates: Callable[[float], Mapping[str, Any]]
) -> Builder:
    """A sum of clipped rows, made by `make` with what `rates` says of the sampling rate."""

    def build(shape: Shape, noise: float, private: PartyData) -> Built:
        made = make(
            contribution=lambda pixels, _: shape.row(_bright(pixels)),
            width=shape.width,
            clip=1.0,
            noise_multiplier=noise,
            **rates(shape.sampling_rate),
        )
        return made, private

    return build


_class_sums = _clipped_sum(ClassSums, lambda rate: {"sampling_rates": {0: rate, 1: rate}})
_record_sum = _clipped_sum(RecordSum, lambda rate: {"sampling_rate": rate})


def _gradients(sparsification: Sparsification | None) -> Builder:
    def build(shape: Shape, noise: float, private: PartyData) -> Built:
        model = nn.Linear(shape.width, 1, bias=False)
        made = ClippedGradientSum(
            model=model,
            inputs=lambda pixels, _: shape.row(_bright(pixels)),
            loss=lambda outputs, _: outputs[:, 0],
            clip=1.0,
            noise_multiplier=noise,
            sampling_rate=shape.sampling_rate,
            sparsification=sparsification,
        )
        return made, private

    return build


def _outer_products(shape: Shape, noise: float, private: PartyData) -> Built:
    def factors(records: Records) -> tuple[Tensor, Tensor]:
        bright = _bright(records.pixels())
        return torch.ones_like(bright), shape.row(bright)

    made = OuterProductSum(
        factors=private.records.map(factors),
        shape=(1, shape.width),
        clip=1.0,
        noise_multiplier=noise,
    )
    return made, private


def _second_moments(_shape: Shape, noise: float, private: PartyData) -> Built:
    """A matrix cannot point the other way: the canary has another one."""

    def rows(records: Records) -> tuple[Tensor, Tensor]:
        bright = _bright(records.pixels())
        return torch.cat([1 - bright, bright], dim=1) * LARGE, records.labels

    made = SecondMoments(
        rows=private.records.map(rows), width=2, groups=2, clip=1.0, noise_multiplier=noise
    )
    return made, private


def _sample_function(shape: Shape, noise: float, private: PartyData) -> Built:
    """The whole result turns round where the canary is in the sample."""

    def turned(pixels: Tensor, _: Tensor) -> Tensor:
        return shape.row(_bright(pixels).amax(0, keepdim=True))[0]

    def alone(pixels: Tensor, labels: Tensor) -> Tensor:
        return turned(pixels, labels) if len(pixels) else torch.full((1,), -LARGE)

    made = SampleFunction(
        function=alone if shape.sampling_rate < 1 else turned,
        shape=(shape.width,),
        clip=1.0,
        noise_multiplier=noise,
        sampling_rate=shape.sampling_rate,
    )
    return made, private


def _upstream(shape: Shape, noise: float, private: PartyData) -> Built:
    def gradients(records: Records) -> Tensor:
        return shape.row(_bright(records.pixels()).amax(0, keepdim=True)).repeat(IMAGES, 1)

    made = UpstreamGradients(
        gradients=gradients,
        subset=Subset("audit", 0, 1),
        shape=(IMAGES, shape.width),
        clip=1.0,
        noise_multiplier=noise,
    )
    return made, private


def _brightness_code(pixels: Tensor, _: Tensor) -> Tensor:
    """Far outside of its column where the canary is: cells 0 and 1 after clamping."""
    return (_bright(pixels) * 2 * LARGE - LARGE).long()


def _marginal_counts(_shape: Shape, noise: float, private: PartyData) -> Built:
    made = MarginalCounts(
        codes=_brightness_code, sizes=(2,), tables=((0,), (0,)), noise_multiplier=noise
    )
    return made, private


def _pair_distances(_shape: Shape, noise: float, private: PartyData) -> Built:
    """More black records are expected than there are, and no bright one: the canary, and the
    black record that it replaces, are each one more count of distance."""
    made = PairDistances(
        codes=_brightness_code,
        sizes=(2,),
        tables=((0,), (0,)),
        expected=(torch.tensor([2 * KNOWN, 0]),) * 2,
        noise_multiplier=noise,
    )
    return made, private


_BOUNDS = VoteBounds(width=4, entries=4)


def _votes(maxima: bool, size: int) -> Builder:
    """One teacher, all of whose votes turn round with the canary; `size` above 1 breaks the
    bounds."""

    def build(_shape: Shape, noise: float, private: PartyData) -> Built:
        def count(records: Records) -> VoteCounts:
            sign = 1 - 2 * int(_bright(records.pixels()).amax())
            ballots = torch.full((1, IMAGES, 4), sign * size, dtype=torch.int8)
            return VoteCounts.count(_BOUNDS, IMAGES, [ballots])

        counts = private.records.map(count)
        if maxima:
            return VoteMaxima(
                noise_multiplier=noise, bounds=_BOUNDS, images=IMAGES, groups=2
            ), counts
        return VoteSums(noise_multiplier=noise, bounds=_BOUNDS, images=IMAGES), counts

    return build


def _sums(name: str, builder: Builder, **named: Any) -> list[Case]:
    return [
        Case(name, "direction", _direction(), KNOWN, builder, **named),
        Case(name, "zeros", _ZEROS, 0, builder, **named),
    ]


def _sampled(name: str, builder: Builder) -> list[Case]:
    return [*_sums(name, builder), Case(name, "sampled", _ALONE, 0, builder)]


def _of_votes(name: str, maxima: bool) -> list[Case]:
    return [
        Case(name, "direction", _direction(), KNOWN, _votes(maxima, 1)),
        Case(name, "out of bounds", _direction(), KNOWN, _votes(maxima, int(LARGE))),
    ]


_SPARSE = Sparsification("dimension", 0.5)
CASES: tuple[Case, ...] = (
    *_sampled("class_sums", _class_sums),
    *_sampled("record_sum", _record_sum),
    *_sampled("gradients", _gradients(None)),
    Case("sparse_gradients", "direction", _direction(4), KNOWN, _gradients(_SPARSE)),
    *_sums("outer_products", _outer_products),
    Case("second_moments", "direction", _direction(2), KNOWN, _second_moments),
    *_sampled("sample_function", _sample_function)[::2],
    Case("upstream_gradients", "direction", _direction(), KNOWN, _upstream),
    Case("marginal_counts", "direction", _direction(), KNOWN, _marginal_counts),
    Case("pair_distances", "direction", _direction(), KNOWN, _pair_distances),
    *_of_votes("vote_sums", maxima=False),
    *_of_votes("vote_maxima", maxima=True),
    *_sums("aggregated_sum", _record_sum, noise_at=NoisePlacement.AGGREGATE),
    *_sums("shared_sum", _record_sum, noise_at=NoisePlacement.DISTRIBUTED),
    Case(
        "shared_sum",
        "colluding",
        _direction(),
        KNOWN,
        _record_sum,
        NoisePlacement.DISTRIBUTED,
        colluding=1,
    ),
)

MOST_CANARIES = 1000  # that differ in their brightness, the sum of four pixels
_MANY: Mapping[str, Builder] = {
    "class_sums": _class_sums,
    "record_sum": _record_sum,
    "gradients": _gradients(None),
    "outer_products": _outer_products,
}
WITH_MANY_CANARIES = tuple(_MANY)


def many_canaries(mechanism: str, present: Sequence[int]) -> Case:
    """A party whose records are the canaries with these numbers, each of which moves one number of
    the result by twenty times the bound, if nothing clips it."""

    def row(bright: Tensor) -> Tensor:
        numbers = (bright[:, 0] * 4 * 255).round().long()
        return LARGE * nn.functional.one_hot(numbers, MOST_CANARIES).float()

    shape = Shape(row, MOST_CANARIES)
    builder = _MANY[mechanism]
    return Case(mechanism, "many canaries", shape, len(present), builder, numbers=tuple(present))


MECHANISMS = tuple(dict.fromkeys(case.mechanism for case in CASES))


def cases_of(mechanism: str) -> tuple[Case, ...]:
    """The cases of a mechanism.

    Raises:
        UserError: There is no such mechanism.
    """
    if mechanism not in MECHANISMS:
        raise unknown("mechanism", mechanism, MECHANISMS)
    return tuple(case for case in CASES if case.mechanism == mechanism)
