"""A generator in training: its steps, its public randomness, and the set drawn from it."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import nn

from fedsynth.methods.common import generator_training
from fedsynth.methods.common.generator_training import LearningGenerator, draw

WEIGHTS = torch.tensor([0.75, 0.25])


class Net(nn.Module):
    """A linear generator of images of two pixels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3 + 2, 2)

    def forward(self, latents, labels):
        return self.layer(torch.cat([latents, nn.functional.one_hot(labels, 2).float()], 1))


def learner(uniform: bool = False) -> LearningGenerator:
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    return LearningGenerator(net, sgd, latent=3, weights=WEIGHTS, key=("key",), uniform=uniform)


def test_gradients_at_images_are_as_good_as_the_loss():
    by_loss, by_gradients = learner(), learner()
    images, _ = by_loss.batch(4, 8)
    by_loss.descend(images.square().sum())
    images, _ = by_gradients.batch(4, 8)
    by_gradients.descend_gradients(images, 2 * images.detach())
    for a, b in zip(by_loss.net.parameters(), by_gradients.net.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(by_loss.net.layer.weight, Net().layer.weight)


def test_a_batch_depends_on_its_number_and_nothing_else():
    one = learner()
    (first, labels), (again, _), (other, _) = (one.batch(n, 8) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    given, same = one.batch(1, labels)
    assert torch.equal(labels, same)
    assert given.shape == (8, 2)


def test_a_set_follows_the_class_weights_and_leaves_no_class_out():
    drawn = learner().sample((7, 4), 10)
    assert Counter(drawn.labels.tolist()) == {7: 15, 4: 5}
    one = LearningGenerator(
        Net(), torch.optim.SGD([torch.zeros(1)], 0.1), latent=3, weights=torch.tensor([1.0, 0.0]),
        key=("key",),
    )  # fmt: skip
    assert Counter(one.sample((7, 4), 10).labels.tolist()) == {7: 20, 4: 1}


def test_records_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    net, latents, labels = Net(), torch.randn(10, 3), torch.arange(10) % 2
    whole = draw(net, latents, labels)
    monkeypatch.setattr(generator_training, "DRAW_BATCH", 3)
    torch.testing.assert_close(draw(net, latents, labels), whole)
    torch.testing.assert_close(draw(net, latents, labels, lambda part: 2 * part), 2 * whole)


def test_uniform_latents_stay_within_one():
    uniform = copy.deepcopy(learner(uniform=True))
    latents = uniform._draw(500, 3, torch.Generator().manual_seed(0))
    assert 0.9 < float(latents.max()) <= 1
    assert -1 <= float(latents.min()) < -0.9
