"""Names of types, and what stands behind `auto`."""

from __future__ import annotations

import pytest
import torch

from fedsynth.nn import compute_dtype as arithmetic
from fedsynth.nn.compute_dtype import compute_type


@pytest.fixture(autouse=True)
def _forgotten():
    arithmetic._has_bfloat16.cache_clear()
    yield
    arithmetic._has_bfloat16.cache_clear()


def test_names_stand_for_types() -> None:
    assert compute_type("float32") is None
    assert compute_type("bfloat16") is torch.bfloat16
    assert compute_type("auto", "meta") is None


@pytest.mark.parametrize("supported", [True, False])
def test_auto_is_bfloat16_only_where_there_are_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    for name in arithmetic._SUPPORTED:
        monkeypatch.setattr(torch.cpu, name, lambda: supported, raising=False)
    assert compute_type("auto") is (torch.bfloat16 if supported else None)


def test_auto_is_float32_where_torch_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in arithmetic._SUPPORTED:
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert compute_type("auto") is None
