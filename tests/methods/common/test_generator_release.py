"""Released generators: weights as one vector, and each party's part of the images."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.generator_release import (
    drawn_set,
    held_classes,
    load_state_vector,
    state_vector,
)

DATA = DatasetInfo("tiny", (1, 1, 2), 6, (0.5,), (0.25,))
PARTIES = (PartyInfo(0, 9, {5: 4, 2: 5}), PartyInfo(1, 4, {5: 4}))
PLAN = Plan("tiny", Stage(DATA, 0, 1, PARTIES, (2, 5), (2, 5)), Budget(1.0, 1e-5), ())


class Net(nn.Module):
    """A generator whose images are the class indices."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, latents, labels):
        assert latents.shape == (len(labels), 3)
        return (self.scale * labels.float().unsqueeze(1)).expand(-1, 2).view(-1, 1, 1, 2)


def test_weights_and_buffers_survive_the_way_through_a_vector():
    one, other = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
    one(torch.randn(8, 3))  # moves the buffers
    load_state_vector(other, state_vector(one))
    for name, value in one.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_parties_share_a_class_equally_and_labels_are_the_classes():
    drawn = drawn_set(Net(), PLAN, 0, 5, lambda count: torch.zeros(count, 3))
    assert Counter(drawn.labels.tolist()) == {2: 5, 5: 3}  # a half of five, rounded up
    assert drawn.images[drawn.labels == 5].unique().tolist() == [1.0]


def test_held_classes_come_with_their_indices():
    held, table = held_classes(PLAN, 0)
    assert held == [2, 5]
    assert table.tolist() == [-1, -1, 0, -1, -1, 1]
