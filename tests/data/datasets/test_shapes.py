"""The synthetic shapes: the same at each call, without duplicates, and learnable."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from fedsynth.data import registry as datasets
from fedsynth.data.datasets import shapes


def test_shapes_are_reproducible_and_without_duplicates():
    first, labels = shapes.shapes("train", None)
    np.random.seed(5)
    torch.manual_seed(5)
    again, same = shapes.shapes("train", None)
    assert (first == again).all()
    assert (labels == same).all()
    every = np.concatenate([first, shapes.shapes("test", None)[0]]).reshape(-1, 28 * 28)
    assert len(np.unique(every, axis=0)) == len(every)


def test_shapes_can_be_learned_but_not_by_the_nearest_mean():
    torch.set_num_threads(1)
    (x, y), (x_test, y_test) = datasets.load("shapes", "train"), datasets.load("shapes", "test")
    x, x_test = x.float() / 255, x_test.float() / 255
    means = torch.stack([x[y == c].mean(0) for c in range(10)])
    nearest = torch.cdist(x_test.flatten(1), means.flatten(1)).argmin(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 5, 2),
            torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10),
        )  # fmt: skip
        optimiser = torch.optim.Adam(net.parameters(), 2e-3)
        for _ in range(6):
            for batch in torch.randperm(len(x)).split(50):
                optimiser.zero_grad()
                functional.cross_entropy(net(x[batch]), y[batch]).backward()
                optimiser.step()
        learned = (net(x_test).argmax(1) == y_test).float().mean().item()
    assert learned > 0.9
    assert (nearest == y_test).float().mean() < learned - 0.05
