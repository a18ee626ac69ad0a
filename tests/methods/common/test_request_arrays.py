"""Arrays of a request: other forms are refused with the code `request`, before any record."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.messages import Request
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.common.request_arrays import earlier_set

DATA = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.5,))
HONEST = {"images": torch.full((5, 1, 4, 4), 0.5), "labels": torch.arange(5) % 3}


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
        pytest.param({"labels": torch.tensor([0, 1, 2, 0, 3])}, id="label above the classes"),
        pytest.param({"labels": torch.tensor([0, 1, 2, 0, -1])}, id="label below 0"),
        pytest.param({"labels": torch.arange(4)}, id="labels for fewer images"),
        pytest.param({"labels": torch.zeros(5)}, id="labels that are no integers"),
        pytest.param({"images": torch.zeros(5, 1, 4, 5)}, id="images of another width"),
        pytest.param({"images": torch.zeros(5, 1, 4, 4).double()}, id="images of another type"),
        pytest.param(
            {"images": torch.full((5, 1, 4, 4), torch.nan)}, id="images that are no numbers"
        ),
        pytest.param({"images": torch.full((5, 1, 4, 4), torch.inf)}, id="infinite images"),
        pytest.param({"soft": torch.zeros(5, 4)}, id="probabilities of other classes"),
        pytest.param({"extra": torch.zeros(5)}, id="an array that nothing names"),
    ],
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
