"""The names of number types, and the type that `auto` selects."""

from __future__ import annotations

import pytest
import torch

from fedsynth.nn import compute_dtype
from fedsynth.nn.compute_dtype import compute_type


@pytest.fixture(autouse=True)
def _clear_cache():
    compute_dtype._has_bfloat16.cache_clear()
    yield
    compute_dtype._has_bfloat16.cache_clear()


def test_names_select_types() -> None:
    assert compute_type("float32") is None
    assert compute_type("bfloat16") is torch.bfloat16
    assert compute_type("auto", "meta") is None


@pytest.mark.parametrize("supported", [True, False])
def test_auto_is_bfloat16_where_the_processor_supports_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    for name in compute_dtype._CPU_INSTRUCTIONS:
        monkeypatch.setattr(torch.cpu, name, lambda: supported, raising=False)
    assert compute_type("auto") is (torch.bfloat16 if supported else None)


def test_auto_is_float32_where_torch_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in compute_dtype._CPU_INSTRUCTIONS:
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert compute_type("auto") is None
