"""The server's side of secure aggregation: the neighbour graph, and shares that do not fit."""

from __future__ import annotations

import os

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.privacy.secagg.masking import flat, mask_of, unflat
from fedsynth.privacy.secagg.server import NeighbourGraph, unmasked
from fedsynth.privacy.secagg.sharing import create_shares


@pytest.mark.parametrize("count", [2, 5, 20, 21, 100])
def test_neighbours_are_mutual_and_a_majority_opens(count):
    near = NeighbourGraph.choose(range(count), count, numpy_generator(1, "test"))
    sizes = {len(others) for others in near.of.values()}
    assert len(sizes) == 1
    (size,) = sizes
    assert size == count if count <= 20 else 10 < size < count
    assert size / 2 < near.threshold <= size
    assert all(p in near.of[q] for p, others in near.of.items() for q in others)


def test_the_graph_depends_on_its_key_and_not_on_the_order_of_the_parties():
    def graph(parties, *key) -> NeighbourGraph:
        return NeighbourGraph.choose(parties, 30, numpy_generator(*key))

    parties = list(range(40))
    assert graph(parties, 1) == graph(parties[::-1], 1)
    assert graph(parties, 1) != graph(parties, 2)


def own_masks_only(threshold: int) -> tuple[dict, dict, dict]:
    """Three parties under their own masks alone: numbers, masked numbers and all seeds' shares."""
    numbers = {p: {"a": torch.tensor([p, -5, 10**p])} for p in range(3)}
    seeds = {p: os.urandom(32) for p in numbers}
    shares = {p: create_shares(seeds[p], threshold, 3) for p in numbers}
    masked = {p: unflat(flat(a) + mask_of(seeds[p], 3), a) for p, a in numbers.items()}
    given = {q: {p: (True, shares[p][q]) for p in numbers} for q in numbers}
    return numbers, masked, given


def test_own_masks_come_off_with_the_shares_of_a_majority():
    numbers, masked, given = own_masks_only(2)
    near = NeighbourGraph(dict.fromkeys(range(3), (0, 1, 2)), 2)
    total = unmasked(masked, {q: given[q] for q in (0, 2)}, [], {}, near)
    assert torch.equal(total["a"], sum(n["a"] for n in numbers.values()))
    with pytest.raises(UserError, match=r"party 0 cannot be taken off .* 1 of its neighbours"):
        unmasked(masked, {1: given[1]}, [], {}, near)


def test_the_share_of_a_key_does_not_stand_in_for_that_of_a_seed():
    _, masked, given = own_masks_only(2)
    near = NeighbourGraph(dict.fromkeys(range(3), (0, 1, 2)), 2)
    keys = {q: {p: (False, share) for p, (_, share) in given[q].items()} for q in (0, 1)}
    with pytest.raises(UserError, match="0 of its neighbours"):
        unmasked(masked, keys, [], {}, near)
