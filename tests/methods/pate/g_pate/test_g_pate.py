"""G-PATE's votes and answers against naive ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.methods.pate.g_pate.config import GPateConfig
from fedsynth.methods.pate.g_pate.g_pate import bin_votes, confident_values, projection


@given(st.integers(0, 1000), st.integers(2, 10), st.floats(0.1, 2.0))
@settings(max_examples=15, deadline=None)
def test_a_vote_selects_the_bin_of_each_clipped_value(seed, bins, stretch):
    cfg = replace(GPateConfig(), bins=bins, clip=0.5, projections=4)
    values = torch.randn((3, 4), generator=torch.Generator().manual_seed(seed)) * stretch
    found = bin_votes(values, cfg).view(3, 4, bins)
    assert (found.sum(-1) == 1).all()
    edges = torch.linspace(-0.5, 0.5, bins + 1)
    for value, vote in zip(values.flatten(), found.view(-1, bins), strict=True):
        place = int(vote.argmax())
        clipped = value.clamp(-0.5, 0.5)
        assert edges[place] - 1e-5 <= clipped <= edges[place + 1] + 1e-5


def test_answers_are_middles_of_the_fullest_bins_where_enough_agree():
    cfg = replace(GPateConfig(), bins=4, clip=2.0, projections=2, threshold=0.5)
    counts = torch.tensor([[1.0, 7.0, 2.0, 0.0, 0.0, 0.0, 3.0, 5.0]])
    found = confident_values(counts, torch.tensor([[7.0, 4.9]]), 10, cfg)
    assert found.tolist() == [[-0.5, 0.0]]
    assert confident_values(counts, torch.tensor([[7.0, 5.0]]), 10, cfg).tolist() == [[-0.5, 1.5]]


def test_projections_differ_per_round_and_are_public():
    one, again, other = (projection(50, 3, "key", number) for number in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)
    assert float(projection(1000, 10, "key").square().sum(1).mean()) == pytest.approx(1, abs=0.05)
