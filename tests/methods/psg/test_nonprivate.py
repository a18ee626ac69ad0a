"""Gradient matching: PSG without clipping and noise."""

from __future__ import annotations

import pytest
import torch
from tiny_runs import released_sets

ALL = {"batch": 1000}  # more than a party has: every record is in every batch


@pytest.mark.usefixtures("no_noise")
def test_gradient_matching_is_psg_without_clipping_and_noise(here, tmp_path):
    """Its mean gradients differ from PSG's sums by a factor, which the distance ignores."""
    _, plain = released_sets("gradient_matching", tmp_path / "plain", here, ALL)
    _, private = released_sets("psg", tmp_path / "private", here, {**ALL, "clip": 1e6})
    for a, b in zip(plain, private, strict=True):
        torch.testing.assert_close(a.images, b.images, rtol=1e-3, atol=1e-3)


def test_an_intermediate_set_is_the_last_of_a_shorter_run(here, tmp_path):
    kept = {"runs": 4, "intermediate": 3}
    _, long = released_sets("gradient_matching", tmp_path / "long", here, kept)
    _, short = released_sets("gradient_matching", tmp_path / "short", here, {"runs": 2})
    for a, b in zip(long, short, strict=True):
        assert len(a.earlier) == 3
        assert not b.earlier
        halfway = sorted(a.earlier)[1]
        assert torch.equal(a.earlier[halfway].images, b.images)
        assert torch.equal(a.earlier[halfway].labels, b.labels)
