"""State files: every type comes back to the bit, damage is noticed, no code is loaded."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedsynth.storage.state_file import (
    DamagedState,
    ObjectState,
    read_state,
    state_from_bytes,
    state_to_bytes,
    write_state,
)

VALUES = {
    "plain": [None, True, -3, 2**70, 0.1, -0.0, math.inf, "text", b"\x00bytes"],
    "nested": {"pair": (1, ("a", [])), 0: {"deep": {}}},
    "order": {"b": 1, "a": 2},
}
TENSORS = [
    torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
    torch.tensor(1.5),
    torch.zeros(0, 3),
    torch.tensor([True, False]),
    torch.randn(5).to(torch.bfloat16),
    torch.tensor([math.nan, math.inf], dtype=torch.float64),
    torch.arange(100, dtype=torch.uint8)[3:8],
]


def test_plain_values_come_back_with_their_types():
    returned = state_from_bytes(state_to_bytes(VALUES))
    assert repr(returned) == repr(VALUES)


@pytest.mark.parametrize("mapped", [False, True])
def test_tensors_come_back_to_the_bit(tmp_path, mapped):
    path = tmp_path / "state"
    write_state(path, TENSORS)
    for tensor, returned in zip(TENSORS, read_state(path, mapped=mapped), strict=True):
        assert returned.dtype == tensor.dtype
        assert returned.shape == tensor.shape
        assert returned.stride() == tensor.stride()
        assert returned.reshape(-1).view(torch.uint8).tolist() == (
            tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
        )
        returned.zero_()  # writable, and the file stays as it is
    assert torch.equal(read_state(path)[0], TENSORS[0])


def test_objects_are_stored_by_their_state():
    model = torch.nn.Linear(2, 1)
    stored = state_from_bytes(state_to_bytes({"model": model}))["model"]
    assert isinstance(stored, ObjectState)
    assert torch.equal(stored.state["weight"], model.weight)


@pytest.mark.parametrize("value", [object(), {"deep": [object()]}, {(1, 2): 0}, {1.5: 0}])
def test_what_is_not_data_is_refused_and_nothing_is_written(tmp_path: Path, value):
    with pytest.raises(TypeError, match="a state file cannot hold it"):
        write_state(tmp_path / "state", value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cut", [0, 10, 200, -1])
def test_a_cut_file_is_damaged(tmp_path, cut):
    (tmp_path / "state").write_bytes(state_to_bytes(TENSORS)[:cut])
    with pytest.raises(DamagedState):
        read_state(tmp_path / "state")


def test_any_changed_byte_is_noticed():
    content = state_to_bytes({"a": torch.zeros(3)})
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 1
        with pytest.raises(DamagedState):
            state_from_bytes(bytes(changed))


def test_a_missing_file_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "state")
