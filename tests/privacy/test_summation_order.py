"""Sums of 300,000 records in an order that is chosen so that the rounding of totals adds up.

The attack: in every chunk, one record tips the rounding of a float32 total up in one world and down
in the other, which is the same list without its first record, so that every chunk is shifted by
one. A float32 total then moves by many times the bound of a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsynth.data.records import Records
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum, SecondMoments
from fedsynth.privacy.mechanisms.sums import ClassSums, RecordSum
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.sparsification import Sparsification

RECORDS = 300_000
CLIP = 1.0
TIP = 2.0**-12  # by which a chunk's sum differs between the worlds
KEY = NoiseKey.from_seed(5, "party 0")


pytestmark = pytest.mark.usefixtures("one_thread")


def tipping(records: int, chunk: int) -> Tensor:
    """Numbers below the clip. The sum of each chunk lies a little above the middle between two
    float32 numbers between 2^17 and 2^18; without the first number, a little below it."""
    values = torch.full((records,), 0.875, dtype=torch.float64)
    chunks = torch.arange(records // chunk + 1)
    firsts = 0.8125 - chunks % 1024 * TIP
    middle = (2 * round((0.875 * (chunk - 2) + 1.3125) * 64) + 1) / 128
    seconds = middle + TIP / 2 - 0.875 * (chunk - 2) - firsts
    values[::chunk] = firsts[: len(values[::chunk])]
    values[1::chunk] = seconds[: len(values[1::chunk])]
    assert 0 < float(values.min()) <= float(values.max()) < 0.9 * CLIP
    assert torch.equal(values.float().double(), values)
    return values


def float32_total(values: Tensor, chunk: int) -> float:
    """The former way: chunks added up in float32."""
    total = np.float32(0)
    for part in values.split(chunk):
        total = np.float32(total + np.float32(part.sum().item()))
    return float(total)


def numbered(records: int) -> Records:
    """Records that hold nothing but their number, in three bytes."""
    number = torch.arange(records)
    digits = torch.stack([number >> 16, number >> 8 & 255, number & 255], dim=1)
    return Records(digits.to(torch.uint8).view(records, 1, 1, 3), torch.zeros(records).long())


def without(records: Records, position: int) -> Records:
    kept = torch.arange(len(records.labels)) != position
    return Records(records.images[kept], records.labels[kept])


def values_of(values: Tensor) -> Callable[[Tensor], Tensor]:
    """The number of each record, by the pixels of this record alone."""

    def of(pixels: Tensor) -> Tensor:
        digits = (pixels.flatten(1) * 255).round().long()
        return values[digits @ torch.tensor([1 << 16, 1 << 8, 1])].float()[:, None]

    return of


class Twofold(nn.Module):
    """No chain of layers, so that the general way takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 0 * x


def evaluated(mechanism: Any, value: Any) -> tuple[Tensor, float]:
    """The numbers that the noise is added to, on their grid, and the bound it is scaled to."""
    bounded = mechanism.evaluate(value, KEY.stream, torch.device("cpu"))
    grid = FixedPointGrid.of(bounded.sensitivity, sum(v.numel() for v in bounded.values))
    placed = torch.cat([grid.place(v).flatten() for v in bounded.values])
    return placed.double() * grid.step, grid.bound


def gradients(values: Tensor, model: nn.Module, **more: Any) -> Callable[[Records], Any]:
    of = values_of(values)
    mechanism = ClippedGradientSum(
        model=model,
        inputs=lambda pixels, _: of(pixels),
        loss=lambda outputs, _: outputs.squeeze(1),
        clip=CLIP,
        noise_multiplier=1.0,
        sampling_rate=1.0,
        **more,
    )
    return lambda records: evaluated(mechanism, records)


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False))


def sums(values: Tensor, kind: type) -> Callable[[Records], Any]:
    of = values_of(values)
    rates: dict[str, Any] = (
        {"sampling_rates": {0: 1.0}} if kind is ClassSums else {"sampling_rate": 1.0}
    )
    mechanism = kind(
        contribution=lambda pixels, _: of(pixels), width=1, clip=CLIP, noise_multiplier=1.0, **rates
    )
    return lambda records: evaluated(mechanism, records)


def outer(values: Tensor, kind: type) -> Callable[[Records], Any]:
    of = values_of(values)

    def run(records: Records) -> Any:
        rows = of(records.pixels())
        if kind is OuterProductSum:
            mechanism: Any = OuterProductSum(
                factors=None, shape=(1, 1), clip=CLIP, noise_multiplier=1.0
            )
            return evaluated(mechanism, (records, (rows, torch.ones_like(rows))))
        mechanism = SecondMoments(rows=None, width=1, groups=1, clip=CLIP, noise_multiplier=1.0)
        return evaluated(mechanism, (records, (rows.double().sqrt(), records.labels)))

    return run


WAYS: dict[str, tuple[int, Callable[[Tensor], Callable[[Records], Any]], float]] = {
    "per class": (2048, lambda v: sums(v, ClassSums), 1.0001),
    "all records": (2048, lambda v: sums(v, RecordSum), 1.0001),
    "outer products": (256, lambda v: outer(v, OuterProductSum), 1.0001),
    "second moments": (256, lambda v: outer(v, SecondMoments), 1.0001),
    "gradients by layers": (256, lambda v: gradients(v, linear()), 1 + 2.0**-9),
    "gradients by vmap": (32, lambda v: gradients(v, Twofold()), 1 + 2.0**-9),
    "sparse gradients": (
        32,
        lambda v: gradients(v, linear(), sparsification=Sparsification("dimension", 1.0)),
        1.0001,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_order_of_many_records_makes_one_move_a_sum_by_more_than_its_bound(way):
    chunk, make, limit = WAYS[way]
    values = tipping(RECORDS, chunk)
    run, data = make(values), numbered(RECORDS)
    whole, bound = run(data)
    assert float(whole) == pytest.approx(float(values.sum()), rel=2.0**-10 / 1000)
    for position in (0, RECORDS // 2 + 1, RECORDS - 1) if chunk > 32 else (0,):
        rest, _ = run(without(data, position))
        moved = abs(float(whole - rest))
        assert moved <= min(bound, limit * CLIP)
        assert moved == pytest.approx(float(values[position]), abs=2.0**-9 * CLIP)


@pytest.mark.parametrize("chunk", [32, 256, 2048])
def test_the_attack_finds_totals_in_float32(chunk):
    values = tipping(RECORDS, chunk)
    moved = abs(float32_total(values, chunk) - float32_total(values[1:], chunk))
    assert moved > 1.5 * CLIP


@pytest.mark.parametrize("records", [256, 1800, 16_384, 16_385, 60_000])
def test_gradients_of_any_number_of_records_are_added_up(records):
    """Of more than 16,384 records none may be added up in float32, and all are still added up."""
    values = torch.full((records,), 0.7, dtype=torch.float64)
    run, data = gradients(values, linear()), numbered(records)
    (whole, bound), (rest, _) = run(data), run(without(data, 0))
    assert float(whole) == pytest.approx(0.7 * records, abs=2.0**-10)
    assert abs(float(whole - rest)) <= bound
