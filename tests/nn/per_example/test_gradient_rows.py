"""Materialised gradients and outer products agree in norms, weighted sums and dropped records."""

from __future__ import annotations

import torch

from fedsynth.nn.per_example.gradient_rows import Dense, OuterProduct, row_squares


def test_outer_products_are_the_gradients_they_stand_for() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, width, generator=generator) for width in (3, 4))
    outer = OuterProduct(left.clone(), right.clone())
    dense = Dense(left[:, :, None] * right[:, None, :])
    factors = torch.rand(5, generator=generator)
    torch.testing.assert_close(outer.squares(), dense.squares())
    torch.testing.assert_close(outer.weighted_sum(factors), dense.weighted_sum(factors))


def test_a_dropped_record_contributes_nothing_even_if_not_finite() -> None:
    left, right = torch.ones(3, 2), torch.ones(3, 2)
    left[1, 0] = torch.nan
    dropped = torch.tensor([False, True, False])
    for rows in (Dense(left[:, :, None] * right[:, None, :]), OuterProduct(left, right)):
        rows.drop(dropped)
        torch.testing.assert_close(rows.squares(), torch.tensor([4.0, 0.0, 4.0]))
        assert torch.equal(rows.weighted_sum(torch.ones(3)), torch.full((2, 2), 2.0))


def test_squares_of_long_rows_are_added_up_without_losing_digits() -> None:
    """PyTorch's own norm of such a row is 6e-4 too small."""
    rows = torch.full((2, 3, 100_000), 1.7)
    exact = 100_000 * torch.tensor(1.7).double().square()
    assert (row_squares(rows).double() / exact - 1).abs().max() < 2.0**-19
    assert (Dense(rows).squares().double() / (3 * exact) - 1).abs().max() < 2.0**-19


def test_a_short_factor_does_not_hide_a_long_one() -> None:
    """1e-23 squared is no float32 number, and the gradient is 1e-4."""
    outer = OuterProduct(torch.full((1, 2), 1e-23), torch.full((1, 3), 1e19))
    assert abs(float(outer.squares()) / 6e-8 - 1) < 1e-5
