"""Maxima of votes against a naive count, and how far a teacher can move them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from guarded import guard
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.accounting.events import from_json, gaussian
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.votes import VoteBounds, VoteCounts, VoteMaxima
from fedsynth.privacy.party_data import Sealed

GROUPS, BINS, IMAGES = 3, 4, 5
RULE = VoteBounds(GROUPS * BINS, GROUPS, 0, 1)


def maxima(path: Path, votes: torch.Tensor, noise: float = 1e-9, call: int = 0) -> torch.Tensor:
    """For votes [teachers, images, groups], each the number of a bin."""
    one_hot = torch.nn.functional.one_hot(votes, BINS).to(torch.int8).flatten(2)
    tally = VoteCounts.count(RULE, IMAGES, [one_hot])
    mechanism = VoteMaxima(groups=GROUPS, noise_multiplier=noise)
    (found,) = guard(path).apply(mechanism, Sealed(tally), call=call)
    return found


def drawn(teachers: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, BINS, (teachers, IMAGES, GROUPS), generator=generator)


@given(st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_maxima_are_those_of_a_naive_count_and_a_teacher_moves_each_by_one(
    tmp_path_factory, teachers, seed
):
    votes, path = drawn(teachers, seed), tmp_path_factory.mktemp("m")
    found = maxima(path, votes)
    for image in range(IMAGES):
        for group in range(GROUPS):
            cast = votes[:, image, group].tolist()
            naive = max(cast.count(each) for each in range(BINS))
            assert found[image, group].item() == pytest.approx(naive, abs=1e-4)
    votes[0] = drawn(1, seed + 1)[0]
    moved = (maxima(path, votes) - found).norm().item()
    assert moved <= math.sqrt(IMAGES * GROUPS) + 1e-3


def test_noise_and_charge(tmp_path):
    votes = drawn(4, 0)
    exact = maxima(tmp_path / "exact", votes)
    noise = torch.stack([maxima(tmp_path, votes, 2.0, call) - exact for call in range(200)])
    assert noise.std().item() == pytest.approx(2.0 * math.sqrt(IMAGES * GROUPS), rel=0.05)
    assert from_json(read_entries(tmp_path / "ledger.jsonl")[0].event) == gaussian(2.0)
