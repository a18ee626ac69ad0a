"""Materialised gradients and outer products agree in norms, weighted sums and dropped records."""

from __future__ import annotations

import torch

from fedsynth.nn.per_example.gradient_rows import Dense, OuterProduct


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
