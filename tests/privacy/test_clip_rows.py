"""Rows scaled down to a bound, whatever they hold."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsynth.privacy.clipping import clip_rows, row_norms


@given(
    values=st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=5),
    bound=st.floats(1e-3, 1e3),
)
@example(values=[[0.0, 0.0, 1.0]], bound=1.001)
@settings(max_examples=60, deadline=None)
def test_clip_rows_bounds_every_row(values: list[list[float]], bound: float) -> None:
    rows = torch.tensor(values, dtype=torch.float32)
    clipped = clip_rows(rows, bound)
    assert (row_norms(clipped) <= bound).all()
    for row, result in zip(rows.double(), clipped.double(), strict=True):
        if not row.isfinite().all():
            assert torch.equal(result, torch.zeros(3, dtype=torch.float64))
        elif float(row.norm()) <= 0.999 * bound:
            assert torch.equal(result, row)
        else:
            factor = min(1.0, bound / float(row.norm()))
            assert torch.allclose(result, row * factor, rtol=1e-5, atol=1e-30)
