"""Arrays of a request: other forms are refused with the code `request`, before any record."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.messages import Request
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.common.request_arrays import earlier_set

DATA = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.5,))
HONEST = {"images": torch.rand(5, 1, 4, 4), "labels": torch.arange(5) % 3}


def test_an_earlier_set_is_read() -> None:
    read = earlier_set(DATA, Request(arrays=HONEST))
    assert read is not None
    assert torch.equal(read.images, HONEST["images"])
    assert earlier_set(DATA, Request()) is None
    pixels = {**HONEST, "images": torch.zeros(5, 1, 4, 4, dtype=torch.uint8)}
    soft = {**HONEST, "soft": torch.full((5, 3), 1 / 3)}
    for arrays in (pixels, soft):
        assert earlier_set(DATA, Request(arrays=arrays)) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": torch.tensor([0, 1, 2, 0, 3])},
        {"labels": torch.tensor([0, 1, 2, 0, -1])},
        {"labels": torch.arange(4)},
        {"labels": torch.zeros(5)},
        {"images": torch.rand(5, 1, 4, 5)},
        {"images": torch.rand(5, 1, 4, 4).double()},
        {"images": torch.full((5, 1, 4, 4), torch.nan)},
        {"images": torch.full((5, 1, 4, 4), torch.inf)},
        {"soft": torch.rand(5, 4)},
        {"extra": torch.rand(5)},
    ],
    ids=str,
)
def test_other_arrays_are_refused_as_requests(changes: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Refused) as caught:
        earlier_set(DATA, Request(arrays={**HONEST, **changes}))
    assert caught.value.code is Refusal.REQUEST


@pytest.mark.parametrize("name", ["images", "labels"])
def test_a_missing_array_is_named(name: str) -> None:
    arrays = {key: value for key, value in HONEST.items() if key != name}
    with pytest.raises(Refused, match=name):
        earlier_set(DATA, Request(arrays=arrays))


def test_a_missing_value_is_named() -> None:
    with pytest.raises(Refused, match="the request 'teach' names no seed"):
        Request("teach").scalar("seed")
    assert Request("teach", scalars={"seed": 3}).scalar("seed") == 3
