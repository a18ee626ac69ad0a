"""Plain gradients by hand-written layers against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedsynth.models.classifiers import make_convnet
from fedsynth.models.gradients import loss_and_gradients


def _models() -> list[nn.Module]:
    norm = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.AvgPool2d(4))
    pooled = nn.Sequential(nn.Conv2d(1, 6, 3), nn.MaxPool2d(4))
    return [
        make_convnet(6, (1, 28, 28), 10, 0),
        nn.Sequential(norm, nn.Flatten(), nn.Linear(216, 10)),
        nn.Sequential(pooled, nn.Flatten(), nn.Linear(216, 10)),
    ]


@pytest.mark.parametrize("model", _models())
def test_equals_automatic_differentiation(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(21, 1, 28, 28, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 10, (21,), generator=generator)
    model.double()
    loss, found = loss_and_gradients(model, images, labels, chunk=8)
    expected_loss = F.cross_entropy(model(images), labels)
    expected = torch.autograd.grad(expected_loss, list(model.parameters()))
    assert torch.allclose(loss, expected_loss.detach())
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    model.float()
    _, coarse = loss_and_gradients(model, images.float(), labels, compute=torch.bfloat16)
    norm = torch.cat([g.flatten() for g in expected]).norm()
    off = torch.cat([(a - b).flatten() for a, b in zip(coarse, expected, strict=True)]).norm()
    assert off < 0.1 * norm
