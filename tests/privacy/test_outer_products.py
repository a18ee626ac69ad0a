"""Clipped sums of outer products, against writing every one of them out."""

from __future__ import annotations

import pytest
import torch
from pretend_device import pretended_gpu

from fedsynth.privacy.outer_products import clipped_outer_sum


@pytest.mark.parametrize("stretch", [1.0, 1e12, 1e-25])
@pytest.mark.parametrize("n", [0, 1, 256, 700])
def test_any_number_of_rows_gives_the_naive_sum(n: int, stretch: float) -> None:
    """`stretch` makes every third right side extreme: long rows are clipped, tiny ones are kept."""
    generator = torch.Generator().manual_seed(n)
    left = torch.randn(n, 3, generator=generator)
    right = torch.randn(n, 5, generator=generator)
    right[::3] *= stretch
    left[::3] /= min(stretch, 1.0)
    matrices = left.double()[:, :, None] * right.double()[:, None, :]
    norms = matrices.flatten(1).norm(dim=1)
    expected = (matrices * (0.7 / norms).clamp(max=1)[:, None, None]).sum(0)
    found = clipped_outer_sum(left, right, 0.7)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)


def test_no_row_among_many_exceeds_the_bound_and_none_that_is_not_finite_counts() -> None:
    left, right = torch.randn(600, 2), torch.randn(600, 4)
    for place, length in ((0, 1e30), (299, 1.0), (599, 1e-30)):
        alone = torch.zeros_like(left)
        alone[place] = 3e30 if length < 1 else 3.0
        rows = right.clone()
        rows[place] = length
        assert clipped_outer_sum(alone, rows, 0.5).norm() <= 0.5
    right[[3, 400]] = torch.tensor([float("inf"), float("nan")])[:, None]
    kept = torch.isfinite(right).all(1)
    torch.testing.assert_close(
        clipped_outer_sum(left, right, 0.5),
        clipped_outer_sum(left[kept], right[kept], 0.5),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_gpu_sums_as_the_cpu_and_is_asked_nothing() -> None:
    """Pairs that are not finite, and empty ones, contribute zero there too."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(7, n, generator=generator) for n in (3, 4))
    left[1, 0], right[2, 1], right[3], left[4, 0] = float("nan"), float("inf"), 0.0, 3e38
    right[4] = 3e38
    expected = clipped_outer_sum(left, right, 0.5)
    with pretended_gpu() as gpu:
        found = clipped_outer_sum(left.to("cuda"), right.to("cuda"), 0.5)
        assert gpu.operations
        assert not gpu.syncs
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
